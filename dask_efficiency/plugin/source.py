"""Source code of a report: of its ``with`` block, or as Dask recorded it with graphs."""

from __future__ import annotations

import ast
import linecache
import textwrap
import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any

#: Characters of code that a report keeps and its page shows. A guess: some 200 lines.
MAX_CODE = 8_000
#: Characters of a file up to which it is parsed.
MAX_FILE = 1_000_000
#: CPython counts the depth of syntax trees for all threads together, and raises ``SystemError`` if two parse at once
#: while the garbage collector calls Python code, as Dask's does.
_PARSING = threading.Lock()


@dataclass(frozen=True, slots=True)
class SourceLine:
    """Line that is being executed."""

    filename: str
    lineno: int
    #: Globals of the module, by which a file inside an archive is found.
    module: dict[str, Any]


def calling_line(frame: FrameType | None) -> SourceLine | None:
    """Line of a frame, or of its caller if the frame is an ``ExitStack``'s."""
    while frame is not None and frame.f_globals.get("__name__") == "contextlib":
        frame = frame.f_back
    return None if frame is None else SourceLine(frame.f_code.co_filename, frame.f_lineno, frame.f_globals)


def block_at(place: SourceLine | None) -> tuple[str, ...]:
    """Source of the ``with`` block that begins at a line, or of the ``ExitStack`` that entered it, as one text.

    Empty if there is no such block or no source: nothing else of a file is shown.
    """
    lines = [] if place is None else linecache.getlines(place.filename, place.module)
    extent = None if place is None else _extent(lines, place.lineno)
    if extent is None:
        return ()
    start, stop = extent
    first = lines[start - 1]
    # not textwrap.dedent: a string of several lines may begin to the left of the block
    margin = first[: len(first) - len(first.lstrip())]
    return bounded(["".join(line.removeprefix(margin) for line in lines[start - 1 : stop])])


def parsed(text: str) -> ast.Module | None:
    """Syntax tree of a program; None if it is too long, or no Python, such as a cell with magics."""
    if len(text) > MAX_FILE:
        return None
    try:
        with _PARSING:
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _extent(lines: list[str], lineno: int) -> tuple[int, int] | None:
    """First and last line of the innermost block that begins on a line, or of the stack that is entered there."""
    tree = parsed("".join(lines))
    if tree is None:
        return None
    around = [
        (node.lineno, node.end_lineno or lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.With | ast.AsyncWith)
        and node.lineno <= lineno <= (node.end_lineno or lineno)
        and (lineno < node.body[0].lineno or lineno == node.lineno or _is_stack(node))
    ]
    return max(around, default=None)


def _is_stack(node: ast.With | ast.AsyncWith) -> bool:
    calls = (item.context_expr for item in node.items)
    return any(isinstance(call, ast.Call) and ast.unparse(call.func).endswith("ExitStack") for call in calls)


def recorded(spans: Mapping[str, Any], own: Collection[str]) -> tuple[str, ...]:
    """Code that clients sent along with the graphs of their ``own`` spans, if Dask is configured to do so."""
    pieces = [frame.code for span_id in own if span_id in spans for frames in spans[span_id].code for frame in frames]
    return bounded(textwrap.dedent(str(piece)) for piece in dict.fromkeys(pieces))


def bounded(pieces: Iterable[str]) -> tuple[str, ...]:
    """Cut pieces of code to :data:`MAX_CODE` characters together, of which a comment counts what is left out."""
    whole = [piece.rstrip() for piece in pieces]
    total = sum(map(len, whole))
    if total <= MAX_CODE:
        return tuple(whole)
    kept: list[str] = []
    room = MAX_CODE - len(f"# {total} more characters")
    for piece in whole:
        if room:
            kept.append(piece[:room])
            room -= len(kept[-1])
    return (*kept, f"# {total - sum(map(len, kept))} more characters")
