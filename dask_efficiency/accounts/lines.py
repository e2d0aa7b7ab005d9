"""Lines: which line of the user's own code a stack is put down to."""

from __future__ import annotations

import importlib.util
import os
import re
import sysconfig
from functools import cache, lru_cache

from dask_efficiency.accounts.profile import Frame, Stack

#: Packages that are not the user's own code wherever they are installed, in a checkout as well.
NOT_THE_USERS = ("dask", "distributed", "dask_efficiency")

#: Where libraries are on other machines than this one: installed packages, and the standard library's places on
#: Unix (lib/python3.12, lib64/python3.13t, python312.zip) and on Windows (Python312\Lib).
_LIBRARY = re.compile(
    r"[\\/](?:(?:site|dist)-packages|lib(?:64)?[\\/](?:python|pypy)\d[\d.]*t?|python\d+[\\/]lib|python\d+\.zip)[\\/]",
    re.IGNORECASE,
)

#: How cloudpickle calls the file of a function that travels by value, as those of notebooks and scripts do.
BY_VALUE = "dynamic-code"

#: What people type in has no file: how its names begin, in angle brackets. Code that libraries generate has others.
_TYPED = ("stdin", "string", "input", "console", "ipython-input", "command-", "doctest", BY_VALUE)

#: In the qualified name of a function within another, as the wrappers of decorators are.
_LOCAL = "locals>."

#: In the names of the files that import modules, and what they do.
_IMPORTS, IMPORT = "frozen importlib", "import"

#: In place of a line where no sample was taken.
NOWHERE = Frame("", "", 0)


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
    # What a library generates as it is imported may have the name of what people type.
    if imports < len(stack) and not any(_is_own(frame) and frame.file[0] != "<" for frame in stack[imports:]):
        return blamed(stack[:imports])._replace(function=IMPORT)
    if not stack:
        return NOWHERE
    last = len(stack) - 1
    own = next((i for i in range(last, -1, -1) if _is_own(stack[i])), last)
    called = [frame.function for frame in stack[own + 1 :]] or [stack[own].function]
    function = next((name for name in called if _LOCAL not in name), called[0])
    return Frame(function, stack[own].file, stack[own].line)


def place_of(frame: Frame) -> str:
    """A line as people say it: ``"etl.py:88"``; empty for :data:`NOWHERE`."""
    name = frame.file.replace("\\", "/").rpartition("/")[2]
    return f"{name}:{frame.line}" if frame.file else ""


def _is_own(frame: Frame) -> bool:
    """Whether a frame is the user's own. Functions within functions travel by value, too, and may be a library's."""
    return is_the_users(frame.file) and not (BY_VALUE in frame.file and _LOCAL in frame.function)


@lru_cache(maxsize=4096)
def is_the_users(file: str) -> bool:
    """Whether a file is the user's own code, and not a library's, by its path on whatever machine it is."""
    if file.startswith("<"):
        return file[1:].startswith(_TYPED)
    return bool(file) and not _LIBRARY.search(file) and not file.startswith(_roots()) and not _starts_a_command(file)


def _starts_a_command(file: str) -> bool:
    """Whether it is what an installer writes for a console script, which calls a library's ``main()``."""
    folder, name = os.path.split(file)
    return folder == sysconfig.get_path("scripts") and "." not in name


@cache
def _roots() -> tuple[str, ...]:
    """Where libraries are on this machine."""
    paths = sysconfig.get_paths()
    roots = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    for name in NOT_THE_USERS:
        spec = importlib.util.find_spec(name)
        roots.update(spec.submodule_search_locations or () if spec else ())
    return tuple(os.path.join(root, "") for root in sorted(roots))
