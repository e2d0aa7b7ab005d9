"""Partners of ranks: binomial trees, powers of two, ranks folded into them, and ranks by node.

Nodes are those of MPICH 4.0.2, ``src/mpi/comm/commutil.c`` (``MPIR_Comm_create_subcomms``) and
``src/util/mpir_localproc.c``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple


def power_at_most(size: int) -> int:
    """Largest power of two up to `size`."""
    return 1 << (size.bit_length() - 1)


def is_power_of_two(size: int) -> bool:
    """True if `size`, at least 1, is a power of two."""
    return not size & (size - 1)


def doubling(size: int) -> Iterator[int]:
    """1, 2, 4, ... below a number."""
    distance = 1
    while distance < size:
        yield distance
        distance <<= 1


def subtree(relative: int, size: int) -> int:
    """Ranks of the full binomial tree below a rank; `relative` counts from the root."""
    return relative & -relative if relative else 1 << (size - 1).bit_length()


def children(relative: int, size: int) -> Iterator[int]:
    """Children of a rank in a binomial tree, the largest subtree first."""
    mask = subtree(relative, size) >> 1
    while mask:
        if relative + mask < size:
            yield relative + mask
        mask >>= 1


class Folded(NamedTuple):
    """Ranks folded into the largest power of two: in each of the first pairs, one rank stands in for both."""

    size: int
    #: The odd rank of a pair stays, not the even one.
    odd: bool

    @property
    def places(self) -> int:
        """Number of ranks that stay, a power of two."""
        return power_at_most(self.size)

    @property
    def pairs(self) -> int:
        """Number of ranks that their neighbour stands in for."""
        return self.size - self.places

    def place(self, rank: int) -> int | None:
        """Place of a rank among those that stay; None if it does not."""
        if rank >= 2 * self.pairs:
            return rank - self.pairs
        return rank // 2 if rank % 2 == self.odd else None

    def rank(self, place: int) -> int:
        """Rank at a place among those that stay."""
        return 2 * place + self.odd if place < self.pairs else place + self.pairs

    def partner(self, rank: int) -> int | None:
        """The other rank of a rank's pair; None if it has no pair."""
        return rank ^ 1 if rank < 2 * self.pairs else None


@dataclass(frozen=True, slots=True)
class RanksByNode:
    """Ranks of a communicator by node."""

    #: Ranks of each node, ascending; nodes are in the order of their first ranks.
    ranks: tuple[tuple[int, ...], ...]
    #: Index in `ranks` of each rank's node.
    node: tuple[int, ...]

    @property
    def leaders(self) -> tuple[int, ...]:
        """First rank of each node."""
        return tuple(node[0] for node in self.ranks)

    @property
    def is_consecutive(self) -> bool:
        """True if each node's ranks follow one another without a gap."""
        return list(self.node) == sorted(self.node)

    def beside(self, rank: int) -> tuple[int, ...]:
        """All ranks of a rank's node."""
        return self.ranks[self.node[rank]]


@lru_cache(maxsize=256)
def by_node(nodes: tuple[int, ...]) -> RanksByNode:
    """Group ranks by their nodes."""
    ranks: dict[int, list[int]] = {}
    for rank, node in enumerate(nodes):
        ranks.setdefault(node, []).append(rank)
    order = {node: index for index, node in enumerate(ranks)}
    return RanksByNode(tuple(map(tuple, ranks.values())), tuple(order[node] for node in nodes))
