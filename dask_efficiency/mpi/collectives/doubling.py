"""Exchanges at doubling distance: of any number of ranks, and Rabenseifner's halving of a vector by a power of two.

Source: MPICH 4.0.2, ``src/mpi/coll/allgather/allgather_intra_recursive_doubling.c`` (whose part for other than powers
of two ``bcast`` and ``reduce_scatter`` have too) and
``src/mpi/coll/allreduce/allreduce_intra_reduce_scatter_allgather.c``; MPICH 3.2.1, ``src/mpi/coll/allgather.c`` and
``allreduce.c``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dask_efficiency.mpi.collectives.rounds import DataLayout, Round, exchange, message, receive, send
from dask_efficiency.mpi.collectives.trees import Folded, doubling


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
