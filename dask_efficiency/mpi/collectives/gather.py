"""Gather and scatter: a binomial tree for equal blocks, and the root alone with each rank for others.

References
----------
MPICH 4.0.2, ``src/mpi/coll/{gather,scatter}/*_intra_binomial.c`` and ``{gatherv,scatterv}/*_allcomm_linear.c``; MPICH
3.2.1, ``src/mpi/coll/{gather,scatter,gatherv,scatterv}.c``.
"""

from __future__ import annotations

from collections.abc import Iterator

from dask_efficiency.mpi.collectives.call import Collective
from dask_efficiency.mpi.collectives.layout import layout_of
from dask_efficiency.mpi.collectives.rounds import Blocks, Round, message, receive, send
from dask_efficiency.mpi.collectives.thresholds import MIN_GATHERV_SYNCHRONOUS_RANKS
from dask_efficiency.mpi.collectives.trees import children, subtree


def gather_binomial(call: Collective, rank: int) -> Iterator[Round]:
    """The blocks of whole subtrees up the tree, the small ones first."""
    size, root = call.size, call.root
    relative = (rank - root) % size
    for child in reversed(list(children(relative, size))):
        yield receive((child + root) % size, *_of_subtree(call, child))
    if relative:
        yield send((rank - subtree(relative, size)) % size, *_of_subtree(call, relative))


def scatter_binomial(call: Collective, rank: int) -> Iterator[Round]:
    """The blocks of whole subtrees down the tree, the large ones first."""
    size, root = call.size, call.root
    relative = (rank - root) % size
    if relative:
        yield receive((rank - subtree(relative, size)) % size, *_of_subtree(call, relative))
    for child in children(relative, size):
        yield send((child + root) % size, *_of_subtree(call, child))


def _of_subtree(call: Collective, relative: int) -> Blocks:
    """The blocks of a rank's subtree, which goes around past the last rank."""
    stop = min(relative + subtree(relative, call.size), call.size)
    return layout_of(call.blocks).ring(relative + call.root, stop + call.root)


def gatherv_linear(call: Collective, rank: int) -> Iterator[Round]:
    """Each rank's block, if it has one, directly to the root."""
    pieces = layout_of(call.blocks)
    if rank == call.root:
        yield Round((), tuple(message(each, pieces.span(each, each + 1)) for each in _others(call)))
    elif call.sizes[rank]:
        synchronous = call.size >= MIN_GATHERV_SYNCHRONOUS_RANKS
        yield send(call.root, pieces.span(rank, rank + 1))._replace(synchronous=synchronous)


def scatterv_linear(call: Collective, rank: int) -> Iterator[Round]:
    """Each rank's block, if it has one, directly from the root."""
    pieces = layout_of(call.blocks)
    if rank == call.root:
        yield Round(tuple(message(each, pieces.span(each, each + 1)) for each in _others(call)), ())
    elif call.sizes[rank]:
        yield receive(call.root, pieces.span(rank, rank + 1))


def _others(call: Collective) -> list[int]:
    """The ranks but the root that have a block."""
    return [rank for rank, nbytes in enumerate(call.sizes) if nbytes and rank != call.root]
