"""Work: operators and kernels by name, with what launched them: the sums of one rank or of all."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Bool, Column, ColumnTable, Float64, Int8, Int16, Int32, Int64
from dask_efficiency.torch_traces.kineto.trace import Category, RankTrace
from dask_efficiency.torch_traces.path.region import ON_THREADS
from dask_efficiency.torch_traces.path.roles import events_named
from dask_efficiency.torch_traces.path.threads import call_stacks
from dask_efficiency.torch_traces.summaries.groups import Groups, in_common, joined, summed
from dask_efficiency.torch_traces.summaries.kernel_kinds import kernel_kinds
from dask_efficiency.torch_traces.summaries.sequences import Sequences, kernel_sequences, merged_sequences

#: Durations are kept in bins, so many to a doubling: quantiles are right to 0.3 %.
BINS = 128

#: Frames of Python that are not the user's: of PyTorch, built in, of the standard library's wrappers, and modules.
_NOT_USERS = re.compile(r"(?:.*[/\\])?torch[/\\]|<|nn\.Module: |(?:.*[/\\])?(?:contextlib|functools|threading)\.py\(")
#: A frame with its line, as Kineto writes it: ``train.py(12): step``.
_LINE = re.compile(r".*\(\d+\): ")
_MODULE = "nn.Module: "
#: Columns of :class:`KernelSums` that are positions of names.
_NAMED = ("name", "operator", "module", "line")


@dataclass(frozen=True, slots=True, repr=False)
class KernelSums(ColumnTable):
    """A row for each kernel's name and each place that launched it; names are positions, missing where not recorded."""

    name: Int32
    #: A :class:`~dask_efficiency.torch_traces.summaries.kernel_kinds.KernelKind`.
    kind: Int8
    #: Innermost operator, module and line of the user's around the launch.
    operator: Int32
    module: Int32
    line: Int32
    count: Int64
    total: Annotated[Int64, Column(unit="nanoseconds")]
    shortest: Annotated[Int64, Column(unit="nanoseconds")]
    longest: Annotated[Int64, Column(unit="nanoseconds")]
    #: Sum of the squares of nanoseconds.
    squares: Float64


@dataclass(frozen=True, slots=True, repr=False)
class KernelDurations(ColumnTable):
    """A row for each kernel's name and bin of durations."""

    name: Int32
    #: The logarithm of nanoseconds to base 2, times :data:`BINS`, rounded.
    bin: Int16
    count: Int64


@dataclass(frozen=True, slots=True, repr=False)
class OperatorSums(ColumnTable):
    """A row for each operator's name, in CPU time on threads."""

    name: Int32
    count: Int64
    #: With what it called, and without the operators that it called.
    total: Annotated[Int64, Column(unit="nanoseconds")]
    own: Annotated[Int64, Column(unit="nanoseconds")]


@dataclass(frozen=True, slots=True)
class Work:
    """Operators and kernels."""

    names: tuple[str, ...]
    kernels: KernelSums
    durations: KernelDurations
    operators: OperatorSums
    sequences: Sequences

    def quantiles(self, share: float) -> Float64:
        """Seconds that a share of each kernel's runs do not exceed, right to 0.3 %, by ascending name."""
        durations = self.durations.take(np.lexsort((self.durations.bin, self.durations.name)))
        by_name, reached = Groups.of(durations.name), np.cumsum(durations.count)
        runs = by_name.sums(durations.count)
        place = np.searchsorted(reached, np.cumsum(runs) - runs + share * runs)
        return np.asarray(2.0 ** (durations.bin[place] / BINS) / 1e9)


def work_of(trace: RankTrace) -> Work:
    """Sum up a rank's operators, and its kernels by name and place."""
    parent = _parents(trace)
    kernels, durations = _kernels(trace, parent)
    operators = _operators(trace, parent)
    columns = [kernels.name, kernels.operator, kernels.module, kernels.line, operators.name]
    used = np.setdiff1d(np.concatenate(columns), [MISSING])
    place = np.full(len(trace.names) + 1, MISSING, np.int32)
    place[used] = np.arange(len(used))
    found = Work(
        tuple(trace.names[name] for name in used.tolist()),
        kernels,
        durations,
        operators,
        kernel_sequences(trace, parent),
    )
    return _renamed(found, place)


def _parents(trace: RankTrace) -> Int32:
    """Row of the event around each on its thread; operators and calls of no length have theirs, too."""
    events = trace.events
    lasts = events.stop > events.start
    rows = np.flatnonzero(
        (lasts & np.isin(events.category, ON_THREADS)) | (events.category == Category.OPERATOR) | events.is_call
    )
    seen = replace(trace, events=replace(events, stop=np.where(lasts, events.stop, events.start + 1)))
    return call_stacks(seen, rows, events.category[rows] != Category.PYTHON).parent


def _kernels(trace: RankTrace, parent: Int32) -> tuple[KernelSums, KernelDurations]:
    events = trace.events
    rows = np.flatnonzero(events.category == Category.KERNEL)
    lasts, name, places = events.stop[rows] - events.start[rows], events.name[rows], _places(trace, parent, rows)
    by_place = Groups.of(name, *places)
    first = by_place.first
    sums = KernelSums(
        name[first],
        kernel_kinds(trace, rows)[first],
        places.operator[first],
        places.module[first],
        places.line[first],
        count=by_place.sizes,
        total=by_place.sums(lasts),
        shortest=by_place.smallest(lasts),
        longest=by_place.largest(lasts),
        squares=by_place.sums(lasts.astype(np.float64) ** 2),
    )
    bins = np.rint(np.log2(np.maximum(lasts, 1)) * BINS).astype(np.int16)
    by_bin = Groups.of(name, bins)
    return sums, KernelDurations(name[by_bin.first], bins[by_bin.first], by_bin.sizes)


