"""Programs that a deployment starts, and ends again whatever happens."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

#: Where our packages are, for processes that start elsewhere.
ROOT = Path(__file__).resolve().parents[2]

HOST = "127.0.0.1"


def python_path(*folders: Path) -> str:
    """PYTHONPATH with folders in front of our own and of what there was."""
    return os.pathsep.join([*map(str, folders), str(ROOT), os.environ.get("PYTHONPATH", "")]).strip(os.pathsep)


def eventually(condition: Callable[[], Any], *, seconds: float = 60, what: str = "it") -> Any:
    """Wait for what other processes do; gives the condition's value."""
    until = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > until:
            raise TimeoutError(f"waited {seconds:g} s in vain for {what}")
        time.sleep(0.02)
    return value


def free_port() -> int:
    """A port of this machine that nobody listens on now."""
    with socket.socket() as found:
        found.bind((HOST, 0))
        return int(found.getsockname()[1])


@contextmanager
def program(
    command: Sequence[str], log: Path, *, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A program that writes to a log; ended with the block, and its output shown if the block fails."""
    settings = {**os.environ, "PYTHONPATH": python_path(), **(environment or {})}
    with log.open("wb") as file:
        # A group of its own, so that its children can be ended with it.
        started = subprocess.Popen(
            command, env=settings, cwd=log.parent, stdout=file, stderr=file, stdin=subprocess.DEVNULL, process_group=0
        )
    try:
        yield started
    except BaseException:
        print(f"{' '.join(command)}\n{log.read_text(errors='replace')[-3000:]}", file=sys.stderr)
        raise
    finally:
        end(started)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a program, by force if it does not go."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    finally:  # its children
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
