"""Sequences: the kernels that an operator launches one after another, such as those that could be fused or captured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Bool, Int32
from dask_efficiency.torch_traces.kineto.trace import Category, RankTrace


class KernelSequence(NamedTuple):
    """Kernels of one call of an outermost operator, in the order in which they were asked for."""

    operator: str
    kernels: tuple[str, ...]


class SequenceTime(NamedTuple):
    """Number of calls that launched a sequence, and nanoseconds of its kernels and of the operator on its thread."""

    calls: int = 0
    kernel_time: int = 0
    operator_time: int = 0


Sequences: TypeAlias = Mapping[KernelSequence, SequenceTime]


def kernel_sequences(trace: RankTrace, parent: Int32) -> Sequences:
    """Count the sequences of two kernels and more; operators that launch fewer have none."""
    events = trace.events
    rows = np.flatnonzero(events.category == Category.KERNEL)
    outer = _outermost(events.call[rows], parent, events.category == Category.OPERATOR)
    rows, outer = rows[outer != MISSING], outer[outer != MISSING]
    order = np.lexsort((events.start[rows], events.start[events.call[rows]], outer))
    return merged_sequences([_counted(trace, rows[order], outer[order])])


def _counted(trace: RankTrace, rows: NDArray[np.intp], outer: Int32) -> Iterator[tuple[KernelSequence, SequenceTime]]:
    """Sequence of each call, of kernels in order."""
    events = trace.events
    begins = np.flatnonzero(np.diff(outer, prepend=MISSING))
    lasts = np.append(0, np.cumsum(events.stop[rows] - events.start[rows]))
    kernels = [trace.names[name] for name in events.name[rows].tolist()]
    calls = outer[begins]
    lengths = (events.stop[calls] - events.start[calls]).tolist()
    ends = np.append(begins, len(rows))[1:]
    operators = (trace.names[name] for name in events.name[calls].tolist())
    for operator, begin, end, length in zip(operators, begins.tolist(), ends.tolist(), lengths, strict=True):
        if end - begin > 1:
            time = SequenceTime(1, int(lasts[end] - lasts[begin]), length)
            yield KernelSequence(operator, tuple(kernels[begin:end])), time


def _outermost(calls: Int32, parent: Int32, is_operator: Bool) -> Int32:
    """Outermost operator around each call; missing where there is none."""
    found, at = np.full(len(calls), MISSING, np.int32), calls.copy()
    while (known := at != MISSING).any():
        at[known] = parent[at[known]]
        hit = (at != MISSING) & is_operator[at]
        found[hit] = at[hit]
    return found


def merged_sequences(parts: Iterable[Iterable[tuple[KernelSequence, SequenceTime]]]) -> Sequences:
    """Sums by sequence, those with most time of kernels first."""
    sums: defaultdict[KernelSequence, SequenceTime] = defaultdict(SequenceTime)
    for part in parts:
        for sequence, time in part:
            sums[sequence] = SequenceTime(*map(sum, zip(sums[sequence], time, strict=True)))
    return dict(sorted(sums.items(), key=lambda row: -row[1].kernel_time))
