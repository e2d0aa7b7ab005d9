"""as_far_as_known: no waiting is called that of an idle GPU unless the trace shows that the GPU was idle."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Int64
from dask_efficiency.gpu.intervals import IntervalArrays, overlaps, union
from dask_efficiency.runs.path.kinds import KINDS, Kind
from dask_efficiency.torch_traces.kineto.numbers import MAX_DEVICES
from dask_efficiency.torch_traces.kineto.trace import Category, Events, RankTrace
from dask_efficiency.torch_traces.path.graph import TorchGraph
from dask_efficiency.torch_traces.path.last_causes import MAX_LAUNCH_DELAY
from dask_efficiency.torch_traces.path.launches import Launches, first_of_streams
from dask_efficiency.torch_traces.path.roles import own_kinds
from dask_efficiency.torch_traces.path.streams import MAX_KERNEL_DELAY
from dask_efficiency.torch_traces.path.stretches import RawStretches

_CPU, _UNATTRIBUTED = KINDS.index(Kind.COMPUTE_CPU), KINDS.index(Kind.UNATTRIBUTED)
#: Kinds of time in which the GPU is said to have had nothing to do: of a call, and of work that did not begin.
_OF_CALLS = (KINDS.index(Kind.GPU_SYNC),)
_OF_WORK = (KINDS.index(Kind.KERNEL_LAUNCH), KINDS.index(Kind.KERNEL_GAP))


def as_far_as_known(graph: TorchGraph, raw: RawStretches) -> RawStretches:
    """Rename the time of an idle GPU where the trace shows no idle GPU, and a thread's where it is not known.

    - While other work ran on the device, the time is that work's.
    - After launches whose work was not recorded, it is ``unattributed``.
    - Before the first work of a stream, too, if it takes longer than a launch: there may have been work from before the
      profile. So is a long wait before which nothing was asked for, and a gap that is too long for the GPU's own: nodes
      of CUDA graphs on the CPU and waits of streams are not always recorded.
    - A thread's time is ``unattributed`` during events of categories that are not known.
    """
    trace = graph.trace
    for device in np.unique(trace.events.device[trace.events.is_gpu_work])[:MAX_DEVICES].tolist():
        raw = _with_other_work(trace, raw, device)
    raw = _without_lost_work(trace, raw)
    return _without_unknown_events(trace, raw)


class _Cover(NamedTuple):
    """Disjoint intervals in which a device works, in order, each of one work: of those that run, the last to end."""

    start: Int64
    stop: Int64
    event: NDArray[np.intp]

    @classmethod
    def of(cls, events: Events, rows: NDArray[np.intp]) -> _Cover:
        rows = events.by_start(rows)
        stop = events.stop[rows]
        before = np.append(np.iinfo(np.int64).min, np.maximum.accumulate(stop)[:-1])[: len(stop)]
        start = np.maximum(events.start[rows], before)
        lasts = stop > start
        return cls(start[lasts], stop[lasts], rows[lasts])


def _with_other_work(trace: RankTrace, raw: RawStretches, device: int) -> RawStretches:
    """Give time of an idle GPU to the work that ran on a device meanwhile."""
    events = trace.events
    works = events.is_gpu_work & (events.device == device)
    works &= (events.start < raw.bounds[-1]) & (events.stop > raw.bounds[0])
    cover = _Cover.of(events, np.flatnonzero(works))
    said = np.isin(raw.kind, _OF_CALLS) | (np.isin(raw.kind, _OF_WORK) & (events.device[raw.event] == device))
    said &= (raw.event != MISSING) & (raw.bounds[1:] > raw.bounds[:-1])
    pieces = IntervalArrays(raw.bounds[:-1][said], raw.bounds[1:][said])
    parts, _ = overlaps(pieces, IntervalArrays(cover.start, cover.stop))
    if not len(parts.start):
        return raw
    # parts are disjoint, and so are the stretches
    raw = raw.cut(np.concatenate(parts))
    kind, event, inferred = raw.kind.copy(), raw.event.copy(), raw.inferred.copy()
    named = cover.event[np.searchsorted(cover.start, parts.start, side="right") - 1]
    place = np.searchsorted(raw.bounds[:-1], parts.start, side="right") - 1
    kind[place], event[place], inferred[place] = own_kinds(trace)[named], named, True
    return raw._replace(kind=kind, event=event, inferred=inferred)


def _without_lost_work(trace: RankTrace, raw: RawStretches) -> RawStretches:
    """Leave time unattributed in which the GPU may have had work that was not recorded."""
    events = trace.events
    known = raw.event != MISSING
    of_calls, of_work = (np.flatnonzero(known & np.isin(raw.kind, kinds)) for kinds in (_OF_CALLS, _OF_WORK))
    launches = Launches.of(trace)
    kind = raw.kind.copy()
    calls = raw.event[of_calls]
    first_ask = int(launches.at[0]) if len(launches.at) else np.iinfo(np.int64).max
    works = events.is_gpu_work
    first_work = int(events.start[works].min()) if works.any() else np.iinfo(np.int64).max
    asked_for_nothing = events.start[calls] < min(first_ask, first_work)
    asked_for_nothing &= events.stop[calls] - events.start[calls] > MAX_LAUNCH_DELAY
    kind[of_calls[launches.last_was_lost(calls) | asked_for_nothing]] = _UNATTRIBUTED
    work, lasts = raw.event[of_work], raw.bounds[of_work + 1] - raw.bounds[of_work]
    asked = events.call[work]
    called = asked != MISSING
    # nothing is known of when work without a call was asked for
    late = np.where(called, np.minimum(events.start[work] - events.stop[asked], lasts), lasts)
    lost = (late > 0) & (lasts >= MAX_KERNEL_DELAY)
    lost |= called & first_of_streams(events)[work] & (late > MAX_LAUNCH_DELAY)
    lost[called] |= launches.last_was_lost(asked[called])
    kind[of_work[lost]] = _UNATTRIBUTED
    return raw._replace(kind=kind)


def _without_unknown_events(trace: RankTrace, raw: RawStretches) -> RawStretches:
    """Leave a thread's time unattributed during events of categories that are not known."""
    during = unknown_events(trace)
    if not len(during.start):
        return raw
    raw = raw.cut(np.concatenate(during))
    inside = np.searchsorted(during.start, raw.bounds[:-1], side="right") - 1
    within = (inside >= 0) & (raw.bounds[:-1] < during.stop[inside])
    return raw._replace(kind=np.where(within & (raw.kind == _CPU), _UNATTRIBUTED, raw.kind).astype(np.int8))


def unknown_events(trace: RankTrace) -> IntervalArrays:
    """Time of the events of categories that are not known."""
    events = trace.events
    rows = events.category == Category.UNKNOWN
    return union(events.start[rows], events.stop[rows])
