"""Rabenseifner's halving of a vector, which ``reduce`` and ``allreduce`` share.

References
----------
MPICH 4.0.2, ``src/mpi/coll/allreduce/allreduce_intra_reduce_scatter_allgather.c``; MPICH 3.2.1,
``src/mpi/coll/allreduce.c``.
"""

from __future__ import annotations

from collections.abc import Iterator

from dask_efficiency.mpi.collectives.layout import Layout
from dask_efficiency.mpi.collectives.rounds import Round, exchange, message
from dask_efficiency.mpi.collectives.trees import Folded


def halves(place: int, count: int) -> Iterator[tuple[int, range, range]]:
    """The places at distance 1, 2, 4, ..., and which pieces a place keeps and gives away there.

    Parameters
    ----------
    place
        From 0 to `count` - 1.
    count
        Places and pieces; a power of two.
    """
    first, stop = 0, count
    mask = 1
    while mask < count:
        middle = (first + stop) // 2
        lower, upper = range(first, middle), range(middle, stop)
        kept, given = (upper, lower) if place & mask else (lower, upper)
        yield place ^ mask, kept, given
        first, stop = kept.start, kept.stop
        mask <<= 1


def reduce_scatter_by_halving(place: int, folded: Folded, pieces: Layout) -> Iterator[Round]:
    """Exchange halves, then halves of the kept half, and so on, until each place has one piece of the result."""
    for other, kept, given in halves(place, folded.places):
        peer, mine = folded.rank(other), pieces.span(kept.start, kept.stop)
        yield exchange(message(peer, pieces.span(given.start, given.stop)), message(peer, mine), len(mine))
