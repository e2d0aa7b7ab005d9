"""Which results a recorded run's workers wrote to disk and read back: those used longest ago leave memory first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Int64
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.runs.trace.schema import STATES, Outcome

#: Share of the memory limit from which results are written to disk, where the trace does not say: as in Dask.
TARGET = 0.6

#: What happens to a result on a worker, in this order where it happens at once.
_DROP, _PUT, _USE = range(3)


@dataclass(frozen=True, slots=True)
class Moves:
    """By run: how many results, and bytes, were moved for it."""

    #: Written when its result was stored;
    stored: Int64
    stored_bytes: Int64
    #: read back as it needed them;
    read: Int64
    read_bytes: Int64
    #: and written to make room for those.
    pushed: Int64
    pushed_bytes: Int64


def moved(trace: RunTrace, workers: Sequence[int]) -> Moves:
    """What some workers moved, if results that were used longest ago left memory first.

    Parameters
    ----------
    workers
        Their numbers; runs of others have moved nothing.
    """
    found = {name: np.zeros(len(trace.runs), np.int64) for name in Moves.__slots__}
    share = trace.config.get("distributed.worker.memory.target", TARGET)
    for worker in workers:
        limit = trace.workers[worker].memory_limit * share if share else 0
        if limit:
            _keep(trace, worker, float(limit), found)
    return Moves(**found)


def _keep(trace: RunTrace, worker: int, target: float, found: dict[str, Int64]) -> None:
    """Keep the results of one worker."""
    sizes = np.maximum(trace.tasks.nbytes, 0).tolist()
    tasks, starts = trace.runs.task.tolist(), trace.dependency_starts.tolist()
    needed = trace.dependencies.tolist()
    memory: OrderedDict[int, int] = OrderedDict()
    disk: dict[int, int] = {}
    total = 0

    def push(run: int, count: str, nbytes: str) -> None:
        nonlocal total
        while total > target and memory:
            oldest, size = memory.popitem(last=False)
            disk[oldest] = size
            total -= size
            if run != MISSING:
                found[count][run] += 1
                found[nbytes][run] += size

    for kind, task, run in _events(trace, worker):
        if kind == _DROP:
            total -= memory.pop(task, 0)
            disk.pop(task, None)
        elif kind == _PUT:
            if task not in memory and task not in disk:
                memory[task] = sizes[task]
                total += sizes[task]
                push(run, "stored", "stored_bytes")
        else:
            of = tasks[run]
            for other in needed[starts[of] : starts[of + 1]]:
                if other in memory:
                    memory.move_to_end(other)
                elif other in disk:
                    memory[other] = disk.pop(other)
                    total += memory[other]
                    found["read"][run] += 1
                    found["read_bytes"][run] += memory[other]
                    push(run, "pushed", "pushed_bytes")


def _events(trace: RunTrace, worker: int) -> Iterator[tuple[int, int, int]]:
    """What happened to results on a worker, in order: kind, task, run."""
    runs, transfers, transitions = trace.runs, trace.transfers, trace.transitions
    of = np.flatnonzero((runs.worker == worker) & (runs.task != MISSING))
    stored = of[(runs.outcome[of] == Outcome.SUCCEEDED) & (runs.stop[of] != MISSING)]
    used = of[runs.executing[of] != MISSING]
    came = np.flatnonzero((transfers.receiver == worker) & transfers.arrived & (transfers.task != MISSING))
    gone = [STATES.index("released"), STATES.index("forgotten")]
    left = np.flatnonzero(np.isin(transitions.finish, gone) & (transitions.task != MISSING))
    parts = [
        (transitions.at[left], _DROP, transitions.task[left], np.full(len(left), MISSING)),
        (runs.stop[stored], _PUT, runs.task[stored], stored),
        (transfers.stop[came], _PUT, transfers.task[came], np.full(len(came), MISSING)),
        (runs.executing[used], _USE, runs.task[used], used),
    ]
    at = np.concatenate([part[0] for part in parts])
    kind = np.repeat([part[1] for part in parts], [len(part[0]) for part in parts])
    task, run = (np.concatenate([part[i] for part in parts]) for i in (2, 3))
    order = np.lexsort((kind, at))
    yield from zip(kind[order].tolist(), task[order].tolist(), run[order].tolist(), strict=True)
