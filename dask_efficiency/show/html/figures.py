"""The numbers that the figures of a page are drawn from: shapes are in ``templates/figures.html``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.accounts.cluster.timeline import Timeline
from dask_efficiency.show.document import (
    Along,
    Box,
    ChangeBar,
    Curve,
    Flames,
    Label,
    Peers,
    Slice,
    Stack,
    Strip,
    bucket_label,
)
from dask_efficiency.show.drawn_buckets import COLOURS, BucketShare, ink, label_point, svg_path, wedges
from dask_efficiency.show.figures import format_seconds

#: Size of a timeline in its own coordinates, finer than a screen.
TIMELINE_WIDTH, TIMELINE_HEIGHT = 1_200, 400

#: Steps of the time axis in seconds, as clocks count.
_STEPS = (
    *(mantissa * 10.0**power for power in range(-6, 0) for mantissa in (1, 2, 5)),
    *(1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0),
    *(14400.0, 21600.0, 43200.0, 86400.0, 172800.0, 432000.0, 864000.0),
)
#: Most steps of a time axis, so that labels do not overlap.
MAX_TICKS = 8

#: Pixels of the areas; below are the labels of the time axis.
_AREA = 220


@dataclass(frozen=True, slots=True)
class Area:
    """Area of one activity, from its top down to the axis."""

    colour: str
    path: str
    hint: str


@dataclass(frozen=True, slots=True)
class Tick:
    """A label of the time axis; its place in per cent."""

    x: str
    anchor: str
    label: str


@dataclass(frozen=True, slots=True)
class DrawnTimeline:
    """Threads by activity through time, stacked in the order of the buckets."""

    areas: tuple[Area, ...]
    ticks: tuple[Tick, ...]
    #: The most threads that there were.
    threads: str
    width: int = TIMELINE_WIDTH
    height: int = TIMELINE_HEIGHT
    area: int = _AREA


def through(timeline: Timeline, slices: Sequence[Slice]) -> DrawnTimeline:
    """The numbers of the figure.

    Parameters
    ----------
    timeline
        At least one bin that holds time.
    slices
        Its activities with their shares, for hints.
    """
    most = max(
        sum(row[i] for row in timeline.activity.values()) / width for i, width in enumerate(timeline.widths) if width
    )
    hints = {each.label.text: f"{each.label.text} {each.percent} %: {each.label.hint}" for each in slices}
    areas = tuple(
        Area(COLOURS[bucket], path, hints.get(bucket, str(bucket))) for bucket, path in _areas(timeline, most)
    )
    threads = f"{most:.0f}" if abs(most - round(most)) < 0.05 else f"{most:.1f}"
    return DrawnTimeline(areas, tuple(_axis(timeline.elapsed_ns / 1e9)), threads)


def _areas(timeline: Timeline, most: float) -> list[tuple[Bucket, str]]:
    """Outlines from the top of the stack down: each covers the lower part of the one before it."""
    stacked = [0] * timeline.bins
    ends = accumulate(timeline.widths)
    right = [round(TIMELINE_WIDTH * end / timeline.elapsed_ns) for end in ends]
    outlines = []
    for bucket in (Bucket(name) for name in timeline.activity):
        stacked = [below + ns for below, ns in zip(stacked, timeline.activity[bucket], strict=True)]
        tops = [
            TIMELINE_HEIGHT - round(TIMELINE_HEIGHT * ns / width / most)
            for ns, width in zip(stacked, timeline.widths, strict=True)
        ]
        outlines.append((bucket, _stepped_outline(right, tops)))
    return outlines[::-1]


def _stepped_outline(right: Sequence[int], tops: Sequence[int]) -> str:
    """A stepped line with everything below it."""
    path = [f"M0 {TIMELINE_HEIGHT}"]
    x, y = 0, TIMELINE_HEIGHT
    for i, (upto, top) in enumerate(zip(right, tops, strict=True)):
        if top != y:
            path.append(f"V{top}")
            y = top
        if i + 1 == len(tops) or tops[i + 1] != top:
            path.append(f"h{upto - x}")
            x = upto
    return "".join((*path, f"V{TIMELINE_HEIGHT}Z"))


def _axis(seconds: float) -> Iterator[Tick]:
    for at in ticks(seconds):
        share = 100 * at / seconds
        anchor = "start" if share < 2 else "end" if share > 98 else "middle"
        yield Tick(f"{share:.2f}", anchor, _time(at))


def ticks(seconds: float) -> list[float]:
    """Round times from 0 to ``seconds``, at most :data:`MAX_TICKS` + 1 of them."""
    step = next((step for step in _STEPS if seconds / step <= MAX_TICKS), seconds)
    return [step * i for i in range(math.floor(seconds / step + 1e-9) + 1)] if seconds > 0 else []


def _time(seconds: float) -> str:
    if not seconds:
        return "0 s"
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= size and seconds % size == 0 and (seconds > 119 or size > 60):
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 1 and seconds % 1 == 0 else format_seconds(seconds)


#: Width of a curve in its own coordinates, finer than a screen; and its height in pixels.
CURVE_WIDTH, CURVE_HEIGHT = 1000, 220

#: Free margin at both ends of a curve, in steps of the width.
_CURVE_MARGIN = 30

#: Most labels of a curve's axis of time.
_MAX_CURVE_TICKS = 5


@dataclass(frozen=True, slots=True)
class Mark:
    """A point of the line, or a label of an axis: its place in per cent and in pixels."""

    x: str
    y: str
    label: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class DrawnCurve:
    """The band, the line and the ideal line as outlines; points, and labels of both axes."""

    band: str
    line: str
    ideal: str
    points: tuple[Mark, ...]
    seconds: tuple[Mark, ...]
    axis: str
    label: str
    width: int = CURVE_WIDTH
    height: int = CURVE_HEIGHT


def curve(block: Curve) -> DrawnCurve:
    """Numbers of the figure; time begins at 0."""
    most = max(max(point.high, point.seconds) for point in block.points) or 1.0
    first, last = (math.log2(block.points[end].at) for end in (0, -1))
    step = (CURVE_WIDTH - 2 * _CURVE_MARGIN) / (last - first) if last > first else 0.0
    left = float(_CURVE_MARGIN) if last > first else CURVE_WIDTH / 2
    xs = [left + step * (math.log2(point.at) - first) for point in block.points]

    def y(seconds: float) -> float:
        return CURVE_HEIGHT * (1 - seconds / most)

    band = [*zip(xs, (y(point.high) for point in block.points), strict=True)]
    band += reversed([*zip(xs, (y(point.low) for point in block.points), strict=True)])
    marks = tuple(
        Mark(f"{100 * x / CURVE_WIDTH:.2f}", f"{y(point.seconds):.1f}", point.label, point.hint)
        for x, point in zip(xs, block.points, strict=True)
    )
    every = ticks(most)
    every = every[:: math.ceil((len(every) - 1) / _MAX_CURVE_TICKS) or 1]
    return DrawnCurve(
        band=f"M{_curve_outline(band)}Z",
        line=f"M{_curve_outline(zip(xs, (y(point.seconds) for point in block.points), strict=True))}",
        ideal=f"M{_curve_outline(zip(xs, (y(min(point.ideal, most)) for point in block.points), strict=True))}",
        points=marks,
        seconds=tuple(Mark("0", f"{y(at):.1f}", format_seconds(at) if at else "0") for at in every),
        axis=block.axis,
        label=block.label,
    )


def _curve_outline(points: Iterable[tuple[float, float]]) -> str:
    return "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


#: Pixels from one row of boxes to the next.
ROW = 18

#: Share of the width below which a box has no room for a letter.
NAMED_SHARE = 0.015


@dataclass(frozen=True, slots=True)
class DrawnBox:
    """A box; its left end and its width in per cent, its top in pixels."""

    left: str
    width: str
    top: int
    hint: str
    #: Text in it; empty if it has no room.
    name: str


@dataclass(frozen=True, slots=True)
class DrawnFlames:
    """The boxes in groups of one colour, each with the colour of its letters."""

    groups: tuple[tuple[str, str, tuple[DrawnBox, ...]], ...]
    height: int


def flames(block: Flames) -> DrawnFlames:
    """The numbers of the figure."""
    whole = block.boxes[0].ns
    groups = (
        (colour, ink(colour), tuple(_drawn(boxes, whole)))
        for colour, boxes in groupby(block.boxes, lambda box: box.colour)
    )
    return DrawnFlames(tuple(groups), ROW * (1 + max(box.depth for box in block.boxes)))


def _drawn(boxes: Iterator[Box], whole: int) -> Iterator[DrawnBox]:
    for box in boxes:
        left, width = 100 * box.left / whole, 100 * box.ns / whole
        name = box.name if box.ns >= NAMED_SHARE * whole else ""
        yield DrawnBox(f"{left:.3f}", f"{width:.3f}", ROW * box.depth, f"{box.name} | {box.hint}", name)


#: Share below which a wedge has no room for its per cent; the legend has it too.
LABELLED_SHARE = 0.08

#: Width of a column of changes, in pixels. By eye, as all sizes here.
CHANGE_WIDTH = 120

#: Shades of a cell, from none to full. A guess.
SHADES = 10

#: Least share with the darkest shade, so that small shares stay pale, however the workers differ. A guess.
FULL_SHADE = 0.2

#: Free margin at both ends of the bar of peers, in per cent of the width.
_PEERS_MARGIN = 4.0


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
    """Cells of a strip that are equally dark."""

    opacity: str
    path: str


@dataclass(frozen=True, slots=True)
class DrawnChange:
    """Position of a change and of the zero line, in pixels."""

    left: str
    width: str
    middle: str
    whole: int


@dataclass(frozen=True, slots=True)
class DrawnPeers:
    """Positions of the dot, of the bar of the peers and of their median, in per cent."""

    value: str
    low: str
    width: str
    median: str


def pie(parts: Sequence[BucketShare]) -> Iterator[DrawnWedge]:
    """The wedges of time by bucket, with the per cent in the wide ones."""
    for wedge in wedges({part.bucket: part.nanoseconds for part in parts}):
        x, y = label_point(wedge, 36)
        label = f"{float(wedge.percent):.0f} %" if wedge.share >= LABELLED_SHARE else ""
        hint = hint_of(bucket_label(wedge.label), wedge.percent)
        yield DrawnWedge(svg_path(wedge, 50), wedge.colour, hint, label, f"{x:.1f}", f"{y:.1f}", ink(wedge.colour))


def hint_of(label: Label, percent: str) -> str:
    """Hint of a shape: name, per cent and meaning."""
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
    """Slices side by side in a row of a table."""
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


def change(drawing: ChangeBar) -> DrawnChange:
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
    """A worker's value and its peers', on an axis from the smallest of all to the largest."""
    values = (drawing.value, drawing.median, drawing.low, drawing.high)
    least, most = min(values), max(values)
    # near zero the distance to zero is what counts
    least = 0.0 if 0 <= least < 0.5 * most else least
    room = 100 - 2 * _PEERS_MARGIN
    value, median, low, high = (_PEERS_MARGIN + room * ((each - least) / (most - least or 1.0)) for each in values)
    return DrawnPeers(f"{value:.1f}", f"{low:.1f}", f"{max(high - low, 0.6):.1f}", f"{median:.1f}")
