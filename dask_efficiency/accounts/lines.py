"""Lines of code: where threads were, by stack; the user's line that is blamed; the lines that sent the tasks."""

from __future__ import annotations

import importlib.util
import os
import re
import sysconfig
from collections.abc import Collection, Iterable, Mapping
from functools import cache, lru_cache
from typing import Any, Generic, NamedTuple, TypeVar

from dask_efficiency.accounts.checks import MAX_NAMES
from dask_efficiency.accounts.intake import fitting

#: Rows of a table: 1 MB, as a row of 20 shared frames takes some 500 bytes.
MAX_ROWS = 2_000
#: Stands for a prefix: the worker's event loop.
EVENT_LOOP = "(event loop)"
#: Stands for a holder: nobody, as the event loop's thread waited for a core.
NO_CORE = "(no core)"
#: Stands for a bucket: CPU time of processes that tasks started and waited for, which is no thread's.
CHILD_CPU = "child-cpu"
#: Frames of a stack that are kept, the innermost. A guess: below them are mostly the callers of a library.
MAX_DEPTH = 48


class Frame(NamedTuple):
    """A line of code at work."""

    #: Qualified name, such as ``Series.map``.
    function: str
    file: str
    #: Line from 1; 0 if unknown.
    line: int


#: Outermost first.
Stack = tuple[Frame, ...]


#: Ways of computing: outside of the GIL; in a function of C that may hold it; and in Python code.
NATIVE, UNDER_GIL, PYTHON = "", "gil", "python"


class SampleRow(NamedTuple):
    """Row of a profile: where threads spent time, and on what."""

    bucket: str
    #: Cause of waiting; of ``thread-cpu``, the way of computing.
    cause: str
    prefix: str
    #: Stack of the task, without Dask's frames below it; empty where it is not kept.
    stack: Stack


#: Stand for a holder in looks at locks: the looks that saw tasks of a prefix wait, and these tasks, one for each look.
LOOKS, WAITING = "(looks)", "(waiting)"


class HolderRow(NamedTuple):
    """Row of a profile of the GIL, or of locks: its holder while tasks of a prefix waited for it."""

    prefix: str
    #: Prefix of the holder's task; in parentheses if it was no task.
    holder: str
    stack: Stack


class Holdup(NamedTuple):
    """One stretch of time in which one thread blocked others."""

    ns: int
    holder: str
    stack: Stack
    #: Messages that an event loop was at work on, in words: ``"sending tasks of quote (PriceList)"``.
    doing: str = ""


_Row = TypeVar("_Row", SampleRow, HolderRow)


class StackTable(Generic[_Row]):
    """Adds up nanoseconds by row; beyond ``max_rows`` new stacks lose their frames, so that other sums stay right."""

    def __init__(self, max_rows: int = MAX_ROWS) -> None:
        self._max_rows = max_rows
        self._rows: dict[_Row, int] = {}

    def add(self, row: _Row, ns: int) -> None:
        """Add nanoseconds."""
        rows = self._rows
        if row not in rows and len(rows) >= self._max_rows:
            row = row._replace(stack=())
        rows[row] = rows.get(row, 0) + ns

    def rows(self) -> dict[_Row, int]:
        """Nanoseconds by row."""
        return dict(self._rows)


#: Packages that are not the user's own code wherever they are installed, in a checkout as well.
NOT_THE_USERS = ("dask", "distributed", "dask_efficiency")
#: Folders of libraries on any machine: installed packages, and the standard library on Unix (lib/python3.12,
#: lib64/python3.13t, python312.zip) and on Windows (Python312\Lib).
_LIBRARY = re.compile(
    r"[\\/](?:(?:site|dist)-packages|lib(?:64)?[\\/](?:python|pypy)\d[\d.]*t?|python\d+[\\/]lib|python\d+\.zip)[\\/]",
    re.IGNORECASE,
)

#: cloudpickle's file name for functions that travel by value, as those of notebooks and scripts do.
BY_VALUE = "dynamic-code"
#: Starts of the names, in angle brackets, of code that was typed in; generated code of libraries has others.
_TYPED = ("stdin", "string", "input", "console", "ipython-input", "command-", "doctest", BY_VALUE)
#: Part of the qualified name of a nested function, such as a decorator's wrapper.
_LOCAL = "locals>."

#: Part of the file names of Python's import system, and the name that its calls get.
_IMPORTS, IMPORT = "frozen importlib", "import"

#: Stands for the file of a function that is C code: the innermost in a stack, whose caller waits in it.
BUILT_IN = "<built-in>"
#: Names of such functions that say no more than the cause of the wait does.
_PLAIN = frozenset({"acquire", "__enter__", "sleep", "wait", "join"})

