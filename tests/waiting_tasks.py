"""Tasks that wait for one known cause each, and give the marks of their clocks; lines with ``# waits`` wait for it."""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
import socket
import sqlite3
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from distributed import Client, Event

from tests.thread_marks import Mark, Marking

WAITS = "# waits"
MEGABYTE = 1_000_000

#: Shares of the waiting: under the name of the cause built in, at least, and without a name, at most.
MIN_RIGHT, MAX_UNKNOWN = 0.9, 0.1


def marked(function: Callable[..., Any]) -> Callable[..., list[Mark]]:
    """Have tasks give a mark."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> list[Mark]:
        clocks = Marking()
        function(*args, **kwargs)
        return [clocks.read()]

    return run


def waiting_lines(*functions: Callable[..., Any]) -> set[str]:
    """Lines of functions that wait, as ``file.py:88``."""
    found = set()
    for function in map(inspect.unwrap, functions):
        lines, first = inspect.getsourcelines(function)
        name = Path(inspect.getfile(function)).name
        found |= {f"{name}:{first + i}" for i, line in enumerate(lines) if line.rstrip().endswith(WAITS)}
    return found


def marks_of(client: Client, function: Callable[..., list[Mark]], *columns: Any, **options: Any) -> list[Mark]:
    futures = client.map(function, *columns, pure=False, **options)
    return [mark for marks in client.gather(futures) for mark in marks]


@marked
def add_up(numbers: int) -> None:
    total = 0
    for i in range(numbers):  # waits
        total += i  # waits


@marked
def nap(seconds: float) -> None:
    time.sleep(seconds)  # waits


@marked
def ask(port: int) -> None:
    """Asks a server with a time limit: it waits in poll."""
    urlopen(f"http://127.0.0.1:{port}", timeout=30).close()  # waits


@marked
def receive(port: int) -> None:
    """Ask the server through a socket without a time limit: the task waits in recv."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        connection.recv(1000)  # waits


def held_for(seconds: float) -> threading.Lock:
    """A lock that a thread holds which sleeps."""
    lock, held = threading.Lock(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            time.sleep(seconds)

    threading.Thread(target=hold, daemon=True).start()
    held.wait()
    return lock


@marked
def want_lock(seconds: float) -> None:
    """Wants a lock that somebody else has."""
    lock = held_for(seconds)
    with lock:  # waits
        pass


@marked
def begin_transaction(seconds: float) -> None:
    """Wants the lock of a database's file that another connection has: SQLite sleeps, and tries again."""
    with tempfile.TemporaryDirectory() as folder:
        ours, other = (
            sqlite3.connect(os.path.join(folder, "file.db"), timeout=60, isolation_level=None, check_same_thread=False)
            for _ in range(2)
        )
        other.execute("begin immediate")
        timer = threading.Timer(seconds, other.commit)
        timer.start()
        ours.execute("begin immediate")  # waits
        timer.join()
        ours.close()
        other.close()


@marked
def await_event(seconds: float) -> None:
    """Waits for an event of Dask's that nobody sets."""
    Event(f"never-{threading.get_ident()}").wait(timeout=seconds)  # waits


@marked
def run_program(seconds: float) -> None:
    subprocess.run(["sleep", str(seconds)], check=True)  # waits


@marked
def run_program_for_output(seconds: float) -> None:
    """Waits for what a program prints, in poll on pipes."""
    subprocess.run(["sleep", str(seconds)], check=True, capture_output=True)  # waits


@marked
def checksum(megabytes: int, times: int) -> None:
    data = bytes(megabytes * MEGABYTE)
    for _ in range(times):
        hashlib.sha256(data).digest()  # waits


def keep_to(core: int) -> None:
    """Have all threads of this process run on one core."""
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), [core])
