"""Exchanges at doubling distance, where the number of ranks need not be a power of two.

References
----------
MPICH 4.0.2, ``src/mpi/coll/allgather/allgather_intra_recursive_doubling.c`` (whose part for other than powers of two
``bcast`` and ``reduce_scatter`` have too); MPICH 3.2.1, ``src/mpi/coll/allgather.c``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dask_efficiency.mpi.collectives.layout import Layout
from dask_efficiency.mpi.collectives.rounds import Round, exchange, message, receive, send


class Step(NamedTuple):
    """One step of a rank: with whom at doubling distance, and then what is passed on to ranks without a partner.

    Parameters
    ----------
    partner
        Whom the rank exchanges with; None if that rank does not exist.
    mine, theirs
        The ranks on either side of the exchange.
    source
        From whom the rank without a partner gets what it would have got, if from any.
    takers
        To whom the rank passes on what it got, in order.
    """

    partner: int | None
    mine: range
    theirs: range
    source: int | None
    takers: tuple[int, ...]


def doubling_steps(rank: int, size: int) -> Iterator[Step]:
    """The steps of a rank, with distances 1, 2, 4, ..."""
    mask = 1
    while mask < size:
        partner = rank ^ mask
        first, other = rank & -mask, partner & -mask
        mine = range(first, min(first + mask, size))
        theirs = range(min(other, size), min(other + mask, size))
        source, takers = _passed_on(rank, first, mask, size) if other + mask > size else (None, ())
        yield Step(partner if partner < size else None, mine, theirs, source, takers)
        mask <<= 1


def _passed_on(rank: int, first: int, mask: int, size: int) -> tuple[int | None, tuple[int, ...]]:
    """From whom and to whom go the data of ranks that have a partner, inside the half in which some have none."""
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


def doubling_allgather(place: int, ranks: Sequence[int], pieces: Layout) -> Iterator[Round]:
    """Everybody's piece to everybody: in each step all that one has.

    Parameters
    ----------
    place
        Of the rank, counted from the owner of the first piece.
    ranks
        By place, the rank.
    pieces
        By place, the piece.
    """
    for step in doubling_steps(place, len(ranks)):
        theirs = pieces.span(step.theirs.start, step.theirs.stop)
        if step.partner is not None:
            peer = ranks[step.partner]
            yield exchange(message(peer, pieces.span(step.mine.start, step.mine.stop)), message(peer, theirs))
        if step.source is not None:
            yield receive(ranks[step.source], theirs)
        for taker in step.takers:
            yield send(ranks[taker], theirs)
