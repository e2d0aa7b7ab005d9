"""Cold starts: what a worker's event loop took, once, for the first task of a kind, such as importing a library."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Bool, Int64
from dask_efficiency.runs.replay.durations import prefix_of_runs
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.runs.trace.schema import BLOCKED_BY

#: Nanoseconds from which a blocked loop is taken for a cold start: reading a message with a task takes 0.1 ms, and
#: importing pandas for it 300 ms and more.
MIN_NS = 50_000_000

#: How long after a message was read a loop may turn: as long as Dask's tick is late before it counts as blocked.
_TURN = 20_000_000

#: What blocks a loop while it reads a message: data, or Python's own work; waiting for a core or the lock is neither.
_READING = (MISSING, BLOCKED_BY.index("computing"), BLOCKED_BY.index("call"))


@dataclass(frozen=True, slots=True)
class ColdStarts:
    """What it took, in nanoseconds, and which runs waited for it."""

    #: By recorded worker and prefix, 0 where there was none; shape (workers, prefixes + 1).
    ns: Int64
    #: By run: whether its message was read after one, together with others or alone.
    waited: Bool


def cold_starts(trace: RunTrace) -> ColdStarts:
    """Find those loops that stood still while they read the first task of a prefix."""
    runs, blocked = trace.runs, trace.blocked
    ns = np.zeros((len(trace.workers), len(trace.prefixes) + 1), np.int64)
    waited = np.zeros(len(runs), np.bool_)
    rows = np.flatnonzero(
        (blocked.worker >= 0)
        & (blocked.worker < len(trace.workers))
        & (blocked.stop - blocked.start >= MIN_NS)
        & np.isin(blocked.cause, _READING)
    )
    if not len(rows):
        return ColdStarts(ns, waited)
    prefix = prefix_of_runs(trace)
    known = (runs.assigned != MISSING) & (runs.received != MISSING)
    for row in rows.tolist():
        worker, start, stop = int(blocked.worker[row]), int(blocked.start[row]), int(blocked.stop[row])
        of_worker = known & (runs.worker == worker)
        took = runs.received - np.maximum(runs.assigned, start)
        read = of_worker & (runs.received > start) & (runs.received <= stop + _TURN) & (took >= MIN_NS)
        if not read.any():
            continue
        first = np.flatnonzero(read)[np.argmin(runs.received[read])]
        if (of_worker & (prefix == prefix[first]) & (runs.received < runs.received[first])).any():
            # It had read such tasks before: this one was large.
            continue
        ns[worker, prefix[first]] = took[first]
        waited |= read
    return ColdStarts(ns, waited)
