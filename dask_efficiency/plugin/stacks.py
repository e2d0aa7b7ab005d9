"""Stacks: the lines that a thread executes."""

from __future__ import annotations

import asyncio
import concurrent.futures
import dis
import gc
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType

import dask
import distributed
import tornado

from dask_efficiency.accounts.intake import fitting
from dask_efficiency.accounts.lines import BUILT_IN, BY_VALUE, MAX_DEPTH, Frame, Stack
from dask_efficiency.accounts.rows import MAX_CACHED
from dask_efficiency.plugin import names
from dask_efficiency.plugin.calls import CallsIntoC
from dask_efficiency.plugin.operations import Operations

#: Frames walked, from the innermost; more than stacks keep.
MAX_WALKED = 500


def folder_of(module: object) -> str:
    """Folder of a package's files, with a separator at its end."""
    return os.path.dirname(str(getattr(module, "__file__", None) or "?")) + os.sep


#: Files that run tasks, or wait for others on behalf of a task.
_SERVANTS = (folder_of(names), folder_of(distributed), folder_of(concurrent.futures), str(threading.__file__))
#: Files that call a task's function.
_CALLERS = (*_SERVANTS, *(folder_of(dask) + name for name in ("_task_spec.py", "core.py", "utils.py")))
#: Files that call the work of an event loop or a thread.
_LOOPS = (
    folder_of(asyncio) + "base_events.py",
    folder_of(asyncio) + "events.py",
    folder_of(tornado) + "ioloop.py",
    str(threading.__file__),
)
#: Files whose functions run as tasks, although they are Dask's.
_DASKS_TASKS = (folder_of(distributed) + "shuffle" + os.sep,)
#: File whose functions stand around Dask's own that (de)serialize, and do nothing by themselves.
_OURS = fitting(folder_of(names) + "messages.py")
#: Flags for lines of these files.
_CALLER, _SERVANT, _LOOP, _DASKS_TASK = 1, 2, 4, 8
#: Instructions at which the interpreter lets go of the GIL on request, but for calls: who wants it back at one of these
#: executes Python, and at a call may be in C.
_TURNS = {code for name, code in dis.opmap.items() if name == "RESUME" or "JUMP_BACKWARD" in name}


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


