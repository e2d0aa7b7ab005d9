"""A flame graph as the numbers of a figure: where each box stands, in per cent and pixels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from dask_efficiency.show.colours import ink
from dask_efficiency.show.document import Box, Flames

#: Pixels from one row of boxes to the next.
ROW = 18

#: Of the width: a thinner box has no room for a letter.
NAMED_SHARE = 0.015


@dataclass(frozen=True, slots=True)
class DrawnBox:
    """A box; its left end and its width in per cent, its top in pixels."""

    left: str
    width: str
    top: int
    hint: str
    #: What is written in it; empty where it has no room.
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
        yield DrawnBox(f"{left:.3f}", f"{width:.3f}", ROW * box.depth, f"{box.name} | {box.said}", name)
