"""Geometry of a pie: wedges, where their labels stand, and their outlines."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.show.colours import COLOURS, OTHER_COLOUR
from dask_efficiency.show.figures import apportion, format_percent

#: Label of the wedge that holds what is too small for one of its own.
OTHER = "other"


@dataclass(frozen=True, slots=True)
class Wedge:
    """One wedge; angles are turns in [0, 1], clockwise from twelve o'clock."""

    label: str
    colour: str
    nanoseconds: int
    start: float
    stop: float
    #: Per cent without the sign; those of all wedges add up to 100.
    percent: str

    @property
    def share(self) -> float:
        """Share of the whole pie, in (0, 1]."""
        return self.stop - self.start


def wedges(nanoseconds: Mapping[str, int], *, at_most: int = 7) -> tuple[Wedge, ...]:
    """A pie of time by bucket, largest first.

    Parameters
    ----------
    nanoseconds
        By bucket name, as from :meth:`Breakdown.to_nanoseconds`.
    at_most
        Number of wedges, 1 or more. What does not fit is folded into :data:`OTHER`, which comes last.
    """
    if at_most < 1:
        raise ValueError(f"at_most={at_most!r}; expected 1 wedge or more")
    ranked = sorted(((Bucket(name), ns) for name, ns in nanoseconds.items() if ns), key=lambda item: -item[1])
    tenths = apportion([ns for _, ns in ranked], 1000)
    slices = [(str(bucket), COLOURS[bucket], ns, t) for (bucket, ns), t in zip(ranked, tenths, strict=True)]
    if len(slices) > at_most:
        rest = slices[at_most - 1 :]
        slices = slices[: at_most - 1]
        slices.append((OTHER, OTHER_COLOUR, sum(s[2] for s in rest), sum(s[3] for s in rest)))
    total = sum(ns for _, ns in ranked)
    found = []
    before = 0
    for label, colour, ns, share in slices:
        found.append(Wedge(label, colour, ns, before / total, (before + ns) / total, format_percent(share)))
        before += ns
    return tuple(found)


def radians(turn: float) -> float:
    """An angle as mathematics and Bokeh count it: anticlockwise from three o'clock."""
    return math.pi / 2 - 2 * math.pi * turn


def point(turn: float, radius: float) -> tuple[float, float]:
    """A point around the origin, with y downward as in SVG."""
    return radius * math.cos(radians(turn)), -radius * math.sin(radians(turn))


def label_point(wedge: Wedge, radius: float) -> tuple[float, float]:
    """Where a wedge's label stands, at a distance from the origin, with y downward."""
    if wedge.share == 1:
        return 0.0, 0.0
    return point((wedge.start + wedge.stop) / 2, radius)


def svg_path(wedge: Wedge, radius: float) -> str:
    """A wedge's outline around the origin as an SVG path."""
    if wedge.share == 1:
        # an arc that ends where it starts is not drawn
        half = f"A{radius:g} {radius:g} 0 0 1 "
        return f"M0 {-radius:g}{half}0 {radius:g}{half}0 {-radius:g}Z"
    start, stop = (_pair(point(turn, radius)) for turn in (wedge.start, wedge.stop))
    return f"M0 0L{start}A{radius:g} {radius:g} 0 {int(wedge.share > 0.5)} 1 {stop}Z"


def _pair(xy: tuple[float, float]) -> str:
    # adding 0 turns -0.0 into 0.0
    return " ".join(f"{round(number, 3) + 0:g}" for number in xy)
