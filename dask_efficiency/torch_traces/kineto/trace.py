"""KinetoTrace: the events that ``torch.profiler`` recorded on each rank of a job, in columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Bool, Column, ColumnTable, Int8, Int32, Int64
from dask_efficiency.torch_traces.kineto.execution import ExecutionTrace


class Category(IntEnum):
    """Kind of an event; :data:`KINETO_CATEGORIES` has Kineto's names."""

    OPERATOR = 0
    #: A range that the program named, on a CPU thread.
    ANNOTATION = 1
    #: A function of Python.
    PYTHON = 2
    #: Calls of the runtime of CUDA or HIP, and of its driver.
    RUNTIME = 3
    DRIVER = 4
    KERNEL = 5
    COPY = 6
    FILL = 7
    #: Absent unless the profiler was asked for it.
    SYNC = 8
    #: A range of the program, as long as its work on the GPU.
    GPU_ANNOTATION = 9
    #: Of the profiler itself, or without a meaning for a path.
    OTHER = 10
    #: Of a category that is not known here, such as another maker's accelerator.
    UNKNOWN = 11


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
    Category.UNKNOWN: "unknown",
}

#: Work on a GPU, which a call asked for.
GPU_WORK = (Category.KERNEL, Category.COPY, Category.FILL)
#: Calls that a CPU thread makes of CUDA or HIP.
CALLS = (Category.RUNTIME, Category.DRIVER)
#: Events that say nothing of what a thread or a GPU did.
SAY_NOTHING = (Category.OTHER, Category.UNKNOWN)
#: Ranges that a program names; old versions have them among the operators.
NAMED_BY_PROGRAMS = (Category.ANNOTATION, Category.OPERATOR)


@dataclass(frozen=True, slots=True, repr=False)
class Events(ColumnTable):
    """A row for each event that has a duration (``"ph": "X"``), in the order of the file; MISSING for what it lacks."""

    #: Position among the file's ``traceEvents``.
    index: Int32
    #: A :class:`Category`.
    category: Int8
    #: Position in :attr:`RankTrace.names`.
    name: Int32
    #: On the rank's clock: since the epoch, if the file has ``baseTimeNanoseconds``.
    start: Annotated[Int64, Column(unit="nanoseconds")]
    stop: Annotated[Int64, Column(unit="nanoseconds")]
    #: Process and thread in Kineto's numbers; device and stream for an event on a GPU.
    process: Int64
    thread: Int64
    device: Int32
    #: Only for events on a GPU.
    stream: Int32
    #: A call and the work that it asked for have this in common.
    correlation: Int64
    #: For work on a GPU and for synchronisations: the row of the call that asked for it.
    call: Int32
    #: "External id", in common to an operator and its calls.
    external: Int64
    #: "Record function id", the ``rf_id`` of an operator in an execution trace.
    record_function: Int64
    #: Function of CUDA, in CUPTI's numbers.
    cbid: Int32
    #: For a synchronisation: correlation and stream of the ``cudaEventRecord`` that it waits for.
    recorded_by: Int64
    recorded_stream: Int32
    #: Bytes of a copy or fill.
    nbytes: Annotated[Int64, Column(unit="bytes")]
    #: Of a collective: position in :attr:`RankTrace.names` of its name and of its process group; elements in and out.
    collective: Int32
    group: Int32
    elements_in: Int64
    elements_out: Int64
    #: Position in :attr:`RankTrace.names` of the type of its elements.
    element_type: Int32

    @property
    def is_gpu_work(self) -> Bool:
        """Mask of the work on a GPU."""
        return np.isin(self.category, GPU_WORK)

    @property
    def is_call(self) -> Bool:
        """Mask of the calls of CUDA or HIP."""
        return np.isin(self.category, CALLS)

    @property
    def has_call(self) -> Bool:
        """Mask of events whose call was recorded."""
        has_call: Bool = self.call != MISSING
        return has_call

    def by_start(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Some rows in the order in which their events began."""
        return rows[np.argsort(self.start[rows], kind="stable")]


@dataclass(frozen=True, slots=True, repr=False)
class MemoryEvents(ColumnTable):
    """A row for each allocation and release that the profiler saw (``profile_memory``), in the order of the file."""

    at: Annotated[Int64, Column(unit="nanoseconds")]
    #: PyTorch's number of the kind of device, 0 for the CPU, and the number of the device.
    device_type: Int32
    device: Int32
    #: Bytes that were allocated; negative for a release.
    nbytes: Annotated[Int64, Column(unit="bytes", missing=0)]
    #: All that the device's allocator has given out then, and has reserved; missing in old traces.
    allocated: Annotated[Int64, Column(unit="bytes")]
    reserved: Annotated[Int64, Column(unit="bytes")]


@dataclass(frozen=True, slots=True)
class RankTrace:
    """Trace of one process."""

    #: Number in the job; 0 where the file has none.
    rank: int
    #: Number of ranks in the job; None where the file has none.
    world_size: int | None
    path: str
    events: Events
    #: Every name once.
    names: tuple[str, ...]
    #: Names of threads and streams by (process, thread).
    threads: Mapping[tuple[int, int], str] = field(default_factory=dict)
    #: Members of process groups by name.
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    #: Everything in the file but its events.
    about: Mapping[str, Any] = field(default_factory=dict)
    #: Number of events, or of numbers in them, that were left out, by reason.
    left_out: Mapping[str, int] = field(default_factory=dict)
    #: Sentences on what was changed in it because it cannot have been so.
    notes: tuple[str, ...] = ()
    #: Which operators need whose data; None without an execution trace.
    execution: ExecutionTrace | None = None
    #: Allocations and releases of memory; empty unless the profiler was asked for them.
    memory: MemoryEvents = field(default_factory=MemoryEvents.empty)


@dataclass(frozen=True, slots=True)
class KinetoTrace:
    """Ranks of one job, in the order of their numbers."""

    ranks: tuple[RankTrace, ...]

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of the ranks."""
        return tuple(trace.rank for trace in self.ranks)

    @property
    def world_size(self) -> int | None:
        """Number of ranks in the job; None where no file has it."""
        return max((trace.world_size for trace in self.ranks if trace.world_size is not None), default=None)

    @property
    def missing_ranks(self) -> tuple[int, ...]:
        """The ranks of the job that were not read."""
        return tuple(sorted(set(range(self.world_size or 0)) - set(self.numbers)))

    def rank(self, number: int) -> RankTrace:
        """The trace of a rank; raises :class:`UnknownRankError` with the numbers that exist."""
        from dask_efficiency.torch_traces.kineto.errors import UnknownRankError

        if number not in self.numbers:
            raise UnknownRankError(number, self.numbers)
        return self.ranks[self.numbers.index(number)]
