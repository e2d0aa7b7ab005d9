"""Culprits: the lines of code that lost most time, with reasons and holders of the GIL."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

from dask_efficiency.accounts.buckets import GOOD
from dask_efficiency.accounts.lines import EVENT_LOOP, Frame, blamed, is_the_users, place_of
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.stacks import exact_stacks
from dask_efficiency.report.values import Culprit


@dataclass(frozen=True, slots=True)
class LineTime:
    """Exact cost of one line of code, for one reason, in tasks of one prefix."""

    bucket: str
    cause: str
    prefix: str
    #: The line, with the function that it called, as in :func:`blamed`; :data:`NOWHERE` without a sample.
    place: Frame
    ns: int


def line_times(report: EfficiencyReport) -> tuple[LineTime, ...]:
    """All time of a report by line of code, the most costly first."""
    found: Counter[tuple[str, str, str, Frame]] = Counter()
    for row in exact_stacks(report):
        found[row.bucket, row.cause, row.prefix, blamed(row.stack)] += row.ns
    return tuple(LineTime(*key, ns=ns) for key, ns in found.most_common())


#: Culprits of a report; :meth:`~dask_efficiency.EfficiencyReport.to_frame` by line has all. By eye.
MAX_CULPRITS = 20


def find_culprits(report: EfficiencyReport) -> tuple[Culprit, ...]:
    """Lines that lost most time, at most :data:`MAX_CULPRITS`, the most costly first.

    Times by bucket, cause and prefix are exact, and divided over lines in proportion to samples.
    """
    lost = [each for each in line_times(report) if each.bucket not in GOOD]
    held_by = _gil_held_by(report)
    return tuple(
        Culprit(
            each.bucket,
            each.cause,
            each.prefix,
            place_of(each.place),
            each.place.function,
            each.ns / 1e9,
            held_by.get(each.prefix, "") if each.cause == "gil" else "",
            # of a library's line, the user's line that sent the tasks
            report.computed_by.get(each.prefix, "") if each.place.file and not is_the_users(each.place.file) else "",
        )
        for each in lost[:MAX_CULPRITS]
    )


def _gil_held_by(report: EfficiencyReport) -> dict[str, str]:
    found: defaultdict[str, Counter[tuple[str, Frame]]] = defaultdict(Counter)
    for row in report.gil_holders:
        found[row.prefix][row.holder, blamed(row.stack)] += row.ns
    return {prefix: holder_text(*holders.most_common(1)[0][0]) for prefix, holders in found.items()}


def holder_text(holder: str, place: Frame) -> str:
    """Holder of the GIL in words: ```f` in etl.py:12 (prefix clean)``, or the event loop."""
    where = place_text(place)
    if holder == EVENT_LOOP:
        return f"the worker's event loop, {where}" if where else "the worker's event loop"
    return f"{where} (prefix {holder})" if where else f"tasks of prefix {holder}"


def place_text(place: Frame) -> str:
    """Place in words: ```f` in etl.py:12``; empty if unknown."""
    return f"`{place.function}` in {place_of(place)}" if place.file else ""
