"""CallsIntoC: the C code that a thread is in, which has no frame, by the instruction that called it."""

from __future__ import annotations

import concurrent.futures
import dis
import os
import queue
import threading
from types import CodeType, FrameType

from dask_efficiency.accounts.intake import fitting
from dask_efficiency.accounts.rows import MAX_CACHED

#: Modules of which every wait is at a lock of Python.
_FILES = (str(threading.__file__), str(queue.__file__), os.path.dirname(str(concurrent.futures.__file__)) + os.sep)
#: Methods by which a line waits for such a lock.
_METHODS = frozenset({"acquire", "__enter__", "wait", "wait_for", "join", "get", "put", "result", "exception"})


#: Starts of the names of instructions that load a function by its name.
_LOADS = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_FAST", "LOAD_DEREF", "LOAD_SPECIAL")


class CallsIntoC:
    """Names the C code in which a thread waits, which has no frame, by the instruction that called it.

    So waits at locks of Python are told from waits inside a library, by the name of the method: a function that waits
    under another name counts as a library's.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[bool, str, CodeType]] = {}

    def hold_up(self, frame: FrameType | None) -> bool:
        """True if the wait is at a lock of Python; False without a frame."""
        return frame is not None and self._of(frame)[0]

    def called(self, frame: FrameType | None) -> str:
        """Name of the function that a frame calls, such as ``execute``; empty if unknown, or without a frame."""
        return self._of(frame)[1] if frame is not None else ""

    def _of(self, frame: FrameType) -> tuple[bool, str, CodeType]:
        code = frame.f_code
        at = id(code), frame.f_lasti
        known = self._known.get(at)
        if known is None:
            if len(self._known) >= MAX_CACHED:
                self._known.clear()
            # The code is kept, so that its id is not reused.
            known = self._known[at] = *_call(code, frame.f_lasti), code
        return known


def _call(code: CodeType, at: int) -> tuple[bool, str]:
    """Check if an instruction waits at a lock of Python, and name what it calls."""
    of_threads = code.co_filename.startswith(_FILES)
    line: int | None = None
    names: dict[int | None, set[str]] = {}
    #: By line and column at which an expression begins: the last name loaded for it, that of the function to call.
    loaded: dict[tuple[int | None, int | None], str] = {}
    called = ""
    for instruction in dis.get_instructions(code):
        where = instruction.positions
        line, start = (where.lineno, (where.lineno, where.col_offset)) if where is not None else (None, (None, None))
        if instruction.offset == at and instruction.opname == "BEFORE_WITH":  # up to Python 3.13
            return True, "__enter__"
        # In Python 3.14 the instruction that enters a block has a number as argument, and its name only as text.
        name = instruction.argval if isinstance(instruction.argval, str) else instruction.argrepr
        names.setdefault(line, set()).add(name)
        if instruction.offset >= at:
            called = loaded.get(start, "") if "CALL" in instruction.opname and None not in start else ""
            break
        if instruction.opname.startswith(_LOADS):
            loaded[start] = name
    return of_threads or not _METHODS.isdisjoint(names.get(line, ())), fitting(called)