class _Places(NamedTuple):
    """Position of the names of what launched kernels, each missing where it is not known."""

    operator: Int32
    module: Int32
    line: Int32


def _places(trace: RankTrace, parent: Int32, rows: NDArray[np.intp]) -> _Places:
    """Names around the call of each kernel."""
    events, calls = trace.events, trace.events.call[rows]
    python = events.category == Category.PYTHON
    is_module = python & events_named(trace, lambda name: name.startswith(_MODULE))
    is_line = python & events_named(trace, lambda name: bool(_LINE.match(name)) and not _NOT_USERS.match(name))
    return _Places(
        *(
            _nearest(calls, parent, wanted, events.name)
            for wanted in (events.category == Category.OPERATOR, is_module, is_line)
        )
    )


def _nearest(calls: Int32, parent: Int32, wanted: Bool, name: Int32) -> Int32:
    """Name of the innermost wanted event around each call; calls that are missing have none."""
    found = np.full(len(calls), MISSING, np.int32)
    open_rows = np.flatnonzero(calls != MISSING) if wanted.any() else np.empty(0, np.intp)
    at = calls[open_rows]
    while len(open_rows):
        at = parent[at]
        known = at != MISSING
        open_rows, at = open_rows[known], at[known]
        hit = wanted[at]
        found[open_rows[hit]] = name[at[hit]]
        open_rows, at = open_rows[~hit], at[~hit]
    return found


def _operators(trace: RankTrace, parent: Int32) -> OperatorSums:
    events = trace.events
    rows = np.flatnonzero(events.category == Category.OPERATOR)
    lasts = events.stop - events.start
    outer = _nearest(
        rows.astype(np.int32), parent, events.category == Category.OPERATOR, np.arange(len(events), dtype=np.int32)
    )
    within = np.zeros(len(events), np.int64)
    np.add.at(within, outer[outer != MISSING], lasts[rows[outer != MISSING]])
    by_name = Groups.of(events.name[rows])
    own = np.maximum(lasts[rows] - within[rows], 0)
    return OperatorSums(events.name[rows][by_name.first], by_name.sizes, by_name.sums(lasts[rows]), by_name.sums(own))


def _renamed(work: Work, place: Int32) -> Work:
    """Names at other positions."""
    return replace(
        work,
        kernels=replace(work.kernels, **{column: place[getattr(work.kernels, column)] for column in _NAMED}),
        durations=replace(work.durations, name=place[work.durations.name]),
        operators=replace(work.operators, name=place[work.operators.name]),
    )


def merged_work(parts: Sequence[Work]) -> Work:
    """Sums over several ranks."""
    names, places = in_common([part.names for part in parts])
    several = [_renamed(part, place) for part, place in zip(parts, places, strict=True)]
    return Work(
        names,
        summed(joined([part.kernels for part in several]), *_NAMED, constant=("kind",)),
        summed(joined([part.durations for part in several]), "name", "bin"),
        summed(joined([part.operators for part in several]), "name"),
        merged_sequences(part.sequences.items() for part in parts),
    )


@dataclass(frozen=True, slots=True, repr=False)
class KernelTimes(ColumnTable):
    """A row for each kernel's name, those with most time first; names are positions in those of :class:`Work`."""

    name: Int32
    kind: Int8
    #: Where most of its time was launched, and the number of such places.
    operator: Int32
    module: Int32
    line: Int32
    places: Int32
    count: Int64
    total_seconds: Float64
    mean_seconds: Float64
    #: Standard deviation; missing for one run.
    deviation_seconds: Float64
    shortest_seconds: Float64
    median_seconds: Float64
    #: Quantile of 95 %.
    high_seconds: Float64
    longest_seconds: Float64
    #: Of the time of all kernels.
    share: Float64


def kernel_times(work: Work) -> KernelTimes:
    """Sum up kernels by name."""
    sums = work.kernels.take(np.argsort(-work.kernels.total, kind="stable"))
    groups = Groups.of(sums.name)
    first, total, number = groups.first, groups.sums(sums.total), groups.sums(sums.count)
    mean = total / np.maximum(number, 1)
    spread = np.maximum(groups.sums(sums.squares) - number * mean**2, 0.0)
    least, most = (groups.smallest(sums.shortest) / 1e9, groups.largest(sums.longest) / 1e9)
    found = KernelTimes(
        sums.name[first],
        sums.kind[first],
        sums.operator[first],
        sums.module[first],
        sums.line[first],
        groups.sizes.astype(np.int32),
        count=number,
        total_seconds=total / 1e9,
        mean_seconds=mean / 1e9,
        deviation_seconds=np.sqrt(np.where(number > 1, spread / np.maximum(number - 1, 1), np.nan)) / 1e9,
        shortest_seconds=least,
        median_seconds=np.clip(work.quantiles(0.5), least, most),
        high_seconds=np.clip(work.quantiles(0.95), least, most),
        longest_seconds=most,
        share=total / max(int(total.sum()), 1),
    )
    return found.take(np.argsort(-total, kind="stable"))


@dataclass(frozen=True, slots=True, repr=False)
class KernelKindTimes(ColumnTable):
    """A row for each kind of kernel, those with most time first."""

    kind: Int8
    count: Int64
    total_seconds: Float64
    #: Of the time of all kernels.
    share: Float64


def kernel_kind_times(work: Work) -> KernelKindTimes:
    """Sum up kernels by kind."""
    groups = Groups.of(work.kernels.kind)
    total = groups.sums(work.kernels.total)
    found = KernelKindTimes(
        work.kernels.kind[groups.first], groups.sums(work.kernels.count), total / 1e9, total / max(int(total.sum()), 1)
    )
    return found.take(np.argsort(-total, kind="stable"))
