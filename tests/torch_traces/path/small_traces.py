"""Graphs of a few events, as a test writes them down."""

from dask_efficiency.torch_traces.path.build import build_graph
from dask_efficiency.torch_traces.path.graph import EdgeKind
from dask_efficiency.torch_traces.path.region import find_region
from tests.torch_traces.path.programs import rank_of, written


def edges_of(text: str) -> dict[tuple[str, str], tuple[EdgeKind, int, int]]:
    """Edges of a graph of all that is written: by the two instants ("3" is where row 3 begins, "3." where it ends), the
    kind, the microseconds, and the row whose time it is.
    """
    trace = rank_of(written(text))
    graph = build_graph(trace, find_region(trace), infer=False)
    nodes, edges = graph.nodes, graph.edges
    instants = [
        f"{event}" if is_start else f"{event}."
        for event, is_start in zip(nodes.event.tolist(), nodes.is_start.tolist(), strict=True)
    ]
    found = {}
    for source, target, kind, weight, event in zip(
        *(getattr(edges, name).tolist() for name in ("source", "target", "kind", "weight", "event")), strict=True
    ):
        pair = instants[source], instants[target]
        assert pair not in found
        found[pair] = EdgeKind(kind), weight // 1000, event
    return found


def of_kind(edges: dict[tuple[str, str], tuple[EdgeKind, int, int]], kind: EdgeKind) -> dict[tuple[str, str], int]:
    return {pair: weight for pair, (of, weight, _) in edges.items() if of is kind}
