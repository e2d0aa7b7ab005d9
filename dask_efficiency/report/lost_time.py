"""Useful, lost and running time of a report: the table whose figures add up, and the largest losses."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from dask_efficiency.accounts.buckets import GOOD, UNKNOWN, Bucket, cause_name
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.show.drawn_buckets import BucketShare, finalized_parts, in_order
from dask_efficiency.show.figures import (
    Scale,
    apportion,
    format_count,
    money_scale,
    sentence,
    time_scale,
    workers_named,
)
from dask_efficiency.show.finding import MOST, WORTH_FINDING

#: Share of a whole below which a part of it has no row, no colour and no caveat. By judgement: it reads as 0 %;
#: half or twice of it changes no first screen of the runs in tests/data (``benchmarks.studies.constants``).
WORTH_A_ROW = 0.01


@dataclass(frozen=True, slots=True)
class LostTimeRow:
    """Row of the table as displayed; figures that do not apply are empty."""

    #: "useful", "total", the bucket's name, or the cause's within its bucket.
    label: str
    thread_time: str
    wall: str
    percent: str
    money: str
    bucket: str = ""

    @property
    def name(self) -> str:
        """Unique name: ``"thread-noncpu/gil"``."""
        return f"{self.bucket}/{self.label}" if self.bucket else self.label


@dataclass(frozen=True, slots=True)
class LostTime:
    """Table of lost time; causes add up to the bucket above them, and all other rows to the last one, ``total``."""

    thread_scale: Scale
    #: None if the runtime, or a price, is unknown.
    wall_scale: Scale | None
    money_scale: Scale | None
    #: ``useful``, the losses, each with its known causes below, ``running`` if anything was, and ``total``.
    rows: tuple[LostTimeRow, ...]
    #: Thread time of useful and lost rows together.
    finalized: str
    #: Useful and lost time by bucket.
    parts: tuple[BucketShare, ...]


def lost_time(report: EfficiencyReport) -> LostTime:
    """Thread time by cause, rounded together.

    Per cent are of the finalized time (tasks that ended), so ``running`` has none; the other figures include it.
    ``no-work`` is in no figure.
    """
    parts = in_order(report.breakdown)
    finalized: dict[Bucket, int] = {bucket: ns for bucket, ns in parts.items() if bucket is not Bucket.RUNNING}
    seconds = sum(parts.values()) / 1e9
    thread_scale = time_scale(seconds)
    wall_scale = time_scale(report.cluster_seconds) if 0 < report.cluster_seconds < math.inf else None
    price = report.money(seconds)
    priced = money_scale(price) if price is not None and 0 <= price < math.inf else None
    columns = (
        _column(parts, thread_scale, seconds),
        _column(parts, wall_scale, report.cluster_seconds),
        _column(finalized, Scale("%", "per cent", 0.01, 1), 1.0),
        _column(parts, priced, price or 0.0),
    )
    rows = [_row("useful", columns, [bucket for bucket in GOOD if bucket in parts])]
    for bucket in parts:
        if bucket not in GOOD:
            rows.append(_row(bucket, columns, [bucket]))
            rows += _cause_rows(report, bucket, columns) if bucket in finalized else ()
    rows.append(_row("total", columns, list(parts)))
    whole, shares = columns[0].text(list(finalized)), finalized_parts(report.breakdown)
    return LostTime(thread_scale, wall_scale, priced, tuple(rows), whole, shares)


def worth_a_row(report: EfficiencyReport, bucket: Bucket) -> dict[str, int]:
    """Nanoseconds of a bucket by cause, the largest first, if any is large enough; several small ones are joined."""
    whole, causes = report.breakdown, report.causes_ns(bucket)
    finalized = whole.total_ns - whole.ns(Bucket.NO_WORK, Bucket.RUNNING)
    shown = {cause: ns for cause, ns in causes.items() if ns >= WORTH_A_ROW * finalized}
    rest = [cause for cause in causes if cause not in shown]
    if not shown or len(rest) < 2:
        return causes if shown else {}
    return shown | {f"{len(rest)} more": sum(causes[cause] for cause in rest)}


def why_not_known(report: EfficiencyReport) -> str:
    """Reason why the causes of waiting are unknown, and the workers concerned; may be empty."""
    waited = {loss.bucket: loss.share for loss in report.losses}.get(Bucket.THREAD_NONCPU, 0.0)
    if waited < WORTH_A_ROW or (report.waiting and not report.not_sampled):
        return ""
    if not report.not_sampled:
        return "why threads waited is not known: they were not sampled"
    (reason, _), *others = Counter(report.not_sampled.values()).most_common()
    workers = [worker for worker, why in report.not_sampled.items() if why == reason]
    whose = "" if len(workers) == len(report.by_worker) else f" of {workers_named(workers)}"
    more = f", and {format_count(len(others), 'more reason')} on other workers" if others else ""
    return f"why threads{whose} waited is not known: {sentence(reason)}{more}"


def loss_cells(table: LostTime) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Heads of the columns with figures, and the cells of every row."""
    columns = {"label": "lost time by cause", "thread_time": f"thread-{table.thread_scale.unit}"}
    if table.wall_scale is not None:
        columns["wall"] = f"wall {table.wall_scale.unit}"
    columns["percent"] = "%"
    if table.money_scale is not None:
        columns["money"] = "money"
    return tuple(columns.values()), [tuple(getattr(row, name) for name in columns) for row in table.rows]


