"""The numbers that the figures of a page are drawn from: shapes are in ``templates/figures.html``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from dask_efficiency.show.colours import ink
from dask_efficiency.show.document import (
    Along,
    Change,
    Label,
    Peers,
    Slice,
    Stack,
    Strip,
    bucket_label,
    legend_of,
    slices_of,
)
from dask_efficiency.show.html.curve import curve
from dask_efficiency.show.html.flames import flames
from dask_efficiency.show.html.timeline import through
from dask_efficiency.show.parts import Part
from dask_efficiency.show.pie import label_point, svg_path, wedges

__all__ = [
    "along",
    "bar",
    "change",
    "curve",
    "flames",
    "in_words",
    "legend_of",
    "peers",
    "pie",
    "slices_of",
    "stack",
    "strip",
    "through",
]

#: A narrower wedge has no room for its per cent, which the legend has too.
LABELLED_SHARE = 0.08

#: Width of a column of changes, in pixels.
CHANGE_WIDTH = 120

#: Shades of a cell, from nothing to full.
SHADES = 10

#: The least share that has the darkest shade: less is nothing to look at, however the workers differ.
FULL_SHADE = 0.2

#: Of the width, what is left free at both ends beside peers, in per cent.
_MARGIN = 4.0


@dataclass(frozen=True, slots=True)
class Rect:
    """A part of a bar; where it begins and its width in per cent."""

    left: str
    width: str
    colour: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class DrawnWedge:
    """A wedge of a pie, with a label where there is room for one."""

    path: str
    colour: str
    hint: str
    label: str
    x: str
    y: str
    ink: str


@dataclass(frozen=True, slots=True)
class Shade:
    """All cells of a strip that are equally dark."""

    opacity: str
    path: str


@dataclass(frozen=True, slots=True)
class DrawnChange:
    """Where a change begins, in pixels, and where it would be none."""

    left: str
    width: str
    middle: str
    whole: int


@dataclass(frozen=True, slots=True)
class DrawnPeers:
    """Where the dot, the bar of the peers and their median stand, in per cent."""

    value: str
    low: str
    width: str
    median: str


def pie(parts: Sequence[Part]) -> Iterator[DrawnWedge]:
    """The wedges of time by bucket, with the per cent in the wide ones."""
    for wedge in wedges({part.bucket: part.nanoseconds for part in parts}):
        x, y = label_point(wedge, 36)
        label = f"{float(wedge.percent):.0f} %" if wedge.share >= LABELLED_SHARE else ""
        hint = hint_of(bucket_label(wedge.label), wedge.percent)
        yield DrawnWedge(svg_path(wedge, 50), wedge.colour, hint, label, f"{x:.1f}", f"{y:.1f}", ink(wedge.colour))


def hint_of(label: Label, percent: str) -> str:
    """What a shape says when it is pointed at: name, per cent and meaning."""
    return f"{label.text} {percent} %" + (f": {label.hint}" if label.hint else "")


def bar(slices: Sequence[Slice]) -> Iterator[Rect]:
    """Slices side by side over the whole width, each with its hint."""
    whole = sum(each.size for each in slices)
    before = 0
    for each in slices:
        left, width = (100 * size / whole for size in (before, each.size))
        yield Rect(f"{left:.3f}", f"{width:.3f}", each.label.colour, hint_of(each.label, each.percent))
        before += each.size


def stack(drawing: Stack) -> Iterator[Rect]:
    """The same in little room, for a row of a table."""
    before = 0
    for each in drawing.slices:
        left, width = (100 * size / drawing.whole for size in (before, each.size))
        yield Rect(f"{left:.1f}", f"{width:.1f}", each.label.colour)
        before += each.size


def in_words(slices: Sequence[Slice]) -> str:
    """A bar in words."""
    return ", ".join(f"{each.label.text} {each.percent} %" for each in slices)


def along(block: Along) -> Iterator[Rect]:
    """The stretches of a run, from its start to its end."""
    for label, first, last in block.stretches:
        left, width = 100 * first / block.steps, 100 * (last - first) / block.steps
        hint = f"{label.text}: {label.hint}" if label.hint else label.text
        yield Rect(f"{left:g}", f"{width:g}", label.colour, hint)


def change(drawing: Change) -> DrawnChange:
    """A bar to the right of the middle for what grew, and to its left for what shrank."""
    middle = CHANGE_WIDTH / 2
    width = max(abs(drawing.share) * middle, 0.5)
    left = middle if drawing.share > 0 else middle - width
    return DrawnChange(f"{left:.1f}", f"{width:.1f}", f"{middle:g}", CHANGE_WIDTH)


def strip(drawing: Strip) -> Iterator[Shade]:
    """The shares as shades of a colour, one path for each shade."""
    full = max(FULL_SHADE, drawing.largest)
    # what is there at all is seen
    shades = [max(round(SHADES * share / full), 1) if share else 0 for share in drawing.shares]
    runs: dict[int, list[str]] = {}
    x = 0
    for shade, cells in groupby(shades):
        width = len(list(cells))
        runs.setdefault(shade, []).append(f"M{x} .5h{width}")
        x += width
    for shade in sorted(runs):
        if shade:
            yield Shade(f"{shade / SHADES:g}", "".join(runs[shade]))


def peers(drawing: Peers) -> DrawnPeers:
    """A worker's value beside those of its peers, from the smallest of them all to the largest."""
    values = (drawing.value, drawing.median, drawing.low, drawing.high)
    least, most = min(values), max(values)
    # near zero the distance to zero is what counts
    least = 0.0 if 0 <= least < 0.5 * most else least
    room = 100 - 2 * _MARGIN
    value, median, low, high = (_MARGIN + room * ((each - least) / (most - least or 1.0)) for each in values)
    return DrawnPeers(f"{value:.1f}", f"{low:.1f}", f"{max(high - low, 0.6):.1f}", f"{median:.1f}")
