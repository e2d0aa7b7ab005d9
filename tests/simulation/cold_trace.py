"""A run in which a worker's event loop stood still before it read a task."""

from dataclasses import replace

import numpy as np

from dask_efficiency import RunTrace
from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.trace.schema import Blocked, Runs
from tests.simulated_traces import MS, Graph, simulate

#: For how long.
COLD = 700 * MS


def cold_trace(cause: int = MISSING, ns: int = COLD, run: int = 0) -> RunTrace:
    """Tasks of two prefixes on one worker; its loop stood still before it read one of them."""
    graph = Graph(["a"] * 10 + ["b"] * 10, [[]] * 20, [10 * MS] * 20, [1] * 20, set(range(20)))
    trace = simulate(graph, workers=1, nthreads=1)
    # Ways of 1 ms, one after the other; from that run on everything is later.
    columns = trace.runs.columns()
    place = np.argsort(np.argsort(columns["received"]))
    for name in ("received", "ready", "executing", "submitted", "start", "stop", "ended", "reported"):
        columns[name] = columns[name] + np.where(place >= run, ns, 0)
    columns["assigned"] = columns["assigned"] + np.where(place > run, ns, 0)
    stop = int(columns["received"][np.argsort(place)[run]])
    blocked = {"worker": [0], "start": [stop - ns], "stop": [stop + MS], "moving_ns": [ns], "cause": [cause]}
    return replace(trace, stop=trace.stop + ns, runs=Runs(**columns), blocked=Blocked.from_columns(blocked))
