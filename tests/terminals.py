"""Commands on a terminal and in a log, which can be interrupted as people do it."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

#: A command whose progress is shown at once, and that Ctrl-C reaches also where these tests run in the background.
BEGIN = """
import signal
from dask_efficiency.show import progress
progress._TerminalBar.timing = progress._LogLines.timing = 0.0, 0.0
signal.signal(signal.SIGINT, signal.default_int_handler)
from dask_efficiency.cli import main
main()
"""


class Command:
    """A command that runs.

    Parameters
    ----------
    pid
        Its process, which leads a group.
    shown
        Where what it prints is read from: all of it on a terminal, else what it says beside its results.
    keyboard
        Where Ctrl-C is written to; None in a log.
    """

    def __init__(self, pid: int, shown: int, keyboard: int | None = None) -> None:
        self.pid, self.text = pid, ""
        self._shown, self._keyboard = shown, keyboard

    def until(self, pattern: str) -> str:
        """Wait until it has printed something; all that it has printed."""
        while not re.search(pattern, self.text):
            assert self._read(), f"it ended without {pattern!r}: {self.text}"
        return self.text

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        if self._keyboard is None:
            os.killpg(self.pid, signal.SIGINT)
        else:
            os.write(self._keyboard, b"\x03")

    def end(self) -> int:
        """Its exit code; all that it printed is in the text."""
        while self._read():
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def _read(self) -> bool:
        try:
            read = os.read(self._shown, 65536)
        except OSError:  # on Linux, of a terminal that nobody writes to any more
            return False
        self.text += read.decode(errors="replace")
        return bool(read)


@contextmanager
def on_a_terminal(arguments: Sequence[str]) -> Iterator[Command]:
    """Run a command of `dask-efficiency` on a terminal of its own."""
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120"}
    pid, terminal = pty.fork()
    if not pid:
        os.execve(sys.executable, [sys.executable, "-c", BEGIN, *arguments], environment)
    yield from _running(Command(pid, terminal, terminal), terminal)


@contextmanager
def in_a_log(arguments: Sequence[str], stdout: str | os.PathLike[str] = os.devnull) -> Iterator[Command]:
    """Run a command of `dask-efficiency` whose results go to a file, and read what else it says."""
    read, write = os.pipe()
    with open(stdout, "w") as results:
        process = subprocess.Popen(
            [sys.executable, "-c", BEGIN, *arguments], stdout=results, stderr=write, process_group=0
        )
    process.returncode = 0  # it is waited for below
    os.close(write)
    yield from _running(Command(process.pid, read), read)


def _running(command: Command, opened: int) -> Iterator[Command]:
    try:
        yield command
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(command.pid, signal.SIGKILL)
        os.close(opened)
