"""By value: a function of a script reaches workers without the name of its file, which the script itself knows."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from dask_efficiency.accounts.lines import BY_VALUE
from dask_efficiency.accounts.profile import Frame

#: Larger scripts are not looked into.
MAX_BYTES = 2_000_000


def in_the_script(frame: Frame) -> Frame:
    """A frame under the name of this process's script, if it travelled by value and that has the function at this line.

    cloudpickle 3.1.2 and later call the file of such a function ``<dynamic-code>``.
    """
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    if BY_VALUE not in frame.file or not isinstance(script, str):
        return frame
    for name, first, last in _functions(script):
        if name == frame.function and first <= frame.line <= last:
            return frame._replace(file=script)
    return frame


@lru_cache(maxsize=4)
def _functions(script: str) -> tuple[tuple[str, int, int], ...]:
    """Qualified name, first and last line of each function of a file; none where it cannot be read as Python."""
    try:
        file = Path(script)
        if file.stat().st_size > MAX_BYTES:
            return ()
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return ()
    return tuple(_within(tree, ""))


def _within(node: ast.AST, prefix: str) -> Iterator[tuple[str, int, int]]:
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)):
            name = prefix + inner.name
            yield name, inner.lineno, inner.end_lineno or inner.lineno
            yield from _within(inner, f"{name}.<locals>.")
        elif isinstance(inner, ast.ClassDef):
            yield from _within(inner, f"{prefix}{inner.name}.")
        else:
            yield from _within(inner, prefix)
