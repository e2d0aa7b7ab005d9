"""Names of source files: notebook cells, and functions that travelled by value without the name of their script."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from dask_efficiency.accounts.lines import BY_VALUE, Frame


def typed_in() -> Iterator[tuple[str, str]]:
    """Name and source of each cell that ran, the latest first; empty outside IPython."""
    shell = _shell()
    cells = [] if shell is None else shell.history_manager.input_hist_parsed
    for number in range(len(cells) - 1, 0, -1):
        yield f"In[{number}]", cells[number]


def cell_of(file: str) -> str:
    """Name of the cell that IPython stored in a file, as in its tracebacks; otherwise the file."""
    shell = _shell()
    known = None if shell is None else shell.compile.format_code_name(file)
    return file if known is None else str(known[1])


def _shell() -> Any:
    """IPython's shell in this process, if there is one."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    # a shell without a history, or without names of cells, is of no use
    usable = hasattr(getattr(shell, "compile", None), "format_code_name") and getattr(shell, "history_manager", None)
    return shell if usable else None


#: Bytes of the largest script that is parsed. A guess.
MAX_BYTES = 2_000_000
#: End of the qualified name of a lambda or comprehension, after the function around it.
_UNNAMED = re.compile(r"(?:\.<locals>\.<\w+>)+$")


def in_the_script(frame: Frame) -> Frame:
    """Frame with the name of this process's script, or of the notebook's cell, that has its line.

    cloudpickle 3.1.2 and later name the file of a function that travels by value ``<dynamic-code>``. The file is that
    of the script, or of the last cell, with this function at this line.
    """
    if BY_VALUE not in frame.file:
        cell = cell_of(frame.file)
        return frame if cell == frame.file else frame._replace(file=cell)
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    if isinstance(script, str) and _has(_functions(script), frame):
        return frame._replace(file=script)
    outermost = frame.function.partition(".")[0].strip("<>")
    for name, source in typed_in():
        if outermost in source and _has(_functions_in(source), frame):
            return frame._replace(file=name)
    return frame


def _has(functions: tuple[tuple[str, int, int], ...], frame: Frame) -> bool:
    """Look for the line; a comprehension or lambda belongs to the function around it.

    Stacks have qualified names of functions, tracebacks bare ones.
    """
    function = _UNNAMED.sub("", frame.function)
    inner = f".{function}"
    return any(
        (name == function or name.endswith(inner)) and first <= frame.line <= last for name, first, last in functions
    )


@lru_cache(maxsize=4)
def _functions(script: str) -> tuple[tuple[str, int, int], ...]:
    """Qualified name, first and last line of each function of a file; empty if it cannot be read."""
    try:
        return () if Path(script).stat().st_size > MAX_BYTES else _functions_in(Path(script).read_bytes())
    except OSError:
        return ()


@lru_cache(maxsize=256)
def _functions_in(source: str | bytes) -> tuple[tuple[str, int, int], ...]:
    try:
        return tuple(_within(ast.parse(source), ""))
    except (SyntaxError, ValueError, RecursionError):
        return ()


def _within(node: ast.AST, prefix: str) -> Iterator[tuple[str, int, int]]:
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)):
            name = prefix + inner.name
            yield name, inner.lineno, inner.end_lineno or inner.lineno
            yield from _within(inner, f"{name}.<locals>.")
        elif isinstance(inner, ast.Lambda):
            yield f"{prefix}<lambda>", inner.lineno, inner.end_lineno or inner.lineno
            yield from _within(inner, f"{prefix}<lambda>.<locals>.")
        elif isinstance(inner, ast.ClassDef):
            yield from _within(inner, f"{prefix}{inner.name}.")
        else:
            yield from _within(inner, prefix)
