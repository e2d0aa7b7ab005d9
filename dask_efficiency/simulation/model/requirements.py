"""Requirements: checks of a trace and a cluster before a simulation, and notes on what it leaves out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dask_efficiency.accounts.metered import BARRIERS
from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.trace.run_trace import RunTrace, WorkerSpec
from dask_efficiency.simulation.model.cluster import ClusterSpec
from dask_efficiency.simulation.model.units import MAX_NAMES, few_names

#: How the name of a client begins that a task opened on its worker.
WORKER_CLIENT = "Client-worker-"


def left_out(trace: RunTrace) -> tuple[str, ...]:
    """List what is not simulated as it was recorded, a sentence each."""
    sentences, runs = [], trace.runs
    barriers = [i for i, name in enumerate(trace.prefixes) if name.startswith(BARRIERS)]
    if np.isin(trace.tasks.prefix, barriers).any():
        sentences.append(
            "P2P shuffles are simulated as if each worker got as large a part of every input as it has of the outputs; "
            "their buffers and their files are left out."
        )
    actors = [task for task, constraint in trace.constraints.items() if constraint.get("actor")]
    if actors:
        sentences.append(f"{len(actors)} actors are simulated as tasks: calls of their methods are left out.")
    if any(name.startswith(WORKER_CLIENT) for name in trace.clients):
        sentences.append(
            "Tasks submitted tasks: these are sent when they were, not when those that sent them get there."
        )
    data = data_before(trace)
    if data:
        sentences.append(f"{len(data)} results that were there before the recording are there from the start.")
    if np.any(runs.gpu_ns > 0):
        sentences.append("Each worker is taken to have a GPU of its own, of which its tasks' kernels share the time.")
    return tuple(sentences)


def data_before(trace: RunTrace) -> list[int]:
    """List tasks of no graph that did not run: their results were there before the recording."""
    ran = np.zeros(len(trace.tasks), bool)
    ran[trace.runs.task[trace.runs.task != MISSING]] = True
    tasks: list[int] = np.flatnonzero((trace.tasks.graph == MISSING) & ~ran).tolist()
    return tasks


#: Tables whose dropped rows leave the work of a run incomplete.
WORK = ("tasks", "runs", "graphs")
#: Note of a simulated trace.
SIMULATED = "A simulation: its times are predicted, not recorded."
#: Beginnings of the notes of a replay, and of workers that a nanny would have ended.
REPLAYED, OVERFULL = "A replay:", "Memory of"


class SimulationRefusedError(ValueError):
    """The trace is not good enough to predict from it; ``force=True`` predicts anyway."""


class UnplaceableError(ValueError):
    """No worker of the cluster may run some tasks."""


def check_cluster(trace: RunTrace, cluster: ClusterSpec) -> None:
    """Refuse a cluster whose workers lack the places or the resources that a task needs, or memory for its inputs."""
    names = {worker.address: worker.name for worker in trace.workers}
    for task, constraints in trace.constraints.items():
        if not any(_may_run(worker, constraints, names) for worker in cluster.workers):
            raise UnplaceableError(_unplaceable(trace, int(task), constraints, cluster.workers))
    _check_inputs(trace, cluster.workers)


def _check_inputs(trace: RunTrace, workers: Sequence[WorkerSpec]) -> None:
    """Refuse tasks whose inputs fit into no worker: Dask lets them fail."""
    limits = [worker.memory_limit for worker in workers]
    if not all(limits):
        return
    counts = np.diff(trace.dependency_starts)
    nbytes = np.maximum(trace.tasks.nbytes[trace.dependencies], 0)
    inputs = np.bincount(np.repeat(np.arange(len(counts)), counts), weights=nbytes, minlength=len(counts))
    if len(inputs) and inputs.max() > max(limits):
        task = int(inputs.argmax())
        raise UnplaceableError(
            f"task {trace.keys[task]!r:.80} needs inputs of {inputs[task] / 1e6:.0f} MB, and no worker has a "
            f"memory limit above {max(limits) / 1e6:.0f} MB: Dask lets such a task fail"
        )


def _may_run(worker: WorkerSpec, constraints: Mapping[str, Any], names: Mapping[str, str]) -> bool:
    """True if Dask would let a worker run a task; a recorded address, in ``names``, is the worker of that name."""
    allowed = {names.get(place, place) for place in constraints.get("restrictions") or ()}
    is_bound = allowed and not constraints.get("loose_restrictions")
    if is_bound and not allowed & {worker.address, worker.name, worker.host}:
        return False
    needed = constraints.get("resources") or {}
    return all(worker.resources.get(name, 0.0) >= amount for name, amount in needed.items())


def _unplaceable(trace: RunTrace, task: int, constraints: Mapping[str, Any], workers: Sequence[WorkerSpec]) -> str:
    needs = []
    if allowed := constraints.get("restrictions"):
        needs.append(f"may only run on {_names(allowed)}")
    if resources := constraints.get("resources"):
        needs.append("needs " + ", ".join(f"{amount:g} of {name!r:.80}" for name, amount in resources.items()))
    offered = sorted({f"{name} {amount:g}" for worker in workers for name, amount in worker.resources.items()})
    has = f", with the resources {', '.join(offered[:MAX_NAMES])}" if offered else ", without any resources"
    return (
        f"task {trace.keys[task]!r:.80} {' and '.join(needs)}, and no worker of the cluster allows that; "
        f"it has {_names([worker.name for worker in workers])} on {_names(sorted({w.host for w in workers}))}"
        f"{has if resources else ''}"
    )


def _names(names: Sequence[str]) -> str:
    return few_names([f"{name!r:.80}" for name in names])


def check_trace(trace: RunTrace, installed: str, *, force: bool) -> tuple[str, ...]:
    """Check a trace before a simulation, and refuse one in which work is missing without ``force``; returns caveats."""
    dropped = {table: count for table, count in trace.dropped.items() if count}
    missing = ", ".join(f"{count} {table}" for table, count in dropped.items() if table in WORK)
    if missing and not force:
        raise SimulationRefusedError(
            f"{missing} of the trace {trace.name!r:.80} were dropped, so that work is missing; "
            "force=True, or --force, predicts without them"
        )
    notes = []
    if dropped:
        rows = ", ".join(f"{count} {table}" for table, count in dropped.items())
        notes.append(f"Not recorded, and so not simulated either: {rows}.")
    recorded = trace.versions.get("distributed", "")
    if recorded and installed and recorded != installed:
        notes.append(
            f"Recorded with distributed {recorded}, simulated with {installed}: what differs between the two counts as "
            "if it were due to the change."
        )
    if any(note.startswith(REPLAYED) for note in trace.notes):
        notes.append("What was simulated is a replay, not a recorded run: errors of both add up.")
    if SIMULATED in trace.notes:
        notes.append("What was simulated is a simulation itself, not a recorded run: errors of both add up.")
    own = [note for note in trace.notes if note != SIMULATED and not note.startswith(REPLAYED)]
    return tuple(dict.fromkeys([*notes, *own, *left_out(trace)]))
