"""Damaged and forged files and messages, as Hypothesis strategies.

Files lose bytes, and have bits turned over; whoever forges one writes numbers that nothing has, and checksums that are
right. `make fuzz` draws thousands of examples of each, with memory limited.
"""

from __future__ import annotations

import copy
import json
import zipfile
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import numpy as np
from click.testing import CliRunner
from hypothesis import strategies as st

from dask_efficiency.cli import main
from dask_efficiency.runs.trace.archive import Packing, pack, unpack
from tests.strategies import plain_data

#: Whole numbers at which something overflows, that stand for missing values, or are far too many.
NUMBERS = [-(1 << 63), -(1 << 31), -3, -2, -1, 0, 1, 2, 255, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 53) + 1]
NUMBERS += [(1 << 62) - 1, 1 << 62, (1 << 63) - 1]
#: And those that no column holds.
HUGE = [*NUMBERS, -(1 << 63) - 1, 1 << 63, 1 << 64, 10**400]

numbers = st.sampled_from(NUMBERS)
floats = st.sampled_from([float("nan"), float("inf"), float("-inf"), -1.0, -0.0, 5e-324, 1e-9, 1e18, 1.7e308])


def _nested(depth: int, kind: str) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value] if kind == "[" else {"a": value}
    return value


_ODD = [*HUGE, "", "x", "\x1b[2J\n\u202e", "\ud800", "0", "-1", "1e400", "nan", "x" * 5_000, None, True, [], {}]
_deep = st.builds(_nested, st.sampled_from([3, 200]), st.sampled_from("[{"))
#: In place of any value of JSON.
odd = st.sampled_from(_ODD) | floats | _deep | plain_data.filter(lambda value: not isinstance(value, bytes))


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """What holds each value, and where in it."""
    pairs = list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if type(value) is list else []
    for place, inner in pairs:
        yield value, place
        yield from _places(inner)


@st.composite
def damaged_data(draw: st.DrawFn, value: Any) -> Any:
    """Plain data of which a few values are others, missing, or there twice."""
    value = copy.deepcopy(value)
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(value))
        if not places:
            return draw(odd)
        holder, place = places[draw(st.integers(0, len(places) - 1))]
        how = draw(st.sampled_from(["set", "set", "near", "near", "drop", "twice", "swap"]))
        held = holder[place]
        if how == "near" and type(held) in (int, float):
            holder[place] = held + draw(st.sampled_from([-1, 1, -1000, 10**9, -(10**9), 10**15]))
        elif how == "drop":
            del holder[place]
        elif how == "twice" and isinstance(holder, list):
            holder.insert(place, copy.deepcopy(held))
        elif how == "swap":
            other, there = places[draw(st.integers(0, len(places) - 1))]
            holder[place] = copy.deepcopy(other[there])
        else:
            holder[place] = draw(odd)
    return value


def as_json(value: Any) -> bytes:
    """As a forger writes it: also what is no JSON."""

    def keyed(value: Any) -> Any:
        if isinstance(value, dict):
            return {key if isinstance(key, str) else repr(key): keyed(inner) for key, inner in value.items()}
        return [keyed(inner) for inner in value] if isinstance(value, list) else value

    return json.dumps(keyed(value), default=repr).encode("utf-8", "surrogatepass")


@st.composite
def damaged_bytes(draw: st.DrawFn, content: bytes) -> bytes:
    """Content that ends early, with bits turned over, or with pieces gone, doubled, or of something else."""
    found = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(found) - 1, 0)))
        length = draw(st.sampled_from([1, 2, 8, 100, 5_000]))
        how = draw(st.sampled_from(["bit", "bit", "cut", "gone", "twice", "other"]))
        if how == "cut":
            del found[at:]
        elif how == "gone":
            del found[at : at + length]
        elif how == "twice":
            found[at:at] = found[at : at + length]
        elif how == "other":
            found[at : at + length] = draw(st.binary(min_size=1, max_size=12) | st.sampled_from([b"\x00" * length]))
        elif found:
            found[at] ^= 1 << draw(st.integers(0, 7))
    return bytes(found)


