"""DLRover's node check: its rule, for the same workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median

#: Times the median, beyond which DLRover calls a node a straggler.
LIMIT = 2.0

#: How long each node of a group takes for the check, by what each of them takes.
Elapsed = Callable[[Sequence[str]], float]


def node_check(nodes: Sequence[str], elapsed: Elapsed) -> set[str]:
    """Whom DLRover's two rounds call a straggler.

    Parameters
    ----------
    nodes
        In the order of their ranks.
    elapsed
        Seconds of a group: of all of it, for it exchanges data after computing, and each waits for the slowest.

    References
    ----------
    ``rdzv_manager.py`` of DLRover (intelligent-machine-learning/dlrover), class ``NetworkCheckRendezvousManager``. In
    the first round neighbours are a group, an odd one joins the last; nobody beyond twice the median ends the check. In
    the second, the fastest is with the slowest. The lesser of a node's two times counts.
    """
    times: dict[str, float] = {}
    groups = [list(nodes[i : i + 2]) for i in range(0, len(nodes), 2)]
    if len(groups) > 1 and len(groups[-1]) == 1:
        odd = groups.pop()
        groups[-1] += odd
    for _ in range(2):
        for group in groups:
            took = elapsed(group)
            for node in group:
                times[node] = min(took, times.get(node, took))
        found = beyond(times)
        if not found:
            return set()
        order = sorted(times, key=times.__getitem__)
        groups = [[order[i], order[-1 - i]] for i in range(len(order) // 2)]
        if len(order) % 2:
            groups[-1].append(order[len(order) // 2])
    return found


def beyond(times: Mapping[str, float]) -> set[str]:
    """Those beyond the limit."""
    middle = median(times.values())
    return {node for node, took in times.items() if took > LIMIT * middle}


def gated(compute: Mapping[str, float], network: Mapping[str, float]) -> Elapsed:
    """A group takes as long as its slowest member; a healthy one computes for as long as it exchanges data."""
    return lambda group: max(compute[node] for node in group) + max(network[node] for node in group)
