"""Which ranks share a node, and which of them speak for it.

References
----------
MPICH 4.0.2, ``src/mpi/comm/commutil.c`` (``MPIR_Comm_create_subcomms``) and ``src/util/mpir_localproc.c``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Nodes:
    """The ranks of a communicator by node.

    Parameters
    ----------
    ranks
        By node, in the order of their first ranks: its ranks, ascending.
    node
        By rank, its node's index in `ranks`.
    """

    ranks: tuple[tuple[int, ...], ...]
    node: tuple[int, ...]

    @property
    def leaders(self) -> tuple[int, ...]:
        """The first rank of each node."""
        return tuple(each[0] for each in self.ranks)

    @property
    def is_consecutive(self) -> bool:
        """Whether each node's ranks follow one another without a gap."""
        return list(self.node) == sorted(self.node)

    def local(self, rank: int) -> int:
        """A rank's place among those of its node."""
        return self.ranks[self.node[rank]].index(rank)


@lru_cache(maxsize=256)
def by_node(nodes: tuple[int, ...]) -> Nodes:
    """The ranks of each node, from the node of each rank."""
    ranks: dict[int, list[int]] = {}
    for rank, node in enumerate(nodes):
        ranks.setdefault(node, []).append(rank)
    order = {node: index for index, node in enumerate(ranks)}
    return Nodes(tuple(map(tuple, ranks.values())), tuple(order[node] for node in nodes))
