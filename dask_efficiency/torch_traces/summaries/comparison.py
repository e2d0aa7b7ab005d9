"""TorchComparison: what changed between the summaries of two jobs, such as last week's and today's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from dask_efficiency.accounts.tables import Float64
from dask_efficiency.show.columns import Columns, as_frame, counts, names, seconds, words
from dask_efficiency.show.figures import name_of
from dask_efficiency.show.shown import Shown
from dask_efficiency.straggler.peers import MAD_TO_DEVIATION
from dask_efficiency.torch_traces.kineto.load import Paths
from dask_efficiency.torch_traces.kineto.trace import KinetoTrace
from dask_efficiency.torch_traces.path.findings import WORTH_NAMING
from dask_efficiency.torch_traces.summaries.kernel_labels import kernel_label
from dask_efficiency.torch_traces.summaries.summary import TorchSummary, summary
from dask_efficiency.torch_traces.summaries.tables import PARTS, TABLES

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class StepChange:
    """Change of the median step: the median of the ranks' medians, which does not depend on how many steps each has."""

    before: float
    after: float
    #: The larger of the two sides' spreads, the scaled median absolute deviation of steps from the median of their own
    #: rank; NaN where no rank has several.
    spread: float

    @classmethod
    def of(cls, before: Sequence[Float64], after: Sequence[Float64]) -> StepChange:
        """Compare seconds of steps, an array for each rank that has any."""
        old, new = (_median([np.median(steps) for steps in side]) for side in (before, after))
        apart = [[np.abs(steps - np.median(steps)) for steps in side if len(steps) > 1] for side in (before, after)]
        spreads = [MAD_TO_DEVIATION * _median(np.concatenate(side)) for side in apart if side]
        return cls(old, new, max(spreads, default=float("nan")))

    @property
    def change(self) -> float:
        """Seconds by which the median grew."""
        return self.after - self.before

    @property
    def has_spread(self) -> bool:
        """True if some side has several steps, so that it is known by how much they vary."""
        return not np.isnan(self.spread)

    @property
    def is_beyond_spread(self) -> bool:
        """True if the median changed by more than steps vary."""
        return abs(self.change) > self.spread


def _median(values: Sequence[Any] | Float64) -> float:
    return float(np.median(values)) if len(values) else float("nan")


# A subclass of Shown without slots, as its document is made on demand.
@dataclass(frozen=True, repr=False)
class TorchComparison(Shown):
    """Changes from one summary to another.

    Parameters
    ----------
    before, after
        The two sides.
    top
        Most rows of a table on a screen or page.
    """

    _sections_module: ClassVar[str] = "dask_efficiency.torch_traces.summaries.comparison_sections"

    before: TorchSummary
    after: TorchSummary
    top: int = 10

    @property
    def steps(self) -> Mapping[str, StepChange]:
        """Changes of the profiler's steps: ``total``, and each part of a breakdown; NaN where a side has no steps."""
        sides = [[rank.steps for rank in side.ranks if len(rank.steps)] for side in (self.before, self.after)]
        return {
            name: StepChange.of(*([getattr(steps, of) / 1e9 for steps in side] for side in sides))
            for name, of in (("total", "length"), *((part, part) for part in PARTS))
        }

    @property
    def has_steps(self) -> bool:
        """True if both sides have steps of the profiler."""
        return bool(np.isfinite(self.steps["total"].change))

    @property
    def by_step(self) -> bool:
        """True if every rank of both sides has steps, so that sums can be compared by step; else they are by rank."""
        return all(len(rank.steps) for side in (self.before, self.after) for rank in side.ranks)

    def rounds(self, side: TorchSummary) -> int:
        """Number by which sums of a side are divided: of its steps over all ranks, or of its ranks."""
        return sum(len(rank.steps) for rank in side.ranks) if self.by_step else len(side.ranks)

    def is_worse(self, than: Fraction) -> bool:
        """True if the median step takes longer by more than a share, and by more than steps vary."""
        total = self.steps["total"]
        return total.change > float(than) * total.before and total.change > total.spread

    def to_frame(self, table: str = "kernels") -> pd.DataFrame:
        """One table as pandas' DataFrame: ``"steps"``, ``"kernels"``, ``"operators"`` or ``"ranks"``."""
        if table not in COMPARED:
            raise ValueError(f"table is {table!r:.80}; expected one of {', '.join(map(repr, COMPARED))}")
        return as_frame(COMPARED[table](self))


def compare(old: KinetoTrace | Paths, new: KinetoTrace | Paths, **storage_options: Any) -> TorchComparison:
    """Compare what ``torch.profiler`` recorded of two jobs.

    Parameters
    ----------
    old, new
        As for :func:`~dask_efficiency.torch_traces.summary`.
    **storage_options
        For the file system, as in :func:`fsspec.open`.
    """
    return TorchComparison(summary(old, **storage_options), summary(new, **storage_options))