class Stacks:
    """Makes stacks from frames; each line is made once."""

    def __init__(self) -> None:
        #: By identity of a code object, which is kept, and instruction: kind and frame.
        self._known: dict[tuple[int, int], tuple[int, Frame, CodeType]] = {}
        self.calls, self._operations = CallsIntoC(), Operations()
        #: By identity of a code object, which is kept, and instruction: True if that is one of :data:`_TURNS`.
        self._interprets: dict[tuple[int, int], tuple[bool, CodeType]] = {}

    def interprets(self, frame: FrameType | None) -> bool:
        """True if a thread that has asked for the GIL in this frame is in Python code, and in no function of C."""
        if frame is None:
            return False
        code, at = frame.f_code, frame.f_lasti
        found = self._interprets.get((id(code), at))
        if found is None:
            if len(self._interprets) >= MAX_CACHED:
                self._interprets.clear()
            found = self._interprets[id(code), at] = 0 <= at < len(code.co_code) and code.co_code[at] in _TURNS, code
        return found[0]

    def waiting(self, frame: FrameType | None) -> Stack:
        """Stack of a task's thread that waits, as :meth:`task` gives it, and the C code in which it does so."""
        return self._with_c_code(frame, self.calls.called)

    def computing(self, frame: FrameType | None, *, without_gil: bool) -> Stack:
        """Stack of a task's thread that computes, as :meth:`task` gives it, and the C code in which it does so."""
        return self._with_c_code(frame, lambda inner: self._operations.name(inner, without_gil=without_gil))

    def _with_c_code(self, frame: FrameType | None, name: Callable[[FrameType], str]) -> Stack:
        stack = self.task(frame)
        if frame is None or not stack or stack[-1].function != fitting(frame.f_code.co_qualname):
            return stack
        called = name(frame)
        return (*stack, Frame(called, BUILT_IN, 0)) if called else stack

    def task(self, frame: FrameType | None) -> Stack:
        """Stack of a task's thread, from its outermost frame inwards to the line that computes or waits.

        Calls of the worker around the task are left out, and what waits on its behalf inside Dask and ``threading``,
        but for the function that it calls there. Of a task that is Dask's own, such as a part of a rechunking, its
        function is left.
        """
        found = self._walk(frame)
        start, stop = 0, len(found)
        while stop > start and found[stop - 1][0] & _CALLER:
            stop -= 1
        while start < stop and found[start][0] & _SERVANT:
            start += 1
        return _stack(found, start - (0 < start < stop), stop)

    def loop(self, frame: FrameType | None, depth: int = MAX_DEPTH) -> Stack:
        """Stack of an event loop's thread, or any other, from the function that the loop called inwards."""
        found = [known for known in self._walk(frame) if known[1].file != _OURS]
        called = next((i for i, known in enumerate(found) if known[0] & _LOOP), len(found))
        return _stack(found, 0, called, depth)

    def whole(self, frame: FrameType | None) -> Stack:
        """Whole stack of a thread, at most :data:`MAX_WALKED` frames of it, from its outermost frame inwards."""
        return tuple([named for _, named, _ in self._walk(frame)][::-1])

    @no_collection()
    def of(self, frames: Iterable[FrameType]) -> Stack:
        """Stack of frames, such as those of coroutines that await each other."""
        return tuple([self._of(frame)[1] for frame in frames])

    @no_collection()
    def _walk(self, frame: FrameType | None) -> list[tuple[int, Frame, CodeType]]:
        """Kinds and frames, innermost first."""
        found: list[tuple[int, Frame, CodeType]] = []
        while frame is not None and len(found) < MAX_WALKED:
            found.append(self._of(frame))
            frame = frame.f_back
        return found

    def _of(self, frame: FrameType) -> tuple[int, Frame, CodeType]:
        code, known = frame.f_code, self._known
        at = id(code), frame.f_lasti
        seen = known.get(at)
        if seen is None:
            if len(known) >= MAX_CACHED:
                known.clear()
            named = Frame(fitting(code.co_qualname), fitting(_file_of(frame)), max(0, frame.f_lineno or 0))
            seen = known[at] = _kind(code.co_filename), named, code
        return seen


def from_task(whole: Stack, task: Stack) -> Stack:
    """Part of a whole stack from the first frame of its task inwards, with the C code in which the task waits."""
    start = next((i for i, frame in enumerate(whole) if frame == task[0]), 0) if task else 0
    return (*whole[start:], *(task[-1:] if task and task[-1].file == BUILT_IN else ()))


def _file_of(frame: FrameType) -> str:
    """File of a frame's function; of a module's function that travelled by value, only its globals have it."""
    file, known = frame.f_code.co_filename, frame.f_globals
    if file != f"<{BY_VALUE}>" or known.get("__name__") == "__main__":
        return file
    return str(known.get("__file__") or file)


def _stack(found: list[tuple[int, Frame, CodeType]], start: int, stop: int, depth: int = MAX_DEPTH) -> Stack:
    if start >= stop:  # nothing but Dask's own
        start = max((i for i, (kind, _, _) in enumerate(found) if kind & _DASKS_TASK), default=0)
        stop = start + 1
    return tuple([named for _, named, _ in found[start : min(stop, start + depth)]][::-1])


def _kind(file: str) -> int:
    flags = ((_CALLER, _CALLERS), (_SERVANT, _SERVANTS), (_LOOP, _LOOPS), (_DASKS_TASK, _DASKS_TASKS))
    return sum(flag for flag, files in flags if file.startswith(files))
