"""When everything would have happened, had some of it taken less time, or had to wait for something else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dask_efficiency.accounts.tables import Bool, Int64
from dask_efficiency.torch_traces.path.ordering import CycleError, before_any_circle, places_in

#: Nodes of a circle that a message names.
MAX_NAMED = 12


@dataclass(frozen=True, slots=True)
class Waits:
    """What nodes wait for, a row each; no order of rows is expected."""

    source: Int64
    target: Int64
    #: Nanoseconds from the source, at least 0, before which the target cannot be.
    lag: Int64


def unexplained_ns(at: Int64, waits: Waits) -> Int64:
    """By node, how much later it was than the last of what it waited for lets it be; 0 where it waited for nothing."""
    latest = at.copy()
    latest[waits.target] = np.iinfo(np.int64).min
    np.maximum.at(latest, waits.target, at[waits.source] + waits.lag)
    more: Int64 = np.maximum(at - latest, 0)
    return more


def earliest(at: Int64, unexplained: Int64, waits: Waits, order: Int64) -> Int64:
    """When each node would be, under waits that may have changed.

    Parameters
    ----------
    at
        When each was.
    unexplained
        As of :func:`unexplained_ns`, under the waits as they were. Nobody knows its cause, so it stays.
    waits
        As they are to be.
    order
        Of :func:`topological`, for these waits.

    Returns
    -------
    array, shape (nodes,)
        Nanoseconds. A node that waits for nothing is when it was; under the waits as they were, every one is.
    """
    place = places_in(order)
    by_target = np.argsort(place[waits.target], kind="stable")
    found = at.tolist()
    more = unexplained.tolist()
    before, latest = -1, 0
    rows = (waits.source[by_target].tolist(), waits.target[by_target].tolist(), waits.lag[by_target].tolist())
    for source, target, lag in zip(*rows, strict=True):
        if target == before:
            latest = max(latest, found[source] + lag)
            continue
        if before >= 0:
            found[before] = latest + more[before]
        before, latest = target, found[source] + lag
    if before >= 0:
        found[before] = latest + more[before]
    return np.array(found, np.int64)


def topological(at: Int64, waits: Waits, name_of: Callable[[int], str] = str) -> Int64:
    """The nodes, each after all that it waits for; as they were in time where that will do.

    Parameters
    ----------
    name_of
        What a message calls a node.

    Raises
    ------
    CycleError
        If nodes would have to wait for one another; it names them.
    """
    order = np.argsort(at, kind="stable")
    place = places_in(order)
    if (place[waits.source] < place[waits.target]).all():
        return order
    order = before_any_circle(len(at), waits.source, waits.target).astype(np.int64)
    if len(order) < len(at):
        raise _circle(len(at), order, waits, name_of)
    return order


def _circle(nodes: int, order: Int64, waits: Waits, name_of: Callable[[int], str]) -> CycleError:
    """What is wrong where nodes are not in the order, as they wait for one another."""
    left = np.ones(nodes, np.bool_)
    left[order] = False
    circle = _cycle(left, waits)
    shown = " -> ".join(map(name_of, circle[:MAX_NAMED])) + (" -> ..." if len(circle) > MAX_NAMED else "")
    return CycleError(f"these nodes would wait for one another: {shown}; expected edges without a circle")


def _cycle(left: Bool, waits: Waits) -> list[int]:
    """A cycle among the nodes that are left: each of them waits for another one that is left."""
    among = left[waits.source] & left[waits.target]
    waits_for = dict(zip(waits.target[among].tolist(), waits.source[among].tolist(), strict=True))
    node = next(iter(waits_for))
    seen: dict[int, int] = {}
    walked: list[int] = []
    while node not in seen:
        seen[node] = len(walked)
        walked.append(node)
        node = waits_for[node]
    return [node, *reversed(walked[seen[node] :])]
