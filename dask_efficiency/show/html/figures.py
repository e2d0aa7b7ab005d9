"""The numbers that the figures of a page are drawn from, by name: shapes are in ``templates/figures.html``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, groupby
from typing import Any, TypeAlias

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.accounts.cluster.timeline import Timeline
from dask_efficiency.show.document import (
    Along,
    ChangeBar,
    Curve,
    Flames,
    Label,
    Levels,
    Peers,
    Slice,
    Strip,
    Trend,
    bucket_label,
)
from dask_efficiency.show.drawn_buckets import COLOURS, LABELLED_SHARE, BucketShare, ink, label_point, svg_path, wedges
from dask_efficiency.show.figures import format_seconds

#: Numbers and texts of one shape, by the names that its template uses.
Shape: TypeAlias = dict[str, Any]

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
#: Pixels of what a figure draws, without the labels of its axes; levels in a cell have a fifth. By eye.
CURVE_HEIGHT = 220


def through(timeline: Timeline, slices: Sequence[Slice]) -> Shape:
    """Threads by activity through time, stacked in the order of the buckets; at least one bin holds time."""
    most = max(
        sum(row[i] for row in timeline.activity.values()) / width for i, width in enumerate(timeline.widths) if width
    )
    hints = {each.label.text: f"{each.label.text} {each.percent} %: {each.label.hint}" for each in slices}
    return {
        "areas": [
            {"colour": COLOURS[bucket], "path": path, "hint": hints.get(bucket, str(bucket))}
            for bucket, path in _areas(timeline, most)
        ],
        "ticks": [*_axis(timeline.elapsed_ns / 1e9)],
        "threads": f"{most:.0f}" if abs(most - round(most)) < 0.05 else f"{most:.1f}",
        "width": TIMELINE_WIDTH,
        "height": TIMELINE_HEIGHT,
        "area": CURVE_HEIGHT,
    }


def _areas(timeline: Timeline, most: float) -> list[tuple[Bucket, str]]:
    """Outlines from the top of the stack down: each covers the lower part of the one before it."""
    stacked = [0] * timeline.bins
    right = [round(TIMELINE_WIDTH * end / timeline.elapsed_ns) for end in accumulate(timeline.widths)]
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


#: Pixels between two lines in which there is room for both names. By eye.
_ROOM = 11


def levels(block: Levels) -> Shape:
    """Stacked areas, lines, and labels of the axis of time; ``most`` is above 0."""
    bins = -(-block.elapsed_ns // block.bin_ns)
    right = [round(TIMELINE_WIDTH * min(1.0, (i + 1) * block.bin_ns / block.elapsed_ns)) for i in range(bins)]
    stacked, outlines = [0] * bins, []
    for label, amounts in block.areas:
        stacked = [below + max(0, amount) for below, amount in zip(stacked, amounts, strict=True)]
        tops = [TIMELINE_HEIGHT - round(TIMELINE_HEIGHT * min(1.0, amount / block.most)) for amount in stacked]
        outlines.append({"colour": label.colour, "hint": hint_of_area(label), "path": _stepped_outline(right, tops)})
    height, lines, last = CURVE_HEIGHT // 5 if block.small else CURVE_HEIGHT, [], -math.inf
    for amount, name in sorted(block.lines, reverse=True):
        y = height * (1 - amount / block.most)
        named = y - last >= _ROOM and not block.small
        lines.append({"y": f"{y:.1f}", "name": name if named else ""})
        last = y if named else last
    return {
        "areas": outlines[::-1],
        "lines": lines,
        "ticks": [] if block.small else [*_axis(block.elapsed_ns / 1e9)],
        "width": TIMELINE_WIDTH,
        "height": TIMELINE_HEIGHT,
        "area": height,
    }


def hint_of_area(label: Label) -> str:
    """Hint of an area: name and meaning."""
    return f"{label.text}: {label.hint}" if label.hint else label.text


def _axis(seconds: float) -> Iterator[Shape]:
    """Labels of the time axis, and their places in per cent."""
    for at in ticks(seconds):
        share = 100 * at / seconds
        anchor = "start" if share < 2 else "end" if share > 98 else "middle"
        yield {"x": f"{share:.2f}", "anchor": anchor, "label": _time(at)}


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


#: Width of a curve in its own coordinates, finer than a screen.
CURVE_WIDTH = 1000
#: Free margin at both ends of a curve, in steps of the width.
_CURVE_MARGIN = 30
#: Most labels of a curve's axis of time.
_MAX_CURVE_TICKS = 5


def curve(block: Curve) -> Shape:
    """Outlines of the band, the line and the ideal line, points, and labels of the axis of time, which begins at 0."""
    most = max(max(point.high, point.seconds) for point in block.points) or 1.0
    first, last = (math.log2(block.points[end].at) for end in (0, -1))
    step = (CURVE_WIDTH - 2 * _CURVE_MARGIN) / (last - first) if last > first else 0.0
    left = float(_CURVE_MARGIN) if last > first else CURVE_WIDTH / 2
    xs = [left + step * (math.log2(point.at) - first) for point in block.points]

    def y(seconds: float) -> float:
        return CURVE_HEIGHT * (1 - seconds / most)

    def line(seconds: Iterable[float]) -> list[str]:
        return [f"{x:.1f} {y(s):.1f}" for x, s in zip(xs, seconds, strict=True)]

    band = [*line(point.high for point in block.points), *line(point.low for point in block.points)[::-1]]
    every = ticks(most)
    every = every[:: math.ceil((len(every) - 1) / _MAX_CURVE_TICKS) or 1]
    return {
        "band": f"M{'L'.join(band)}Z",
        "line": f"M{'L'.join(line(point.seconds for point in block.points))}",
        "ideal": f"M{'L'.join(line(min(point.ideal, most) for point in block.points))}",
        "points": [
            {"x": f"{100 * x / CURVE_WIDTH:.2f}", "y": f"{y(one.seconds):.1f}", "label": one.label, "hint": one.hint}
            for x, one in zip(xs, block.points, strict=True)
        ],
        "seconds": [{"y": f"{y(at):.1f}", "label": format_seconds(at) if at else "0"} for at in every],
        "axis": block.axis,
        "label": block.label,
        "width": CURVE_WIDTH,
        "height": CURVE_HEIGHT,
    }


#: Pixels of a figure of runs over time.
_TREND = 120


def trend(block: Trend) -> Shape:
    """A dot for each run, in order, and a line for the median of each stretch; in per cent, and pixels from the top."""
    steps = max(1, len(block.points))

    def y(share: float) -> str:
        return f"{8 + (_TREND - 8) * (1 - share):.1f}"

    return {
        "dots": [
            {"x": f"{100 * (i + 0.5) / steps:.2f}", "y": y(share), "hint": hint}
            for i, (share, hint) in enumerate(block.points)
        ],
        "medians": [
            {"left": f"{100 * first / steps:.2f}", "right": f"{100 * stop / steps:.2f}", "y": y(share)}
            for first, stop, share in block.stretches
        ],
        "height": _TREND,
    }


#: Pixels from one row of boxes to the next.
ROW = 18
#: Share of the width below which a box has no room for a letter.
NAMED_SHARE = 0.015


def flames(block: Flames) -> Shape:
    """Boxes in groups of one colour, each with the colour of its letters; places are in per cent, tops in pixels."""
    whole = block.boxes[0].ns

    def drawn(boxes: Iterable[Any]) -> list[Shape]:
        return [
            {
                "left": f"{100 * box.left / whole:.3f}",
                "width": f"{100 * box.ns / whole:.3f}",
                "top": ROW * box.depth,
                "hint": f"{box.name} | {box.hint}",
                "name": box.name if box.ns >= NAMED_SHARE * whole else "",
            }
            for box in boxes
        ]

    groups = groupby(block.boxes, lambda box: box.colour)
    return {
        "groups": [(colour, ink(colour), drawn(boxes)) for colour, boxes in groups],
        "height": ROW * (1 + max(box.depth for box in block.boxes)),
    }


#: Width of a column of changes, in pixels. By eye, as all sizes here.
CHANGE_WIDTH = 120
#: Shades of a cell, from none to full. A guess.
SHADES = 10
#: Least share with the darkest shade, so that small shares stay pale, however the workers differ. A guess.
FULL_SHADE = 0.2
#: Free margin at both ends of the bar of peers, in per cent of the width.
_PEERS_MARGIN = 4.0


def pie(parts: Sequence[BucketShare]) -> Iterator[Shape]:
    """Wedges of time by bucket, with the per cent in the wide ones."""
    for wedge in wedges({part.bucket: part.nanoseconds for part in parts}):
        x, y = label_point(wedge, 36)
        yield {
            "path": svg_path(wedge, 50),
            "colour": wedge.colour,
            "hint": hint_of(bucket_label(wedge.label), wedge.percent),
            "label": f"{float(wedge.percent):.0f} %" if wedge.share >= LABELLED_SHARE else "",
            "x": f"{x:.1f}",
            "y": f"{y:.1f}",
            "ink": ink(wedge.colour),
        }


def hint_of(label: Label, percent: str) -> str:
    """Hint of a shape: name, per cent and meaning."""
    return f"{label.text} {percent} %" + (f": {label.hint}" if label.hint else "")


def bar(slices: Sequence[Slice], whole: int = 0, *, decimals: int = 3) -> Iterator[Shape]:
    """Slices side by side, each with its hint, over their part of the whole, which they fill by default."""
    whole, before = whole or sum(each.size for each in slices), 0
    for each in slices:
        left, width = (f"{100 * size / whole:.{decimals}f}" for size in (before, each.size))
        yield {"left": left, "width": width, "colour": each.label.colour, "hint": hint_of(each.label, each.percent)}
        before += each.size


def in_words(slices: Sequence[Slice]) -> str:
    """A bar in words."""
    return ", ".join(f"{each.label.text} {each.percent} %" for each in slices)


def along(block: Along) -> Iterator[Shape]:
    """Stretches of a run, from its start to its end."""
    for label, first, last in block.stretches:
        left, width = (f"{100 * steps / block.steps:g}" for steps in (first, last - first))
        hint = f"{label.text}: {label.hint}" if label.hint else label.text
        yield {"left": left, "width": width, "colour": label.colour, "hint": hint}


def change(drawing: ChangeBar) -> Shape:
    """A bar to the right of the middle for what grew, and to its left for what shrank; in pixels."""
    middle = CHANGE_WIDTH / 2
    width = max(abs(drawing.share) * middle, 0.5)
    left = middle if drawing.share > 0 else middle - width
    return {"left": f"{left:.1f}", "width": f"{width:.1f}", "middle": f"{middle:g}", "whole": CHANGE_WIDTH}


def strip(drawing: Strip) -> Iterator[Shape]:
    """Shares as shades of a colour, one path for each shade."""
    full = max(FULL_SHADE, drawing.largest)
    # what is there at all is seen
    shades = [max(round(SHADES * share / full), 1) if share else 0 for share in drawing.shares]
    runs: dict[int, list[str]] = {}
    x = 0
    for shade, cells in groupby(shades):
        width = len(list(cells))
        runs.setdefault(shade, []).append(f"M{x} .5h{width}")
        x += width
    return ({"opacity": f"{shade / SHADES:g}", "path": "".join(runs[shade])} for shade in sorted(runs) if shade)


def peers(drawing: Peers) -> Shape:
    """Places of the dot, of the bar of the peers and of their median, in per cent from the smallest to the largest."""
    values = (drawing.value, drawing.median, drawing.low, drawing.high)
    least, most = min(values), max(values)
    # near zero the distance to zero is what counts
    least = 0.0 if 0 <= least < 0.5 * most else least
    room = 100 - 2 * _PEERS_MARGIN
    value, median, low, high = (_PEERS_MARGIN + room * ((each - least) / (most - least or 1.0)) for each in values)
    return {
        "value": f"{value:.1f}",
        "low": f"{low:.1f}",
        "width": f"{max(high - low, 0.6):.1f}",
        "median": f"{median:.1f}",
    }
