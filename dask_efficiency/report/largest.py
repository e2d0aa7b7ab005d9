"""The largest losses: causes of buckets, or a whole bucket where why it was lost is not known."""

from __future__ import annotations

from dataclasses import dataclass

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.accounts.causes import UNKNOWN, name_of
from dask_efficiency.report.lost_time import worth_a_row
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.show.finding import WORTH_FINDING

#: A bucket of which more than this part is of no known cause is named as a whole.
MOSTLY = 0.5


@dataclass(frozen=True, slots=True)
class Largest:
    """What took most from useful work."""

    bucket: Bucket
    #: Empty for the whole bucket.
    cause: str
    ns: int

    @property
    def kind(self) -> str:
        """What a finding of it is called: ``"thread-noncpu/sleep"``, ``"spill"``."""
        return name_of(self.bucket, self.cause)


def largest_loss(report: EfficiencyReport) -> Largest | None:
    """The largest cause of any bucket; None where nothing is lost."""
    return max(_parts(report), key=lambda part: part.ns, default=None)


def losses_worth_finding(report: EfficiencyReport) -> list[Largest]:
    """Causes, and buckets without, that took the threads at least 3 % of the wall clock; the largest first."""
    least = WORTH_FINDING * report.wall_clock_seconds * report.mean_threads
    return sorted((part for part in _parts(report) if part.ns / 1e9 >= least), key=lambda part: -part.ns)


def _parts(report: EfficiencyReport) -> list[Largest]:
    return [part for loss in report.losses for part in parts_of_loss(report, loss.bucket)]


def parts_of_loss(report: EfficiencyReport, bucket: Bucket) -> list[Largest]:
    """A bucket's causes as far as they are known and worth a row; else the bucket as a whole."""
    whole, known = report.breakdown.ns(bucket), report.causes_ns(bucket)
    shown = {cause: ns for cause, ns in worth_a_row(report, bucket).items() if cause in known and cause != UNKNOWN}
    if not shown or known.get(UNKNOWN, 0) > MOSTLY * whole:
        return [Largest(bucket, "", whole)]
    return [Largest(bucket, cause, ns) for cause, ns in shown.items()]
