"""Stacks: what a thread is at, from its frames, without what is not the task's."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from types import CodeType, FrameType

import dask
import distributed
import tornado

from dask_efficiency import plugins
from dask_efficiency.profile import MAX_DEPTH, Frame, Stack

#: Functions whose lines are remembered; functions that come with each task's message are other ones each time.
MAX_CODES = 5_000

#: Frames that are walked; the innermost count.
MAX_WALKED = 500


def _folder(module: object) -> str:
    return os.path.dirname(str(getattr(module, "__file__", None) or "?")) + os.sep


#: What makes tasks run, and what waits for somebody else on behalf of a task.
_SERVANTS = (_folder(plugins), _folder(distributed), _folder(concurrent.futures), str(threading.__file__))

#: What calls a task's function.
_CALLERS = (*_SERVANTS, *(os.path.join(_folder(dask), name) for name in ("_task_spec.py", "core.py", "utils.py")))

#: What calls what an event loop does.
_LOOPS = (_folder(asyncio), _folder(tornado), str(threading.__file__), "<frozen runpy>")

_CALLER, _SERVANT, _LOOP = 1, 2, 4


class Stacks:
    """Makes stacks of frames, of which each is made once."""

    def __init__(self) -> None:
        #: By the identity of each code object, which is kept: its kind, and its frames by instruction.
        self._codes: dict[int, tuple[CodeType, int, dict[int, Frame]]] = {}

    def task(self, frame: FrameType | None) -> Stack:
        """Of a task's thread: from its outermost frame inwards to the line that computes or waits.

        The worker's own calls around the task are left out, and what waits for it inside Dask and ``threading``.
        """
        return self._stack(frame, outer=_CALLER, inner=_SERVANT)

    def loop(self, frame: FrameType | None) -> Stack:
        """Of an event loop's thread, or any other: from what the loop called inwards."""
        return self._stack(frame, outer=_LOOP, inner=0)

    def _stack(self, frame: FrameType | None, *, outer: int, inner: int) -> Stack:
        found: list[Frame] = []
        kinds: list[int] = []
        while frame is not None and len(found) < MAX_WALKED:
            kind, named = self._frame(frame)
            found.append(named)
            kinds.append(kind)
            frame = frame.f_back
        start, stop = 0, len(found)
        while stop > start and kinds[stop - 1] & outer:
            stop -= 1
        while start < stop and kinds[start] & inner:
            start += 1
        if start == stop:  # nothing but the worker's own: what it is at
            stop = min(start + 1, len(found))
            start = max(0, stop - 1)
        return tuple(reversed(found[start : min(stop, start + MAX_DEPTH)]))

    def _frame(self, frame: FrameType) -> tuple[int, Frame]:
        code = frame.f_code
        known = self._codes.get(id(code))
        if known is None:
            if len(self._codes) >= MAX_CODES:
                self._codes.clear()
            known = self._codes[id(code)] = code, _kind(code.co_filename), {}
        _, kind, frames = known
        named = frames.get(frame.f_lasti)
        if named is None:
            named = frames[frame.f_lasti] = Frame(code.co_qualname, code.co_filename, frame.f_lineno or 0)
        return kind, named


def _kind(file: str) -> int:
    kind = 0
    for flag, files in ((_CALLER, _CALLERS), (_SERVANT, _SERVANTS), (_LOOP, _LOOPS)):
        if file.startswith(files):
            kind |= flag
    return kind
