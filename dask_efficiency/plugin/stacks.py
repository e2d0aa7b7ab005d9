"""Stacks and LoopBlocks: the lines that a thread executes, and the times for which an event loop was blocked."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import os
import selectors
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

import dask
import distributed
import tornado
from distributed.metrics import time

from dask_efficiency.accounts.lines import EVENT_LOOP, MAX_DEPTH, Frame, Holdup, Stack
from dask_efficiency.plugin import names

#: Lines cached; functions that travel with each task's message are new each time. A guess: some megabytes.
MAX_KNOWN = 20_000
#: Frames walked, from the innermost; more than stacks keep.
MAX_WALKED = 500


def _folder(module: object) -> str:
    return os.path.dirname(str(getattr(module, "__file__", None) or "?")) + os.sep


#: Files that run tasks, or wait for others on behalf of a task.
_SERVANTS = (_folder(names), _folder(distributed), _folder(concurrent.futures), str(threading.__file__))
#: Files that call a task's function.
_CALLERS = (*_SERVANTS, *(_folder(dask) + name for name in ("_task_spec.py", "core.py", "utils.py")))
#: Files that call the work of an event loop or a thread.
_LOOPS = (
    _folder(asyncio) + "base_events.py",
    _folder(asyncio) + "events.py",
    _folder(tornado) + "ioloop.py",
    str(threading.__file__),
)
#: Flags for lines of these files.
_CALLER, _SERVANT, _LOOP = 1, 2, 4


def has_gil() -> bool:
    """True if this Python has a GIL."""
    is_enabled = getattr(sys, "_is_gil_enabled", None)
    return is_enabled is None or bool(is_enabled())


@contextmanager
def no_collection() -> Iterator[None]:
    """Collect no garbage; to be held wherever frames of other threads may be made into objects.

    Before Python 3.12 making one may collect garbage, and a callback of the collector, such as Dask's, may let the
    other thread go on: its frame is gone, and the new object stands for other memory.
    """
    if sys.version_info >= (3, 12) or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def frames_of_others() -> dict[int, FrameType]:
    """Innermost frame of each other thread, by ident.

    With our own frame among them, a variable that holds them would be part of a reference cycle, and the variables of
    all threads would live until garbage is collected: arrays, and views of buffers, whose end in a garbage collection
    crashes versions of Python that are in use (python/cpython#77894).
    """
    with no_collection():
        frames = sys._current_frames()
    frames.pop(threading.get_ident(), None)
    return frames


def has_nothing_to_do(stack: Stack) -> bool:
    """True if a thread is where an event loop waits for something to do."""
    return bool(stack) and stack[-1].file == selectors.__file__


class Stacks:
    """Makes stacks from frames; each line is made once."""

    def __init__(self) -> None:
        #: By identity of a code object, which is kept, and instruction: kind and frame.
        self._known: dict[tuple[int, int], tuple[int, Frame, CodeType]] = {}

    def task(self, frame: FrameType | None) -> Stack:
        """Stack of a task's thread, from its outermost frame inwards to the line that computes or waits.

        Calls of the worker around the task are left out, and waits on its behalf inside Dask and ``threading``.
        """
        found = self._walk(frame)
        start, stop = 0, len(found)
        while stop > start and found[stop - 1][0] & _CALLER:
            stop -= 1
        while start < stop and found[start][0] & _SERVANT:
            start += 1
        return _stack(found, start, stop)

    def loop(self, frame: FrameType | None) -> Stack:
        """Stack of an event loop's thread, or any other, from the function that the loop called inwards."""
        found = self._walk(frame)
        called = next((i for i, known in enumerate(found) if known[0] & _LOOP), len(found))
        return _stack(found, 0, called)

    @no_collection()
    def _walk(self, frame: FrameType | None) -> list[tuple[int, Frame, CodeType]]:
        """Kinds and frames, innermost first."""
        found: list[tuple[int, Frame, CodeType]] = []
        known = self._known
        while frame is not None and len(found) < MAX_WALKED:
            code = frame.f_code
            at = id(code), frame.f_lasti
            seen = known.get(at)
            if seen is None:
                if len(known) >= MAX_KNOWN:
                    known.clear()
                named = Frame(code.co_qualname, code.co_filename, frame.f_lineno or 0)
                seen = known[at] = _kind(code.co_filename), named, code
            found.append(seen)
            frame = frame.f_back
        return found


def _stack(found: list[tuple[int, Frame, CodeType]], start: int, stop: int) -> Stack:
    if start >= stop:  # nothing but calls of the worker: the innermost
        start, stop = 0, 1
    return tuple([named for _, named, _ in found[start : min(stop, start + MAX_DEPTH)]][::-1])


def _kind(file: str) -> int:
    flags = ((_CALLER, _CALLERS), (_SERVANT, _SERVANTS), (_LOOP, _LOOPS))
    return sum(flag for flag, files in flags if file.startswith(files))


#: Shortest block of an event loop that is reported, seconds: five of Dask's ticks.
MIN_SECONDS = 0.1


class LoopBlocks:
    """Finds times for which a server's event loop was blocked: Dask's own tick, every 20 ms, is late.

    ``blocked`` takes each block that is over; ``stack`` gives that of the loop, None if it does no work of its own. If
    upstream has no such tick, nothing is reported.
    """

    def __init__(self, server: Any, stack: Callable[[], Stack | None], blocked: Callable[[Holdup], object]) -> None:
        self._server, self._stack, self._blocked = server, stack, blocked
        self._seen: Counter[Stack] = Counter()
        self._since: float | None = None
        callback = getattr(server, "periodic_callbacks", {}).get("tick")
        self._interval = callback.callback_time / 1e3 if callback is not None else None

    def look(self, wanted: bool) -> None:
        """Look at the loop, unless nobody wants to know."""
        last = getattr(self._server, "_last_tick", None)
        if last is None or self._interval is None or not wanted:
            return
        if self._since is not None and last != self._since:
            seconds = last - self._since - self._interval
            if seconds > MIN_SECONDS:
                stack = next((stack for stack, _ in self._seen.most_common(1)), ())
                self._blocked(Holdup(round(seconds * 1e9), EVENT_LOOP, stack))
            self._since = None
            self._seen.clear()
        if time() - last - self._interval > MIN_SECONDS / 2:
            self._since = last
            stack_now = self._stack()
            if stack_now is not None:
                self._seen[stack_now] += 1