#: The demo is a script like a user's.
_DEMO = re.compile(r"[\\/]dask_efficiency[\\/]report[\\/]demo\.py$")
#: Folders of the standard library, and of what runs tasks: they work and wait on behalf of whoever calls them.
_SERVANTS = re.compile(
    rf"^<|[\\/](?:{'|'.join(NOT_THE_USERS)}|tornado)[\\/](?!report[\\/]demo\.py$)"
    r"|[\\/](?:lib(?:64)?[\\/](?:python|pypy)\d[\d.]*t?|python\d+[\\/]lib|python\d+\.zip)[\\/](?!(?:site|dist)-packages[\\/])",
    re.IGNORECASE,
)
#: Files in which threads wait for others on behalf of whoever calls them; and of Dask without its scheduler.
_WAITS = re.compile(r"^<built-in>$|[\\/](?:threading\.py|concurrent[\\/]futures[\\/]\w+\.py|distributed[\\/].+)$")
_DASKS = re.compile(r"[\\/]dask[\\/]")

#: Stands for a line where no sample was taken.
NOWHERE = Frame("", "", 0)
#: File whose functions wait until something can be read, and the function of an event loop that does so when it has
#: nothing to do; its file is not always asyncio's.
_SELECTORS, _TURN = re.compile(r"[\\/]selectors\.py$"), "_run_once"


def has_nothing_to_do(stack: Stack) -> bool:
    """True of an event loop that waits for something to do; others wait by a selector too, such as for a process.

    The stack is a whole one, or begins with what the event loop called.
    """
    *before, innermost = stack[-2:] or [NOWHERE]
    called_by_loop = all(frame.function.rpartition(".")[2] == _TURN for frame in before)
    return called_by_loop and _SELECTORS.search(innermost.file) is not None


def innermost(stack: Stack) -> Frame:
    """Innermost frame that has a line, without the C code that it calls."""
    return next((frame for frame in reversed(stack) if frame.file != BUILT_IN), NOWHERE)


def blamed(stack: Stack) -> Frame:
    """The line of code that is blamed for a stack: that of the innermost frame of the user's own code.

    Its function is the one that the line was calling, or the line's own where it called none. Without the user's own
    code, it is the outermost line of the library at work, in its own function: what this calls serves it, as the
    standard library and Dask do. A decorator's wrapper is not what anybody called: what it wraps stands for it. What
    runs as a module is imported is an import.
    """
    imports = next((i for i, frame in enumerate(stack) if _IMPORTS in frame.file), len(stack))
    # Code that a library generates as it is imported may be named like code that was typed in.
    if imports < len(stack) and not any(is_own(frame) and frame.file[0] != "<" for frame in stack[imports:]):
        return blamed(stack[:imports])._replace(function=IMPORT)
    if not stack:
        return NOWHERE
    own = next((i for i in range(len(stack) - 1, -1, -1) if is_own(stack[i])), None)
    if own is None:
        return _of_library(stack)
    if own + 1 < len(stack) and _IMPORTS in stack[own + 1].file:
        return stack[own]._replace(function=IMPORT)
    called = [frame.function for frame in stack[own + 1 :] if frame.file != BUILT_IN or frame.function not in _PLAIN]
    called = called or [stack[own].function]
    function = next((name for name in called if _LOCAL not in name), called[0])
    return Frame(function, stack[own].file, stack[own].line)


def caller(stack: Stack) -> Frame:
    """The task's own line on the way to the blamed one, where that is in another module of the user's.

    Helpers that many tasks share do not tell which of these called them. A nested function may be the task's own, or a
    decorator's wrapper: of others on the way, these come first.
    """
    own = [frame for frame in stack if is_own(frame)]
    others = [frame for frame in own if frame.file != own[-1].file]
    if not others or own[0].file == own[-1].file:
        return NOWHERE
    there = next((frame for frame in others if _LOCAL not in frame.function), others[0]).file
    return next(frame for frame in reversed(own) if frame.file == there)


def _of_library(stack: Stack) -> Frame:
    """Outermost frame of the library at work: not of Dask or the standard library, if there is another."""
    of_libraries = [frame for frame in stack if not is_servant(frame.file)]
    if not of_libraries:
        last = next((i for i in range(len(stack) - 1, -1, -1) if _DASKS.search(stack[i].file)), None)
        if last is None:
            return next((frame for frame in reversed(stack) if not _WAITS.search(frame.file)), stack[-1])
        while last and _DASKS.search(stack[last - 1].file):
            last -= 1
        of_libraries = [stack[last]]
    nested = of_libraries[0]._replace(function=of_libraries[0].function.rpartition(_LOCAL)[2])
    return next((frame for frame in of_libraries if _LOCAL not in frame.function), nested)


