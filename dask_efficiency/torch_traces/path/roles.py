"""Roles of events by name and category: calls that wait, kernels that exchange data, and kinds of their own time."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Bool, Int8
from dask_efficiency.gpu.calls import LONG
from dask_efficiency.runs.path.kinds import KINDS, Kind
from dask_efficiency.torch_traces.kineto.trace import CALLS, NAMED_BY_PROGRAMS, Category, RankTrace

_API = re.compile(r"(?:cuda|cu|hip)(?=[A-Z])")
_VERSION = re.compile(r"(?:_v\d+|_ptsz|_ptds|_spt)+$")
_COPY = re.compile(r"Memcpy(?:2D|3D|Peer|3DPeer|HtoD|DtoH|DtoD|HtoA|AtoH|DtoA|AtoD|AtoA|ToSymbol|FromSymbol|[23]D\w+)?")

#: Calls that hold a lock of CUDA's runtime: only one of them runs at a time, over all threads.
HOLD_THE_RUNTIMES_LOCK = frozenset(["cudaHostAlloc", "cudaLaunchKernel", "cudaMemcpyAsync"])

#: Parts of the names of kernels of NCCL, and of its relatives from AMD, Huawei and Microsoft; and of DeepEP, which
#: exchanges the tokens of a mixture of experts.
_KERNEL = re.compile(
    r"nccl|rccl|hccl|msccl|\b(?:deep_)?ep::(?:\w+::)*(?:dispatch|combine|notify|cached_notify)", re.IGNORECASE
)

#: Names of work of torch.distributed's backends for the CPU on their own threads, such as ``gloo:all_reduce``. NCCL's
#: work on the CPU only asks for a kernel.
_ON_CPU = re.compile("(?:gloo|mpi|ucc):")

#: Beginnings of names of operators that ask for a collective or wait for one.
_ASKING = ("c10d::", "_c10d_functional::", "record_param_comms")


class CallKind(IntEnum):
    """Kind of a call of CUDA, HIP or Intel's runtimes."""

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
    #: Asks for kernels.
    LAUNCH = 11


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
    **dict.fromkeys(("Launch", "LaunchByPtr", "GraphLaunch"), CallKind.LAUNCH),
}
_LAUNCH = re.compile(r"(?:Ext|Hcc)?(?:Module)?Launch(?:Cooperative|Multi)*Kernel\w*")

