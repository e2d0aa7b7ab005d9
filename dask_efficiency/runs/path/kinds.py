"""Kind: the use of a segment of the critical path."""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class Kind(StrEnum):
    """Use of a segment of the critical path, with its meaning for a reader."""

    #: Phrase that says what goes on in such a segment.
    meaning: str

    def __new__(cls, value: str, meaning: str = "") -> Self:
        """Make a member that equals its value."""
        member = str.__new__(cls, value)
        member._value_, member.meaning = value, meaning
        return member

    CLIENT_SUBMIT = "client-submit", "the client prepares and sends a graph, or your own code is thinking"
    GRAPH_UPDATE = "graph-update", "the scheduler takes a graph in"
    SCHEDULER_TRANSITION = "scheduler-transition", "the scheduler is busy"
    SCHEDULER_QUEUE = "scheduler-queue", "a task waits on the scheduler for a worker with room"
    SCHEDULER_TO_WORKER = "scheduler-to-worker", "the scheduler's message is on its way"
    TRANSFER_QUEUE = "transfer-queue", "an input waits for its turn to be fetched"
    TRANSFER = "transfer", "an input comes from another worker"
    READY_WAIT = "ready-wait", "a task could run, and waits for a slot"
    UNSPILL = "unspill", "inputs are read back from disk"
    SPILL = "spill", "a result is written to disk"
    EXECUTOR_HANDOFF = "executor-handoff", "from a worker's event loop to the thread"
    COMPUTE_CPU = "compute-cpu", "a task's thread computes"
    COMPUTE_NONCPU = "compute-noncpu", "a task runs, but its thread waits: reading, writing, a lock, the GIL or a core"
    GPU_COMPUTE = "gpu-compute", "a task's own work on the GPU"
    GPU_COMMUNICATION = "gpu-communication", "a task's collectives with other processes"
    KERNEL_LAUNCH = "kernel-launch", "a kernel was asked for, and the idle GPU has not begun it"
    KERNEL_GAP = "kernel-gap", "from one kernel to the next, which was asked for already"
    GPU_SYNC = "gpu-sync", "a task waits for the GPU, and no work of the GPU explains it"
    DATA_LOADING = "data-loading", "a task waits for its next batch of data"
    WORKER_LOOP = "worker-loop", "a worker's event loop is busy"
    REPORT = "report", "the message that a task has ended is on its way"
    RESULT_GATHER = "result-gather", "the client fetches results"
    NO_WORKERS = "no-workers", "there is no worker at all, and work waits for one"
    LOST_WORKER = "lost-worker", "lost with a worker that vanished"
    UNATTRIBUTED = "unattributed", "nothing that was recorded explains it"


#: Kinds by position, as :class:`~dask_efficiency.runs.path.segments.Segments` holds them.
KINDS = tuple(Kind)

#: Kinds in which a task itself runs.
COMPUTE = (
    Kind.COMPUTE_CPU,
    Kind.COMPUTE_NONCPU,
    Kind.GPU_COMPUTE,
    Kind.GPU_COMMUNICATION,
    Kind.KERNEL_LAUNCH,
    Kind.KERNEL_GAP,
    Kind.GPU_SYNC,
    Kind.DATA_LOADING,
)
