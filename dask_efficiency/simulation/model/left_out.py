"""What a simulation leaves out or assumes of what a recorded run had: sentences for its notes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.simulation.model.listed import listed
from dask_efficiency.simulation.model.p2p import shuffles

#: How the name of a client begins that a task opened on its worker.
WORKER_CLIENT = "Client-worker-"


def left_out(trace: RunTrace) -> tuple[str, ...]:
    """What of a recorded run is not simulated as it was, a sentence each."""
    found, runs = [], trace.runs
    if shuffles(trace):
        found.append(
            "P2P shuffles are simulated as if each worker got as large a part of every input as it has of the outputs; "
            "their buffers and their files are left out."
        )
    actors = [task for task, constraint in trace.constraints.items() if constraint.get("actor")]
    if actors:
        found.append(f"{len(actors)} actors are simulated as tasks: calls of their methods are left out.")
    if any(name.startswith(WORKER_CLIENT) for name in trace.clients):
        found.append("Tasks submitted tasks: these are sent when they were, not when those that sent them get there.")
    data = data_before(trace)
    if data:
        found.append(f"{len(data)} results that were there before the recording are there from the start.")
    if np.any(runs.gpu_ns > 0):
        found.append("Each worker is taken to have a GPU of its own, of which its tasks' kernels share the time.")
    return tuple(found)


def data_before(trace: RunTrace) -> list[int]:
    """Tasks that no graph brought and that did not run: their results were there before the recording."""
    ran = np.zeros(len(trace.tasks), bool)
    ran[trace.runs.task[trace.runs.task != MISSING]] = True
    found: list[int] = np.flatnonzero((trace.tasks.graph == MISSING) & ~ran).tolist()
    return found


def overfull(names: Sequence[str]) -> str:
    """That workers used more memory than their nannies would have let them."""
    return f"Memory of {listed(names)} gets so full that a nanny would end it: here, it goes on."
