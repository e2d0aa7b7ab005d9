"""Lines: which line of the user's own code a stack is put down to, and the exact time of each."""

from __future__ import annotations

import importlib.util
import os
import re
import sysconfig
from collections import Counter
from dataclasses import dataclass
from functools import cache, lru_cache

from dask_efficiency.accounts.profile import Frame, Stack
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.stacks import exact_stacks

#: Packages that are not the user's own code wherever they are installed, in a checkout as well.
NOT_THE_USERS = ("dask", "distributed", "dask_efficiency")

#: Where libraries are on other machines than this one: installed packages, and the standard library's places on
#: Unix (lib/python3.12, lib64/python3.13t, python312.zip) and on Windows (Python312\Lib).
_LIBRARY = re.compile(
    r"[\\/](?:(?:site|dist)-packages|lib(?:64)?[\\/](?:python|pypy)\d[\d.]*t?|python\d+[\\/]lib|python\d+\.zip)[\\/]",
    re.IGNORECASE,
)

#: What people type in has no file: how its names begin, in angle brackets. Code that libraries generate has others.
_TYPED = ("stdin", "string", "input", "console", "ipython-input", "command-", "doctest")

#: In the qualified name of a function within another, as the wrappers of decorators are.
_LOCAL = "locals>."

#: In the names of the files that import modules, and what they do.
_IMPORTS, IMPORT = "frozen importlib", "import"

#: In place of a line where no sample was taken.
NOWHERE = Frame("", "", 0)


@dataclass(frozen=True, slots=True)
class LineTime:
    """What one line of code cost, for one reason, in tasks of one prefix."""

    bucket: str
    cause: str
    prefix: str
    #: The line; its function is what it called, as of :func:`blamed`. :data:`NOWHERE` where no sample was taken.
    place: Frame
    #: Exact nanoseconds: those of a bucket, cause and prefix add up to their time.
    ns: int


def line_times(report: EfficiencyReport) -> tuple[LineTime, ...]:
    """All time of a report by line of code, the most costly first."""
    found: Counter[tuple[str, str, str, Frame]] = Counter()
    for row in exact_stacks(report):
        found[row.bucket, row.cause, row.prefix, blamed(row.stack)] += row.ns
    return tuple(LineTime(*key, ns=ns) for key, ns in found.most_common())


def blamed(stack: Stack) -> Frame:
    """The line of code that a stack is put down to.

    Returns
    -------
    Frame
        File and line of the innermost frame of the user's own code, or of the innermost frame of all where none is the
        user's; its function is the one that the line was calling, or the line's own where it called none. A decorator's
        wrapper is not what anybody called: what it wraps stands for it. What runs as a module is imported is an import.
    """
    imports = next((i for i, frame in enumerate(stack) if _IMPORTS in frame.file), len(stack))
    if imports < len(stack) and not any(is_the_users(frame.file) for frame in stack[imports:]):
        return blamed(stack[:imports])._replace(function=IMPORT)
    if not stack:
        return NOWHERE
    last = len(stack) - 1
    own = next((i for i in range(last, -1, -1) if is_the_users(stack[i].file)), last)
    called = [frame.function for frame in stack[own + 1 :]] or [stack[own].function]
    function = next((name for name in called if _LOCAL not in name), called[0])
    return Frame(function, stack[own].file, stack[own].line)


def place_of(frame: Frame) -> str:
    """A line as people say it: ``"etl.py:88"``; empty for :data:`NOWHERE`."""
    name = frame.file.replace("\\", "/").rpartition("/")[2]
    return f"{name}:{frame.line}" if frame.file else ""


@lru_cache(maxsize=4096)
def is_the_users(file: str) -> bool:
    """Whether a file is the user's own code, and not a library's, by its path on whatever machine it is."""
    if file.startswith("<"):
        return file[1:].startswith(_TYPED)
    return bool(file) and not _LIBRARY.search(file) and not file.startswith(_roots())


@cache
def _roots() -> tuple[str, ...]:
    """Where libraries are on this machine."""
    paths = sysconfig.get_paths()
    roots = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    for name in NOT_THE_USERS:
        spec = importlib.util.find_spec(name)
        roots.update(spec.submodule_search_locations or () if spec else ())
    return tuple(os.path.join(root, "") for root in sorted(roots))
