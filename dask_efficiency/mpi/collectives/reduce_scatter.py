"""Reduce-scatter: recursive halving or pairwise exchanges; without commutativity a butterfly or recursive doubling.

References
----------
Träff, EuroPVM/MPI 2005 (the butterfly); MPICH 4.0.2, ``src/mpi/coll/reduce_scatter/reduce_scatter_intra_*.c`` and
``reduce_scatter_block``; MPICH 3.2.1, ``src/mpi/coll/red_scat.c`` and ``red_scat_block.c``.
"""

from __future__ import annotations

from collections.abc import Iterator

from dask_efficiency.mpi.collectives.call import Collective
from dask_efficiency.mpi.collectives.doubling import doubling_steps
from dask_efficiency.mpi.collectives.layout import Layout, layout_of
from dask_efficiency.mpi.collectives.rounds import Blocks, Round, exchange, message, receive, send
from dask_efficiency.mpi.collectives.trees import Folded


def reduce_scatter_recursive_halving(call: Collective, rank: int) -> Iterator[Round]:
    """Halves of the ranks' blocks exchanged over halving distance; some ranks stand for their neighbour."""
    folded, pieces = Folded(call.size, odd=True), layout_of(call.blocks)
    whole = pieces.span(0, call.size)
    place, partner = folded.place(rank), folded.partner(rank)
    own = pieces.span(rank, rank + 1)
    if place is None:
        yield send(rank + 1, whole)
        if own:
            yield receive(rank + 1, own)
        return
    if partner is not None:
        yield receive(partner, whole, reduces=len(whole))
    yield from _halving(place, folded, pieces)
    if partner is not None:
        theirs = pieces.span(partner, partner + 1)
        if theirs:
            yield send(partner, theirs)


def _halving(place: int, folded: Folded, pieces: Layout) -> Iterator[Round]:
    """The exchanges of the ranks that stay; what is empty is not sent."""
    #: The first block of each place, and the end of the last.
    first = [2 * each if each < folded.pairs else each + folded.pairs for each in range(folded.places + 1)]
    start, distance = 0, folded.places >> 1
    while distance:
        lower = pieces.span(first[start], first[start + distance])
        upper = pieces.span(first[start + distance], first[start + 2 * distance])
        kept, given = (upper, lower) if place & distance else (lower, upper)
        peer = folded.rank(place ^ distance)
        if kept and given:
            yield exchange(message(peer, given), message(peer, kept), len(kept))
        elif kept:
            yield receive(peer, kept, reduces=len(kept))
        elif given:
            yield send(peer, given)
        start += place & distance
        distance >>= 1


def reduce_scatter_pairwise(call: Collective, rank: int) -> Iterator[Round]:
    """To the rank 1, 2, 3, ... further its block, from the rank as far before one's own."""
    size, pieces = call.size, layout_of(call.blocks)
    own = pieces.span(rank, rank + 1)
    for step in range(1, size):
        target, source = (rank + step) % size, (rank - step) % size
        yield exchange(message(target, pieces.span(target, target + 1)), message(source, own), len(own))


def reduce_scatter_noncommutative(call: Collective, rank: int) -> Iterator[Round]:
    """Halves exchanged at doubling distance, of blocks in an order that gives each rank its own in the end."""
    size, pieces = call.size, layout_of(call.blocks)
    bits = size.bit_length() - 1
    order = [int(f"{place:0{bits}b}"[::-1], 2) for place in range(size)]

    def blocks(places: list[int]) -> list[range]:
        return [pieces.span(place, place + 1) for place in places]

    distance = 1
    while distance < size:
        middle = len(order) // 2
        lower, upper = order[:middle], order[middle:]
        order, given = (upper, lower) if rank & distance else (lower, upper)
        peer = rank ^ distance
        mine = message(peer, *blocks(order))
        yield exchange(message(peer, *blocks(given)), mine, mine.nbytes)
        distance <<= 1


def reduce_scatter_recursive_doubling(call: Collective, rank: int) -> Iterator[Round]:
    """What the others need, exchanged at doubling distance, and passed on to ranks that have no partner there."""
    size, pieces = call.size, layout_of(call.blocks)

    def without(ranks: range) -> Blocks:
        return pieces.span(0, ranks.start), pieces.span(ranks.stop, size)

    for step in doubling_steps(rank, size):
        received = message(0, *without(step.theirs), ranks=step.theirs)
        if step.partner is not None:
            sent = message(step.partner, *without(step.mine), ranks=step.mine)
            yield exchange(sent, received._replace(peer=step.partner))
        if step.source is not None:
            yield Round((), (received._replace(peer=step.source),))
        for taker in step.takers:
            yield Round((received._replace(peer=taker),), ())
        if step.partner is not None or step.source is not None:
            yield Round((), (), received.nbytes)
