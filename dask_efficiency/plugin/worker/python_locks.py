"""Tells a thread that waits at one of Python's own locks from one that waits inside a library's code."""

from __future__ import annotations

import concurrent.futures
import dis
import os
import queue
import threading
from types import CodeType, FrameType

#: Modules of which every wait is at a lock of Python's.
_FILES = (str(threading.__file__), str(queue.__file__), os.path.dirname(str(concurrent.futures.__file__)) + os.sep)

#: Methods by which a line waits for such a lock.
_METHODS = frozenset({"acquire", "wait", "wait_for", "join", "get", "put", "result", "exception"})

#: Entering a ``with`` block: an instruction of its own up to Python 3.13, a name from then on.
_ENTER = "BEFORE_WITH"
_ENTER_NAME = "__enter__"

#: Lines that are remembered.
MAX_KNOWN = 5_000


class PythonLocks:
    """Knows from its innermost frame whether a thread that waits at a lock does so in Python's own code.

    A lock's ``acquire`` is C code as a library's function is: no frame tells. But the line that called it does, by the
    names in it. A function that waits under another name counts as a library's.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[bool, CodeType]] = {}

    def hold_up(self, frame: FrameType | None) -> bool:
        """Whether the wait is at a lock of Python's; False without a frame."""
        if frame is None:
            return False
        code = frame.f_code
        at = id(code), frame.f_lasti
        known = self._known.get(at)
        if known is None:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            # The code is kept, so that its identity stays its own.
            known = self._known[at] = _waits(code, frame.f_lasti), code
        return known[0]


def _waits(code: CodeType, at: int) -> bool:
    if code.co_filename.startswith(_FILES):
        return True
    line: int | None = None
    names: dict[int | None, set[str]] = {}
    for instruction in dis.get_instructions(code):
        line = instruction.positions.lineno if instruction.positions is not None else None
        if instruction.offset == at and instruction.opname == _ENTER:
            return True
        # Python 3.14 has a number as the argument of what enters a block, and its name in the text only.
        name = instruction.argval if isinstance(instruction.argval, str) else instruction.argrepr
        names.setdefault(line, set()).add(name)
        if instruction.offset >= at:
            break
    return bool(names.get(line, set()) & (_METHODS | {_ENTER_NAME}))
