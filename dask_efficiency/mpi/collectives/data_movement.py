"""Collectives that move data: barrier, bcast, gather, scatter, allgather and alltoall.

Source: MPICH 4.0.2, ``src/mpi/coll/NAME/NAME_intra_*.c`` for each, ``{gatherv,scatterv}/*_allcomm_linear.c`` and
``bcast/bcast_utils.c``; MPICH 3.2.1, ``src/mpi/coll/NAME.c``. Dissemination of a barrier: Hensgen, Finkel and Manber,
Int. J. of Parallel Programming 17 (1), 1988. ``brucks``: Bruck et al., IEEE TPDS 8 (11), 1997.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

from dask_efficiency.mpi.collectives.call import Collective
from dask_efficiency.mpi.collectives.rounds import (
    Blocks,
    DataLayout,
    Round,
    ceiling_pieces,
    exchange,
    layout_of,
    message,
    receive,
    send,
)
from dask_efficiency.mpi.collectives.trees import children, doubling, doubling_allgather, is_power_of_two, subtree

#: ``MPIR_CVAR_ALLGATHERV_PIPELINE_MSG_SIZE``: bytes of the pieces in which a block goes around the ring.
ALLGATHERV_PIECE_BYTES = 32_768
#: ``MPIR_CVAR_ALLTOALL_THROTTLE``: number of peers at once, the rank itself included.
ALLTOALL_SCATTERED_PEERS = 32
#: ``MPIR_CVAR_GATHERV_INTER_SSEND_MIN_PROCS``, also inside one communicator: from this number of ranks on, the sends of
#: a gatherv are synchronous.
MIN_GATHERV_SYNCHRONOUS_RANKS = 32


def barrier_dissemination(call: Collective, rank: int) -> Iterator[Round]:
    """Send empty messages to the rank at distance 1, 2, 4, ..., and receive from the other side."""
    for distance in doubling(call.size):
        yield exchange(message((rank + distance) % call.size), message((rank - distance) % call.size))


def bcast_binomial(call: Collective, rank: int) -> Iterator[Round]:
    """Send the whole vector down a binomial tree."""
    if not call.nbytes:
        return
    size, root, whole = call.size, call.root, range(call.nbytes)
    relative = (rank - root) % size
    if relative:
        yield receive((rank - subtree(relative, size)) % size, whole)
    for child in children(relative, size):
        yield send((child + root) % size, whole)


def _scatter(call: Collective, rank: int) -> Iterator[Round]:
    """Send equal pieces down a binomial tree; empty subtrees get no message."""
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
    """Scatter, then exchange everything with ranks at doubling distance."""
    if not call.nbytes:
        return
    yield from _scatter(call, rank)
    relative = (rank - call.root) % call.size
    ranks = [(place + call.root) % call.size for place in range(call.size)]
    yield from doubling_allgather(relative, ranks, ceiling_pieces(call.nbytes, call.size))


def bcast_scatter_ring_allgather(call: Collective, rank: int) -> Iterator[Round]:
    """Scatter, then pass the pieces around a ring, empty ones too."""
    if not call.nbytes:
        return
    yield from _scatter(call, rank)
    yield from _ring(rank, (rank - call.root) % call.size, call.size, ceiling_pieces(call.nbytes, call.size))


def _ring(rank: int, place: int, size: int, pieces: DataLayout) -> Iterator[Round]:
    """Pass pieces on to the next rank, one's own first, which is at a place among them."""
    right, left = (rank + 1) % size, (rank - 1) % size
    for step in range(size - 1):
        sent, received = (place - step) % size, (place - step - 1) % size
        yield exchange(message(right, pieces[sent]), message(left, pieces[received]))


def gather_binomial(call: Collective, rank: int) -> Iterator[Round]:
    """Send the blocks of whole subtrees up the tree, small ones first."""
    size, root = call.size, call.root
    relative = (rank - root) % size
    for child in reversed(list(children(relative, size))):
        yield receive((child + root) % size, *_of_subtree(call, child))
    if relative:
        yield send((rank - subtree(relative, size)) % size, *_of_subtree(call, relative))


def scatter_binomial(call: Collective, rank: int) -> Iterator[Round]:
    """Send the blocks of whole subtrees down the tree, large ones first."""
    size, root = call.size, call.root
    relative = (rank - root) % size
    if relative:
        yield receive((rank - subtree(relative, size)) % size, *_of_subtree(call, relative))
    for child in children(relative, size):
        yield send((child + root) % size, *_of_subtree(call, child))


def _of_subtree(call: Collective, relative: int) -> Blocks:
    """Blocks of a rank's subtree, which wraps around after the last rank."""
    stop = min(relative + subtree(relative, call.size), call.size)
    return layout_of(call.blocks).ring(relative + call.root, stop + call.root)


def gatherv_linear(call: Collective, rank: int) -> Iterator[Round]:
    """Send each rank's block, unless it is empty, to the root."""
    pieces = layout_of(call.blocks)
    if rank == call.root:
        yield Round((), tuple(message(peer, pieces[peer]) for peer in _others(call)))
    elif call.sizes[rank]:
        synchronous = call.size >= MIN_GATHERV_SYNCHRONOUS_RANKS
        yield send(call.root, pieces[rank])._replace(synchronous=synchronous)


