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
from types import CodeType, FrameType
from typing import Any

from dask.base import DaskMethodsMixin
from dask.utils import key_split

from dask_efficiency.accounts.lines import Frame, is_the_users, place_of
from dask_efficiency.plugin.guard import Guard
from dask_efficiency.plugin.patches import COLLECTION_CLASS, MADE, MADE_ARRAY, Patch, Replacements
from dask_efficiency.report.source_files import cell_of
from dask_efficiency.report.values import Made

#: Lines kept, and prefixes of each. Guesses, to bound memory and the report.
MAX_LINES, MAX_PREFIXES = 1_000, 8
#: Parts that are told apart: an array that nobody computes may have any number of chunks.
MAX_PARTS = 1 << 53
#: Dask's functions that make a known collection once more, with other tasks, and the one in which it is imported.
_NONE_OF_THE_USERS = frozenset({"compute", "persist", "optimize", "_find_and_load"})
#: Start of the names of threads that run tasks, where workers share the client's process.
_OF_TASKS = "Dask-"
#: Part of the names of nested functions: a decorator's wrapper is not what a user calls.
_WITHIN = "<locals>"
#: Functions that make one dataframe of many files or parts.
_OF_MANY = re.compile(r"\b(?:from_delayed|from_map|read_(?:csv|table|fwf|json|parquet|orc|hdf))\b(?=\()")
_FRAMES = "dask.dataframe.dask_expr._collection"
#: Attribute that has the name of a dataframe.
_OF_FRAMES = "_name"


#: Module and class of a collection, the function of it that is looked at, its number of parts, and its name, which it
#: has by then. A dataframe knows its partitions only once it is optimized; a delayed function is called later.
_KINDS: tuple[tuple[str, str, Patch, Callable[[Any], int], str], ...] = (
    ("dask.array.core", "Array", MADE_ARRAY, lambda array: math.prod(map(len, array.chunks)), "name"),
    ("dask.bag.core", "Bag", MADE, lambda bag: int(bag.npartitions), "name"),
    ("dask.delayed", "Delayed", MADE, lambda value: 0 if "Leaf" in type(value).__name__ else 1, "key"),
    (_FRAMES, "FrameBase", MADE, lambda _: 0, _OF_FRAMES),
)


class _Line:
    __slots__ = ("called", "collections", "frames", "largest", "parts", "prefixes")

    def __init__(self) -> None:
        #: Parts by the function that the line called, as ``x.chunk(9).mean()`` calls two.
        self.called: Counter[str] = Counter()
        #: Dataframes by the place in Dask that made them: a call may make several, each at another.
        self.frames: Counter[tuple[CodeType, int]] = Counter()
        self.collections = self.parts = self.largest = 0
        self.prefixes: dict[str, None] = {}


class MadeLines:
    """Collections that are made while one report is open, by line."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, int], _Line] = {}
        #: Id of the client that the report is of.
        self.client = 0

    def open(self, client: Any) -> None:
        """Begin to note."""
        self.client = id(client)
        MAKING.add(self)

    def close(self) -> None:
        """Note no more; safe to call twice."""
        MAKING.remove(self)

    def note(self, frame: FrameType, called: str, parts: int, name: str, site: tuple[CodeType, int] | None) -> None:
        """Note a collection that was made below a line of the user's; a dataframe, at a site in Dask."""
        place = frame.f_code.co_filename, frame.f_lineno
        line = self._lines.get(place)
        if line is None:
            if len(self._lines) >= MAX_LINES:
                return
            line = self._lines[place] = _Line()
        line.called[called] += parts
        if site is not None:
            line.frames[site] += 1
        line.collections += 1
        line.parts = min(line.parts + parts, MAX_PARTS)
        line.largest = min(max(line.largest, parts), MAX_PARTS)
        if line.collections <= MAX_PREFIXES:
            line.prefixes[key_split(name)] = None

    def notes(self) -> tuple[str, ...]:
        """Notes of a report on lines that it lacks."""
        return () if MAKING.off is None else (f"there is no list of lines that made collections: {MAKING.off}",)

    def by_line(self) -> dict[str, Made]:
        """Collections by place (``etl.py:42``), in the order of their first ones; lines of one place are one."""
        found: dict[str, Made] = {}
        if MAKING.off is not None:  # others are missing
            return found
        for (file, number), line in list(self._lines.items()):
            source = linecache.getline(file, number)
            names = (name for name, _ in line.called.most_common() if name)
            # Dask's own names say nothing to a user.
            called = next((name for name in names if re.search(rf"\b{re.escape(name)}\b", source)), "")
            frames = max(line.frames.values(), default=0)
            reads = _OF_MANY.search(source) if frames else None
            made = Made(
                reads.group() if reads else called,
                line.collections,
                line.parts,
                line.largest,
                frames if reads else 0,
                tuple(line.prefixes),
            )
            place = place_of(Frame("", cell_of(file), number))
            found[place] = _together(found[place], made) if place in found else made
        return found


