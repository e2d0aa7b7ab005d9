"""What an event's own time is spent on, by its category and its name."""

from __future__ import annotations

import numpy as np

from dask_efficiency.accounts.tables import Int8
from dask_efficiency.runs.path.kinds import KINDS, Kind
from dask_efficiency.torch_traces.kineto.trace import RankTrace
from dask_efficiency.torch_traces.path.calls import CallKind, call_kinds
from dask_efficiency.torch_traces.path.exchanges import cpu_collectives, gpu_collectives

#: Calls that do nothing but wait for the GPU, and copies that wait.
WAITS = (CallKind.DEVICE_WAIT, CallKind.STREAM_WAIT, CallKind.EVENT_WAIT, CallKind.COPY)
#: Calls in which a thread waits mostly for something else: the driver's locks, and pages of memory.
ALLOCATES = (CallKind.ALLOCATE, CallKind.FREE)


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
