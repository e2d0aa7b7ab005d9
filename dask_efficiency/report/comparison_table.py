"""Table of a comparison's thread time; figures add up down every column and along every row."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias

from dask_efficiency.report.compare import CauseChange, Comparison
from dask_efficiency.report.difference import Difference
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
    #: Price in any currency.
    money_before: str
    money_after: str
    money_change: str
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
    #: None unless all runs know their runtime, or a price.
    wall_scale: Scale | None
    money_scale: Scale | None
    #: Causes, each with its parts below, ``lost``, ``useful``, ``running`` if anything was, and ``total``.
    rows: tuple[ComparisonRow, ...]
    lost: ComparisonRow

    @property
    def sums(self) -> tuple[int, ...]:
        """Positions of the rows that are sums."""
        return self.rows.index(self.lost), len(self.rows) - 1


#: Thread time by label; of parts, by the label of their bucket and their own.
_Times: TypeAlias = Mapping[str, Difference[int]]
_Parts: TypeAlias = Mapping[str, _Times]


@dataclass(frozen=True, slots=True)
class _Column:
    """One kind of figure, in steps of its scale, by name of a row; without a scale it is empty."""

    scale: Scale | None
    before: Mapping[str, int]
    after: Mapping[str, int]

    def texts(self, names: Sequence[str]) -> tuple[str, str, str]:
        """Sums of some rows before and after, and the change; empty if none of them has such a figure."""
        known = [name for name in names if name in self.before]
        if self.scale is None or (names and not known):
            return "", "", ""
        before, after = (sum(steps[name] for name in known) for steps in (self.before, self.after))
        return self.scale.text(before), self.scale.text(after), signed(self.scale, after - before)


def comparison_table(comparison: Comparison) -> ComparisonTable:
    """Thread time by cause, rounded together."""
    causes = {str(cause.bucket): cause.time for cause in comparison.causes}
    if any(rest := comparison.not_by_cause):
        causes[NOT_BY_CAUSE] = _sums(*rest)
    finalized = {**causes, "useful": comparison.useful}
    lines = {**finalized, "running": comparison.running} if comparison.running.occurs else finalized
    parts = {str(cause.bucket): _parts(cause, sum_of(finalized.values())) for cause in comparison.causes}
    whole = sum_of(lines.values())
    seconds = [whole.before / 1e9, whole.after / 1e9]
    wall = [comparison.cluster_seconds.before, comparison.cluster_seconds.after]
    price = comparison.price_per_thread_hour
    costs = [math.nan] if price is None else [s * p / 3600 for s, p in zip(seconds, price, strict=True)]
    scale = fine_scale(max(seconds))
    time = _column(lines, parts, scale, seconds)
    share = _column(finalized, parts, _PER_MILLE, [1.0, 1.0])
    walls = _column(lines, parts, fine_scale(max(wall)), wall)
    cost = _column(lines, parts, money_scale(max(costs)), costs)

    def row(label: str, time_of: Difference[int], names: Sequence[str], bucket: str = "") -> ComparisonRow:
        spread = "" if time_of.spread is None else scale.figure(time_of.spread / 1e9)
        shares = share.texts(names)[:2] if names else ("", "")
        changes = walls.texts(names)[-1], *shares, *cost.texts(names)
        return ComparisonRow(label, *time.texts(names), spread, *changes, bucket, time_of)

    rows = []
    for cause, of_cause in causes.items():
        rows.append(row(cause, of_cause, [cause]))
        rows += [row(label, part, [f"{cause}/{label}"], cause) for label, part in parts.get(cause, {}).items()]
    lost = row("lost", comparison.lost, list(causes))
    others = [row(label, time_of, [label]) for label, time_of in lines.items() if label not in causes]
    rows += [lost, *others, row("total", whole, list(lines))]
    return ComparisonTable(scale, walls.scale, cost.scale, tuple(rows), lost)


def fine_scale(largest_seconds: float) -> Scale:
    """Scale with one digit more than a report's, as changes are small."""
    return time_scale(largest_seconds / 10 if largest_seconds >= 120.0 else largest_seconds)


def signed(scale: Scale, steps: int) -> str:
    """Figure of a change with its sign; zero has none."""
    return ("+" if steps > 0 else "-" if steps < 0 else "") + scale.text(abs(steps))


def _sums(before: int, after: int) -> Difference[int]:
    """Difference of sums, which have no spread."""
    return Difference((before,), (after,))


def sum_of(times: Collection[Difference[int]]) -> Difference[int]:
    """Sum of times by the medians of each side."""
    return _sums(sum(time.before for time in times), sum(time.after for time in times))


def _parts(cause: CauseChange, whole: Difference[int]) -> _Times:
    """Parts of a bucket; several that are small on both sides are joined."""

    def is_small(time: Difference[int]) -> bool:
        return time.before < WORTH_A_ROW * whole.before and time.after < WORTH_A_ROW * whole.after

    parts = {part.cause: part.time for part in cause.parts}
    small = [time for time in parts.values() if is_small(time)]
    if len(small) == len(parts):
        return {}
    if len(small) > 1:
        parts = {label: time for label, time in parts.items() if not is_small(time)}
        parts[f"{len(small)} more"] = sum_of(small)
    known = sum_of(parts.values())
    rest = cause.time.before - known.before, cause.time.after - known.after
    return {**parts, NOT_BY_CAUSE: _sums(*rest)} if any(rest) else parts


def _column(times: _Times, parts: _Parts, scale: Scale, totals: Sequence[float]) -> _Column:
    """Figures that add up to the totals; none if these are unknown."""
    if not all(map(math.isfinite, totals)):
        return _Column(None, {}, {})
    sides = []
    for total, side in zip(totals, ("before", "after"), strict=True):
        steps = rounded({label: getattr(time, side) for label, time in times.items()}, scale.steps(total))
        for bucket, rows in parts.items():
            weights = {label: getattr(time, side) for label, time in rows.items()}
            steps |= {f"{bucket}/{label}": share for label, share in rounded(weights, steps[bucket]).items()}
        sides.append(steps)
    return _Column(scale, *sides)


def rounded(weights: Mapping[str, int], whole: int) -> dict[str, int]:
    """Integers in proportion to the weights that add up to ``whole``; one weight may be negative."""
    total = sum(weights.values())
    rest = round(Fraction(weights.get(NOT_BY_CAUSE, 0) * whole, total)) if total else 0
    labels = [label for label in weights if label != NOT_BY_CAUSE]
    steps = apportion([weights[label] for label in labels], max(whole - rest, 0))
    found = dict(zip(labels, steps, strict=True))
    return found | {NOT_BY_CAUSE: rest} if NOT_BY_CAUSE in weights else found
