"""Growth: how columns of rows in the order of time went on, so that a viewer is sent only what is new."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dask_efficiency.live.bokeh.columns import Columns


@dataclass(frozen=True, slots=True)
class Growth:
    """From the rows that were there to those that are: some of the last ones changed, then more came."""

    #: Index of the first row that changed, and from there on the values by column; without the columns that did not.
    since: int
    changed: Mapping[str, list[Any]]
    #: Rows that came, by column, and how many rows there are then; the first ones go.
    added: Mapping[str, list[Any]]
    rows: int


def growth(then: Columns, now: Columns, *, order: str) -> Growth | None:
    """How the one became the other; None where they have too little in common.

    Parameters
    ----------
    then, now
        The same columns, of one length each.
    order
        The column that tells which row is which; its values grow.
    """
    if not then[order] or not now[order] or now[order][0] not in then[order]:
        return None
    dropped = then[order].index(now[order][0])
    common = len(then[order]) - dropped
    if common > len(now[order]) or (dropped and common == len(now[order])):
        return None
    same = min(_same(then[name][dropped:], values) for name, values in now.items())
    if 2 * same < common:
        return None
    tails = {name: values[same:common] for name, values in now.items()}
    return Growth(
        since=dropped + same,
        changed={name: tail for name, tail in tails.items() if tail != then[name][dropped + same :]},
        added={name: values[common:] for name, values in now.items()},
        rows=len(now[order]),
    )


def _same(then: list[Any], now: list[Any]) -> int:
    """How many of the first values are the same."""
    return next((i for i, (a, b) in enumerate(zip(then, now, strict=False)) if a != b), len(then))
