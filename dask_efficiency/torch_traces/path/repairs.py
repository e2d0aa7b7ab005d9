"""repaired: a trace whose GPUs' clocks agree with its calls, and in which no work lasts for an impossible time.

Instants of a GPU are of another clock than those of calls. CUPTI and ROCm convert them, and are wrong by up to some
10 us (ROCm, old CUPTI), at times by a millisecond. Two rules tell: no work begins before its call, and a call that
waits for work returns after it. A device's clock is moved by the least that keeps both; where none does, both are
broken by the same. What is left of a wait's error is cut off the work, as long as it is small.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import Bool, Int64
from dask_efficiency.show.figures import format_count
from dask_efficiency.torch_traces.kineto.numbers import MAX_DEVICES, mask_of
from dask_efficiency.torch_traces.kineto.trace import Category, Events, RankTrace
from dask_efficiency.torch_traces.path.inferred import awaited
from dask_efficiency.torch_traces.path.lanes import rank_pairs
from dask_efficiency.torch_traces.path.roles import gpu_collectives

#: Nanoseconds by which work may end after the return of the call that waited for it: clocks of ROCm and of old CUPTI
#: are wrong by 1 to 10 us, and by as much again where they drift.
MAX_SKEW = 20_000

#: Nanoseconds by which a GPU's clock may be wrong as a whole (a guess; half a millisecond was seen). More is damage.
MAX_CLOCK_ERROR = 10_000_000

#: Of waits that nearly agree with their work, the share that may end too early by chance or drift: a clock is moved for
#: the others.
STRAY_WAITS = 0.05

#: Of launches, the share whose work may begin too early by chance.
STRAY_LAUNCHES = 0.001

#: Works that lie within another one on its stream, from which on that one's duration is impossible; and the share of
#: such works up to which a stream runs one work at a time.
WITHIN, RARE = 2, 0.01


def repaired(trace: RankTrace) -> RankTrace:
    """Trace with impossible durations cut and clocks of GPUs moved, and a note on each."""
    if not np.any(trace.events.is_gpu_work & trace.events.has_call):
        return trace
    notes: list[str] = []
    events, number = _cut(trace, trace.events)
    if number:
        notes.append(
            f"{format_count(number, 'kernel')} ran over what followed on the same stream, which cannot be: cut where "
            "the next one began."
        )
    events = _aligned(replace(trace, events=events), notes)
    return replace(trace, events=events, notes=(*trace.notes, *notes)) if events is not trace.events else trace


def _cut(trace: RankTrace, events: Events) -> tuple[Events, int]:
    """Cut work that covers others on its stream, where the next one begins; and count it.

    Not the kernels of a CUDA graph, nor collectives, which may share a queue with others on AMD's GPUs.
    """
    rows = np.flatnonzero(events.is_gpu_work & ~gpu_collectives(trace))
    shared = np.bincount(events.call[rows][events.has_call[rows]], minlength=1)
    rows = rows[~(events.has_call[rows] & (shared[events.call[rows]] > 1))]
    stream = rank_pairs(events.device[rows], events.stream[rows])
    order = np.lexsort((events.start[rows], stream))
    rows, stream = rows[order], stream[order]
    start, stop = events.start[rows], events.stop[rows]
    follows = np.append((stream[1:] == stream[:-1]) & (start[1:] < stop[:-1]), False)[: len(rows)]
    covering = []
    for at in np.flatnonzero(follows).tolist():
        later = slice(at + 1, at + 1 + WITHIN)
        inside = (stream[later] == stream[at]) & (stop[later] <= stop[at]) & (start[later] > start[at])
        if inside.sum() == WITHIN:
            covering.append(at)
    places = np.array(covering, np.intp)
    on_stream = np.bincount(stream, minlength=1)
    often = np.bincount(stream[places], minlength=len(on_stream)) > np.maximum(1, RARE * on_stream)
    places = places[~often[stream[places]]]
    if not len(places):
        return events, 0
    stops = events.stop.copy()
    stops[rows[places]] = start[places + 1]
    return replace(events, stop=stops), len(places)


def _aligned(trace: RankTrace, notes: list[str]) -> Events:
    """Events of a trace with the clock of each of its GPUs moved; adds to the notes."""
    events = trace.events
    works = np.flatnonzero(events.is_gpu_work & events.has_call)
    waits = awaited(trace)
    start, stop = events.start.copy(), events.stop.copy()
    for device in np.unique(events.device[works])[:MAX_DEVICES].tolist():
        mine, its = works[events.device[works] == device], events.device[waits.work] == device
        early = events.start[events.call[mine]] - events.start[mine]
        late = events.stop[waits.work[its]] - events.stop[waits.call[its]]
        if shift := _shift(early, late, waits.sure[its]):
            rows = _on_device(events, device)
            start[rows] += shift
            stop[rows] += shift
            word = "late" if shift < 0 else "early"
            notes.append(
                f"The clock of GPU {device} was {abs(shift) / 1e3:.3g} us {word}, by its launches and by "
                "calls that waited for it: its work was moved by that."
            )
    late = stop[waits.work] - events.stop[waits.call]
    near = (late > 0) & (late <= MAX_SKEW)
    np.minimum.at(stop, waits.work[near], events.stop[waits.call[near]])
    moved = mask_of(waits.work[near], len(events))
    start[moved] = np.minimum(start[moved], stop[moved])
    same = np.array_equal(start, events.start) and np.array_equal(stop, events.stop)
    return events if same else replace(events, start=start, stop=stop)


def _on_device(events: Events, device: int) -> NDArray[np.intp]:
    of_gpu = events.is_gpu_work | np.isin(events.category, (Category.SYNC, Category.GPU_ANNOTATION))
    return np.flatnonzero(of_gpu & (events.device == device))


def _shift(early: Int64, late: Int64, sure: Bool) -> int:
    """Nanoseconds by which to move a clock.

    ``early`` is how much before its call work began, and ``late`` how much after the return of a call that waited for
    it work ended. Both are negative where there is no contradiction.
    """
    # by a launch on an idle GPU, and by a wait: the least time that each of them took
    at_least = _highest(early[early <= MAX_CLOCK_ERROR], STRAY_LAUNCHES)
    near = np.abs(late) <= MAX_SKEW
    near |= sure & (late > 0) & (late <= MAX_CLOCK_ERROR)
    at_most = -_highest(late[near], STRAY_WAITS)
    if at_least > at_most:
        return (at_least + at_most) // 2
    return min(max(0, at_least), at_most)


def _highest(values: Int64, stray: float) -> int:
    """Highest value but for a share of stray ones; far below all where there are none."""
    if not len(values):
        return -MAX_CLOCK_ERROR
    rank = min(int(stray * len(values)), len(values) - 1)
    return int(np.partition(values, len(values) - 1 - rank)[len(values) - 1 - rank])
