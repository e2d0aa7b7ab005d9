"""Grounds: the part of what a path's findings rest on that is in its traces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.gpu.intervals import IntervalArrays, intersection, length
from dask_efficiency.runs.path.kinds import KINDS, Kind
from dask_efficiency.torch_traces.kineto.columns import UNREADABLE
from dask_efficiency.torch_traces.path.graph import TorchGraph
from dask_efficiency.torch_traces.path.known import unknown_events
from dask_efficiency.torch_traces.path.launches import Launches
from dask_efficiency.torch_traces.path.roles import sets_up
from dask_efficiency.torch_traces.path.stretches import TorchStretches

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
        unreadable += sum(count for reason, count in trace.left_out.items() if reason in UNREADABLE)
    seconds_by_name = {name: ns / 1e9 for name, ns in first_calls.items()}
    return Grounds(not_recorded / 1e9, unknown / 1e9, seconds_by_name, launches, lost, events, unreadable)
