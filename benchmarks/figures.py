"""Figures of a claim, each a line of JSON that ``benchmarks.claims`` reads from what a benchmark prints."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from typing import Any

#: Beginning of the line of a figure.
MARK = '{"figure": '


def rounded(number: float) -> float:
    """Two digits of a measured number, and a count as it is."""
    found = number if float(number).is_integer() else float(f"{number:.2g}")
    return int(found) if float(found).is_integer() else found


def figure(
    name: str,
    measured: float | Sequence[float],
    unit: str = "",
    *,
    of: int | None = None,
    at_most: float | None = None,
    at_least: float | None = None,
) -> bool:
    """Print a figure: the median of what was measured, the least and the most, and whether it reaches its goal.

    Parameters
    ----------
    name
        It stands before the figure in the table, and pages quote it by that.
    of
        The whole of which it is a part, as in 9 of 10.

    Returns
    -------
    bool
        False where it misses its goal.
    """
    each = [float(one) for one in measured] if isinstance(measured, Sequence) else [float(measured)]
    value = statistics.median(each)
    found: dict[str, Any] = {"figure": name, "value": rounded(value)}
    if len(each) > 1:
        found["spread"] = [rounded(min(each)), rounded(max(each))]
    if unit:
        found["unit"] = unit
    if of is not None:
        found["of"] = of
    holds = (at_most is None or value <= at_most) and (at_least is None or value >= at_least)
    goals = {"at_most": at_most, "at_least": at_least}
    if goals := {goal: limit for goal, limit in goals.items() if limit is not None}:
        found |= {**goals, "holds": holds}
    print(json.dumps(found, ensure_ascii=False), flush=True)
    return holds
