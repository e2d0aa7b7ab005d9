"""Launches, Grounds and as_far_as_known: a wait is called that of an idle GPU only where the trace shows that."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Bool, Int64
from dask_efficiency.gpu.intervals import IntervalArrays, intersection, length, overlaps, union
from dask_efficiency.runs.path.kinds import KINDS, Kind
from dask_efficiency.torch_traces.kineto.columns import UNREADABLE_EVENTS
from dask_efficiency.torch_traces.kineto.numbers import MAX_DEVICES, mask_of
from dask_efficiency.torch_traces.kineto.trace import Category, Events, RankTrace
from dask_efficiency.torch_traces.path.graph import TorchGraph
from dask_efficiency.torch_traces.path.lanes import comparable_keys, rank_pairs
from dask_efficiency.torch_traces.path.last_causes import MAX_LAUNCH_DELAY
from dask_efficiency.torch_traces.path.roles import CallKind, call_kinds, events_named, own_kinds, sets_up
from dask_efficiency.torch_traces.path.streams import MAX_KERNEL_DELAY
from dask_efficiency.torch_traces.path.stretches import RawStretches, TorchStretches

_BEGINS_CAPTURE = re.compile(r"(?:cuda|cu|hip)StreamBeginCapture")
_ENDS_CAPTURE = re.compile(r"(?:cuda|cu|hip)StreamEndCapture")


class Launches(NamedTuple):
    """Calls that asked for work, and whether that was recorded, by the start of the call.

    Launches into a graph that is being captured are none, as they start nothing. A launch within another one, such as
    the driver's within the runtime's, is the same launch.
    """

    #: Row of the call.
    call: NDArray[np.intp]
    at: Int64
    #: False where the trace has no work of the call. Copies without work are not among the launches: one of no bytes
    #: has none.
    recorded: Bool
    events: Events

    @classmethod
    def of(cls, trace: RankTrace) -> Self:
        """Launches of a trace."""
        events = trace.events
        recorded = mask_of(events.call[events.is_gpu_work & events.has_call], len(events))
        kinds = call_kinds(trace)
        rows = np.flatnonzero(recorded | ((kinds == CallKind.LAUNCH) & ~_captured(trace, kinds)))
        lane = rank_pairs(events.process[rows], events.thread[rows])
        order = np.lexsort((-events.stop[rows], events.start[rows], lane))
        rows, lane = rows[order], lane[order]
        if len(rows):
            start, stop = comparable_keys((lane, events.start[rows]), (lane, events.stop[rows]))
            outer = np.append(True, start[1:] >= np.maximum.accumulate(stop)[:-1])
            known = np.logical_or.reduceat(recorded[rows], np.flatnonzero(outer))
            rows, recorded = rows[outer], known
        else:
            recorded = np.zeros(0, np.bool_)
        order = np.argsort(events.start[rows], kind="stable")
        return cls(rows[order], events.start[rows[order]], recorded[order], events)

    def last_was_lost(self, calls: NDArray[np.integer]) -> Bool:
        """Mask of calls before which the last launch, of their thread or of their process, has no work in the trace.

        Work on the GPU of which nothing is known may then have been what was waited for.
        """
        events = self.events
        both = np.concatenate([self.call, calls])
        process, thread = events.process[both], rank_pairs(events.process[both], events.thread[both])
        lost = np.zeros(len(calls), np.bool_)
        for lane in (rank_pairs(process, np.zeros_like(process)), thread):
            lost |= self._lost(lane[: len(self.call)], lane[len(self.call) :], events.start[calls])
        return lost

    def _lost(self, lane: NDArray[np.intp], of_calls: NDArray[np.intp], at: Int64) -> Bool:
        order = np.lexsort((self.at, lane))
        known, wanted = comparable_keys((lane[order], self.at[order]), (of_calls, at))
        place = np.searchsorted(known, wanted, side="left") - 1
        lost = place >= 0
        last = order[np.maximum(place, 0)] if len(order) else np.zeros(len(at), np.intp)
        lost[lost] = lane[last[lost]] == of_calls[lost]
        lost[lost] = ~self.recorded[last[lost]]
        return lost


def _captured(trace: RankTrace, kinds: NDArray[np.int8]) -> Bool:
    """Mask of launches during the capture of a graph on their thread."""
    events = trace.events
    opens = events_named(trace, lambda name: _BEGINS_CAPTURE.match(name) is not None)
    closes = events_named(trace, lambda name: _ENDS_CAPTURE.match(name) is not None)
    captured = np.zeros(len(events), np.bool_)
    if not opens.any():
        return captured
    rows = np.flatnonzero(opens | closes | (kinds == CallKind.LAUNCH))
    lane = rank_pairs(events.process[rows], events.thread[rows])
    order = np.lexsort((events.start[rows], lane))
    rows, lane = rows[order], lane[order]
    depth = np.cumsum(np.where(opens[rows], 1, np.where(closes[rows], -1, 0)))
    first = np.flatnonzero(np.append(True, lane[1:] != lane[:-1]))
    before = np.append(0, depth)[first]
    depth -= np.repeat(before, np.diff(np.append(first, len(rows))))
    captured[rows[depth > 0]] = True
    return captured


def first_of_streams(events: Events) -> Bool:
    """Mask of the work on a GPU that is the first on its stream in the trace."""
    rows = np.flatnonzero(events.is_gpu_work)
    stream = rank_pairs(events.device[rows], events.stream[rows])
    order = np.lexsort((events.start[rows], stream))
    leads = np.append(True, stream[order[1:]] != stream[order[:-1]])[: len(order)]
    return mask_of(rows[order[leads]], len(events))


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


#: Share of what a finding rests on that may be left out or unattributed; beyond it, the finding is not made.
MAX_UNKNOWN = 0.1


@dataclass(frozen=True, slots=True)
class Grounds:
    """Known and unknown parts of what the findings of a path rest on, over its ranks."""

    #: Seconds of the window in which the GPU may have had work that was not recorded.
    not_recorded: float = 0.0
    #: Seconds of a thread of the path during events of categories that are not known.
    unknown: float = 0.0
    #: Seconds of the window in calls that set libraries up, by name.
    set_up: Mapping[str, float] = field(default_factory=dict)
    #: Number of launches, and of those without work in the trace.
    launches: int = 0
    lost: int = 0
    #: Number of events that were read, and of those that could not be.
    events: int = 1
    unreadable: int = 0

    def gpu_is_known(self, window: float) -> bool:
        """True if the traces show well enough when the GPUs were idle."""
        return self.lost <= MAX_UNKNOWN * self.launches and self.not_recorded <= MAX_UNKNOWN * window

    @property
    def can_be_read(self) -> bool:
        """True if nearly all events could be read."""
        return self.unreadable <= MAX_UNKNOWN * (self.events + self.unreadable)


def mostly_known(seconds: float, unknown: float) -> bool:
    """True if the unknown part of some time is small."""
    return unknown <= MAX_UNKNOWN * (seconds + unknown)


def grounds_of(
    stretches: TorchStretches, graphs: Sequence[TorchGraph], positions: Sequence[int], offset: Sequence[int]
) -> Grounds:
    """Grounds of a path's findings, over its ranks."""
    not_recorded = unknown = launches = lost = events = unreadable = 0
    first_calls: Counter[str] = Counter()
    for graph, position in zip(graphs, positions, strict=True):
        trace, shift = graph.trace, offset[position]
        mine = stretches.take(stretches.rank == position)
        has_event = mine.event != MISSING
        of_gpu = has_event & (trace.events.is_call | trace.events.is_gpu_work)[mine.event]
        unattributed = mine.kind == KINDS.index(Kind.UNATTRIBUTED)
        lasts = mine.stop - mine.start
        not_recorded += int(lasts[unattributed & of_gpu].sum())
        rest = mine.take(unattributed & ~of_gpu)
        of_unknown = unknown_events(trace)
        moved = IntervalArrays(of_unknown.start + shift, of_unknown.stop + shift)
        unknown += length(intersection(IntervalArrays(rest.start, rest.stop), moved))
        rows = np.flatnonzero(has_event & (mine.kind == KINDS.index(Kind.COMPUTE_CPU)))
        rows = rows[sets_up(trace)[mine.event[rows]]]
        for name, seconds in zip(trace.events.name[mine.event[rows]].tolist(), lasts[rows].tolist(), strict=True):
            first_calls[trace.names[name]] += seconds
        asked = Launches.of(trace)
        inside = (asked.at >= graph.region.start) & (asked.at <= graph.region.stop)
        launches += int(np.count_nonzero(inside))
        lost += int(np.count_nonzero(inside & ~asked.recorded))
        events += len(trace.events)
        unreadable += sum(count for reason, count in trace.left_out.items() if reason in UNREADABLE_EVENTS)
    seconds_by_name = {name: ns / 1e9 for name, ns in first_calls.items()}
    return Grounds(not_recorded / 1e9, unknown / 1e9, seconds_by_name, launches, lost, events, unreadable)
