"""KinetoTrace: what ``torch.profiler`` recorded on each rank of a job, as columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Annotated, Any

import numpy as np

from dask_efficiency.accounts.tables import Bool, Column, Int8, Int32, Int64, Table
from dask_efficiency.torch_traces.kineto.execution import ExecutionTrace


class Category(IntEnum):
    """What kind of event a row of :class:`Events` is."""

    #: An operator of PyTorch on a CPU thread (``cpu_op``, ``Operator``).
    OPERATOR = 0
    #: A range that the program named, on a CPU thread (``user_annotation``).
    ANNOTATION = 1
    #: A function of Python (``python_function``).
    PYTHON = 2
    #: A call of the CUDA or HIP runtime (``cuda_runtime``, ``Runtime``).
    RUNTIME = 3
    #: A call of the CUDA driver (``cuda_driver``).
    DRIVER = 4
    #: A kernel on a GPU (``kernel``, ``Kernel``).
    KERNEL = 5
    #: A copy on a GPU (``gpu_memcpy``, ``Memcpy``).
    COPY = 6
    #: A fill on a GPU (``gpu_memset``, ``Memset``).
    FILL = 7
    #: A synchronisation (``cuda_sync``); absent unless the profiler was asked for it.
    SYNC = 8
    #: A range of the program's as its work on the GPU spans it (``gpu_user_annotation``).
    GPU_ANNOTATION = 9
    #: Everything else.
    OTHER = 10


#: By category, Kineto's name of today.
KINETO_CATEGORIES = {
    Category.OPERATOR: "cpu_op",
    Category.ANNOTATION: "user_annotation",
    Category.PYTHON: "python_function",
    Category.RUNTIME: "cuda_runtime",
    Category.DRIVER: "cuda_driver",
    Category.KERNEL: "kernel",
    Category.COPY: "gpu_memcpy",
    Category.FILL: "gpu_memset",
    Category.SYNC: "cuda_sync",
    Category.GPU_ANNOTATION: "gpu_user_annotation",
    Category.OTHER: "other",
}

#: Work on a GPU, which a call asked for.
GPU_WORK = (Category.KERNEL, Category.COPY, Category.FILL)
#: Calls that a CPU thread makes of CUDA or HIP.
CALLS = (Category.RUNTIME, Category.DRIVER)
#: What a program names. Old versions have it among the operators.
NAMED_BY_PROGRAMS = (Category.ANNOTATION, Category.OPERATOR)


@dataclass(frozen=True, slots=True, repr=False)
class Events(Table):
    """A row for each event that has a duration (``"ph": "X"``), in the order of the file.

    Every column but the first five is missing where the event does not say it.
    """

    #: Position among the file's ``traceEvents``.
    index: Int32
    #: A :class:`Category`.
    category: Int8
    #: Position in :attr:`RankTrace.names`.
    name: Int32
    #: Nanoseconds on the rank's clock: since the epoch where the file says so (``baseTimeNanoseconds``).
    start: Annotated[Int64, Column(unit="nanoseconds")]
    stop: Annotated[Int64, Column(unit="nanoseconds")]
    #: Process and thread, as Kineto numbers them; of an event on a GPU the device and the stream.
    process: Int64
    thread: Int64
    device: Int32
    #: Of an event on a GPU.
    stream: Int32
    #: What a call and the work that it asked for have in common.
    correlation: Int64
    #: For work on a GPU and for synchronisations: the row of the call that asked for it.
    call: Int32
    #: "External id": an operator and its calls have it in common.
    external: Int64
    #: "Sequence number" and "Fwd thread id": an operator and its backward have the former in common.
    sequence: Int64
    forward_thread: Int64
    #: "Record function id": an operator's in an execution trace (``rf_id``).
    record_function: Int64
    #: Which function of CUDA's a call is of, as CUPTI numbers them.
    cbid: Int32
    #: For a synchronisation: the correlation of the ``cudaEventRecord`` that it waits for, and the stream of that.
    recorded_by: Int64
    recorded_stream: Int32
    #: Bytes of a copy or fill.
    nbytes: Annotated[Int64, Column(unit="bytes")]
    #: Of a collective: position in :attr:`RankTrace.names` of its name and of its process group's; elements in and out.
    collective: Int32
    group: Int32
    group_size: Int32
    elements_in: Int64
    elements_out: Int64
    #: Position of its type of elements in :attr:`RankTrace.names`.
    element_type: Int32

    @property
    def is_gpu_work(self) -> Bool:
        """Whether each is work on a GPU."""
        return np.isin(self.category, GPU_WORK)

    @property
    def is_call(self) -> Bool:
        """Whether each is a call of CUDA or HIP."""
        return np.isin(self.category, CALLS)


@dataclass(frozen=True, slots=True)
class RankTrace:
    """What was recorded in one process."""

    #: Its number in the job, 0 where the file does not say one.
    rank: int
    #: How many there are in the job; None where the file does not say.
    world_size: int | None
    #: The file it came from.
    path: str
    events: Events
    #: Every name once.
    names: tuple[str, ...]
    #: Names of threads and streams by (process, thread), as the file has them.
    threads: Mapping[tuple[int, int], str] = field(default_factory=dict)
    #: The members of each process group by its name.
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    #: Everything else that the file says of itself, but for its events.
    about: Mapping[str, Any] = field(default_factory=dict)
    #: How many events could not be read, by why.
    left_out: Mapping[str, int] = field(default_factory=dict)
    #: What its operators read and wrote, if that was recorded and read, too.
    execution: ExecutionTrace | None = None


@dataclass(frozen=True, slots=True)
class KinetoTrace:
    """One or more ranks of one job, in the order of their numbers."""

    ranks: tuple[RankTrace, ...]

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of the ranks."""
        return tuple(trace.rank for trace in self.ranks)

    @property
    def world_size(self) -> int | None:
        """How many ranks the job had; None where no file says."""
        return max((trace.world_size for trace in self.ranks if trace.world_size is not None), default=None)

    @property
    def missing_ranks(self) -> tuple[int, ...]:
        """The ranks of the job that were not read."""
        return tuple(sorted(set(range(self.world_size or 0)) - set(self.numbers)))

    def rank(self, number: int) -> RankTrace:
        """The trace of a rank.

        Raises
        ------
        UnknownRankError
            If there is none of that number; it says which there are.
        """
        from dask_efficiency.torch_traces.kineto.errors import UnknownRankError

        for trace in self.ranks:
            if trace.rank == number:
                return trace
        raise UnknownRankError(number, self.numbers)
