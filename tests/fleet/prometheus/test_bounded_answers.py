from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from dask_efficiency.fleet.prometheus.bounded_answers import AnswerTooSlowError
from dask_efficiency.fleet.prometheus.http_config import HttpConfig
from dask_efficiency.fleet.prometheus.prometheus_query import PrometheusAwayError, PrometheusClient
from dask_efficiency.fleet.prometheus.receivers import NotReceivedError, Webhook
from tests.fleet.prometheus.answering import answering

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
