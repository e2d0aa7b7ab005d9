"""The edges of work on a GPU: from its call, from what was before it on its stream, from what it waited for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Bool, Int32, Int64
from dask_efficiency.torch_traces.kineto.trace import RankTrace
from dask_efficiency.torch_traces.path.graph import EdgeKind, Edges, Nodes
from dask_efficiency.torch_traces.path.streams import StreamWork, previous_on_stream

#: Nanoseconds from which on a gap on a stream is not the GPU's own: between kernels there are about 10 us, between
#: collectives up to 1 ms (HTA, ``KERNEL_KERNEL_DELAY_THRESHOLD_US``).
MAX_KERNEL_DELAY = 1_500_000

#: Before all instants.
NEVER = np.iinfo(np.int64).min


def work_edges(
    trace: RankTrace, nodes: Nodes, positions: tuple[Int32, Int32], work: StreamWork, alone: Bool, waited: Int64
) -> list[Edges]:
    """The edges to and within work on streams.

    A kernel's delay is its launch's where its stream had nothing else to do, all before it had ended before it was
    asked for, and nothing else was asked for until it began. Otherwise the kernel before it on its stream delayed it,
    unless it waited for another stream, or the gap is as long as :data:`MAX_KERNEL_DELAY`. In any case it did not
    begin before it was asked for.

    Parameters
    ----------
    positions
        By row of the trace, the node of its beginning and the one of its end; missing where it has none.
    work
        Of the region.
    alone
        Whether its stream had nothing else to do.
    waited
        When what it waited for on other streams had ended, nanoseconds; :data:`NEVER` where there was no such thing.

    References
    ----------
    HTA (``traceinsight`` 0.6.1), ``_construct_graph_from_kernels``, with launch edges of no weight always there.
    """
    starts, stops = positions
    before = previous_on_stream(work)
    has_before = before != MISSING
    ended = np.where(has_before, trace.events.stop[work.event[before]], NEVER)
    call = trace.events.call[work.event]
    has_call = (call != MISSING) & (starts[call] != MISSING)
    launched = alone & has_call & (ended < work.asked) & (waited < work.asked)
    late = has_call & ~launched
    delayed = ~launched & has_before & (work.start - ended < MAX_KERNEL_DELAY) & (waited < ended)
    begins, last = starts[work.event], work.event[before]
    return [
        _edges(nodes, EdgeKind.OPERATOR, begins, stops[work.event], work.event),
        _edges(nodes, EdgeKind.LAUNCH_DELAY, starts[call[launched]], begins[launched]),
        _edges(nodes, EdgeKind.KERNEL_DELAY, stops[last[delayed]], begins[delayed], last[delayed]),
        _edges(nodes, EdgeKind.LAUNCH_DELAY, starts[call[late]], begins[late], weighs=False),
    ]


def _edges(
    nodes: Nodes,
    kind: EdgeKind,
    source: Int32,
    target: Int32,
    event: NDArray[np.integer] | None = None,
    *,
    weighs: bool = True,
) -> Edges:
    return Edges.from_columns(
        {
            "source": source,
            "target": target,
            "kind": np.full(len(source), kind, np.int8),
            "weight": nodes.at[target] - nodes.at[source] if weighs else np.zeros(len(source), np.int64),
            "event": np.full(len(source), MISSING, np.int32) if event is None else event.astype(np.int32),
        }
    )
