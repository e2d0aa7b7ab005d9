"""Table of a comparison's thread time; figures add up down every column and along every row."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dask_efficiency.report.compare import BucketChange, Comparison, Difference
from dask_efficiency.report.lost_time import WORTH_A_ROW
from dask_efficiency.show.figures import Scale, apportion, money_scale, time_scale

#: Label of the difference between the sum and its causes, with several runs per side.
NOT_BY_CAUSE = "(medians)"
#: Scale of percentages with one decimal.
_PER_MILLE = Scale("%", "per cent", 0.01, 1)


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """Row of the table as displayed; figures that do not apply are empty."""

    #: Name of a bucket or a cause, "lost", "useful", "running", "total" or :data:`NOT_BY_CAUSE`.
    label: str
    #: Thread time.
    before: str
    after: str
    change: str
    #: Largest range among the runs of one side.
    spread: str
    #: Change of the run's wall clock.
    wall_change: str
    #: Per cent of the finalized thread time.
    percent_before: str
    percent_after: str
    money_change: str
    #: Bucket of a cause.
    bucket: str = ""

    @property
    def name(self) -> str:
        """Unique name: ``"thread-noncpu/gil"``."""
        return f"{self.bucket}/{self.label}" if self.bucket else self.label


@dataclass(frozen=True, slots=True)
class ComparisonTable:
    """Thread time by cause on both sides.

    Parts add up to their cause, causes to ``lost``; lost, useful and running time to ``total``; and before plus change
    is after, to the last digit shown.
    """

    thread_scale: Scale
    #: None if a side does not know how long its runs took.
    wall_scale: Scale | None
    #: None unless every run carries a price.
    money_scale: Scale | None
    causes: tuple[ComparisonRow, ...]
    #: Rows of causes by bucket, if all runs know them.
    parts: Mapping[str, tuple[ComparisonRow, ...]]
    lost: ComparisonRow
    useful: ComparisonRow
    #: None if nothing was running.
    running: ComparisonRow | None
    total: ComparisonRow

    @property
    def rows(self) -> tuple[ComparisonRow, ...]:
        """All rows in display order."""
        running = () if self.running is None else (self.running,)
        causes = (row for cause in self.causes for row in (cause, *self.parts.get(cause.label, ())))
        return (*causes, self.lost, self.useful, *running, self.total)

    @property
    def sums(self) -> tuple[int, ...]:
        """Positions of the rows that are sums."""
        return self.rows.index(self.lost), len(self.rows) - 1


@dataclass(frozen=True, slots=True)
class _Line:
    label: str
    before: int
    after: int
    spread: Difference[int] | None = None
    #: Bucket of a part.
    whole: str = ""

    @property
    def name(self) -> str:
        """Unique name."""
        return f"{self.whole}/{self.label}" if self.whole else self.label


@dataclass(frozen=True, slots=True)
class _Steps:
    """One kind of figure, in steps of its scale, by line and side."""

    scale: Scale
    before: Mapping[str, int]
    after: Mapping[str, int]

    def change(self, labels: Sequence[str]) -> str:
        return signed(self.scale, sum(self.after[label] - self.before[label] for label in labels))

    def side(self, steps: Mapping[str, int], labels: Sequence[str]) -> str:
        return self.scale.text(sum(steps[label] for label in labels))


def comparison_table(comparison: Comparison) -> ComparisonTable:
    """Thread time by cause, rounded together."""
    causes = [_Line(cause.bucket, cause.time.before, cause.time.after, cause.time) for cause in comparison.causes]
    rest = comparison.not_by_cause
    if any(rest):
        causes.append(_Line(NOT_BY_CAUSE, *rest))
    others = [
        _Line(label, time.before, time.after, time)
        for label, time in (("useful", comparison.useful), ("running", comparison.running))
        if label == "useful" or any((*time.runs_before, *time.runs_after))
    ]
    lines = [*causes, *others]
    finalized = [line for line in lines if line.label != "running"]
    parts = [part for cause in comparison.causes for part in _part_lines(cause, finalized)]
    seconds = [sum(side) / 1e9 for side in ([line.before for line in lines], [line.after for line in lines])]
    wall = comparison.cluster_seconds
    price = comparison.price_per_thread_hour
    costs = [] if price is None else [s * p / 3600 for s, p in zip(seconds, price, strict=True)]
    time = _steps(lines, parts, fine_scale(max(seconds)), seconds)
    share = _steps(finalized, parts, _PER_MILLE, [1.0, 1.0])
    walls = [wall.before, wall.after]
    wall_steps = _steps(lines, parts, fine_scale(max(walls)), walls) if all(map(math.isfinite, walls)) else None
    cost = _steps(lines, parts, money_scale(max(costs)), costs) if costs and all(map(math.isfinite, costs)) else None

    def row(label: str, lines: Sequence[_Line], spread: Difference[int] | None, whole: str = "") -> ComparisonRow:
        labels = [line.name for line in lines]
        shared = [label for label in labels if label != "running"]
        difference = spread.spread if spread is not None else None
        return ComparisonRow(
            label=str(label),
            before=time.side(time.before, labels),
            after=time.side(time.after, labels),
            change=time.change(labels),
            spread="" if difference is None else time.scale.text(time.scale.steps(difference / 1e9)),
            wall_change="" if wall_steps is None else wall_steps.change(labels),
            percent_before=share.side(share.before, shared) if shared else "",
            percent_after=share.side(share.after, shared) if shared else "",
            money_change="" if cost is None else cost.change(labels),
            bucket=whole,
        )

    by_label = {line.label: row(line.label, [line], line.spread) for line in lines}
    return ComparisonTable(
        thread_scale=time.scale,
        wall_scale=None if wall_steps is None else wall_steps.scale,
        money_scale=None if cost is None else cost.scale,
        causes=tuple(by_label[line.label] for line in causes),
        parts={
            whole: tuple(row(part.label, [part], part.spread, whole) for part in parts if part.whole == whole)
            for whole in dict.fromkeys(part.whole for part in parts)
        },
        lost=row("lost", causes, comparison.lost),
        useful=by_label["useful"],
        running=by_label.get("running"),
        total=row("total", lines, None),
    )


def fine_scale(largest_seconds: float) -> Scale:
    """Scale with one digit more than a report's, as changes are small."""
    return time_scale(largest_seconds / 10 if largest_seconds >= 120.0 else largest_seconds)


