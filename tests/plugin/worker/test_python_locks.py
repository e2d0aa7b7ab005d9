from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import FrameType
from typing import Any

import pytest

from dask_efficiency.plugin.worker.python_locks import PythonLocks
from tests.plugin.worker.test_watched_threads import until

LOCK = threading.Lock()


def by_with() -> None:
    with LOCK:
        pass


def by_acquire() -> None:
    timeout = 60.0
    LOCK.acquire(timeout=timeout)


def by_event(event: threading.Event) -> None:
    event.wait()


def by_queue(waiting: queue.Queue[None]) -> None:
    waiting.get()


def by_simple_queue(waiting: queue.SimpleQueue[None]) -> None:
    waiting.get()


def by_future(future: Future[None]) -> None:
    future.result()


@pytest.fixture
def held() -> Iterator[None]:
    """The lock is taken."""
    LOCK.acquire()
    yield
    if LOCK.locked():
        LOCK.release()


def waits_in_python(call: Callable[..., None], release: Callable[[], object], *arguments: Any) -> bool:
    """What is said of a thread that waits in a call."""
    thread = threading.Thread(target=call, args=arguments)
    thread.start()
    locks = PythonLocks()

    def innermost() -> FrameType | None:
        return sys._current_frames().get(thread.ident or 0)

    def said() -> bool:
        return locks.hold_up(innermost())

    try:
        until(said)
        return said()
    finally:
        release()
        thread.join()


def test_waits_at_locks_of_python_are_known_by_their_lines(held):
    assert waits_in_python(by_with, LOCK.release)
    LOCK.acquire()
    assert waits_in_python(by_acquire, LOCK.release)


def test_waits_at_what_is_made_of_locks_are_known():
    event, waiting = threading.Event(), queue.Queue[None]()
    simple, future = queue.SimpleQueue[None](), Future[None]()
    assert waits_in_python(by_event, event.set, event)
    assert waits_in_python(by_queue, lambda: waiting.put(None), waiting)
    assert waits_in_python(by_simple_queue, lambda: simple.put(None), simple)
    assert waits_in_python(by_future, lambda: future.set_result(None), future)


def computes(array: bytes) -> int:
    return sum(array) if array else len(array)


def test_any_other_line_may_be_a_librarys():
    seen = []

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code is computes.__code__:
            seen.append(PythonLocks().hold_up(frame))
        return trace

    sys.settrace(trace)
    try:
        computes(b"x")
    finally:
        sys.settrace(None)
    assert seen
    assert not any(seen)


def test_without_a_frame_nothing_is_known():
    assert not PythonLocks().hold_up(None)
