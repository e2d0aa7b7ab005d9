"""Stacks: the sampled profile, scaled so that it adds up to the exact times of a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from dask_efficiency.accounts.buckets import HELD, Bucket
from dask_efficiency.accounts.causes import CAUSES, fit, name_of, of_bucket
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.values import ProfileRow
from dask_efficiency.show.figures import apportion

#: In place of a prefix that is not known.
NO_PREFIX = "(no prefix)"

#: A bucket, a cause within it, and a prefix; each of the last two may be empty.
Key = tuple[str, str, str]

#: What tasks held is known by prefix, and so is most of what they held on workers that were lost. Of overhead it is,
#: too, though not by cause at the same time.
BY_PREFIX = (*(bucket for bucket in HELD if bucket not in (Bucket.OVERHEAD, Bucket.RUNNING)), Bucket.LOST_WORKER)


class NoStacksError(ValueError):
    """A report holds no sampled stacks."""


def reason(bucket: str, cause: str) -> str:
    """What time is called by its bucket and, where it has one, its cause: ``"thread-noncpu/gil"``, ``"spill"``."""
    return f"{bucket}/{cause}" if cause else bucket


def cause_rows(report: EfficiencyReport) -> dict[tuple[str, str], int]:
    """Nanoseconds of the whole cluster by bucket and cause, which is empty for a bucket without causes."""
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
        All that was finalized while there was work: those of one bucket add up to it. The prefix is empty where it is
        not known or the time is nobody's; for ``idle/parallelism`` it is that of the tasks that all waited for.
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
        left = {name_of(bucket, cause): causes[name_of(bucket, cause)] - by_cause[cause] for cause in _names(bucket)}
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
    """A bucket's nanoseconds by bare cause; all of them without a name where it has no causes."""
    if bucket not in CAUSES:
        return {"": ns} if ns else {}
    return {name.partition("/")[2]: part for name, part in fit(of_bucket(row, bucket), bucket, ns).items()}


def _shared(ns: int, weights: Mapping[str, int]) -> dict[str, int]:
    """A time by prefix, in proportion to the weights; without a prefix where there are none."""
    if not any(weights.values()):
        return {"": ns}
    return {prefix: part for prefix, part in zip(weights, apportion([*weights.values()], ns), strict=True) if part}


def exact_stacks(report: EfficiencyReport) -> tuple[ProfileRow, ...]:
    """The report's exact times by stack, as far as it was sampled.

    Returns
    -------
    tuple
        Rows of one bucket, cause and prefix add up to :func:`exact_times`, in proportion to those of the profile. Where
        no sample is of them, a single row has an empty stack.
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
    """Those of :func:`exact_stacks` in buckets of which any stack is known."""
    rows = exact_stacks(report)
    known = {row.bucket for row in rows if row.stack}
    return tuple(row for row in rows if row.bucket in known)


def known_stacks(report: EfficiencyReport) -> tuple[ProfileRow, ...]:
    """As :func:`sampled_stacks`, where there are any.

    Raises
    ------
    NoStacksError
        If no stack was sampled.
    """
    if rows := sampled_stacks(report):
        return rows
    raise NoStacksError(f"the report {report.name!r:.80} has no stacks; expected one of tasks that were sampled")