@dataclass(frozen=True, slots=True)
class _Column:
    scale: Scale | None
    steps: Mapping[Bucket, int]

    def text(self, buckets: list[Bucket]) -> str:
        if self.scale is None or (buckets and not any(bucket in self.steps for bucket in buckets)):
            return ""
        return self.scale.text(sum(self.steps.get(bucket, 0) for bucket in buckets))

    def shared(self, bucket: Bucket, weights: list[int]) -> list[str]:
        """Figure of a bucket in parts that add up to it."""
        parts = apportion(weights, self.steps.get(bucket, 0))
        return ["" if self.scale is None else self.scale.text(part) for part in parts]


def _column(parts: Mapping[Bucket, int], scale: Scale | None, total: float) -> _Column:
    steps = [] if scale is None else apportion(list(parts.values()), scale.steps(total))
    return _Column(scale, dict(zip(parts, steps, strict=False)))


def _cause_rows(report: EfficiencyReport, bucket: Bucket, columns: tuple[_Column, ...]) -> tuple[LostTimeRow, ...]:
    causes = worth_a_row(report, bucket)
    figures = (column.shared(bucket, list(causes.values())) for column in columns)
    rows = zip(causes, *figures, [str(bucket)] * len(causes), strict=True)
    return tuple(LostTimeRow(*row) for row in rows)


def _row(label: str, columns: tuple[_Column, ...], buckets: list[Bucket]) -> LostTimeRow:
    return LostTimeRow(str(label), *(column.text(buckets) for column in columns))


@dataclass(frozen=True, slots=True)
class CauseLoss:
    """Loss of a bucket, or of the cause in it if there is one."""

    bucket: Bucket
    cause: str
    ns: int

    @property
    def kind(self) -> str:
        """Kind of its finding: ``"thread-noncpu/sleep"``, ``"spill"``."""
        return cause_name(self.bucket, self.cause)


def largest_loss(report: EfficiencyReport) -> CauseLoss | None:
    """Largest cause of any bucket."""
    return max(_losses_by_cause(report), key=lambda part: part.ns, default=None)


def losses_worth_finding(report: EfficiencyReport) -> list[CauseLoss]:
    """Losses that took the threads at least 3 % of the wall clock, the largest first."""
    least = WORTH_FINDING * report.wall_clock_seconds * report.mean_threads
    return sorted((part for part in _losses_by_cause(report) if part.ns / 1e9 >= least), key=lambda part: -part.ns)


def _losses_by_cause(report: EfficiencyReport) -> list[CauseLoss]:
    return [part for loss in report.losses for part in _losses_of_bucket(report, loss.bucket)]


def _losses_of_bucket(report: EfficiencyReport, bucket: Bucket) -> list[CauseLoss]:
    """Causes of a bucket that are known and worth a row; otherwise the bucket as a whole."""
    whole, known = report.breakdown.ns(bucket), report.causes_ns(bucket)
    shown = {cause: ns for cause, ns in worth_a_row(report, bucket).items() if cause in known and cause != UNKNOWN}
    if not shown or known.get(UNKNOWN, 0) > MOST * whole:
        return [CauseLoss(bucket, "", whole)]
    return [CauseLoss(bucket, cause, ns) for cause, ns in shown.items()]
