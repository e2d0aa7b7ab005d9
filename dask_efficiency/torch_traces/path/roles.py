"""Roles of events, by their names and categories: calls that wait, kernels that exchange data, and whose time it is."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import IntEnum

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Bool, Int8
from dask_efficiency.runs.path.kinds import KINDS, Kind
from dask_efficiency.torch_traces.kineto.trace import CALLS, NAMED_BY_PROGRAMS, Category, RankTrace


class CallKind(IntEnum):
    """What a call does. Which calls asked for work on the GPU is not among it: the work itself says so."""

    OTHER = 0
    #: It waits until a device, or a context of it, has nothing left to do.
    DEVICE_WAIT = 1
    #: It waits until a stream has nothing left to do.
    STREAM_WAIT = 2
    #: It waits until the work before a recorded event is done.
    EVENT_WAIT = 3
    #: It asks whether that work is done.
    EVENT_QUERY = 4
    #: It notes what a stream has been asked for.
    EVENT_RECORD = 5
    #: It makes a stream wait for a recorded event.
    STREAM_WAITS_EVENT = 6
    #: It asks for a copy and waits for it.
    COPY = 7
    #: It asks for a copy, and waits for it only where memory is pageable.
    COPY_ASYNC = 8
    #: It reserves memory.
    ALLOCATE = 9
    #: It gives memory back, for which it waits until the device has nothing left to do.
    FREE = 10


#: Names without their API's prefix and the marks of versions; CUDA's runtime, its driver, HIP.
_KINDS = {
    "DeviceSynchronize": CallKind.DEVICE_WAIT,
    "ThreadSynchronize": CallKind.DEVICE_WAIT,
    "CtxSynchronize": CallKind.DEVICE_WAIT,
    "StreamSynchronize": CallKind.STREAM_WAIT,
    "EventSynchronize": CallKind.EVENT_WAIT,
    "EventQuery": CallKind.EVENT_QUERY,
    "EventRecord": CallKind.EVENT_RECORD,
    "EventRecordWithFlags": CallKind.EVENT_RECORD,
    "StreamWaitEvent": CallKind.STREAM_WAITS_EVENT,
    "MemcpyWithStream": CallKind.COPY,
    "Malloc": CallKind.ALLOCATE,
    "MallocAsync": CallKind.ALLOCATE,
    "MallocManaged": CallKind.ALLOCATE,
    "MallocPitch": CallKind.ALLOCATE,
    "MallocHost": CallKind.ALLOCATE,
    "MallocFromPoolAsync": CallKind.ALLOCATE,
    "HostAlloc": CallKind.ALLOCATE,
    "HostMalloc": CallKind.ALLOCATE,
    "HostRegister": CallKind.ALLOCATE,
    "MemAlloc": CallKind.ALLOCATE,
    "MemAllocAsync": CallKind.ALLOCATE,
    "MemAllocHost": CallKind.ALLOCATE,
    "MemCreate": CallKind.ALLOCATE,
    "MemMap": CallKind.ALLOCATE,
    "Free": CallKind.FREE,
    "FreeHost": CallKind.FREE,
    "HostFree": CallKind.FREE,
    "MemFree": CallKind.FREE,
    "MemFreeHost": CallKind.FREE,
}
_API = re.compile(r"(?:cuda|cu|hip)(?=[A-Z])")
_VERSION = re.compile(r"(?:_v\d+|_ptsz|_ptds|_spt)+$")
_COPY = re.compile(r"Memcpy(?:2D|3D|Peer|3DPeer|HtoD|DtoH|DtoD|HtoA|AtoH|DtoA|AtoD|AtoA|ToSymbol|FromSymbol|[23]D\w+)?")

#: Kinds of calls in which a thread may wait for the GPU: their own time is not the CPU's.
BLOCKING = (
    CallKind.DEVICE_WAIT,
    CallKind.STREAM_WAIT,
    CallKind.EVENT_WAIT,
    CallKind.EVENT_QUERY,
    CallKind.COPY,
    CallKind.COPY_ASYNC,
)

#: Calls that hold a lock of CUDA's runtime, so that only one of them goes on at a time, whatever their threads.
HOLD_THE_RUNTIMES_LOCK = frozenset(["cudaHostAlloc", "cudaLaunchKernel", "cudaMemcpyAsync"])


def kind_of_call(name: str) -> CallKind:
    """What a call of that name does; OTHER for all that no module here has to tell apart."""
    api = _API.match(name)
    if api is None:
        return CallKind.OTHER
    function = _VERSION.sub("", name[api.end() :])
    if function in _KINDS:
        return _KINDS[function]
    if _COPY.fullmatch(function.removesuffix("Async")):
        return CallKind.COPY_ASYNC if function.endswith("Async") else CallKind.COPY
    return CallKind.OTHER


def call_kinds(trace: RankTrace) -> Int8:
    """A :class:`CallKind` for each event; OTHER for all that are not calls.

    References
    ----------
    Which calls block: HTA (``traceinsight`` 0.6.1), ``BLOCKING_SYNC_CALLS``. We differ: the same functions of CUDA's
    driver, of HIP and with marks of versions and default streams (``_v2``, ``_ptsz``) count, too.
    """
    of_name = np.array([*(kind_of_call(name) for name in trace.names), CallKind.OTHER], np.int8)
    return np.where(trace.events.is_call, of_name[trace.events.name], np.int8(CallKind.OTHER))


def named(trace: RankTrace, is_wanted: Callable[[str], bool]) -> Bool:
    """Whether the name of each event is wanted; each name is looked at once."""
    of_name = np.array([*map(is_wanted, trace.names), False], np.bool_)
    return of_name[trace.events.name]


def matching(trace: RankTrace, patterns: Sequence[str]) -> Bool:
    """Whether one of the regular expressions is found in the name of each event."""
    if not patterns:
        return np.zeros(len(trace.events), np.bool_)
    expression = re.compile("|".join(f"(?:{pattern})" for pattern in patterns))
    return named(trace, lambda name: expression.search(name) is not None)


#: In the names of kernels of NCCL, and of the libraries that kept its names: AMD's, Huawei's and Microsoft's.
_KERNEL = re.compile("nccl|rccl|hccl|msccl", re.IGNORECASE)
#: What torch.distributed's backends for the CPU call their work, on threads of their own: ``gloo:all_reduce``. That of
#: NCCL on the CPU only asks for a kernel.
_ON_CPU = re.compile("(?:gloo|mpi|ucc):")


def gpu_collectives(trace: RankTrace) -> Bool:
    """Whether each event is a kernel that exchanges data with other processes.

    References
    ----------
    HTA (``traceinsight`` 0.6.1), ``is_comm_kernel``. We differ: a name that begins with ``hip`` does not make one, but
    what the trace says of a collective does; neither copies nor fills are.
    """
    events = trace.events
    said = named(trace, lambda name: _KERNEL.search(name) is not None) | (events.collective != MISSING)
    found: Bool = (events.category == Category.KERNEL) & said
    return found


def cpu_collectives(trace: RankTrace) -> Bool:
    """Whether each event is a collective that a thread of the CPU does."""
    of_name = named(trace, lambda name: _ON_CPU.match(name) is not None)
    return np.isin(trace.events.category, NAMED_BY_PROGRAMS) & of_name


#: Calls that do nothing but wait for the GPU, and copies that wait.
WAITS = (CallKind.DEVICE_WAIT, CallKind.STREAM_WAIT, CallKind.EVENT_WAIT, CallKind.COPY)
#: Calls in which a thread waits mostly for something else: the driver's locks, and pages of memory.
ALLOCATES = (CallKind.ALLOCATE, CallKind.FREE)

#: Calls by which a program learns that work on a GPU is done.
LEARNS = (CallKind.DEVICE_WAIT, CallKind.STREAM_WAIT, CallKind.EVENT_WAIT, CallKind.EVENT_QUERY, CallKind.COPY)


def own_kinds(trace: RankTrace) -> Int8:
    """For each event, the position in KINDS of what its own time is spent on, when nothing else explains it.

    A call that waits for the GPU is ``gpu-sync``, and one that takes memory or gives it back ``compute-noncpu``.
    """
    kinds = np.full(len(trace.events), KINDS.index(Kind.COMPUTE_CPU), np.int8)
    kinds[trace.events.is_gpu_work] = KINDS.index(Kind.GPU_COMPUTE)
    kinds[gpu_collectives(trace) | cpu_collectives(trace)] = KINDS.index(Kind.GPU_COMMUNICATION)
    of_call = call_kinds(trace)
    kinds[np.isin(of_call, WAITS)] = KINDS.index(Kind.GPU_SYNC)
    kinds[np.isin(of_call, ALLOCATES)] = KINDS.index(Kind.COMPUTE_NONCPU)
    return kinds


def has_waits(trace: RankTrace) -> bool:
    """Whether any call that waits for a GPU, or asks whether its work is done, was recorded."""
    waits = np.isin(trace.events.category, CALLS) & np.isin(call_kinds(trace), LEARNS)
    return bool(waits.any() or (trace.events.category == Category.SYNC).any())