def scatterv_linear(call: Collective, rank: int) -> Iterator[Round]:
    """Send each rank's block, unless it is empty, from the root."""
    pieces = layout_of(call.blocks)
    if rank == call.root:
        yield Round(tuple(message(peer, pieces[peer]) for peer in _others(call)), ())
    elif call.sizes[rank]:
        yield receive(call.root, pieces[rank])


def _others(call: Collective) -> list[int]:
    """Ranks other than the root with a block."""
    return [rank for rank, nbytes in enumerate(call.sizes) if nbytes and rank != call.root]


def allgather_brucks(call: Collective, rank: int) -> Iterator[Round]:
    """Send everything to the rank 1, 2, 4, ... before; in the last round only what it lacks."""
    size, pieces = call.size, layout_of(call.blocks)
    for distance in doubling(size):
        count = min(distance, size - distance)
        before, after = (rank - distance) % size, (rank + distance) % size
        yield exchange(
            message(before, *pieces.ring(rank, rank + count)), message(after, *pieces.ring(after, after + count))
        )


def allgather_recursive_doubling(call: Collective, rank: int) -> Iterator[Round]:
    """Exchange everything with the rank at distance 1, 2, 4, ..."""
    return doubling_allgather(rank, range(call.size), layout_of(call.blocks))


def allgather_ring(call: Collective, rank: int) -> Iterator[Round]:
    """Pass blocks on to the next rank, one's own first."""
    return _ring(rank, rank, call.size, layout_of(call.blocks))


def allgatherv_ring(call: Collective, rank: int, version: str) -> Iterator[Round]:
    """Pass blocks on to the next rank; large blocks in pieces, and no empty ones."""
    right, left = (rank + 1) % call.size, (rank - 1) % call.size
    # at least one element; 3.2.1 takes the smallest block if that is larger
    piece = max(ALLGATHERV_PIECE_BYTES // call.element, 1) * call.element
    piece = max(piece, min(call.blocks)) if version == "3.2.1" else piece
    sends, receives = _pieces(call, rank, piece), _pieces(call, left, piece)
    # an empty block also takes a round on its side
    for sent, received in zip_longest(sends, receives, fillvalue=range(0)):
        if sent and received:
            yield exchange(message(right, sent), message(left, received))
        elif sent:
            yield send(right, sent)
        elif received:
            yield receive(left, received)


def _pieces(call: Collective, first: int, piece: int) -> list[range]:
    """Pieces from a rank to the next, in order: its own block first, and not the next rank's own."""
    layout = layout_of(call.blocks)
    pieces: list[range] = []
    for step in range(call.size - 1):
        owner = (first - step) % call.size
        block = layout[owner]
        pieces.extend(block[start : start + piece] for start in range(0, max(1, len(block)), piece))
    return pieces


def alltoall_brucks(call: Collective, rank: int) -> Iterator[Round]:
    """Send to the rank at distance 1, 2, 4, ... all blocks whose distance to go has this bit."""
    size, nbytes = call.size, call.nbytes
    for distance in doubling(size):
        further, before = (rank + distance) % size, (rank - distance) % size
        yield exchange(
            message(further, *_on_their_way(rank, distance, size, nbytes)),
            message(before, *_on_their_way(before, distance, size, nbytes)),
        )


def _on_their_way(rank: int, distance: int, size: int, nbytes: int) -> Iterator[range]:
    """Blocks that a rank passes on by this distance; blocks travel the bits of their distance, the lowest first."""
    for way in range(1, size):
        if way & distance:
            source = (rank - way % distance) % size
            start = (source * size + (source + way) % size) * nbytes
            yield range(start, start + nbytes)


def alltoall_pairwise(call: Collective, rank: int) -> Iterator[Round]:
    """Exchange with one rank after another, in pairs if the ranks are a power of two."""
    size, pairs = call.size, is_power_of_two(call.size)
    for step in range(1, size):
        target = rank ^ step if pairs else (rank + step) % size
        source = rank ^ step if pairs else (rank - step) % size
        yield exchange(message(target, _block(rank, target, call)), message(source, _block(source, rank, call)))


def alltoallv_scattered(call: Collective, rank: int) -> Iterator[Round]:
    """Post all messages that are not empty of some peers at once; a rank's own block takes a place but is none."""
    size = call.size
    for first in range(0, size, ALLTOALL_SCATTERED_PEERS):
        steps = range(max(first, 1), min(first + ALLTOALL_SCATTERED_PEERS, size))
        sources, targets = ([(rank + sign * step) % size for step in steps] for sign in (1, -1))
        sends = tuple(message(target, block) for target in targets if (block := _block(rank, target, call)))
        receives = tuple(message(source, block) for source in sources if (block := _block(source, rank, call)))
        if sends or receives:
            yield Round(sends, receives)


def _block(source: int, target: int, call: Collective) -> range:
    place = source * call.size + target
    return (
        layout_of(call.sizes)[place]
        if call.name == "alltoallv"
        else range(call.nbytes * place, call.nbytes * (place + 1))
    )
