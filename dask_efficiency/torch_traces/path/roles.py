"""Roles of events by name and category: calls that wait, kernels that exchange data, and kinds of their own time."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import IntEnum

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Bool, Int8
from dask_efficiency.runs.path.kinds import KINDS, Kind
from dask_efficiency.torch_traces.kineto.trace import CALLS, NAMED_BY_PROGRAMS, Category, RankTrace

_API = re.compile(r"(?:cuda|cu|hip)(?=[A-Z])")
_VERSION = re.compile(r"(?:_v\d+|_ptsz|_ptds|_spt)+$")
_COPY = re.compile(r"Memcpy(?:2D|3D|Peer|3DPeer|HtoD|DtoH|DtoD|HtoA|AtoH|DtoA|AtoD|AtoA|ToSymbol|FromSymbol|[23]D\w+)?")

#: Calls that hold a lock of CUDA's runtime: only one of them runs at a time, over all threads.
HOLD_THE_RUNTIMES_LOCK = frozenset(["cudaHostAlloc", "cudaLaunchKernel", "cudaMemcpyAsync"])

#: Parts of the names of kernels of NCCL, and of its relatives from AMD, Huawei and Microsoft.
_KERNEL = re.compile("nccl|rccl|hccl|msccl", re.IGNORECASE)

#: Names of work of torch.distributed's backends for the CPU on their own threads, such as ``gloo:all_reduce``. NCCL's
#: work on the CPU only asks for a kernel.
_ON_CPU = re.compile("(?:gloo|mpi|ucc):")


class CallKind(IntEnum):
    """Kind of a call of CUDA or HIP. Calls that ask for work on the GPU have none: the work itself names its call."""

    OTHER = 0
    #: Waits until a device, or a context of it, is idle.
    DEVICE_WAIT = 1
    #: Waits until a stream is idle.
    STREAM_WAIT = 2
    #: Waits until the work before a recorded event is done.
    EVENT_WAIT = 3
    #: Asks whether that work is done.
    EVENT_QUERY = 4
    #: Records the work that a stream has been asked for.
    EVENT_RECORD = 5
    #: Makes a stream wait for a recorded event.
    STREAM_WAITS_EVENT = 6
    #: Asks for a copy and waits for it.
    COPY = 7
    #: Asks for a copy, and waits for it only if memory is pageable.
    COPY_ASYNC = 8
    #: Reserves memory.
    ALLOCATE = 9
    #: Frees memory, and waits for that until the device is idle.
    FREE = 10


#: By name without the prefix of the API (CUDA's runtime or driver, HIP) and the marks of versions.
_KINDS = {
    **dict.fromkeys(("DeviceSynchronize", "ThreadSynchronize", "CtxSynchronize"), CallKind.DEVICE_WAIT),
    "StreamSynchronize": CallKind.STREAM_WAIT,
    "EventSynchronize": CallKind.EVENT_WAIT,
    "EventQuery": CallKind.EVENT_QUERY,
    **dict.fromkeys(("EventRecord", "EventRecordWithFlags"), CallKind.EVENT_RECORD),
    "StreamWaitEvent": CallKind.STREAM_WAITS_EVENT,
    "MemcpyWithStream": CallKind.COPY,
    **dict.fromkeys(("Malloc", "MallocAsync", "MallocManaged", "MallocPitch", "MallocHost"), CallKind.ALLOCATE),
    **dict.fromkeys(("MallocFromPoolAsync", "HostAlloc", "HostMalloc", "HostRegister"), CallKind.ALLOCATE),
    **dict.fromkeys(("MemAlloc", "MemAllocAsync", "MemAllocHost", "MemCreate", "MemMap"), CallKind.ALLOCATE),
    **dict.fromkeys(("Free", "FreeHost", "HostFree", "MemFree", "MemFreeHost"), CallKind.FREE),
}

#: Calls that do nothing but wait for the GPU, and copies that wait.
WAITS = (CallKind.DEVICE_WAIT, CallKind.STREAM_WAIT, CallKind.EVENT_WAIT, CallKind.COPY)
#: Calls that tell a program that work on a GPU is done.
TELL_DONE = (*WAITS, CallKind.EVENT_QUERY)
#: Calls in which a thread may wait for the GPU.
BLOCKING = (*TELL_DONE, CallKind.COPY_ASYNC)


def kind_of_call(name: str) -> CallKind:
    """Kind of a call by its name; OTHER for kinds that do not matter here."""
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
    """Kind of each event; OTHER for events that are no calls.

    Calls that block are HTA's ``BLOCKING_SYNC_CALLS``, and the same functions of CUDA's driver, of HIP, and with marks
    of versions and default streams (``_v2``, ``_ptsz``).
    """
    of_name = np.array([*(kind_of_call(name) for name in trace.names), CallKind.OTHER], np.int8)
    return np.where(trace.events.is_call, of_name[trace.events.name], np.int8(CallKind.OTHER))


def events_named(trace: RankTrace, is_wanted: Callable[[str], bool]) -> Bool:
    """Mask of events by their names; each name is tested once."""
    of_name = np.array([*map(is_wanted, trace.names), False], np.bool_)
    return of_name[trace.events.name]


def events_matching(trace: RankTrace, patterns: Sequence[str]) -> Bool:
    """Mask of events whose names match one of some regular expressions."""
    if not patterns:
        return np.zeros(len(trace.events), np.bool_)
    expression = re.compile("|".join(f"(?:{pattern})" for pattern in patterns))
    return events_named(trace, lambda name: expression.search(name) is not None)


def gpu_collectives(trace: RankTrace) -> Bool:
    """Mask of kernels that exchange data with other processes.

    Unlike in HTA's ``is_comm_kernel``, names that begin with ``hip`` do not count, but a collective's name in the trace
    does; copies and fills never do.
    """
    events = trace.events
    exchanging = events_named(trace, lambda name: _KERNEL.search(name) is not None) | (events.collective != MISSING)
    found: Bool = (events.category == Category.KERNEL) & exchanging
    return found


def cpu_collectives(trace: RankTrace) -> Bool:
    """Mask of collectives on threads of the CPU."""
    of_name = events_named(trace, lambda name: _ON_CPU.match(name) is not None)
    return np.isin(trace.events.category, NAMED_BY_PROGRAMS) & of_name


#: Calls that spend most of their time waiting for the driver's locks and for pages of memory.
ALLOCATES = (CallKind.ALLOCATE, CallKind.FREE)


def own_kinds(trace: RankTrace) -> Int8:
    """Kind of each event's own time where nothing else explains it, as a position in KINDS."""
    kinds = np.full(len(trace.events), KINDS.index(Kind.COMPUTE_CPU), np.int8)
    kinds[trace.events.is_gpu_work] = KINDS.index(Kind.GPU_COMPUTE)
    kinds[gpu_collectives(trace) | cpu_collectives(trace)] = KINDS.index(Kind.GPU_COMMUNICATION)
    of_call = call_kinds(trace)
    kinds[np.isin(of_call, WAITS)] = KINDS.index(Kind.GPU_SYNC)
    kinds[np.isin(of_call, ALLOCATES)] = KINDS.index(Kind.COMPUTE_NONCPU)
    return kinds


def has_waits(trace: RankTrace) -> bool:
    """True if the trace has any call that waits for a GPU or asks whether its work is done."""
    waits = np.isin(trace.events.category, CALLS) & np.isin(call_kinds(trace), TELL_DONE)
    return bool(waits.any() or (trace.events.category == Category.SYNC).any())
