"""Lines: the exact time of each line of code."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from dask_efficiency.accounts.lines import blamed
from dask_efficiency.accounts.profile import Frame
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.stacks import exact_stacks


@dataclass(frozen=True, slots=True)
class LineTime:
    """What one line of code cost, for one reason, in tasks of one prefix."""

    bucket: str
    cause: str
    prefix: str
    #: The line; its function is what it called, as of :func:`blamed`. :data:`NOWHERE` where no sample was taken.
    place: Frame
    #: Exact nanoseconds: those of a bucket, cause and prefix add up to their time.
    ns: int


def line_times(report: EfficiencyReport) -> tuple[LineTime, ...]:
    """All time of a report by line of code, the most costly first."""
    found: Counter[tuple[str, str, str, Frame]] = Counter()
    for row in exact_stacks(report):
        found[row.bucket, row.cause, row.prefix, blamed(row.stack)] += row.ns
    return tuple(LineTime(*key, ns=ns) for key, ns in found.most_common())
