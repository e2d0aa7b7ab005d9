"""The largest loss: one cause of one bucket, or a whole bucket where no cause of it stands out."""

from __future__ import annotations

from dataclasses import dataclass

from dask_efficiency.buckets import Bucket
from dask_efficiency.causes import UNKNOWN
from dask_efficiency.report.lost_time import worth_a_row
from dask_efficiency.report.model import ReportValues

#: A cause of less than this part of the largest bucket says less than the bucket's name does.
STANDS_OUT = 0.5


@dataclass(frozen=True, slots=True)
class Largest:
    """What took most from useful work."""

    bucket: Bucket
    #: Empty for the whole bucket.
    cause: str
    ns: int


def largest_loss(report: ReportValues) -> Largest | None:
    """The largest cause of any bucket, if it is at least half as large as the largest bucket; else that bucket.

    A bucket that has no causes counts as one; time of an unknown cause is no cause. None where nothing is lost.
    """
    losses = report.losses
    if not losses:
        return None
    whole = report.breakdown
    buckets = [Largest(loss.bucket, "", whole.ns(loss.bucket)) for loss in losses]
    parts = [part for bucket in buckets for part in _parts(report, bucket)]
    largest = max(parts, key=lambda part: part.ns, default=buckets[0])
    return largest if largest.ns >= STANDS_OUT * buckets[0].ns else buckets[0]


def _parts(report: ReportValues, bucket: Largest) -> list[Largest]:
    known = report.causes_ns(bucket.bucket)
    if not known:
        return [bucket]
    shown = worth_a_row(report, bucket.bucket)
    return [Largest(bucket.bucket, cause, ns) for cause, ns in shown.items() if cause in known and cause != UNKNOWN]
