"""Allreduce: recursive doubling, or Rabenseifner's reduce-scatter and allgather.

References
----------
MPICH 4.0.2, ``src/mpi/coll/allreduce/allreduce_intra_*.c``; MPICH 3.2.1, ``src/mpi/coll/allreduce.c``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dask_efficiency.mpi.collectives.call import Collective
from dask_efficiency.mpi.collectives.halving import halves, reduce_scatter_by_halving
from dask_efficiency.mpi.collectives.layout import element_pieces
from dask_efficiency.mpi.collectives.rounds import Round, exchange, message, receive, send
from dask_efficiency.mpi.collectives.trees import Folded


def allreduce_recursive_doubling(call: Collective, rank: int) -> Iterator[Round]:
    """The whole vector, exchanged with ranks at doubling distance."""
    whole = range(call.nbytes)

    def doubling(place: int, folded: Folded) -> Iterator[Round]:
        mask = 1
        while mask < folded.places:
            peer = folded.rank(place ^ mask)
            yield exchange(message(peer, whole), message(peer, whole), call.nbytes)
            mask <<= 1

    yield from _folded(call, rank, doubling)


def allreduce_reduce_scatter_allgather(call: Collective, rank: int, version: str) -> Iterator[Round]:
    """Halves exchanged until each rank has one piece of the result; then the pieces go back the same way."""

    def halving(place: int, folded: Folded) -> Iterator[Round]:
        pieces = element_pieces(call.nbytes, folded.places, call.element, version)
        yield from reduce_scatter_by_halving(place, folded, pieces)
        for other, kept, given in reversed(list(halves(place, folded.places))):
            peer = folded.rank(other)
            yield exchange(
                message(peer, pieces.span(kept.start, kept.stop)), message(peer, pieces.span(given.start, given.stop))
            )

    yield from _folded(call, rank, halving)


def _folded(call: Collective, rank: int, among: Callable[[int, Folded], Iterator[Round]]) -> Iterator[Round]:
    """An allreduce of a power of two of ranks; before it, some give their vector to the next, and get it after it."""
    folded, whole = Folded(call.size, odd=True), range(call.nbytes)
    place, partner = folded.place(rank), folded.partner(rank)
    if place is None:
        yield send(rank + 1, whole)
        yield receive(rank + 1, whole)
        return
    if partner is not None:
        yield receive(partner, whole, reduces=call.nbytes)
    yield from among(place, folded)
    if partner is not None:
        yield send(partner, whole)
