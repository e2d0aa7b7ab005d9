"""A graph and its longest path as tables for pandas, and as a graph for networkx."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Bool, Int8, Int32
from dask_efficiency.torch_traces.kineto.trace import Category
from dask_efficiency.torch_traces.path import breakdown
from dask_efficiency.torch_traces.path.categories import CATEGORIES
from dask_efficiency.torch_traces.path.graph import FLOW_CATEGORIES, EdgeKind, TorchGraph

if TYPE_CHECKING:
    import networkx as nx
    import pandas as pd


def nodes_frame(graph: TorchGraph, longest: Int32) -> pd.DataFrame:
    """Starts and ends of events; :meth:`~dask_efficiency.torch_traces.TorchCriticalPath.nodes` says which columns."""
    import pandas as pd

    return pd.DataFrame(_nodes(graph, longest))


def edges_frame(graph: TorchGraph, on_path: Int32) -> pd.DataFrame:
    """What nodes had to wait for; :meth:`~dask_efficiency.torch_traces.TorchCriticalPath.edges` says which columns."""
    import pandas as pd

    edges = graph.edges
    ends = {"source": edges.source, "target": edges.target}
    return pd.DataFrame(ends | {"weight_seconds": edges.weight / 1e9} | _edges(graph, on_path))


def breakdown_frame(graph: TorchGraph, on_path: Int32) -> pd.DataFrame:
    """The edges of the longest path; see :meth:`~dask_efficiency.torch_traces.TorchCriticalPath.breakdown`."""
    import pandas as pd

    table = breakdown.breakdown(graph, on_path)
    columns = {
        "edge": table.edge,
        "kind": _kinds(table.kind),
        "bound_by": [str(breakdown.BOUNDS[number]) if number != MISSING else "" for number in table.bound_by],
        "duration_seconds": table.duration / 1e9,
    }
    return pd.DataFrame(columns | _about(graph, table.event))


def to_networkx(graph: TorchGraph, longest: Int32, on_path: Int32) -> nx.DiGraph[int]:
    """The graph for networkx; :meth:`~dask_efficiency.torch_traces.TorchCriticalPath.to_networkx` says more."""
    try:
        import networkx as nx
    except ImportError as error:
        raise ImportError("to_networkx() needs networkx, which is not installed: pip install networkx") from error
    made: nx.DiGraph[int] = nx.DiGraph(rank=graph.trace.rank)
    made.add_nodes_from(enumerate(_rows(_nodes(graph, longest))))
    ends = graph.edges.source.tolist(), graph.edges.target.tolist()
    rows = _rows({"weight": graph.edges.weight} | _edges(graph, on_path))
    made.add_edges_from((source, target, row) for source, target, row in zip(*ends, rows, strict=True))
    return made


def _nodes(graph: TorchGraph, longest: Int32) -> dict[str, Any]:
    nodes = graph.nodes
    critical = _chosen(len(nodes), longest)
    return {"at": nodes.at, "is_start": nodes.is_start, "critical": critical} | _about(graph, nodes.event)


def _edges(graph: TorchGraph, on_path: Int32) -> dict[str, Any]:
    edges = graph.edges
    critical = _chosen(len(edges), on_path)
    return {"kind": _kinds(edges.kind), "inferred": edges.inferred, "critical": critical} | _about(graph, edges.event)


def _about(graph: TorchGraph, event: Int32) -> dict[str, Any]:
    """Columns that say which events these are; None or MISSING where it is none."""
    trace, there = graph.trace, event != MISSING
    events, row = trace.events, np.where(event != MISSING, event, 0)
    known = there.tolist()
    names = [trace.names[number] for number in events.name[row].tolist()]
    categories = [CATEGORIES[Category(number)] for number in events.category[row].tolist()]
    numbers = {
        column: np.where(there, getattr(events, column)[row], MISSING)
        for column in ("index", "process", "thread", "stream")
    }
    return {
        "name": [name if is_known else None for name, is_known in zip(names, known, strict=True)],
        "category": [name if is_known else None for name, is_known in zip(categories, known, strict=True)],
        "event": numbers.pop("index"),
        **numbers,
    }


def _chosen(length: int, positions: Int32) -> Bool:
    found = np.zeros(length, np.bool_)
    found[positions] = True
    return found


def _kinds(kind: Int8) -> list[str]:
    return [FLOW_CATEGORIES[EdgeKind(number)] for number in kind.tolist()]


def _rows(columns: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Columns of arrays or lists as a dictionary for each row."""
    lists = [column.tolist() if isinstance(column, np.ndarray) else column for column in columns.values()]
    for row in zip(*lists, strict=True):
        yield dict(zip(columns, row, strict=True))
