"""The timeline of a run as the numbers of a figure: stacked areas on axes, in a few kilobytes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.accounts.cluster.timeline import Timeline
from dask_efficiency.show.colours import COLOURS
from dask_efficiency.show.document import Slice
from dask_efficiency.show.figures import format_seconds

#: Steps of the figure's own coordinates, finer than a screen.
WIDTH = 1_200
HEIGHT = 400

#: Seconds from one label of the time axis to the next: what clocks and people count by.
_STEPS = (
    *(mantissa * 10.0**power for power in range(-6, 0) for mantissa in (1, 2, 5)),
    *(1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0),
    *(14400.0, 21600.0, 43200.0, 86400.0, 172800.0, 432000.0, 864000.0),
)
MAX_TICKS = 8

#: Pixels of the areas; below are the labels of the time axis.
_AREA = 220


@dataclass(frozen=True, slots=True)
class Area:
    """What one activity fills, from its top down to the axis."""

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
    width: int = WIDTH
    height: int = HEIGHT
    area: int = _AREA


def through(timeline: Timeline, slices: Sequence[Slice]) -> DrawnTimeline:
    """The numbers of the figure.

    Parameters
    ----------
    timeline
        At least one bin that holds time.
    slices
        Its activities with their shares, for what an area says when it is pointed at.
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
    right = [round(WIDTH * end / timeline.elapsed_ns) for end in ends]
    outlines = []
    for bucket in (Bucket(name) for name in timeline.activity):
        stacked = [below + ns for below, ns in zip(stacked, timeline.activity[bucket], strict=True)]
        tops = [HEIGHT - round(HEIGHT * ns / width / most) for ns, width in zip(stacked, timeline.widths, strict=True)]
        outlines.append((bucket, _outline(right, tops)))
    return outlines[::-1]


def _outline(right: Sequence[int], tops: Sequence[int]) -> str:
    """A stepped line with everything below it."""
    path = [f"M0 {HEIGHT}"]
    x, y = 0, HEIGHT
    for i, (upto, top) in enumerate(zip(right, tops, strict=True)):
        if top != y:
            path.append(f"V{top}")
            y = top
        if i + 1 == len(tops) or tops[i + 1] != top:
            path.append(f"h{upto - x}")
            x = upto
    return "".join((*path, f"V{HEIGHT}Z"))


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
