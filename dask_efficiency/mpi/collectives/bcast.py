"""Broadcast: a binomial tree, or a scatter and then an allgather.

References
----------
MPICH 4.0.2, ``src/mpi/coll/bcast/bcast_intra_*.c`` and ``bcast_utils.c``; MPICH 3.2.1, ``src/mpi/coll/bcast.c``.
"""

from __future__ import annotations

from collections.abc import Iterator

from dask_efficiency.mpi.collectives.call import Collective
from dask_efficiency.mpi.collectives.doubling import doubling_allgather
from dask_efficiency.mpi.collectives.layout import ceiling_pieces
from dask_efficiency.mpi.collectives.rounds import Round, exchange, message, receive, send
from dask_efficiency.mpi.collectives.trees import children, subtree


def bcast_binomial(call: Collective, rank: int) -> Iterator[Round]:
    """The whole vector down a binomial tree."""
    if not call.nbytes:
        return
    size, root, whole = call.size, call.root, range(call.nbytes)
    relative = (rank - root) % size
    if relative:
        yield receive((rank - subtree(relative, size)) % size, whole)
    for child in children(relative, size):
        yield send((child + root) % size, whole)


def _scatter(call: Collective, rank: int) -> Iterator[Round]:
    """Equal pieces down a binomial tree; a subtree for which nothing is left gets no message."""
    size, root = call.size, call.root
    pieces = ceiling_pieces(call.nbytes, size)
    relative = (rank - root) % size
    below = subtree(relative, size)
    mine = pieces.span(relative, relative + below)
    if relative and mine:
        yield receive((rank - below) % size, mine)
    for child in children(relative, size):
        theirs = pieces.span(child, child + subtree(child, size))
        if theirs:
            yield send((child + root) % size, theirs)


def bcast_scatter_recursive_doubling_allgather(call: Collective, rank: int) -> Iterator[Round]:
    """A scatter, then exchanges of all that a rank has with ranks at doubling distance."""
    if not call.nbytes:
        return
    yield from _scatter(call, rank)
    relative = (rank - call.root) % call.size
    ranks = [(each + call.root) % call.size for each in range(call.size)]
    yield from doubling_allgather(relative, ranks, ceiling_pieces(call.nbytes, call.size))


def bcast_scatter_ring_allgather(call: Collective, rank: int) -> Iterator[Round]:
    """A scatter, then a ring around which the pieces go, empty ones too."""
    if not call.nbytes:
        return
    yield from _scatter(call, rank)
    size = call.size
    pieces = ceiling_pieces(call.nbytes, size)
    relative = (rank - call.root) % size
    right, left = (rank + 1) % size, (rank - 1) % size
    for step in range(size - 1):
        sent, received = (relative - step) % size, (relative - step - 1) % size
        yield exchange(
            message(right, pieces.span(sent, sent + 1)),
            message(left, pieces.span(received, received + 1)),
        )
