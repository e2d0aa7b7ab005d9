"""Stacks: the sampled profile, scaled to the exact times of a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from dask_efficiency.accounts.buckets import CAUSES, HELD, Bucket, cause_name, causes_of, fit_causes
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.values import ProfileRow
from dask_efficiency.show.figures import apportion

#: Stands for an unknown prefix.
NO_PREFIX = "(no prefix)"

#: Bucket, cause and prefix; cause and prefix may be empty.
Key = tuple[str, str, str]

#: Buckets known by prefix: held time, and most of that on lost workers. Overhead is known by prefix, too, but not by
#: prefix and cause.
BY_PREFIX = (*(bucket for bucket in HELD if bucket not in (Bucket.OVERHEAD, Bucket.RUNNING)), Bucket.LOST_WORKER)


class NoStacksError(ValueError):
    """The report has no sampled stacks."""


def reason(bucket: str, cause: str) -> str:
    """Bucket and, if there is one, cause: ``"thread-noncpu/gil"``, ``"spill"``."""
    return f"{bucket}/{cause}" if cause else bucket


def cause_rows(report: EfficiencyReport) -> dict[tuple[str, str], int]:
    """Nanoseconds of the cluster by bucket and cause; the cause is empty for buckets without causes."""
    whole = report.breakdown
    causes = _by_cause(report)
    return {
        (str(bucket), cause): ns
        for bucket in map(Bucket, whole)
        for cause, ns in _causes(causes, bucket, whole.ns(bucket)).items()
    }


def exact_times(report: EfficiencyReport) -> dict[Key, int]:
    """Nanoseconds by bucket, cause and prefix.

    Returns
    -------
    dict
        All time finalized while there was work; rows of a bucket add up to it. The prefix is empty if unknown or if the
        time belongs to no task; for ``idle/parallelism`` it is that of the tasks that all waited for.
    """
    whole = report.breakdown
    causes = _by_cause(report)
    found: Counter[Key] = Counter()
    for bucket in map(Bucket, whole):
        if bucket in (Bucket.NO_WORK, Bucket.RUNNING):
            continue
        by_cause: Counter[str] = Counter()
        for prefix, row in report.by_prefix.items() if bucket in BY_PREFIX else ():
            own = _causes(report.causes_by_prefix.get(prefix, {}), bucket, row.ns(bucket))
            by_cause.update(own)
            found.update({(str(bucket), cause, prefix): ns for cause, ns in own.items()})
        rest = max(0, whole.ns(bucket) - by_cause.total())
        left = {
            cause_name(bucket, cause): causes[cause_name(bucket, cause)] - by_cause[cause] for cause in _names(bucket)
        }
        for cause, ns in _causes(left, bucket, rest).items():
            waited_for = report.waited_for if cause == "parallelism" else {}
            found.update({(str(bucket), cause, prefix): part for prefix, part in _shared(ns, waited_for).items()})
    return dict(found)


def _by_cause(report: EfficiencyReport) -> Counter[str]:
    causes: Counter[str] = Counter()
    for row in report.causes_by_worker.values():
        causes.update(row)
    return causes


def _names(bucket: Bucket) -> tuple[str, ...]:
    return CAUSES.get(bucket, ())


def _causes(row: Mapping[str, int], bucket: Bucket, ns: int) -> dict[str, int]:
    """Nanoseconds of a bucket by bare cause; under an empty name if it has no causes."""
    if bucket not in CAUSES:
        return {"": ns} if ns else {}
    return {name.partition("/")[2]: part for name, part in fit_causes(causes_of(row, bucket), bucket, ns).items()}


def _shared(ns: int, weights: Mapping[str, int]) -> dict[str, int]:
    """Time by prefix in proportion to weights; under an empty prefix without weights."""
    if not any(weights.values()):
        return {"": ns}
    return {prefix: part for prefix, part in zip(weights, apportion([*weights.values()], ns), strict=True) if part}


def exact_stacks(report: EfficiencyReport) -> tuple[ProfileRow, ...]:
    """Exact times by stack, as far as sampled.

    Returns
    -------
    tuple
        Rows of a bucket, cause and prefix add up to :func:`exact_times`, in proportion to the profile. Without a sample
        there is one row with an empty stack.
    """
    sampled: dict[Key, list[ProfileRow]] = {}
    for row in report.profile:
        sampled.setdefault((row.bucket, row.cause, row.prefix), []).append(row)
    found: list[ProfileRow] = []
    for key, ns in exact_times(report).items():
        rows = [row for row in sampled.get(key, ()) if row.ns > 0] or [ProfileRow(*key, stack=(), ns=1)]
        parts = apportion([row.ns for row in rows], ns)
        found += (replace(row, ns=part) for row, part in zip(rows, parts, strict=True) if part)
    return tuple(found)


def sampled_stacks(report: EfficiencyReport) -> tuple[ProfileRow, ...]:
    """Rows of :func:`exact_stacks` in buckets with any known stack."""
    rows = exact_stacks(report)
    known = {row.bucket for row in rows if row.stack}
    return tuple(row for row in rows if row.bucket in known)


def known_stacks(report: EfficiencyReport) -> tuple[ProfileRow, ...]:
    """Rows of :func:`sampled_stacks`; raises if there are none.

    Raises
    ------
    NoStacksError
        If no stack was sampled.
    """
    if rows := sampled_stacks(report):
        return rows
    raise NoStacksError(f"the report {report.name!r:.80} has no stacks; expected one of tasks that were sampled")
