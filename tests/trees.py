"""The package as syntax trees: each module is parsed once in a process, and its nodes are listed once."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import dask_efficiency

PACKAGE = Path(dask_efficiency.__file__).parent


@cache
def sources() -> dict[str, str]:
    """The source of each module, by its path in the package."""
    return {path.relative_to(PACKAGE).as_posix(): path.read_text("utf-8") for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def nodes() -> dict[str, list[ast.AST]]:
    """All nodes of each module's tree, as `ast.walk` lists them."""
    return {module: list(ast.walk(ast.parse(source))) for module, source in sources().items()}
