"""What the GPUs did while a path was on the CPU, and whether waits for them were recorded at all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dask_efficiency.gpu.intervals import Intervals, intersection, length, union
from dask_efficiency.runs.path.kinds import KINDS, Kind
from dask_efficiency.torch_traces.kineto.trace import CALLS, GPU_WORK, Category, RankTrace
from dask_efficiency.torch_traces.path.calls import CallKind, call_kinds
from dask_efficiency.torch_traces.path.graph import TorchGraph
from dask_efficiency.torch_traces.path.stretches import Stretches

#: Calls by which a program learns that work on a GPU is done.
_WAITS = (CallKind.DEVICE_WAIT, CallKind.STREAM_WAIT, CallKind.EVENT_WAIT, CallKind.EVENT_QUERY, CallKind.COPY)


def gpu_seconds_during(
    kind: Kind, stretches: Stretches, graphs: Sequence[TorchGraph], positions: Sequence[int], offset: Sequence[int]
) -> float:
    """For how much of a path's time of a kind the GPUs of the rank that it was on had work that ran.

    Parameters
    ----------
    kind
        Of stretches.
    stretches
        The path, on the clock of the job.
    graphs, positions
        Of each rank that the path runs over, its graph and its position in the trace.
    offset
        By position, nanoseconds from the rank's clock to the job's.

    Returns
    -------
    float
        Seconds. Kernels that exchange data with other ranks are work too.
    """
    found = 0
    for graph, position in zip(graphs, positions, strict=True):
        mine = (stretches.rank == position) & (stretches.kind == KINDS.index(kind))
        events, shift = graph.trace.events, offset[position]
        works = np.isin(events.category, GPU_WORK)
        busy = union(events.start[works] + shift, events.stop[works] + shift)
        found += length(intersection(Intervals(stretches.start[mine], stretches.stop[mine]), busy))
    return found / 1e9


def has_waits(trace: RankTrace) -> bool:
    """Whether any call that waits for a GPU, or asks whether its work is done, was recorded."""
    waits = np.isin(trace.events.category, CALLS) & np.isin(call_kinds(trace), _WAITS)
    return bool(waits.any() or (trace.events.category == Category.SYNC).any())
