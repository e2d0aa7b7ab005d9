"""A curve of seconds by size as the numbers of a figure: a band, a line, an ideal line and two axes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from dask_efficiency.show.document import Curve
from dask_efficiency.show.figures import format_seconds
from dask_efficiency.show.html.timeline import ticks

#: Steps of the figure's own coordinates from left to right, finer than a screen; and its height in pixels.
WIDTH, HEIGHT = 1000, 220

#: Of the width, what is left free at both ends.
_MARGIN = 30

#: Labels of the axis of time, at most.
_MAX_TICKS = 5


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
    width: int = WIDTH
    height: int = HEIGHT


def curve(block: Curve) -> DrawnCurve:
    """The numbers of the figure; time begins at 0."""
    most = max(max(point.high, point.seconds) for point in block.points) or 1.0
    first, last = (math.log2(block.points[end].at) for end in (0, -1))
    step = (WIDTH - 2 * _MARGIN) / (last - first) if last > first else 0.0
    left = float(_MARGIN) if last > first else WIDTH / 2
    xs = [left + step * (math.log2(point.at) - first) for point in block.points]

    def y(seconds: float) -> float:
        return HEIGHT * (1 - seconds / most)

    band = [*zip(xs, (y(point.high) for point in block.points), strict=True)]
    band += reversed([*zip(xs, (y(point.low) for point in block.points), strict=True)])
    marks = tuple(
        Mark(f"{100 * x / WIDTH:.2f}", f"{y(point.seconds):.1f}", point.label, point.hint)
        for x, point in zip(xs, block.points, strict=True)
    )
    every = ticks(most)
    every = every[:: math.ceil((len(every) - 1) / _MAX_TICKS) or 1]
    return DrawnCurve(
        band=f"M{_outline(band)}Z",
        line=f"M{_outline(zip(xs, (y(point.seconds) for point in block.points), strict=True))}",
        ideal=f"M{_outline(zip(xs, (y(min(point.ideal, most)) for point in block.points), strict=True))}",
        points=marks,
        seconds=tuple(Mark("0", f"{y(at):.1f}", format_seconds(at) if at else "0") for at in every),
        axis=block.axis,
        label=block.label,
    )


def _outline(points: Iterable[tuple[float, float]]) -> str:
    return "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
