from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest

from dask_efficiency.fleet.prometheus.http_config import HttpConfig
from dask_efficiency.fleet.prometheus.receivers import Command, NotReceivedError, Webhook
from tests.fleet.prometheus.answering import answering

BODY = {"status": "firing", "alerts": []}


def test_a_webhook_gets_json() -> None:
    with answering(lambda path, body: (200, b"ok")) as server:
        Webhook(f"{server.url}/drain").tell(BODY)
    ((path, headers, body),) = server.asked
    assert (path, headers["Content-Type"], json.loads(body)) == ("/drain", "application/json", BODY)


@pytest.mark.parametrize(("status", "shown"), [(500, "500"), (1000, ""), (302, "302")])
def test_a_webhook_that_refuses_answers_nonsense_or_redirects_was_not_reached(status: int, shown: str) -> None:
    with (
        answering(lambda path, body: (200, b"")) as elsewhere,
        answering(lambda path, body: (status, elsewhere.url.encode())) as server,
        pytest.raises(NotReceivedError, match=f"was not reached.*{shown}") as caught,
    ):
        Webhook(f"{server.url}/hooks/T0SECRET?key=SECRET").tell(BODY)
    assert "SECRET" not in str(caught.value)
    assert elsewhere.asked == []


@pytest.mark.parametrize(
    "url",
    [
        *("", "host/SECRET", "file:///etc/SECRET", "\x01http://host/SECRET"),
        *("http://me:SECRET@host/drain", "http://host/SECRET drain", "http://host/SECRET\n"),
    ],
)
def test_a_url_of_no_webhook_or_with_a_password_is_refused_and_not_quoted(url: str) -> None:
    with pytest.raises(ValueError, match="URL of a webhook") as caught:
        Webhook(url)
    assert "SECRET" not in str(caught.value)


def test_a_token_or_a_place_for_files_that_is_gone_is_a_receiver_that_is_tried_again(tmp_path, monkeypatch) -> None:
    token = tmp_path / "token"
    webhook = Webhook("http://127.0.0.1:1/hook", HttpConfig(authorization=token.read_text))
    with pytest.raises(NotReceivedError, match="was not reached: .*token"):
        webhook.tell(BODY)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(NotReceivedError, match="was not reached: .*gone"):
        Command((sys.executable,)).tell(BODY)


def test_a_header_that_cannot_be_sent_is_not_quoted() -> None:
    webhook = Webhook("http://127.0.0.1:1/hook", HttpConfig({"X-Key": "SECRET\nSECRET"}))
    with pytest.raises(NotReceivedError, match="was not reached: ValueError") as caught:
        webhook.tell(BODY)
    assert "SECRET" not in str(caught.value)


def test_a_command_reads_json_and_no_shell_reads_its_arguments(tmp_path: Path) -> None:
    target = tmp_path / "it's $HOME; rm -rf x"
    code = "import sys; open(sys.argv[1], 'w').write(sys.stdin.read())"
    Command((sys.executable, "-c", code, str(target))).tell(BODY)
    assert json.loads(target.read_text()) == BODY


@pytest.mark.parametrize("line", ["", "no-such-program-here SECRET", "python 'SECRET"])
def test_a_command_is_a_line_of_words_and_another_line_is_refused(line: str) -> None:
    found = Command.of(f"{sys.executable} -c 'import sys' 'two words' $HOME ;")
    assert found.arguments == (sys.executable, "-c", "import sys", "two words", "$HOME", ";")
    with pytest.raises(ValueError, match=r"no program|No closing quotation") as caught:
        Command.of(line)
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import sys; sys.stderr.write('no such node'); sys.exit(3)", "ended with status 3: no such node"),
        ("import time; time.sleep(60)", "timed out"),
    ],
)
def test_a_command_that_fails_or_hangs_was_not_reached_and_its_arguments_are_not_quoted(code: str, why: str) -> None:
    command = Command((sys.executable, "-c", code, "SECRET"), timeout_seconds=600.0 if "3" in why else 0.2)
    with pytest.raises(NotReceivedError, match=why) as caught:
        command.tell(BODY)
    assert "SECRET" not in str(caught.value)


#: Starts a process that has its standard error, and writes which.
LEAVES_A_CHILD = """
import pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
pathlib.Path(sys.argv[1]).write_text(str(child.pid))
time.sleep(float(sys.argv[2]))
"""


def test_a_command_that_does_not_read_or_leaves_a_child_has_been_reached(tmp_path: Path) -> None:
    Command((sys.executable, "-c", "pass"), timeout_seconds=600.0).tell({"long": "x" * 10_000_000})
    written = tmp_path / "written"
    Command((sys.executable, "-c", LEAVES_A_CHILD, str(written), "0"), timeout_seconds=300.0).tell(BODY)
    os.kill(int(written.read_text()), signal.SIGKILL)


def test_a_command_that_is_given_up_leaves_no_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written, wait = tmp_path / "written", subprocess.Popen.wait

    def wait_once_it_has_a_child(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        while timeout is not None and not (written.exists() and written.read_text()):
            time.sleep(0.01)
        return wait(process, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", wait_once_it_has_a_child)
    with pytest.raises(NotReceivedError, match="timed out"):
        Command((sys.executable, "-c", LEAVES_A_CHILD, str(written), "600"), timeout_seconds=0.2).tell(BODY)
    pid = int(written.read_text())
    while True:  # killed, and not yet taken away by who has it now
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            break
        if state == "Z":
            break
        time.sleep(0.01)


class Unhurried(HttpConfig):
    """Reads have as long as they like: whether each byte comes in time is not up to the machine."""

    def opener(self) -> urllib.request.OpenerDirector:
        opener = super().opener()
        return SimpleNamespace(open=lambda request, timeout: opener.open(request, timeout=600.0))  # type: ignore[return-value]  # of which it is all that is called


def test_a_webhook_that_answers_byte_by_byte_has_as_long_as_any_other() -> None:
    """Each byte comes in time, and all of them never do."""
    over, others = threading.Event(), []

    def drip(listening: socket.socket) -> None:
        accepted, _ = listening.accept()
        others.append(accepted)
        with contextlib.suppress(OSError):
            while not over.wait(0.05):
                accepted.sendall(b"H")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=drip, args=(listening,))
        thread.start()
        webhook = Webhook(f"http://127.0.0.1:{listening.getsockname()[1]}/", Unhurried(), timeout_seconds=2.0)
        try:
            with pytest.raises(NotReceivedError, match=r"timed out after 2 s"):
                webhook.tell(BODY)
            with pytest.raises(NotReceivedError, match="has not yet answered the last message"):
                webhook.tell(BODY)
        finally:
            over.set()
            thread.join()
            for accepted in others:
                accepted.close()
    assert len(others) == 1
