from __future__ import annotations

import queue
import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from dask_efficiency.accounts.lines import BUILT_IN, Frame
from dask_efficiency.plugin.calls import CallsIntoC
from dask_efficiency.plugin.stacks import Stacks
from tests.plugin.watch import eventually

LOCK = threading.Lock()


def by_with() -> None:
    with LOCK:
        pass


def by_acquire() -> None:
    timeout = 60.0
    LOCK.acquire(timeout=timeout)


EVENT, QUEUE = threading.Event(), queue.Queue[None]()
SIMPLE, FUTURE = queue.SimpleQueue[None](), Future[None]()


@pytest.mark.parametrize(
    ("call", "release"),
    [
        (by_with, LOCK.release),
        (by_acquire, LOCK.release),
        (lambda: EVENT.wait(), EVENT.set),
        (lambda: QUEUE.get(), lambda: QUEUE.put(None)),
        (lambda: SIMPLE.get(), lambda: SIMPLE.put(None)),
        (lambda: FUTURE.result(), lambda: FUTURE.set_result(None)),
    ],
)
def test_waits_at_locks_of_python_and_their_makings_are_known_by_their_lines(call, release):
    LOCK.acquire()
    locks = CallsIntoC()
    thread = threading.Thread(target=call)
    thread.start()
    try:
        eventually(lambda: locks.hold_up(sys._current_frames().get(thread.ident or 0)))
    finally:
        release()
        thread.join()
        if LOCK.locked():
            LOCK.release()


def computes(array: bytes) -> int:
    return sum(array) if array else len(array)


def test_a_wait_at_any_other_line_may_be_a_librarys():
    seen = []

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code is computes.__code__:
            seen.append(CallsIntoC().hold_up(frame))
        return trace

    sys.settrace(trace)
    try:
        computes(b"x")
    finally:
        sys.settrace(None)
    assert seen
    assert not any(seen)
    assert not CallsIntoC().hold_up(None)


def begins(path: Path) -> None:
    with closing(sqlite3.connect(path, timeout=60, isolation_level=None)) as connection:
        connection.cursor().execute(
            "begin immediate",
        )


def sleeps() -> None:
    time.sleep(0.5)


@pytest.mark.parametrize(("call", "name"), [(begins, "execute"), (lambda path: sleeps(), "sleep")])
def test_the_c_code_in_which_a_thread_waits_is_named_by_the_line_that_called_it(
    tmp_path: Path, call: Callable[[Path], None], name: str
) -> None:
    with closing(sqlite3.connect(tmp_path / "file.db", isolation_level=None)) as holder:
        holder.execute("begin immediate")
        thread = threading.Thread(target=call, args=(tmp_path / "file.db",))
        thread.start()
        stacks = Stacks()
        seen: list[Any] = []

        def waits() -> bool:
            seen[:] = stacks.waiting(sys._current_frames().get(thread.ident or 0))
            return seen[-1:] == [Frame(name, BUILT_IN, 0)]

        eventually(waits)
        assert seen[-2].function == ("begins" if name == "execute" else "sleeps")
        holder.execute("commit")
        thread.join()
