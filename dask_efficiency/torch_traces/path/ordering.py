"""Topological orders of nodes, in which every edge leads forward."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import Int32, Int64


class CycleError(ValueError):
    """Edges have a cycle, in which nothing could have been first."""


def places_in(order: NDArray[np.integer]) -> Int64:
    """Invert an order: the place of each item in it."""
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return places


def topological_ranks(at: Int64, source: Int32, target: Int32) -> NDArray[np.intp]:
    """Place of each node in a topological order, that of time (``at`` is ascending) if possible; else CycleError."""
    if not np.any(source >= target):
        return np.arange(len(at))
    if np.any(at[source] > at[target]):
        order = _order(len(at), source, target)
    else:
        together = at[source] == at[target]
        order = np.lexsort((_places(len(at), source[together], target[together]), at))
    return places_in(order)


def _places(nodes: int, source: Int32, target: Int32) -> NDArray[np.intp]:
    """Places of nodes in an order for these edges; 0 for nodes without edges."""
    connected, ends = np.unique(np.concatenate([source, target]), return_inverse=True)
    places = np.zeros(nodes, np.intp)
    places[connected[_order(len(connected), ends[: len(source)], ends[len(source) :])]] = np.arange(len(connected))
    return places


def _order(nodes: int, source: NDArray[np.integer], target: NDArray[np.integer]) -> NDArray[np.intp]:
    """Nodes in an order for these edges."""
    order = before_any_cycle(nodes, source, target)
    if len(order) < nodes:
        raise CycleError(f"the edges have a cycle; {nodes - len(order)} nodes are in it or behind it")
    return order


def before_any_cycle(nodes: int, source: NDArray[np.integer], target: NDArray[np.integer]) -> NDArray[np.intp]:
    """Nodes in an order for these edges, without those in a cycle or behind one (Kahn, CACM 5, 1962)."""
    targets = target[np.argsort(source, kind="stable")].tolist()
    first = np.concatenate([[0], np.cumsum(np.bincount(source, minlength=nodes))]).tolist()
    waiting = np.bincount(target, minlength=nodes).tolist()
    order = [node for node, edges in enumerate(waiting) if not edges]
    # the list grows while it is iterated
    for node in order:
        for after in targets[first[node] : first[node + 1]]:
            waiting[after] -= 1
            if not waiting[after]:
                order.append(after)
    return np.array(order, np.intp)
