"""Partners of ranks: binomial trees, powers of two, ranks folded into them, and ranks by node.

References
----------
For nodes, MPICH 4.0.2, ``src/mpi/comm/commutil.c`` (``MPIR_Comm_create_subcomms``) and ``src/util/mpir_localproc.c``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple


def power_at_most(size: int) -> int:
    """The largest power of two that is not above `size`."""
    return 1 << (size.bit_length() - 1)


def is_power_of_two(size: int) -> bool:
    """Whether `size`, at least 1, is a power of two."""
    return not size & (size - 1)


def subtree(relative: int, size: int) -> int:
    """How many ranks the binomial tree below a rank would have if it were full; `relative` counts from the root."""
    return relative & -relative if relative else 1 << (size - 1).bit_length()


def children(relative: int, size: int) -> Iterator[int]:
    """A rank's children in a binomial tree, the one with the largest subtree first."""
    mask = subtree(relative, size) >> 1
    while mask:
        if relative + mask < size:
            yield relative + mask
        mask >>= 1


class Folded(NamedTuple):
    """Ranks folded into the largest power of two: of the first pairs, one of two stands for both.

    Parameters
    ----------
    size
        Ranks, all told.
    odd
        Whether the odd one of a pair stays (or the even one).
    """

    size: int
    odd: bool

    @property
    def places(self) -> int:
        """How many ranks stay: a power of two."""
        return power_at_most(self.size)

    @property
    def pairs(self) -> int:
        """How many ranks are stood for by their neighbour."""
        return self.size - self.places

    def place(self, rank: int) -> int | None:
        """The place of a rank among those that stay, None of one that does not."""
        if rank >= 2 * self.pairs:
            return rank - self.pairs
        return rank // 2 if rank % 2 == self.odd else None

    def rank(self, place: int) -> int:
        """The rank at a place among those that stay."""
        return 2 * place + self.odd if place < self.pairs else place + self.pairs

    def partner(self, rank: int) -> int | None:
        """The other one of a rank's pair, None of a rank in no pair."""
        return rank ^ 1 if rank < 2 * self.pairs else None


@dataclass(frozen=True, slots=True)
class RanksByNode:
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
def by_node(nodes: tuple[int, ...]) -> RanksByNode:
    """The ranks of each node, from the node of each rank."""
    ranks: dict[int, list[int]] = {}
    for rank, node in enumerate(nodes):
        ranks.setdefault(node, []).append(rank)
    order = {node: index for index, node in enumerate(ranks)}
    return RanksByNode(tuple(map(tuple, ranks.values())), tuple(order[node] for node in nodes))