def _together(one: Made, other: Made) -> Made:
    """Collections of two lines of the same number, in files of the same name."""
    return Made(
        one.called if one.called == other.called else "",
        one.collections + other.collections,
        min(one.parts + other.parts, MAX_PARTS),
        max(one.largest, other.largest),
        0,
        (*dict.fromkeys((*one.prefixes, *other.prefixes)),),
    )


class _ClassMethod(classmethod):  # type: ignore[type-arg]  # of any class
    """Class method that can be referred to weakly."""


class _Making:
    """Looks at what is made while any report of this process is open; a failure ends that."""

    def __init__(self) -> None:
        self._guard = Guard("the look at collections", "dask_efficiency no longer notes where they are made")
        self._replacements = Replacements()
        self._lock = threading.Lock()
        self._open: tuple[MadeLines, ...] = ()
        #: What looks now: of earlier ones, some stay in place below those of others, which call them.
        self._current = object()

    @property
    def off(self) -> str | None:
        """Reason why nothing is noted any more; None until a failure."""
        return self._guard.off

    def add(self, lines: MadeLines) -> None:
        """Begin to note for one more report."""
        with self._lock:
            self._open += (lines,)
            if len(self._open) == 1:
                self._guard(self._begin)

    def _begin(self) -> None:
        self._current = object()
        self._replacements.put(COLLECTION_CLASS, DaskMethodsMixin, self._of_classes)
        for module, kind, *_ in _KINDS:
            if module in sys.modules:
                self._look_at(module, kind, getattr(sys.modules[module], kind, None))

    def _look_at(self, module: str, name: str, found: Any) -> None:
        for kind, class_name, patch, parts, attribute in _KINDS:
            if (module, name) == (kind, class_name):
                self._replacements.put(patch, found, self._noting(parts, attribute))

    def _of_classes(self, _: Any) -> Any:
        current = self._current

        def of_class(cls: Any, **kwargs: Any) -> None:
            super(DaskMethodsMixin, cls).__init_subclass__(**kwargs)  # type: ignore[misc]  # a class below it
            with self._lock:
                if self._open and self._current is current:
                    self._guard(self._look_at, cls.__module__, cls.__name__, cls)

        return _ClassMethod(of_class)

    def remove(self, lines: MadeLines) -> None:
        """End with a report; the last one leaves collections as they were."""
        with self._lock:
            self._open = tuple(each for each in self._open if each is not lines)
            if not self._open:
                self._replacements.put_back()

    def _noting(self, parts: Callable[[Any], int], name: str) -> Callable[[Any], Any]:
        current = self._current

        def wrap(original: Any) -> Any:
            function = getattr(original, "__func__", original)  # a class's own __new__ is a static method

            @wraps(function)
            def making(self_or_class: Any, *args: Any, **kwargs: Any) -> Any:
                __tracebackhide__ = True
                result = function(self_or_class, *args, **kwargs)
                if self.off is None and self._current is current:
                    self._note(self_or_class if result is None else result, parts, name)
                return result

            return making

        return wrap

    def _note(self, collection: Any, parts: Callable[[Any], int], name: str) -> None:
        try:
            opened = self._open
            if threading.current_thread().name.startswith(_OF_TASKS):  # a task, in the client's process
                return
            if len(opened) > 1 and len({each.client for each in opened}) > 1:  # whose it is, is not known yet
                return
            making = sys._getframe(2)
            caller, called = making.f_back or making, ""
            frame: FrameType | None = making
            while frame is not None and not is_the_users(frame.f_code.co_filename):
                name_of_call = frame.f_code.co_name
                if name_of_call in _NONE_OF_THE_USERS:
                    return
                if not name_of_call.startswith(("_", "<")) and _WITHIN not in frame.f_code.co_qualname:
                    called = name_of_call
                frame = frame.f_back
            if frame is not None:
                try:
                    counted, named = parts(collection), str(getattr(collection, name))
                except (AttributeError, TypeError):  # a plugin of Dask's made something else of it
                    return
                site = (caller.f_code, caller.f_lasti) if name == _OF_FRAMES else None
                for each in opened:
                    each.note(frame, called, counted, named, site)
        except Exception as error:
            self._guard.fail(error)


#: The one of this process.
MAKING = _Making()
