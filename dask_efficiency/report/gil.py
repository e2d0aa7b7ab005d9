"""The GIL: who holds it while others wait for it, and how much of what tasks compute is under it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.accounts.lines import NATIVE, Frame
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.values import GilHolder


def share_of_holders(report: EfficiencyReport, meant: Callable[[GilHolder], bool]) -> float:
    """Share of the waiting for the GIL while holders of some kind had it; NaN if none were seen."""
    whole = sum(holder.ns for holder in report.gil_holders)
    return sum(holder.ns for holder in report.gil_holders if meant(holder)) / whole if whole else math.nan


def longest_holder(report: EfficiencyReport) -> str:
    """Prefix of the tasks that held the GIL for longest while others waited for it; empty if none were seen."""
    held = Counter[str]()
    for one in report.gil_holders:
        held[one.holder] += one.ns
    return next((holder for holder, _ in held.most_common(1)), "")


def under_gil(report: EfficiencyReport, prefix: str | None = None) -> float:
    """Share of what tasks compute, all or those of a prefix, that is under the GIL; NaN without samples."""
    rows = [row for row in report.profile if row.bucket == Bucket.THREAD_CPU and prefix in (None, row.prefix)]
    whole = sum(row.ns for row in rows)
    return sum(row.ns for row in rows if row.cause != NATIVE) / whole if whole else math.nan


def works_on_text(frame: Frame) -> bool:
    """True for a frame of pandas that works on text."""
    return "pandas" in frame.file and "str" in (frame.file + frame.function).lower().rpartition("pandas")[2]