#: By name in Intel's runtimes, Unified Runtime and Level Zero.
_INTEL = {
    **dict.fromkeys(
        ("urQueueFinish", "zeCommandQueueSynchronize", "zeCommandListHostSynchronize"), CallKind.STREAM_WAIT
    ),
    **dict.fromkeys(("urEventWait", "zeEventHostSynchronize", "zeFenceHostSynchronize"), CallKind.EVENT_WAIT),
    "zeEventQueryStatus": CallKind.EVENT_QUERY,
    **dict.fromkeys(("urUSMDeviceAlloc", "urUSMHostAlloc", "urUSMSharedAlloc", "zeMemAllocDevice"), CallKind.ALLOCATE),
    **dict.fromkeys(("urUSMFree", "zeMemFree"), CallKind.FREE),
    **dict.fromkeys(("urEnqueueKernelLaunch", "urEnqueueCooperativeKernelLaunchExp"), CallKind.LAUNCH),
    **dict.fromkeys(("zeCommandListAppendLaunchKernel", "urEnqueueKernelLaunchWithArgsExp"), CallKind.LAUNCH),
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
        return _INTEL.get(name, CallKind.OTHER)
    function = _VERSION.sub("", name[api.end() :])
    if function in _KINDS:
        return _KINDS[function]
    if _COPY.fullmatch(function.removesuffix("Async")):
        return CallKind.COPY_ASYNC if function.endswith("Async") else CallKind.COPY
    return CallKind.LAUNCH if _LAUNCH.fullmatch(function) else CallKind.OTHER


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
    exchanges: Bool = (events.category == Category.KERNEL) & exchanging
    return exchanges


def cpu_collectives(trace: RankTrace) -> Bool:
    """Mask of collectives on threads of the CPU."""
    of_name = events_named(trace, lambda name: _ON_CPU.match(name) is not None)
    return np.isin(trace.events.category, NAMED_BY_PROGRAMS) & of_name


def asks_for_collectives(trace: RankTrace) -> Bool:
    """Mask of events whose names are those of operators that ask for a collective or wait for one."""
    return events_named(trace, lambda name: name.startswith(_ASKING))


#: Calls that spend most of their time waiting for the driver's locks and for pages of memory.
ALLOCATES = (CallKind.ALLOCATE, CallKind.FREE)


def to_pageable(trace: RankTrace) -> Bool:
    """Mask of copies to memory of the host that is pageable, by their names."""
    return events_named(trace, lambda name: "-> Pageable" in name)


def awaited_copies(trace: RankTrace) -> NDArray[np.intp]:
    """Rows of the copies that their own calls waited for, if these returned after them.

    Calls that wait do, whatever they copy, and others if the copy's name has memory of the host that is pageable as its
    target. From pageable memory, or where the name does not tell, only a long call does: a short one has put the bytes
    elsewhere, and returns before or after the copy by chance. Pinned memory is never waited for.
    """
    events, kinds = trace.events, call_kinds(trace)
    copies = np.flatnonzero((events.category == Category.COPY) & events.has_call)
    call = events.call[copies]
    to_host = to_pageable(trace)[copies]
    pinned = events_named(trace, lambda name: "Pinned" in name)[copies]
    long = (events.stop[call] - events.start[call] >= LONG) & ~pinned
    waits: Bool = (kinds[call] == CallKind.COPY) | ((kinds[call] == CallKind.COPY_ASYNC) & (to_host | long))
    awaited: NDArray[np.intp] = copies[waits]
    return awaited


#: Nanoseconds from which on a call before the first launch creates the GPU's context, which takes 0.1 to some seconds;
#: calls of other reasons take less.
MIN_CONTEXT = 10_000_000

#: Nanoseconds from which on the first calls that free memory create handles of libraries, which begin by that and take
#: 0.2 to 6 s in three recorded traces. It counts from the end of the GPU's work.
MIN_HANDLE = 100_000_000

#: Number of calls that free memory among which these are: two in each of the traces.
FIRST_FREES = 8

#: Nanoseconds from which on the first call of a function, or launch of a kernel, loads code, if it takes so many times
#: as long as the median of the function's calls. Chosen on three recorded traces.
MIN_LOADING, MUCH_LONGER = 1_000_000, 10


def sets_up(trace: RankTrace) -> Bool:
    """Mask of the calls that set a library or the GPU up, as the first of a process do.

    These are long calls before the first launch, whatever they are for; first calls of a function, or launches of a
    kernel, that take far longer than the function's others; and the first calls that free memory, as long as each takes
    far longer than that. Later calls that manage memory, wait or copy are none.
    """
    events, kinds = trace.events, call_kinds(trace)
    lasts = events.stop - events.start
    sets_up = np.zeros(len(events), np.bool_)
    calls = np.flatnonzero(events.is_call & (lasts >= MIN_LOADING) & ~np.isin(kinds, BLOCKING))
    if not len(calls):
        return sets_up
    works = np.flatnonzero(events.is_gpu_work & events.has_call)
    launches = np.flatnonzero(kinds == CallKind.LAUNCH) if (kinds == CallKind.LAUNCH).any() else events.call[works]
    if len(launches):
        before = events.start[calls] <= events.start[launches].min()
        sets_up[calls[before & (lasts[calls] >= MIN_CONTEXT)]] = True
    frees = events.by_start(np.flatnonzero(events.is_call & (kinds == CallKind.FREE)))
    for row in frees[:FIRST_FREES].tolist():
        ended = events.stop[works][events.stop[works] <= events.stop[row]].max(initial=int(events.start[row]))
        if events.stop[row] - ended < MIN_HANDLE:
            break
        sets_up[row] = True
    # kernels by name, and other calls by theirs
    subject = events.name.astype(np.int64)
    subject[events.call[works]] = len(trace.names) + events.name[works]
    everything = events.by_start(np.flatnonzero(events.is_call))
    first = everything[np.unique(subject[everything], return_index=True)[1]]
    candidates = np.intersect1d(first, calls[~np.isin(kinds[calls], ALLOCATES) & ~sets_up[calls]])
    # the median of each function's calls, the lower of two
    sorted_calls = everything[np.lexsort((lasts[everything], events.name[everything]))]
    names, begins, counts = np.unique(events.name[sorted_calls], return_index=True, return_counts=True)
    usual = lasts[sorted_calls[begins + (counts - 1) // 2]]
    usual[counts == 1] = MIN_CONTEXT // MUCH_LONGER
    of_function = np.searchsorted(names, events.name[candidates])
    sets_up[candidates] |= lasts[candidates] >= MUCH_LONGER * usual[of_function]
    return sets_up


def own_kinds(trace: RankTrace) -> Int8:
    """Kind of each event's own time where nothing else explains it, as a position in KINDS."""
    kinds = np.full(len(trace.events), KINDS.index(Kind.COMPUTE_CPU), np.int8)
    kinds[trace.events.is_gpu_work] = KINDS.index(Kind.GPU_COMPUTE)
    kinds[gpu_collectives(trace) | cpu_collectives(trace)] = KINDS.index(Kind.GPU_COMMUNICATION)
    of_call = call_kinds(trace)
    kinds[np.isin(of_call, WAITS)] = KINDS.index(Kind.GPU_SYNC)
    kinds[np.isin(of_call, ALLOCATES) & ~sets_up(trace)] = KINDS.index(Kind.COMPUTE_NONCPU)
    return kinds


def has_waits(trace: RankTrace) -> bool:
    """True if the trace has any call that waits for a GPU or asks whether its work is done."""
    waits = np.isin(trace.events.category, CALLS) & np.isin(call_kinds(trace), TELL_DONE)
    return bool(waits.any() or (trace.events.category == Category.SYNC).any())
