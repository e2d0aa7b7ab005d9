"""Kind: the use of a segment of the critical path."""

from __future__ import annotations

from enum import StrEnum


class Kind(StrEnum):
    """Use of a segment of the critical path."""

    #: The client optimised and sent a graph, or the user's own code ran.
    CLIENT_SUBMIT = "client-submit"
    #: The scheduler took a graph in and assigned its first task.
    GRAPH_UPDATE = "graph-update"
    #: The scheduler was busy, with this task or with something else.
    SCHEDULER_TRANSITION = "scheduler-transition"
    #: A task waited on the scheduler for a worker with room.
    SCHEDULER_QUEUE = "scheduler-queue"
    #: The message to the worker.
    SCHEDULER_TO_WORKER = "scheduler-to-worker"
    #: A worker waited for its turn to fetch an input.
    TRANSFER_QUEUE = "transfer-queue"
    #: An input came from another worker.
    TRANSFER = "transfer"
    #: A task could have run, but no slot was free; the path goes on with the task that held the slot.
    READY_WAIT = "ready-wait"
    #: Inputs were read back from disk.
    UNSPILL = "unspill"
    #: Results were written to disk.
    SPILL = "spill"
    #: The task was handed over from the event loop to its thread.
    EXECUTOR_HANDOFF = "executor-handoff"
    #: The task's thread computed.
    COMPUTE_CPU = "compute-cpu"
    #: The task ran but its thread did not compute: reading, writing, waiting for a lock, the GIL or a core.
    COMPUTE_NONCPU = "compute-noncpu"
    #: The task's own work on the GPU.
    GPU_COMPUTE = "gpu-compute"
    #: A collective on the GPU, or on the CPU, with other processes.
    GPU_COMMUNICATION = "gpu-communication"
    #: From the call that asked for a kernel to its start on a GPU that had nothing else to do.
    KERNEL_LAUNCH = "kernel-launch"
    #: From a kernel's end to the start of the next one on its stream, which was asked for before.
    KERNEL_GAP = "kernel-gap"
    #: A thread waited for the GPU, and no work of the GPU explains it.
    GPU_SYNC = "gpu-sync"
    #: The program waited for its next batch of data.
    DATA_LOADING = "data-loading"
    #: The worker's event loop was busy.
    WORKER_LOOP = "worker-loop"
    #: The message that a task has ended.
    REPORT = "report"
    #: The client fetched results.
    RESULT_GATHER = "result-gather"
    #: There was no worker, and work waited for one.
    NO_WORKERS = "no-workers"
    #: Time that was lost with a worker: what it ran, or results that only it had.
    LOST_WORKER = "lost-worker"
    #: Nothing that was recorded explains this time.
    UNATTRIBUTED = "unattributed"


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
