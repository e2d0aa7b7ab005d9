"""A stacked bar in characters: eighth-blocks where there is colour, letters where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from dask_efficiency.show.colours import LETTERS
from dask_efficiency.show.figures import apportion
from dask_efficiency.show.parts import Part

#: Left blocks by eighths of a cell.
BLOCKS = " ▏▎▍▌▋▊▉█"


@dataclass(frozen=True, slots=True)
class Cell:
    """One character of the bar: its left eighths belong to one part, the others to the next."""

    left: int
    right: int
    eighths: int

    @property
    def character(self) -> str:
        """The block to print in the left part's colour, on the right part's."""
        return BLOCKS[self.eighths]


def cells(weights: Sequence[int], width: int) -> list[Cell]:
    """A bar of ``width`` cells, divided in proportion to the weights to an eighth of a cell.

    Returns
    -------
    list
        Empty where every weight is 0. ``left`` and ``right`` are positions in ``weights``. A cell
        has two colours; where more than two parts meet in one, the two longest share it.
    """
    eighths = apportion(weights, 8 * width)
    if not any(eighths):
        return []
    ends = [0]
    for count in eighths:
        ends.append(ends[-1] + count)
    row = []
    for cell in range(width):
        runs = [
            (overlap, part)
            for part, (start, stop) in enumerate(pairwise(ends))
            if (overlap := min(stop, 8 * cell + 8) - max(start, 8 * cell)) > 0
        ]
        longest = sorted(sorted(runs, reverse=True)[:2], key=lambda run: run[1])
        left, right = longest[0], longest[-1]
        row.append(Cell(left[1], right[1], 8 if left == right else _eighths(left[0], right[0])))
    return row


def _eighths(left: int, right: int) -> int:
    return min(max(round(8 * left / (left + right)), 1), 7)


def letters(parts: Sequence[Part], width: int) -> str:
    """The bar as one letter a cell."""
    counts = apportion([part.nanoseconds for part in parts], width)
    return "".join(LETTERS[part.bucket] * count for part, count in zip(parts, counts, strict=True))


def packed(lengths: Sequence[int], width: int, gap: int = 2) -> list[list[int]]:
    """Lines of items, by position, none longer than ``width`` unless a single item is."""
    lines: list[list[int]] = []
    room = 0
    for item, length in enumerate(lengths):
        if not lines or length + gap > room:
            lines.append([item])
            room = width - length
        else:
            lines[-1].append(item)
            room -= length + gap
    return lines
