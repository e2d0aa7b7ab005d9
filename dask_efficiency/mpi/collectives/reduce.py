"""Reduce: a binomial tree, or Rabenseifner's reduce-scatter and gather.

References
----------
MPICH 4.0.2, ``src/mpi/coll/reduce/reduce_intra_*.c``; MPICH 3.2.1, ``src/mpi/coll/reduce.c``.
"""

from __future__ import annotations

from collections.abc import Iterator

from dask_efficiency.mpi.collectives.call import Collective
from dask_efficiency.mpi.collectives.halving import halves, reduce_scatter_by_halving
from dask_efficiency.mpi.collectives.layout import Layout, element_pieces
from dask_efficiency.mpi.collectives.rounds import Round, receive, send
from dask_efficiency.mpi.collectives.trees import Folded, children, subtree


def reduce_binomial(call: Collective, rank: int) -> Iterator[Round]:
    """The whole vector up a binomial tree, whose root is rank 0 for an operation that is not commutative."""
    top = call.root if call.commutative else 0
    size, whole = call.size, range(call.nbytes)
    relative = (rank - top) % size
    for child in reversed(list(children(relative, size))):
        yield receive((child + top) % size, whole, reduces=call.nbytes)
    if relative:
        yield send((rank - subtree(relative, size)) % size, whole)
    if top != call.root and rank == top:
        yield send(call.root, whole)
    elif top != call.root and rank == call.root:
        yield receive(top, whole)


def reduce_reduce_scatter_gather(call: Collective, rank: int, version: str) -> Iterator[Round]:
    """Halves exchanged until each rank has one piece of the result; then the pieces go to the root."""
    folded, whole = Folded(call.size, odd=False), range(call.nbytes)
    place, partner = folded.place(rank), folded.partner(rank)
    pieces = element_pieces(call.nbytes, folded.places, call.element, version)
    if place is None:
        yield send(rank - 1, whole)
    else:
        if partner is not None:
            yield receive(partner, whole, reduces=call.nbytes)
        yield from reduce_scatter_by_halving(place, folded, pieces)
    yield from _gather(call.root, rank, folded, pieces)


def _gather(root: int, rank: int, folded: Folded, pieces: Layout) -> Iterator[Round]:
    """All pieces to the root, which takes the place of rank 0 if it has none."""
    root_place, place = folded.place(root), folded.place(rank)
    if root_place is None:
        if rank == root:
            yield receive(0, pieces.span(0, 1))
            place = 0
        elif rank == 0:
            yield send(root, pieces.span(0, 1))
            return
    if place is None:
        return
    for other, kept, given in reversed(list(halves(place, folded.places))):
        peer = root if root_place is None and other == 0 else folded.rank(other)
        distance = place ^ other
        if other // distance == (root_place or 0) // distance:
            yield send(peer, pieces.span(kept.start, kept.stop))
            return
        yield receive(peer, pieces.span(given.start, given.stop))
