"""An order of nodes in which every edge leads forward."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.trace.tables import Int32, Int64


class CycleError(ValueError):
    """Edges lead in a circle, so that nothing in it could have been first."""


def topological_ranks(at: Int64, source: Int32, target: Int32) -> NDArray[np.intp]:
    """For each node its place in an order in which every edge leads forward, close to the order of time.

    Parameters
    ----------
    at
        When each node is, ascending.
    source, target
        Positions in it.

    Raises
    ------
    CycleError
        If there is no such order.
    """
    if not np.any(source >= target):
        return np.arange(len(at))
    if np.any(at[source] > at[target]):
        depth = _depths(len(at), source, target)
        order = np.argsort(depth, kind="stable")
    else:
        together = at[source] == at[target]
        depth = _depths(len(at), source[together], target[together])
        order = np.lexsort((depth, at))
    ranks = np.empty(len(at), np.intp)
    ranks[order] = np.arange(len(at))
    return ranks


def _depths(nodes: int, source: Int32, target: Int32) -> NDArray[np.intp]:
    """For each node the number of edges on the way to it that has most of them."""
    waiting = np.bincount(target, minlength=nodes)
    by_source = np.argsort(source, kind="stable")
    first = np.searchsorted(source[by_source], np.arange(nodes + 1))
    targets = target[by_source]
    depth = np.zeros(nodes, np.intp)
    ready = np.flatnonzero(waiting == 0)
    done = 0
    level = 0
    while ready.size:
        done += len(ready)
        depth[ready] = level
        level += 1
        counts = first[ready + 1] - first[ready]
        offsets = np.repeat(first[ready] - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts)
        reached = targets[offsets + np.arange(len(offsets))]
        waiting -= np.bincount(reached, minlength=nodes) if len(reached) > nodes // 8 else 0
        if len(reached) <= nodes // 8:
            np.subtract.at(waiting, reached, 1)
        reached = np.unique(reached)
        ready = reached[waiting[reached] == 0]
    if done < nodes:
        stuck = int(np.flatnonzero(waiting > 0)[0])
        raise CycleError(f"edges lead in a circle; node {stuck} is in it or behind it")
    return depth