def signed(scale: Scale, steps: int) -> str:
    """Figure of a change with its sign; zero has none."""
    return ("+" if steps > 0 else "-" if steps < 0 else "") + scale.text(abs(steps))


def _part_lines(cause: BucketChange, finalized: Sequence[_Line]) -> list[_Line]:
    """Parts of a bucket; several that are small on both sides are joined."""
    bucket = str(cause.bucket)
    least = [WORTH_A_ROW * sum(side) for side in ([one.before for one in finalized], [one.after for one in finalized])]
    parts = [_Line(part.cause, part.time.before, part.time.after, part.time, bucket) for part in cause.parts]
    small = [line for line in parts if line.before < least[0] and line.after < least[1]]
    if len(small) == len(parts):
        return []
    if len(small) > 1:
        joined = sum(line.before for line in small), sum(line.after for line in small)
        parts = [*(line for line in parts if line not in small), _Line(f"{len(small)} more", *joined, whole=bucket)]
    rest = cause.time.before - sum(line.before for line in parts), cause.time.after - sum(line.after for line in parts)
    return [*parts, *([_Line(NOT_BY_CAUSE, *rest, whole=bucket)] if any(rest) else [])]


def _steps(lines: Sequence[_Line], parts: Sequence[_Line], scale: Scale, totals: Sequence[float]) -> _Steps:
    sides = []
    for total, side in zip(totals, ("before", "after"), strict=True):
        steps = rounded({line.label: getattr(line, side) for line in lines}, scale.steps(total))
        for whole in dict.fromkeys(part.whole for part in parts):
            shares = rounded({part.label: getattr(part, side) for part in parts if part.whole == whole}, steps[whole])
            steps |= {f"{whole}/{label}": share for label, share in shares.items()}
        sides.append(steps)
    return _Steps(scale, *sides)


def rounded(weights: Mapping[str, int], whole: int) -> dict[str, int]:
    """Integers in proportion to the weights that add up to ``whole``; one weight may be negative."""
    total = sum(weights.values())
    rest = weights.get(NOT_BY_CAUSE, 0)
    rest_steps = round(Fraction(rest * whole, total)) if total else 0
    labels = [label for label in weights if label != NOT_BY_CAUSE]
    steps = apportion([weights[label] for label in labels], max(whole - rest_steps, 0))
    rounded = dict(zip(labels, steps, strict=True))
    return rounded | {NOT_BY_CAUSE: rest_steps} if NOT_BY_CAUSE in weights else rounded
