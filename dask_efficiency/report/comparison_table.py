"""Table of a comparison's thread time; figures add up down every column and along every row."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
    #: Thread time, and the largest range of it among the runs of one side.
    before: str
    after: str
    change: str
    spread: str
    #: Change of the run's wall clock.
    wall_change: str
    #: Per cent of the finalized thread time.
    percent_before: str
    percent_after: str
    money_change: str
    #: Bucket of a cause.
    bucket: str = ""
    time: Difference[int] = field(default=Difference((0,), (0,)), compare=False)

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
    time: Difference[int]
    #: Bucket of a part.
    whole: str = ""

    @property
    def name(self) -> str:
        """Unique name."""
        return f"{self.whole}/{self.label}" if self.whole else self.label


def _sums(before: int, after: int) -> Difference[int]:
    """Difference of sums, which have no spread."""
    return Difference((before,), (after,))


def _sum(lines: Sequence[_Line]) -> Difference[int]:
    return _sums(sum(line.time.before for line in lines), sum(line.time.after for line in lines))


@dataclass(frozen=True, slots=True)
class _Steps:
    """One kind of figure, in steps of its scale, by name of a line."""

    scale: Scale
    before: Mapping[str, int]
    after: Mapping[str, int]

    def texts(self, names: Sequence[str]) -> tuple[str, str, str]:
        """Sums of some lines before and after, and the change."""
        before, after = (sum(steps[name] for name in names) for steps in (self.before, self.after))
        return self.scale.text(before), self.scale.text(after), signed(self.scale, after - before)


def comparison_table(comparison: Comparison) -> ComparisonTable:
    """Thread time by cause, rounded together."""
    causes = [_Line(cause.bucket, cause.time) for cause in comparison.causes]
    if any(rest := comparison.not_by_cause):
        causes.append(_Line(NOT_BY_CAUSE, _sums(*rest)))
    finalized = [*causes, _Line("useful", comparison.useful)]
    lines = [*finalized, *([_Line("running", comparison.running)] if comparison.running.occurs else [])]
    parts = [part for cause in comparison.causes for part in _part_lines(cause, finalized)]
    whole = _sum(lines)
    seconds = [whole.before / 1e9, whole.after / 1e9]
    wall = [comparison.cluster_seconds.before, comparison.cluster_seconds.after]
    price = comparison.price_per_thread_hour
    costs = [math.nan] if price is None else [s * p / 3600 for s, p in zip(seconds, price, strict=True)]
    time = _steps(lines, parts, fine_scale(max(seconds)), seconds)
    share = _steps(finalized, parts, _PER_MILLE, [1.0, 1.0])
    walls = _steps(lines, parts, fine_scale(max(wall)), wall) if all(map(math.isfinite, wall)) else None
    cost = _steps(lines, parts, money_scale(max(costs)), costs) if all(map(math.isfinite, costs)) else None

    def row(label: str, lines: Sequence[_Line], time_of: Difference[int], bucket: str = "") -> ComparisonRow:
        names = [line.name for line in lines]
        shared = [name for name in names if name != "running"]
        spread = time_of.spread
        return ComparisonRow(
            str(label),
            *time.texts(names),
            "" if spread is None else time.scale.figure(spread / 1e9),
            "" if walls is None else walls.texts(names)[-1],
            *(share.texts(shared)[:2] if shared else ("", "")),
            "" if cost is None else cost.texts(names)[-1],
            bucket,
            time_of,
        )

    by_label = {line.label: row(line.label, [line], line.time) for line in lines}
    return ComparisonTable(
        thread_scale=time.scale,
        wall_scale=None if walls is None else walls.scale,
        money_scale=None if cost is None else cost.scale,
        causes=tuple(by_label[line.label] for line in causes),
        parts={
            whole: tuple(row(part.label, [part], part.time, whole) for part in parts if part.whole == whole)
            for whole in dict.fromkeys(part.whole for part in parts)
        },
        lost=row("lost", causes, comparison.lost),
        useful=by_label["useful"],
        running=by_label.get("running"),
        total=row("total", lines, whole),
    )


def fine_scale(largest_seconds: float) -> Scale:
    """Scale with one digit more than a report's, as changes are small."""
    return time_scale(largest_seconds / 10 if largest_seconds >= 120.0 else largest_seconds)


def signed(scale: Scale, steps: int) -> str:
    """Figure of a change with its sign; zero has none."""
    return ("+" if steps > 0 else "-" if steps < 0 else "") + scale.text(abs(steps))


def _part_lines(cause: BucketChange, finalized: Sequence[_Line]) -> list[_Line]:
    """Parts of a bucket; several that are small on both sides are joined."""
    bucket, whole = str(cause.bucket), _sum(finalized)
    parts = [_Line(part.cause, part.time, bucket) for part in cause.parts]
    small = [
        line
        for line in parts
        if line.time.before < WORTH_A_ROW * whole.before and line.time.after < WORTH_A_ROW * whole.after
    ]
    if len(small) == len(parts):
        return []
    if len(small) > 1:
        parts = [*(line for line in parts if line not in small), _Line(f"{len(small)} more", _sum(small), bucket)]
    known = _sum(parts)
    rest = cause.time.before - known.before, cause.time.after - known.after
    return [*parts, *([_Line(NOT_BY_CAUSE, _sums(*rest), bucket)] if any(rest) else [])]


def _steps(lines: Sequence[_Line], parts: Sequence[_Line], scale: Scale, totals: Sequence[float]) -> _Steps:
    sides = []
    for total, side in zip(totals, ("before", "after"), strict=True):
        steps = rounded({line.label: getattr(line.time, side) for line in lines}, scale.steps(total))
        for whole in dict.fromkeys(part.whole for part in parts):
            weights = {part.label: getattr(part.time, side) for part in parts if part.whole == whole}
            steps |= {f"{whole}/{label}": share for label, share in rounded(weights, steps[whole]).items()}
        sides.append(steps)
    return _Steps(scale, *sides)


def rounded(weights: Mapping[str, int], whole: int) -> dict[str, int]:
    """Integers in proportion to the weights that add up to ``whole``; one weight may be negative."""
    total = sum(weights.values())
    rest = round(Fraction(weights.get(NOT_BY_CAUSE, 0) * whole, total)) if total else 0
    labels = [label for label in weights if label != NOT_BY_CAUSE]
    steps = apportion([weights[label] for label in labels], max(whole - rest, 0))
    found = dict(zip(labels, steps, strict=True))
    return found | {NOT_BY_CAUSE: rest} if NOT_BY_CAUSE in weights else found
