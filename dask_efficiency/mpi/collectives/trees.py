"""Partners of ranks: binomial trees, powers of two, ranks folded into them, ranks by node, and doubling distances.

Nodes are those of MPICH 4.0.2, ``src/mpi/comm/commutil.c`` (``MPIR_Comm_create_subcomms``) and
``src/util/mpir_localproc.c``. Exchanges at doubling distance, of any number of ranks, and Rabenseifner's halving of a
vector by a power of two are those of MPICH 4.0.2, ``src/mpi/coll/allgather/allgather_intra_recursive_doubling.c``
(whose part for other than powers of two ``bcast`` and ``reduce_scatter`` have too) and
``src/mpi/coll/allreduce/allreduce_intra_reduce_scatter_allgather.c``; MPICH 3.2.1, ``src/mpi/coll/allgather.c`` and
``allreduce.c``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from dask_efficiency.mpi.collectives.rounds import DataLayout, Round, exchange, message, receive, send


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


class _DoublingStep(NamedTuple):
    """One step of a rank: an exchange at doubling distance, and data for ranks without a partner."""

    #: Rank to exchange with; None if it does not exist.
    partner: int | None
    #: Ranks on either side of the exchange.
    mine: range
    theirs: range
    #: Rank that passes on the data which a rank without a partner lacks; or None.
    source: int | None
    #: Ranks to pass the received data on to, in order.
    takers: tuple[int, ...]


def doubling_steps(rank: int, size: int) -> Iterator[_DoublingStep]:
    """Steps of a rank, at distances 1, 2, 4, ..."""
    for mask in doubling(size):
        partner = rank ^ mask
        first, other = rank & -mask, partner & -mask
        mine = range(first, min(first + mask, size))
        theirs = range(min(other, size), min(other + mask, size))
        source, takers = _passed_on(rank, first, mask, size) if other + mask > size else (None, ())
        yield _DoublingStep(partner if partner < size else None, mine, theirs, source, takers)


def _passed_on(rank: int, first: int, mask: int, size: int) -> tuple[int | None, tuple[int, ...]]:
    """Source and takers of data within a half in which some ranks have no partner."""
    served = size - first - mask
    source: int | None = None
    takers: list[int] = []
    half = mask >> 1
    while half:
        tree = rank & -(half << 1)
        peer = rank ^ half
        if rank < tree + served <= peer:
            takers.append(peer)
        elif peer < tree + served <= rank:
            source = peer
        half >>= 1
    return source, tuple(takers)


def doubling_allgather(place: int, ranks: Sequence[int], pieces: DataLayout) -> Iterator[Round]:
    """Gather all pieces by exchanging everything; a place counts from the owner of the first piece."""
    for step in doubling_steps(place, len(ranks)):
        theirs = pieces.of(step.theirs)
        if step.partner is not None:
            peer = ranks[step.partner]
            yield exchange(message(peer, pieces.of(step.mine)), message(peer, theirs))
        if step.source is not None:
            yield receive(ranks[step.source], theirs)
        for taker in step.takers:
            yield send(ranks[taker], theirs)


def halves(place: int, count: int) -> Iterator[tuple[int, range, range]]:
    """Partners of a place at distance 1, 2, 4, ..., with the pieces it keeps and gives; ``count`` is a power of two."""
    pieces = range(count)
    for mask in doubling(count):
        middle = len(pieces) // 2
        lower, upper = pieces[:middle], pieces[middle:]
        pieces, given = (upper, lower) if place & mask else (lower, upper)
        yield place ^ mask, pieces, given


def reduce_scatter_by_halving(place: int, folded: Folded, pieces: DataLayout) -> Iterator[Round]:
    """Exchange halves, then halves of the kept half, and so on, until each place has one piece of the result."""
    for other, kept, given in halves(place, folded.places):
        peer, mine = folded.rank(other), pieces.of(kept)
        yield exchange(message(peer, pieces.of(given)), message(peer, mine), len(mine))
