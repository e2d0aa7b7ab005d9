"""Launches: the calls that asked a GPU for work, and whether the trace has what they asked for."""

from __future__ import annotations

import re
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import Bool, Int64
from dask_efficiency.torch_traces.kineto.numbers import mask_of
from dask_efficiency.torch_traces.kineto.trace import Events, RankTrace
from dask_efficiency.torch_traces.path.lanes import comparable_keys, rank_pairs
from dask_efficiency.torch_traces.path.roles import CallKind, call_kinds, events_named

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