@lru_cache(maxsize=4096)
def is_servant(file: str) -> bool:
    """Check by its path if a file is of the standard library, of Dask, or of what runs tasks."""
    return bool(_SERVANTS.search(file))


def is_import(stack: Stack) -> bool:
    """Check if a stack is of a module's import, also where that module is the user's own and computes meanwhile."""
    return any(_IMPORTS in frame.file for frame in stack)


def place_of(frame: Frame) -> str:
    """A line in short, ``"etl.py:88"``; empty for :data:`NOWHERE`."""
    name = frame.file.replace("\\", "/").rpartition("/")[2]
    return f"{name}:{frame.line}" if frame.file else ""


def is_own(frame: Frame) -> bool:
    """Check if a frame is the user's own code. A nested function travels by value too, and may be a library's."""
    return is_the_users(frame.file) and not (BY_VALUE in frame.file and _LOCAL in frame.function)


@lru_cache(maxsize=4096)
def is_the_users(file: str) -> bool:
    """Check by its path if a file, on any machine, is the user's own code and not a library's."""
    if file.startswith("<"):
        return file[1:].startswith(_TYPED)
    if _DEMO.search(file):
        return True
    return bool(file) and not _LIBRARY.search(file) and not file.startswith(_roots()) and not _starts_a_command(file)


def _starts_a_command(file: str) -> bool:
    """Check for a console script, which an installer wrote and which calls a library's ``main()``."""
    folder, name = os.path.split(file)
    if "." in name:
        return False
    try:  # as ``.venv/bin/dask-efficiency`` it has no whole path
        return os.path.abspath(folder) == fitting(sysconfig.get_path("scripts"))
    except OSError:  # the working directory is gone
        return False


@cache
def _roots() -> tuple[str, ...]:
    """Folders of libraries on this machine."""
    paths = sysconfig.get_paths()
    roots = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    for name in NOT_THE_USERS:
        spec = importlib.util.find_spec(name)
        roots.update(spec.submodule_search_locations or () if spec else ())
    return tuple(fitting(os.path.join(root, "")) for root in sorted(roots))  # as frames name them


#: Graphs of a window that are kept apart; beyond, and beyond :data:`MAX_NAMES` prefixes of all of them or keys of one,
#: the lines are not known. A guess that bounds memory.
MAX_GRAPHS = 1_000

#: Name of all graphs that are not kept apart.
NAMELESS = ""
_NOBODY = {"": ""}


def graph_name(wanted: Any) -> str:
    """Name of a graph by its wanted keys, equal on client and scheduler."""
    if not isinstance(wanted, Collection) or len(wanted) > MAX_NAMES:
        return NAMELESS
    return min(map(fitting, wanted), default=NAMELESS)


class SentGraphs:
    """Prefixes of the graphs that a window's client sent; graphs beyond the bounds share one entry."""

    def __init__(self) -> None:
        self._found: dict[str, set[str]] = {}
        self._size = 0

    def add(self, wanted: Any, prefixes: Iterable[str]) -> None:
        """Add a graph whose tasks have these prefixes."""
        name, new = graph_name(wanted), set(prefixes)
        if name not in self._found and (len(self._found) >= MAX_GRAPHS or self._size + len(new) > MAX_NAMES):
            name = NAMELESS
        known = self._found.setdefault(name, set())
        self._size += len(new - known)
        known |= new

    def to_dict(self) -> dict[str, list[str]]:
        """Prefixes by graph name."""
        return {name: sorted(prefixes) for name, prefixes in self._found.items()}


def sending_lines(sent: Mapping[str, Iterable[str]], lines: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Lines of code that sent the tasks of each prefix, in words; prefixes with a graph of unknown origin are left out.

    ``lines`` has those that sent each graph, ``"etl.py:42"``, with their source, both empty where no line is known.
    """
    found: dict[str, dict[str, str]] = {}
    for name, prefixes in sent.items():
        for prefix in prefixes:
            found.setdefault(prefix, {}).update(lines.get(name, _NOBODY))
    return {prefix: _in_words(of) for prefix, of in found.items() if "" not in of}


def _in_words(lines: Mapping[str, str]) -> str:
    (line, source), *more = lines.items()
    text = f"`{source}` in {line}" if source else line
    if len(more) == 1:
        return f"{text} and {more[0][0]}"
    return f"{text} and {len(more)} more lines" if more else text
