"""Making: the lines of the user's at which a client makes collections of Dask, and how many parts they have there.

Graphs say by which line they were sent, but not where the arrays in them were cut into chunks, and a call that takes a
microsecond is in no sample. So the constructors of collections are looked at while reports are open.
"""

from __future__ import annotations

import linecache
import math
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from types import FrameType
from typing import Any

from dask.utils import key_split

from dask_efficiency.accounts.lines import Frame, is_the_users, place_of
from dask_efficiency.plugin.guard import Guard
from dask_efficiency.plugin.patches import MADE, MADE_ARRAY, Patch, Replacements
from dask_efficiency.report.source_files import cell_of
from dask_efficiency.report.values import Made

#: Lines kept, and prefixes of each. Guesses, to bound memory and the report.
MAX_LINES, MAX_PREFIXES = 1_000, 8
#: Dask's functions that make a known collection once more, with other tasks.
_AGAIN = frozenset({"compute", "persist", "optimize"})
#: Library that imports Dask's arrays only as it makes the first one.
_LAZY = "xarray"
#: Start of the names of threads that run tasks, where workers share the client's process.
_OF_TASKS = "Dask-"
#: Part of the names of nested functions: a decorator's wrapper is not what a user calls.
_WITHIN = "<locals>"


def _blocks(array: Any) -> int:
    return math.prod(map(len, array.chunks))


#: Module and class of a collection, the function of it that is looked at, its number of parts, and its name if it is
#: cheap to tell. A dataframe knows its partitions only once it is optimized.
_KINDS: tuple[tuple[str, str, Patch, Callable[[Any], int], str], ...] = (
    ("dask.array.core", "Array", MADE_ARRAY, _blocks, "name"),
    ("dask.bag.core", "Bag", MADE, lambda bag: int(bag.npartitions), "name"),
    ("dask.delayed", "Delayed", MADE, lambda _: 1, "key"),
    ("dask.dataframe.dask_expr._collection", "FrameBase", MADE, lambda _: 0, ""),
)


class _Line:
    __slots__ = ("called", "collections", "largest", "parts", "prefixes")

    def __init__(self) -> None:
        #: Parts by the function that the line called, as ``x.chunk(9).mean()`` calls two.
        self.called: Counter[str] = Counter()
        self.collections = self.parts = self.largest = 0
        self.prefixes: dict[str, None] = {}


class MadeLines:
    """Collections that are made while one report is open, by line."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, int], _Line] = {}

    def note(self, frame: FrameType, called: str, parts: int, name: str) -> None:
        """Note a collection that was made below a line of the user's."""
        place = frame.f_code.co_filename, frame.f_lineno
        line = self._lines.get(place)
        if line is None:
            if len(self._lines) >= MAX_LINES:
                return
            line = self._lines[place] = _Line()
        line.called[called] += parts
        line.collections += 1
        line.parts += parts
        line.largest = max(line.largest, parts)
        if name and line.collections <= MAX_PREFIXES:
            line.prefixes[key_split(name)] = None

    def by_line(self) -> dict[str, Made]:
        """Collections by place (``etl.py:42``), in the order of their first ones."""
        found = {}
        for (file, number), line in list(self._lines.items()):
            (called, _), *_ = line.called.most_common(1)
            if not re.search(rf"\b{re.escape(called)}\b", linecache.getline(file, number)):
                called = ""  # Dask's own names say nothing to a user
            made = Made(called, line.collections, line.parts, line.largest, tuple(line.prefixes))
            found[place_of(Frame("", cell_of(file), number))] = made
        return found


class _Making:
    """Looks at what is made while any report of this process is open; a failure ends that."""

    def __init__(self) -> None:
        self._guard = Guard("the look at collections", "dask_efficiency no longer notes where they are made")
        self._replacements = Replacements()
        self._lock = threading.Lock()
        self._open: tuple[MadeLines, ...] = ()

    def add(self, lines: MadeLines) -> None:
        """Begin to note for one more report."""
        with self._lock:
            self._open += (lines,)
            if len(self._open) > 1:
                return
            if _LAZY in sys.modules:
                import_module("dask.array")
            for module, kind, patch, parts, name in _KINDS:
                if module in sys.modules:  # a script that never imports arrays makes none
                    owner = getattr(sys.modules[module], kind, None)
                    self._replacements.put(patch, owner, self._noting(parts, name))

    def remove(self, lines: MadeLines) -> None:
        """End with a report; the last one leaves collections as they were."""
        with self._lock:
            self._open = tuple(each for each in self._open if each is not lines)
            if not self._open:
                self._replacements.put_back()

    def _noting(self, parts: Callable[[Any], int], name: str) -> Callable[[Any], Any]:
        def wrap(original: Any) -> Any:
            function = getattr(original, "__func__", original)  # a class's own __new__ is a static method

            @wraps(function)
            def making(self_or_class: Any, *args: Any, **kwargs: Any) -> Any:
                __tracebackhide__ = True
                result = function(self_or_class, *args, **kwargs)
                if self._guard.off is None:
                    self._note(self_or_class if result is None else result, parts, name)
                return result

            return making

        return wrap

    def _note(self, collection: Any, parts: Callable[[Any], int], name: str) -> None:
        try:
            if threading.current_thread().name.startswith(_OF_TASKS):  # a task, in the client's process
                return
            frame: FrameType | None = sys._getframe(2)
            called = ""
            while frame is not None and not is_the_users(frame.f_code.co_filename):
                name_of_call = frame.f_code.co_name
                if name_of_call in _AGAIN:
                    return
                if not name_of_call.startswith(("_", "<")) and _WITHIN not in frame.f_code.co_qualname:
                    called = name_of_call
                frame = frame.f_back
            if frame is not None:
                for each in self._open:
                    each.note(frame, called, parts(collection), str(getattr(collection, name)) if name else "")
        except Exception as error:
            self._guard.fail(error)


#: The one of this process.
MAKING = _Making()
