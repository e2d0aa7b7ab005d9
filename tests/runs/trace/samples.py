"""Traces for Hypothesis: any small run, and runs of which parts are missing or wrong."""

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from dask_efficiency import RunTrace
from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.trace.files import check_positions
from dask_efficiency.runs.trace.run_trace import POINTS_INTO
from tests.simulated_cluster import SECOND
from tests.simulated_traces import MS, SAMPLES, US, random_graph, simulate

#: A cluster whose only delays are those of the tasks.
NO_DELAYS = {"latency": 0, "scheduler_message": 0, "scheduler_task": 0, "handoff": 0, "loop": 0}


@st.composite
def traces(draw: st.DrawFn) -> RunTrace:
    """Any small run: any graph, any cluster, with retries, seceding tasks, spilling and a death."""
    tasks = draw(st.integers(1, 40))
    some_tasks = st.frozensets(st.integers(0, tasks - 1), max_size=3)
    workers = draw(st.integers(1, 4))
    graphs = [
        random_graph(tasks, seed=draw(st.integers(0, 99)), compute_ns=draw(st.sampled_from([0, 50 * US, 5 * MS])))
    ]
    graphs += [random_graph(5, seed=draw(st.integers(0, 99)))] * draw(st.integers(0, 2))
    return simulate(
        graphs,
        seed=draw(st.integers(0, 99)),
        workers=workers,
        nthreads=draw(st.integers(1, 3)),
        latency=draw(st.sampled_from([0, 300 * US])),
        spread=draw(st.booleans()),
        bytes_per_second=draw(st.sampled_from([1e9, 1e7])),
        spill=draw(st.sampled_from([0, MS])),
        unspill=draw(st.sampled_from([0, MS])),
        failing=draw(some_tasks),
        seceding=draw(some_tasks),
        slow=draw(st.dictionaries(st.integers(0, workers - 1), st.floats(0.5, 4), max_size=1)),
    )


@st.composite
def damaged_traces(draw: st.DrawFn) -> RunTrace:
    """A run of which parts were not recorded, or contradict each other: any that can be read from a file."""
    trace = draw(st.sampled_from(sorted(SAMPLES)).map(lambda name: SAMPLES[name]()) | traces())
    rng = np.random.default_rng(draw(st.integers(0, 9999)))
    share = draw(st.sampled_from([0.0, 0.02, 0.3, 1.0]))
    kept = draw(st.sampled_from([1.0, 0.9, 0.5, 0.0]))
    jitter = draw(st.sampled_from([0, 0, MS, SECOND]))
    tables = draw(st.sets(st.sampled_from(["runs", "transitions", "stimuli", "transfers", "phases", "graphs"])))
    wild = draw(st.booleans())

    def damage(table: Any) -> Any:
        columns = table.take(np.flatnonzero(rng.random(len(table)) < kept)).columns()
        for column in columns.values():
            hit = rng.random(len(column)) < share
            if column.dtype == np.bool_:
                continue
            if column.dtype == np.int64 and jitter:
                column[hit] += rng.integers(-jitter, jitter, hit.sum())
            elif wild and column.dtype == np.int32:
                column[hit] = rng.integers(MISSING, 300, hit.sum())
            elif column.dtype != np.int8:
                column[hit] = MISSING
        return type(table)(**columns)

    damaged = replace(trace, **{name: damage(getattr(trace, name)) for name in sorted(tables)})
    for name, columns in POINTS_INTO.items():
        table = getattr(damaged, name)
        within = {
            column: np.where(getattr(table, column) < len(getattr(damaged, target)), getattr(table, column), MISSING)
            for column, target in columns.items()
            if isinstance(target, str)
        }
        damaged = replace(damaged, **{name: replace(table, **within)})
    check_positions(damaged)
    return damaged
