"""Tables of the package's numeric constants, by wing: ``python docs/constants.py`` prints them, `make docs` has a page.

A constant is a name in upper case that a module binds to a number, to arithmetic of numbers, or to a tuple of numbers.
Its meaning is the ``#:`` comment above it; constants that follow one another without an empty line share the comment.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "dask_efficiency"

NAME = re.compile(r"_?[A-Z][A-Z0-9_]*")
HEAD = ("| name | value | module | meaning |", "| --- | --- | --- | --- |")
#: Roles of reStructuredText, of which a page shows the target.
ROLE = re.compile(r":[a-z:]+:`~?([^`]+)`")
#: Words of a comment that is also about what follows in its module.
AS_ALL_BELOW = "Chosen, as all below,"
#: Words by which a comment says that its constant bounds memory or time, was chosen on data, or by taste. Others follow
#: from what the comment names: a source, a unit, or what a reader or a machine can take.
GROUNDS = {
    "bound": r"\bbounds? (the )?(memory|time)",
    "taste": r"\bguess|\bby eye\b|\bjudgement\b",
    "data": r"\bchosen (on|by|as)\b|\bchosen, as\b|\btuned on\b|\bby simulation\b|(?<!not )\bmeasured( on\b|[:.,])"
    r"|: measured\b|\bbenchmarks[./]\w",
}


@dataclass(frozen=True, slots=True)
class Constant:
    """A numeric constant of a module."""

    name: str
    #: As it is written.
    value: str
    #: Path within the package.
    module: str
    line: int
    #: Meaning, unit, and how it was chosen; empty where nothing says so.
    meaning: str

    @property
    def ground(self) -> str:
        """Key of :data:`GROUNDS`, or nothing."""
        found = (ground for ground, words in GROUNDS.items() if re.search(words, self.meaning, re.IGNORECASE))
        return next(found, "")

    @property
    def wing(self) -> str:
        """The folder of the package that the module is in."""
        return self.module.partition("/")[0]


def constants(package: Path = PACKAGE) -> Iterator[Constant]:
    """All numeric constants, in the order of modules and lines."""
    for path in sorted(package.rglob("*.py")):
        yield from constants_of(path.read_text(encoding="utf-8"), str(path.relative_to(package)))


def constants_of(source: str, module: str) -> Iterator[Constant]:
    """The numeric constants of one module."""
    lines = source.splitlines()
    meaning, after, like = "", 0, ""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign):
            target, value = node.targets[0], node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            target, value = node.target, node.value
        else:
            continue
        numbers = [(name, of) for name, of in pairs(target, value) if NAME.fullmatch(name) and is_number(of)]
        if numbers:
            meaning = comment_above(lines, node.lineno) or (meaning if node.lineno == after + 1 else "")
            after = node.end_lineno or node.lineno
        said = meaning + like
        if numbers and AS_ALL_BELOW in meaning:
            like = f" Chosen as {numbers[0][0]}."
        for name, number in numbers:
            written = ast.get_source_segment(source, number) or ""
            yield Constant(name, " ".join(written.split()), module, node.lineno, said)


def comment_above(lines: list[str], line: int) -> str:
    """The ``#:`` comment that ends just above a line (from 1), in one line."""
    first = line - 1
    while first and lines[first - 1].startswith("#:"):
        first -= 1
    return " ".join(text.removeprefix("#:").strip() for text in lines[first : line - 1])


def pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Names that an assignment binds, each with its value."""
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for each, of_each in zip(target.elts, value.elts, strict=True):
            yield from pairs(each, of_each)


def is_number(node: ast.expr) -> bool:
    """True for a number, arithmetic of numbers and constants, and a tuple of numbers."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float) and not isinstance(node.value, bool)
    if isinstance(node, ast.UnaryOp):
        return is_number(node.operand)
    if isinstance(node, ast.BinOp):
        sides = (node.left, node.right)
        named = [isinstance(side, ast.Name) and NAME.fullmatch(side.id) is not None for side in sides]
        return all(a or is_number(side) for a, side in zip(named, sides, strict=True)) and not all(named)
    return isinstance(node, ast.Tuple) and bool(node.elts) and all(map(is_number, node.elts))


def markdown(found: Iterable[Constant]) -> str:
    """How many were chosen by what, a table of those chosen on data, and a heading and a table for each wing."""
    listed = list(found)
    decisions = {(one.module, one.meaning): one.ground for one in listed}
    data, taste, bound = (list(decisions.values()).count(ground) for ground in ("data", "taste", "bound"))
    summary = (
        f"{len(listed)} constants with {len(decisions)} comments: {data} say that they were chosen on data, {taste} "
        f"that they are a guess, by eye or by judgement, {bound} that they are a guess that bounds memory or time, and "
        f"{len(decisions) - data - taste - bound} name a source, a unit, or what a reader or a machine can take."
    )
    parts = [summary, "## Chosen on data\n\n" + table(one for one in listed if one.ground == "data")]
    parts += [f"## {wing}\n\n{table(of_wing)}" for wing, of_wing in groupby(listed, key=lambda constant: constant.wing)]
    return "\n\n".join(parts) + "\n"


def table(found: Iterable[Constant]) -> str:
    """Rows in Markdown."""
    rows = [f"| `{one.name}` | `{one.value}` | `{one.module}` | {cell(one.meaning)} |" for one in found]
    return "\n".join([*HEAD, *rows])


def cell(text: str) -> str:
    """A comment as a cell of a table in Markdown."""
    plain = ROLE.sub(r"``\1``", text).replace("``", "`")
    return plain.replace("|", "\\|").replace("<", "\\<").replace("*", "\\*")


if __name__ == "__main__":
    print(markdown(constants()))
