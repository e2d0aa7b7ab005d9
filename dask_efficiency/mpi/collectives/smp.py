"""Collectives on two levels: among the ranks of each node, and among the first ranks of nodes.

Source: MPICH 4.0.2, ``src/mpi/coll/*/*_intra_smp.c``; 3.2.1, ``src/mpi/coll/{bcast,reduce,allreduce,barrier,scan}.c``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from dask_efficiency.mpi.collectives.call import Collective
from dask_efficiency.mpi.collectives.choice import (
    MAX_BCAST_RECURSIVE_DOUBLING_BYTES,
    MIN_BCAST_SCATTER_BYTES,
    MIN_BCAST_SCATTER_RANKS,
)
from dask_efficiency.mpi.collectives.data_movement import (
    bcast_binomial,
    bcast_scatter_recursive_doubling_allgather,
    bcast_scatter_ring_allgather,
)
from dask_efficiency.mpi.collectives.rounds import Round, receive, send
from dask_efficiency.mpi.collectives.trees import by_node, is_power_of_two

#: Expands a collective of fewer ranks, which share no nodes, for a rank in it.
Expand = Callable[[Collective, int], Iterable[Round]]

#: Bytes of the int with which a node's first rank announces another message (``noneed`` in MPICH's scan).
FLAG_BYTES = 4


def _among(call: Collective, ranks: Sequence[int], rank: int, expand: Expand, root: int = 0) -> Iterator[Round]:
    """The collective among some of the ranks, if there are others; the root is a position among them."""
    if rank in ranks and len(ranks) > 1:
        within = replace(call, size=len(ranks), root=root, nodes=())
        for step in expand(within, ranks.index(rank)):
            yield step.mapped(lambda message: message._replace(peer=ranks[message.peer]))


def _signal(nbytes: int, ranks: Sequence[int], rank: int, expand: Expand) -> Iterator[Round]:
    """A broadcast of bytes that are none of the call's data."""
    for step in _among(Collective("bcast", len(ranks), (nbytes,)), ranks, rank, expand):
        yield step.mapped(lambda message: message._replace(blocks=()))


def barrier_smp(call: Collective, rank: int, expand: Expand) -> Iterator[Round]:
    """A barrier on each node, one among nodes, and a byte that releases each node."""
    nodes = by_node(call.nodes)
    yield from _among(call, nodes.beside(rank), rank, expand)
    yield from _among(call, nodes.leaders, rank, expand)
    yield from _signal(1, nodes.beside(rank), rank, expand)


def allreduce_smp(call: Collective, rank: int, expand: Expand) -> Iterator[Round]:
    """A reduce on each node, an allreduce among nodes, and a broadcast on each node."""
    nodes = by_node(call.nodes)
    yield from _among(replace(call, name="reduce"), nodes.beside(rank), rank, expand)
    yield from _among(call, nodes.leaders, rank, expand)
    yield from _among(replace(call, name="bcast"), nodes.beside(rank), rank, expand)


def reduce_smp(call: Collective, rank: int, expand: Expand) -> Iterator[Round]:
    """A reduce on each node but the root's, one among nodes to the root's, and one on that."""
    nodes = by_node(call.nodes)
    local, home = nodes.beside(rank), nodes.node[call.root]
    if nodes.node[rank] != home:
        yield from _among(call, local, rank, expand)
    yield from _among(call, nodes.leaders, rank, expand, home)
    if nodes.node[rank] == home:
        yield from _among(call, local, rank, expand, local.index(call.root))


def bcast_smp(call: Collective, rank: int, expand: Expand, version: str) -> Iterator[Round]:
    """A broadcast among nodes and one on each, whose algorithms are fixed in 3.2.1 and chosen as for any call in 4.0.2.

    Long ones, and medium ones of other than powers of two, ignore nodes.
    """
    if not call.nbytes:
        return
    nodes = by_node(call.nodes)
    local, home = nodes.beside(rank), nodes.node[call.root]
    at_home, root = nodes.node[rank] == home, nodes.beside(call.root).index(call.root)
    short = call.nbytes < MIN_BCAST_SCATTER_BYTES or call.size < MIN_BCAST_SCATTER_RANKS
    if not short and not (call.nbytes < MAX_BCAST_RECURSIVE_DOUBLING_BYTES and is_power_of_two(call.size)):
        yield from bcast_scatter_ring_allgather(call, rank)
        return
    on_node = bcast_binomial if version == "3.2.1" else expand
    between = (bcast_binomial if short else _bcast_medium) if version == "3.2.1" else expand
    if short and root and rank == call.root:
        yield send(local[0], range(call.nbytes))
    elif short and root and rank == local[0] and at_home:
        yield receive(call.root, range(call.nbytes))
    elif not short and root and at_home:
        yield from _among(call, local, rank, on_node, root)
    yield from _among(call, nodes.leaders, rank, between, home)
    if short or not (root and at_home):
        yield from _among(call, local, rank, on_node)


def _bcast_medium(call: Collective, rank: int) -> Iterator[Round]:
    """Broadcast of a medium vector among nodes in 3.2.1."""
    if is_power_of_two(call.size):
        return bcast_scatter_recursive_doubling_allgather(call, rank)
    return bcast_scatter_ring_allgather(call, rank)


def scan_smp(call: Collective, rank: int, expand: Expand) -> Iterator[Round]:
    """A scan on each node, one among nodes, and the result of the nodes before to each rank."""
    nodes = by_node(call.nodes)
    node, whole = nodes.node[rank], range(call.nbytes)
    local, leaders = nodes.beside(rank), nodes.leaders
    starts = (*leaders, call.size)
    before, own, upto = range(leaders[node]), range(local[0], local[-1] + 1), range(starts[node + 1])
    for step in _among(call, local, rank, expand):
        yield _of_ranks(step, lambda ranks: range(local[ranks.start], local[ranks.stop - 1] + 1))
    if len(local) > 1 and rank == local[0]:
        yield receive(local[-1], whole, ranks=own)
    elif len(local) > 1 and rank == local[-1]:
        yield send(local[0], whole, ranks=own)
    for step in _among(call, leaders, rank, expand):
        yield _of_ranks(step, lambda ranks: range(starts[ranks.start], starts[ranks.stop]))
    if rank == local[0] and node + 1 < len(leaders):
        yield send(leaders[node + 1], whole, ranks=upto)
    if rank == local[0] and node:
        yield receive(leaders[node - 1], whole, ranks=before)
    yield from _signal(FLAG_BYTES, local, rank, expand)
    if node:
        for step in _among(replace(call, name="bcast"), local, rank, expand):
            yield _of_ranks(step, lambda _: before)
        yield Round((), (), call.nbytes)


def _of_ranks(step: Round, ranks: Callable[[range], range]) -> Round:
    """A round with other ranks whose parts its messages combine."""
    return step.mapped(lambda message: message._replace(ranks=ranks(message.ranks)))