#: In place of a word of a text that people write.
_WORDS = ["1e308", "nan", "inf", "-1e-9", "@", "#", "{", "[", "&a *a", "!!python/object:os", ": "]


@st.composite
def damaged_lines(draw: st.DrawFn, text: str) -> bytes:
    """Text in UTF-8 with other words, such as huge numbers; some lines are gone, doubled or moved."""
    lines = text.split("\n")
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(lines) - 1))
        how = draw(st.sampled_from(["word", "word", "word", "gone", "twice", "moved"]))
        if how == "word":
            words = lines[at].split(" ")
            others = st.sampled_from([*map(str, HUGE), *_WORDS]) | st.sampled_from(text.split()) | st.text(max_size=6)
            words[draw(st.integers(0, len(words) - 1))] = draw(others)
            lines[at] = " ".join(words)
        elif how == "twice":
            lines[at:at] = [lines[at]] * draw(st.sampled_from([1, 100]))
        else:
            line = lines.pop(at)
            if how == "moved":
                lines.insert(draw(st.integers(0, len(lines))), line)
            lines = lines or [""]
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def _members(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(BytesIO(content)) as file:
        return {name: file.read(name) for name in file.namelist()}


def _archive(members: dict[str, bytes]) -> bytes:
    into = BytesIO()
    with zipfile.ZipFile(into, "w", zipfile.ZIP_DEFLATED) as file:
        for name, member in members.items():
            file.writestr(name, member)
    return into.getvalue()


@st.composite
def damaged_archive(draw: st.DrawFn, content: bytes, description: str) -> bytes:
    """An archive of columns as `runs/trace/archive.py` writes them, forged: its checksums are right."""
    members = _members(content)
    described = json.loads(members[description])
    if draw(st.integers(0, 3)):
        groups = described["columns"]
        for name in draw(st.lists(st.sampled_from(sorted(groups)), min_size=1, max_size=2, unique=True)):
            _forge(draw, groups[name], name, members)
    else:
        described = draw(damaged_data(described))
    members[description] = as_json(described)
    return _archive(members)


def _forge(draw: st.DrawFn, group: dict[str, Any], name: str, members: dict[str, bytes]) -> None:
    """Change some values of a group's columns; perhaps take rows away."""
    rows, others, columns = group["rows"], {}, {}
    for column, packing in group["columns"].items():
        columns[column], filled = unpack(Packing(*packing), members[f"{name}/{column}"], rows, others)
        others = {column: filled}
    columns = {column: values.copy() for column, values in columns.items()}
    if draw(st.integers(0, 4)) == 0:
        kept = sorted(draw(st.sets(st.integers(0, max(rows - 1, 0)), max_size=5))) if rows else []
        columns = {column: values[kept] for column, values in columns.items()}
        group["rows"] = rows = len(kept)
    for column in draw(st.lists(st.sampled_from(sorted(columns)), min_size=1, max_size=3)) if rows else ():
        values = columns[column]
        at = slice(None) if draw(st.integers(0, 3)) == 0 else draw(st.integers(0, rows - 1))
        near = st.sampled_from([-(10**12), -(10**9), -1, 1, 10**9, 10**12])
        with np.errstate(over="ignore"):
            values[at] = draw(numbers) if draw(st.booleans()) else values[at] + draw(near)
    for column, values in columns.items():
        # Against nothing, as a forger may.
        packing, members[f"{name}/{column}"], _ = pack(values, {})
        group["columns"][column] = [packing.against, packing.gaps, packing.first, packing.lowest, packing.width]


def check_command(*arguments: object) -> None:
    """Run a command, which prints its result, or an error in one line."""
    ran = CliRunner().invoke(main, list(map(str, arguments)))
    if ran.exception is not None and not isinstance(ran.exception, SystemExit):
        raise ran.exception
    assert ran.exit_code in (0, 1, 2), ran.output
    if ran.exit_code:
        assert len(ran.stderr.strip().splitlines()) == 1, ran.output
        assert len(ran.stderr) < 5_000, ran.stderr
