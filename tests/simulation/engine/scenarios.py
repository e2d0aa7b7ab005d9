"""Simulations of small runs, checked by Dask after every step; prints the figures of each as JSON.

Its process does nothing else, as what it replaces in Dask is not put back.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from dask_efficiency import RunTrace
from dask_efficiency.accounts.tables import Texts
from dask_efficiency.runs.trace.schema import STATES, RunOutcome, Tasks, WorkerChange, WorkerEvents
from dask_efficiency.simulation.engine.engine import Engine
from dask_efficiency.simulation.engine.workload import Workload
from dask_efficiency.simulation.model.calibration import calibrate
from dask_efficiency.simulation.model.cluster import ClusterSpec
from dask_efficiency.simulation.model.disk import Disk
from dask_efficiency.simulation.model.ensemble import SimulationJob
from tests.simulated_traces import MS, Graph, simulate

MB = 1_000_000
#: 10 MB take 100 ms to disk and 50 ms back.
DISK = Disk(write=100e6, read=200e6, latency=0)


def run(trace: RunTrace, cluster: ClusterSpec | None = None, **job: Any) -> dict[str, Any]:
    costs = calibrate(trace, job.get("gil", {}))
    # Processes use no memory but for results.
    costs = replace(costs, disk=DISK, unmanaged=np.zeros_like(costs.unmanaged))
    job = SimulationJob(cluster or ClusterSpec.from_trace(trace), validate=True, **job)
    engine = Engine(Workload(trace), costs, job, 0)
    return facts(engine.run()) | {"memory_needed": engine.memory_needed, "overfull": engine.overfull}


def facts(trace: RunTrace) -> dict[str, Any]:
    runs, names = trace.runs, [worker.name for worker in trace.workers]
    memory = trace.transitions.finish == STATES.index("memory")
    return {
        "ms": (int(runs.stop.max()) - int(runs.start[runs.start >= 0].min())) / MS,
        "spill_ms": runs.spill_ns.sum() / MS,
        "unspill_ms": runs.unspill_ns.sum() / MS,
        "outcomes": dict(Counter(RunOutcome(outcome).name for outcome in runs.outcome.tolist())),
        "memory": len({*trace.transitions.task[memory].tolist()}),
        "workers": {
            prefix: dict(Counter(names[i] for i in runs.worker[trace.tasks.prefix[runs.task] == number].tolist()))
            for number, prefix in enumerate(trace.prefixes)
        },
        "changes": [WorkerChange(change).name for change in trace.worker_events.change.tolist()],
        "most_at_once": _most_at_once(trace),
        "notes": list(trace.notes),
    }


def _most_at_once(trace: RunTrace) -> int:
    """Runs that were in threads at the same time, at most."""
    ran = trace.runs.start >= 0
    at = np.concatenate([trace.runs.start[ran], trace.runs.stop[ran]])
    step = np.repeat([1, -1], np.count_nonzero(ran))
    return int(np.cumsum(step[np.lexsort((step, at))]).max())


def flat(tasks: int, ms: int = 100, **settings: Any) -> RunTrace:
    graph = Graph(["work"] * tasks, [[]] * tasks, [ms * MS] * tasks, [1] * tasks, set(range(tasks)))
    return simulate(graph, **{"workers": 1, "nthreads": 1, **settings})


def pairs(tasks: int, nbytes: int = 10 * MB, use_ms: int = 20, **settings: Any) -> RunTrace:
    """Large results, each of which another task needs once all of them are there."""
    seen, every = range(tasks, 2 * tasks), 2 * tasks
    inputs = [*([] for _ in range(tasks)), *([i] for i in range(tasks)), [*seen], *([i, every] for i in range(tasks))]
    prefixes = ["make"] * tasks + ["see"] * tasks + ["all"] + ["use"] * tasks
    nbytes_of = [nbytes] * tasks + [1] * (2 * tasks + 1)
    took = [20 * MS] * (every + 1) + [use_ms * MS] * tasks
    graph = Graph(prefixes, inputs, took, nbytes_of, {*range(every + 1, len(inputs))})
    return simulate(graph, **{"workers": 1, "nthreads": 1, **settings})


def bound(trace: RunTrace, **constraint: Any) -> RunTrace:
    return replace(trace, constraints=dict.fromkeys(range(len(trace.tasks)), constraint))


def with_events(trace: RunTrace, *events: tuple[int, int, WorkerChange]) -> RunTrace:
    """Workers come and go so many milliseconds after the start."""
    at, worker, change = zip(*events, strict=True)
    columns = {"at": [trace.start + ms * MS for ms in at], "worker": list(worker), "change": list(change)}
    return replace(trace, worker_events=WorkerEvents.from_columns(columns))


def pause() -> dict[str, Any]:
    """A worker that cannot spill gets full, until another one has used its results: it steals tasks that are long."""
    trace = pairs(8, nbytes=MB // 10, use_ms=300, workers=2)
    small, large = ClusterSpec.from_trace(trace).workers
    config = dict.fromkeys(("distributed.worker.memory.target", "distributed.worker.memory.spill"), False)
    return run(trace, ClusterSpec((replace(small, memory_limit=MB * 3 // 10), large), config=config))


def replaced() -> dict[str, Any]:
    """A worker leaves, and another one comes with its name and its address."""
    trace = flat(20)
    again = replace(trace, workers=(*trace.workers, trace.workers[0]))
    return run(with_events(again, (400, 0, WorkerChange.LEFT), (600, 1, WorkerChange.JOINED)))


def resources() -> dict[str, Any]:
    trace = bound(flat(6), resources={"licence": 1.0})
    (worker,) = trace.workers
    return run(trace, ClusterSpec((replace(worker, nthreads=2, resources={"licence": 1.0}),)))


def data() -> dict[str, Any]:
    """Two tasks need a result that was not computed."""
    graph = Graph(["data", "use", "use"], [[], [0], [0]], [10 * MS] * 3, [1000] * 3, {1, 2})
    trace = simulate(graph, workers=2, nthreads=1)
    tasks = trace.tasks.columns() | {"graph": np.array([-1, 0, 0], np.int32)}
    return run(replace(trace, tasks=Tasks.from_columns(tasks), runs=trace.runs.take(trace.runs.task != 0)))


def p2p() -> RunTrace:
    """A shuffle of 40 MB from one worker to four, at 10 MB/s."""
    prefixes = ["load", "shuffle-transfer", "shuffle-barrier", *["shuffle-p2p"] * 8]
    inputs = [[], [0], [1], *[[2]] * 8]
    graph = Graph(prefixes, inputs, [10 * MS] * 11, [40 * MB, 1, 1, *[5 * MB] * 8], {*range(3, 11)})
    trace = simulate(graph, workers=4, nthreads=1)
    return replace(trace, keys=Texts.of(f"('{prefix}', {i})" for i, prefix in enumerate(prefixes)))


def resized(trace: RunTrace, workers: int, **sizes: int) -> ClusterSpec:
    return ClusterSpec.from_trace(trace).with_workers(workers, **sizes)


#: Two threads of one worker; room for three results of ten; two workers, and the second one's address.
EIGHT, TEN, TWO, SMALL = flat(8), pairs(10), flat(8, workers=2), pairs(10, nbytes=1000, workers=2)
SECOND = [TWO.workers[1].address]

SCENARIOS: dict[str, Callable[[], dict[str, Any]]] = {
    "lock": lambda: run(EIGHT, resized(EIGHT, 1, nthreads=2), gil={"work": 1.0}),
    "no lock": lambda: run(EIGHT, resized(EIGHT, 1, nthreads=2), gil={"work": 0.0}),
    "spill": lambda: run(TEN, resized(TEN, 1, memory_limit=50 * MB)),
    "no spill": lambda: run(TEN, resized(TEN, 1, memory_limit=50 * MB), without=frozenset({"spill"})),
    # Their 100 MB are 0.6 of 167.
    "enough memory": lambda: run(TEN, resized(TEN, 1, memory_limit=167 * MB)),
    "four fifths": lambda: run(TEN, resized(TEN, 1, memory_limit=134 * MB)),
    "pause": pause,
    "lost": lambda: run(with_events(SMALL, (60, 0, WorkerChange.LEFT))),
    "retired": lambda: run(with_events(SMALL, (60, 0, WorkerChange.RETIRING), (90, 0, WorkerChange.LEFT))),
    "joined": lambda: run(with_events(flat(20, workers=2), (400, 1, WorkerChange.JOINED))),
    "replaced": replaced,
    "restricted": lambda: run(bound(TWO, restrictions=SECOND, loose_restrictions=False)),
    # The allowed worker is not there.
    "loose": lambda: run(bound(TWO, restrictions=SECOND, loose_restrictions=True), resized(TWO, 1)),
    "resources": resources,
    "data": data,
    "p2p": lambda: run(p2p()),
    # A worker that has some of the outputs is killed.
    "p2p, killed": lambda: run(with_events(p2p(), (25, 3, WorkerChange.LEFT))),
    "p2p, no transfers": lambda: run(p2p(), without=frozenset({"transfer"})),
    "failing": lambda: run(flat(6, failing=frozenset({0, 1, 2}))),
    # At half their time.
    "seceding": lambda: run(flat(6, seceding=frozenset(range(6)))),
}

if __name__ == "__main__":
    for name in sys.argv[1:] or SCENARIOS:
        print(json.dumps({name: SCENARIOS[name]()}), flush=True)
