from __future__ import annotations

import base64
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dask_efficiency.files.text_files import TextFileError
from dask_efficiency.fleet.prometheus.http_config import AnswerTooSlowError, HttpConfig, read_http_config
from dask_efficiency.fleet.prometheus.prometheus_query import PrometheusAwayError, PrometheusClient
from dask_efficiency.fleet.prometheus.receivers import NotReceivedError, Webhook
from tests.fleet.prometheus.answering import answering


def written(folder: Path, text: str) -> str:
    path = folder / "http.yaml"
    path.write_text(text)
    return str(path)


def test_a_password_is_sent_as_basic_auth_with_other_headers(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("open sesame\n")
    headers = "http_headers: {X-Scope-OrgID: {values: [a, b]}}"
    config = read_http_config(written(tmp_path, f"basic_auth: {{username: me, password_file: secret}}\n{headers}"))
    scheme, _, code = config.sent_headers()["Authorization"].partition(" ")
    assert (scheme, base64.b64decode(code)) == ("Basic", b"me:open sesame")
    assert config.sent_headers()["X-Scope-OrgID"] == "a, b"


@pytest.mark.parametrize(
    "text", ["bearer_token_file: token", "authorization: {credentials_file: token}", "authorization: {credentials: t1}"]
)
def test_a_token_is_sent_as_it_is_now(tmp_path: Path, text: str) -> None:
    (tmp_path / "token").write_text("t1")
    config = read_http_config(written(tmp_path, text))
    assert config.sent_headers() == {"Authorization": "Bearer t1"}
    if "file" in text:
        (tmp_path / "token").write_text("t2")
        assert config.sent_headers() == {"Authorization": "Bearer t2"}


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("bearer_token_file: token", "token: expected a password or token on one line"),
        ("basic_auth: {username: me, password_file: token}", "token: expected a password or token on one line"),
        (r'authorization: {credentials: "SECRET\nSECRET"}', "line 1: credentials: expected a password or token on one"),
        (r'http_headers: {X-Key: {values: ["SECRET\nSECRET"]}}', "line 1: 'X-Key' has a value of several lines"),
    ],
)
def test_a_secret_of_several_lines_is_refused_and_not_quoted(tmp_path: Path, text: str, wrong: str) -> None:
    (tmp_path / "token").write_text("SECRET\nSECRET\n")
    with pytest.raises(ValueError, match="line") as caught:
        read_http_config(written(tmp_path, text))
    assert wrong in str(caught.value)
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize(("text", "checked"), [("{insecure_skip_verify: true}", False), ("{}", True)])
def test_certificates_are_checked_unless_that_is_switched_off(tmp_path: Path, text: str, checked: bool) -> None:
    config = read_http_config(written(tmp_path, f"tls_config: {text}"))
    assert config.tls is not None
    assert config.tls.check_hostname is checked


@pytest.mark.parametrize(
    ("text", "error", "wrong"),
    [
        (
            "basic_auth: {}\nbearer_token_file: x",
            TextFileError,
            "line 2: bearer_token_file is given along with ba",
        ),
        ("basic_auth: {username: me}", TextFileError, "expected either password or password_file"),
        (
            "authorization: {credentials: x, credentials_file: y}",
            TextFileError,
            "expected either credentials or c",
        ),
        ("tls_config: {cert_file: x}", TextFileError, "expected cert_file and key_file together"),
        ("proxy: x", TextFileError, "line 1: 'proxy' is unknown here"),
        ("http_headers: {X: {}}", TextFileError, "'X' has no 'values'"),
        *((text, FileNotFoundError, "gone") for text in ("bearer_token_file: gone", "tls_config: {ca_file: gone}")),
        ("basic_auth: {password_file: gone}", FileNotFoundError, "gone"),
    ],
)
def test_an_error_names_its_line_and_a_missing_file_is_one_at_once(tmp_path, text, error, wrong) -> None:
    with pytest.raises(error, match=None if wrong == "gone" else wrong):
        read_http_config(written(tmp_path, text))


TIMEOUT_SECONDS = 0.3

#: Beginnings of answers that go on for ever, and what comes then, a piece each hundredth of a second.
ENDLESS = {
    "body": (b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n{", b" "),
    "error": (b"HTTP/1.1 400 Bad Request\r\nContent-Length: 1000000\r\n\r\n", b" "),
    "status": (b"HTTP/1.1 2", b"0"),
    "header": (b"HTTP/1.1 200 OK\r\nServer: ", b"a"),
    "chunks": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "length of a chunk": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"0"),
}


@contextlib.contextmanager
def dripping(begin: bytes, piece: bytes) -> Iterator[tuple[str, Callable[[], int]]]:
    """A server whose answers go on until the client leaves; its URL, and the number of requests so far."""
    ended = threading.Event()
    requests: list[socket.socket] = []

    def answer(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.recv(1 << 16)
            connection.sendall(begin)
            while not ended.wait(0.01):
                connection.sendall(piece)

    with socket.create_server(("127.0.0.1", 0)) as listening:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    if ended.is_set():
                        connection.close()
                        return
                    requests.append(connection)
                    threading.Thread(target=answer, args=(connection,), daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        port = listening.getsockname()[1]
        try:
            yield f"http://127.0.0.1:{port}", lambda: len(requests)
        finally:
            ended.set()
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port)).close()
            thread.join()


@pytest.mark.parametrize("kind", ENDLESS)
def test_an_answer_that_drips_ends_at_the_deadline_and_is_not_asked_for_again(kind: str) -> None:
    with dripping(*ENDLESS[kind]) as (url, requests):
        client = PrometheusClient(url, timeout_seconds=TIMEOUT_SECONDS, sleep=lambda seconds: None)
        with pytest.raises(PrometheusAwayError, match=r"the answer was not complete after 0\.6 s"):
            client.metric_names()
        assert requests() == 1


def test_a_series_that_drips_ends_at_the_deadline() -> None:
    with dripping(ENDLESS["body"][0] + b'"result":[{"metric":{},"values":[', b"[1,1],") as (url, _):
        client = PrometheusClient(url, timeout_seconds=TIMEOUT_SECONDS)
        with pytest.raises(PrometheusAwayError, match="not complete"):
            client.range_query("up", start=0, stop=10, step_seconds=1, take=lambda series: None)


def test_a_webhooks_answer_that_drips_frees_its_thread() -> None:
    with dripping(*ENDLESS["header"]) as (url, _):
        webhook = Webhook(url, timeout_seconds=TIMEOUT_SECONDS)
        with pytest.raises(NotReceivedError, match="timed out"):
            webhook.tell({})
        (thread,) = webhook._waiting
        thread.join()  # the deadline ends it


def test_a_server_that_says_nothing_has_timed_out_before() -> None:
    with dripping(b"", b"") as (url, _), pytest.raises(TimeoutError) as raised:
        HttpConfig().opener().open(url, timeout=TIMEOUT_SECONDS)
    assert not isinstance(raised.value, AnswerTooSlowError)


@pytest.mark.parametrize("timeout_seconds", [None, 30.0])
def test_an_answer_in_time_is_whole(timeout_seconds: float | None) -> None:
    content = bytes(range(256)) * 5000
    with (
        answering(lambda path, body: (200, content)) as server,
        HttpConfig().opener().open(server.url, timeout=timeout_seconds) as response,
    ):
        assert response.read() == content
