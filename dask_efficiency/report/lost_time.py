"""Useful, lost and running time of a report as figures that visibly add up."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from dask_efficiency.buckets import GOOD, Breakdown, Bucket
from dask_efficiency.report.figures import Scale, apportion, format_percent, money_scale, time_scale
from dask_efficiency.report.model import ReportValues


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table, as it is shown. A figure that does not apply is empty."""

    #: "useful", "total" or the bucket's name.
    label: str
    thread_time: str
    wall: str
    percent: str
    money: str


@dataclass(frozen=True, slots=True)
class Part:
    """A bucket's part of the finalized time."""

    bucket: Bucket
    nanoseconds: int
    #: Rounded so that all parts make 1000.
    tenths_of_percent: int


@dataclass(frozen=True, slots=True)
class LostTime:
    """The table of lost time. In every column the rows above ``total`` add up to it."""

    thread_scale: Scale
    #: None where the report does not know how long the work took.
    wall_scale: Scale | None
    #: None where the report carries no price.
    money_scale: Scale | None
    useful: Row
    losses: tuple[Row, ...]
    #: None where nothing is.
    running: Row | None
    total: Row
    #: Thread time of the useful and the lost rows together.
    finalized: str
    #: Useful and lost time by bucket, for a bar or a pie.
    parts: tuple[Part, ...]

    @property
    def rows(self) -> tuple[Row, ...]:
        """All lines in the order in which they are shown."""
        running = () if self.running is None else (self.running,)
        return (self.useful, *self.losses, *running, self.total)


def lost_time(report: ReportValues) -> LostTime:
    """The report's thread time by cause, rounded together.

    Returns
    -------
    LostTime
        Per cent are of the finalized time (what ended), so ``running`` has none; thread time, wall
        time and money include it. ``no-work`` is in no figure.
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
    lost = [bucket for bucket in finalized if bucket not in GOOD]
    return LostTime(
        thread_scale=thread_scale,
        wall_scale=wall_scale,
        money_scale=priced,
        useful=_row("useful", columns, [bucket for bucket in GOOD if bucket in parts]),
        losses=tuple(_row(bucket, columns, [bucket]) for bucket in lost),
        running=_row(Bucket.RUNNING, columns, [Bucket.RUNNING]) if Bucket.RUNNING in parts else None,
        total=_row("total", columns, list(parts)),
        finalized=columns[0].text(list(finalized)),
        parts=finalized_parts(report.breakdown),
    )


def loss_cells(table: LostTime) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Heads of the columns that have figures, and the cells of every row."""
    columns = [("lost time by cause", "label"), (f"thread-{table.thread_scale.unit}", "thread_time")]
    if table.wall_scale is not None:
        columns.append((f"wall {table.wall_scale.unit}", "wall"))
    columns.append(("%", "percent"))
    if table.money_scale is not None:
        columns.append(("money", "money"))
    heads = tuple(head for head, _ in columns)
    return heads, [tuple(getattr(row, name) for _, name in columns) for row in table.rows]


@dataclass(frozen=True, slots=True)
class _Column:
    scale: Scale | None
    steps: Mapping[Bucket, int]

    def text(self, buckets: list[Bucket]) -> str:
        if self.scale is None or (buckets and not any(bucket in self.steps for bucket in buckets)):
            return ""
        return self.scale.text(sum(self.steps.get(bucket, 0) for bucket in buckets))


def _column(parts: Mapping[Bucket, int], scale: Scale | None, total: float) -> _Column:
    if scale is None:
        return _Column(None, {})
    steps = apportion(list(parts.values()), scale.steps(total))
    return _Column(scale, dict(zip(parts, steps, strict=True)))


def _row(label: str, columns: tuple[_Column, ...], buckets: list[Bucket]) -> Row:
    return Row(str(label), *(column.text(buckets) for column in columns))


def finalized_parts(breakdown: Breakdown) -> tuple[Part, ...]:
    """Useful and lost time by bucket, good time first and then the losses from the largest down."""
    return parts_of({bucket: ns for bucket, ns in in_order(breakdown).items() if bucket is not Bucket.RUNNING})


def parts_of(parts: Mapping[Bucket, int]) -> tuple[Part, ...]:
    """Nanoseconds by bucket with their shares of the whole."""
    tenths = apportion(list(parts.values()), 1000)
    return tuple(Part(bucket, ns, share) for (bucket, ns), share in zip(parts.items(), tenths, strict=True))


def percent_of(part: Part) -> str:
    """A part's per cent as shown; what is there but rounds to nothing is ``<0.1``."""
    return format_percent(part.tenths_of_percent) if part.tenths_of_percent else "<0.1"


def in_order(breakdown: Breakdown) -> dict[Bucket, int]:
    """Nanoseconds by bucket but ``no-work``: good time, losses from the largest down, ``running``."""
    parts = {Bucket(name): ns for name, ns in breakdown.to_nanoseconds().items()}
    lost = [bucket for bucket in parts if bucket not in (*GOOD, Bucket.NO_WORK, Bucket.RUNNING)]
    lost.sort(key=lambda bucket: -parts[bucket])
    good = [bucket for bucket in GOOD if bucket in parts]
    last = [Bucket.RUNNING] if Bucket.RUNNING in parts else []
    return {bucket: parts[bucket] for bucket in (*good, *lost, *last)}