class NamedTime(NamedTuple):
    """Time of a kernel or operator on one side."""

    number: float = 0.0
    seconds: float = 0.0
    #: Of one run.
    each: float | None = None


def _by_name(side: TorchSummary, table: str, rounds: int) -> dict[str, NamedTime]:
    """Kernels with their median, or operators with the mean of their own time; counts and times are of one round."""
    columns = TABLES[table](side.ranks)
    number, own = columns["count"].values, columns["total" if table == "kernels" else "own"].values
    each = (
        columns["median"].values
        if table == "kernels"
        else [time / many for time, many in zip(own, number, strict=True)]
    )
    rows = zip(columns["name"].values, number, own, each, strict=True)
    return {name: NamedTime(many / rounds, time / rounds, one) for name, many, time, one in rows}


def _named(compared: TorchComparison, table: str) -> Columns:
    """Changes of kernels or operators by name, those whose time changed most first."""
    before, after = (_by_name(side, table, compared.rounds(side)) for side in (compared.before, compared.after))
    nothing = NamedTime()
    found = {name: (before.get(name, nothing), after.get(name, nothing)) for name in [*after, *before]}
    rows = dict(sorted(found.items(), key=lambda row: -abs(row[1][1].seconds - row[1][0].seconds)))
    olds, news = [old for old, _ in rows.values()], [new for _, new in rows.values()]
    return {
        "name": names(rows, text=kernel_label if table == "kernels" else name_of),
        "what": words(_state(old, new) for old, new in rows.values()),
        **{
            f"count_{name}": counts([side.number for side in sides], dtype=float, text=lambda value: f"{value:.4g}")
            for name, sides in (("before", olds), ("after", news))
        },
        "each_before": seconds([old.each for old in olds]),
        "each_after": seconds([new.each for new in news]),
        "before": seconds([old.seconds for old in olds]),
        "after": seconds([new.seconds for new in news]),
        "change": seconds([new.seconds - old.seconds for old, new in rows.values()]),
    }


def _state(old: NamedTime, new: NamedTime) -> str:
    """Words for what changed; empty where nothing did notably."""
    if not old.number or not new.number:
        return "gone" if old.number else "new"
    pairs = (
        (old.each or 0.0, new.each or 0.0, "slower", "faster"),
        (old.number, new.number, "more often", "less often"),
    )
    grown = (word for before, after, word, _ in pairs if after > before * (1 + WORTH_NAMING))
    shrunk = (word for before, after, _, word in pairs if before > after * (1 + WORTH_NAMING))
    return ", ".join((*grown, *shrunk))


def kernels(compared: TorchComparison) -> Columns:
    """Kernels by name; ``each`` is the median of a run."""
    return _named(compared, "kernels")


def operators(compared: TorchComparison) -> Columns:
    """Operators by name, in time of their own; ``each`` is the mean of a call."""
    return _named(compared, "operators")


def steps(compared: TorchComparison) -> Columns:
    """Median steps by part, with the spread of steps."""
    found = compared.steps if compared.has_steps else {}
    return {
        "part": words(found),
        "before": seconds(change.before for change in found.values()),
        "after": seconds(change.after for change in found.values()),
        "change": seconds(change.change for change in found.values()),
        "spread": seconds(change.spread for change in found.values()),
        "beyond_spread": words(map(_beyond, found.values())),
    }


def _beyond(change: StepChange) -> str:
    if not change.has_spread:
        return "not known"
    return "yes" if change.is_beyond_spread else "no"


def ranks(compared: TorchComparison) -> Columns:
    """Time of each rank that both sides have, by step if all have steps: in total and by part."""
    both = sorted({*compared.before.numbers} & {*compared.after.numbers})
    columns = {"rank": counts(both)}
    for name, side in (("before", compared.before), ("after", compared.after)):
        of = {rank.rank: rank for rank in side.ranks}
        rounds = [len(of[number].steps) if compared.by_step else 1 for number in both]
        for part in ("total", "compute", "exposed", "idle"):
            times = [
                int((of[number].breakdown.length if part == "total" else getattr(of[number].breakdown, part))[0])
                for number in both
            ]
            columns[f"{part}_{name}"] = seconds(time / 1e9 / many for time, many in zip(times, rounds, strict=True))
    return columns


#: By name, the table of a comparison.
COMPARED: Mapping[str, Callable[[TorchComparison], Columns]] = {
    "steps": steps,
    "kernels": kernels,
    "operators": operators,
    "ranks": ranks,
}
