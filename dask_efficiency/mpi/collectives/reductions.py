"""Collectives that combine data: reduce, allreduce, reduce-scatter, scan and exscan.

Source: MPICH 4.0.2, ``src/mpi/coll/NAME/NAME_intra_*.c`` for each, and ``reduce_scatter_block``; MPICH 3.2.1,
``src/mpi/coll/{reduce,allreduce,red_scat,red_scat_block,scan,exscan}.c``. The butterfly of a reduce-scatter that is not
commutative: Träff, EuroPVM/MPI 2005.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dask_efficiency.mpi.collectives.call import Collective
from dask_efficiency.mpi.collectives.rounds import (
    Blocks,
    DataLayout,
    Round,
    element_pieces,
    exchange,
    layout_of,
    message,
    receive,
    send,
)
from dask_efficiency.mpi.collectives.trees import (
    Folded,
    children,
    doubling,
    doubling_steps,
    halves,
    reduce_scatter_by_halving,
    subtree,
)


def reduce_binomial(call: Collective, rank: int) -> Iterator[Round]:
    """Combine the whole vector up a binomial tree; its root is rank 0 unless the operation is commutative."""
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
    """Exchange halves until each rank has one piece of the result; then send the pieces to the root."""
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


def _gather(root: int, rank: int, folded: Folded, pieces: DataLayout) -> Iterator[Round]:
    """Send all pieces to the root, which takes the place of rank 0 if it has none."""
    root_place, place = folded.place(root), folded.place(rank)
    if root_place is None:
        if rank == root:
            yield receive(0, pieces[0])
            place = 0
        elif rank == 0:
            yield send(root, pieces[0])
            return
    if place is None:
        return
    for other, kept, given in reversed(list(halves(place, folded.places))):
        peer = root if root_place is None and other == 0 else folded.rank(other)
        distance = place ^ other
        if other // distance == (root_place or 0) // distance:
            yield send(peer, pieces.of(kept))
            return
        yield receive(peer, pieces.of(given))


def allreduce_recursive_doubling(call: Collective, rank: int) -> Iterator[Round]:
    """Exchange the whole vector with ranks at doubling distance."""
    whole = range(call.nbytes)

    def exchanges(place: int, folded: Folded) -> Iterator[Round]:
        for mask in doubling(folded.places):
            peer = folded.rank(place ^ mask)
            yield exchange(message(peer, whole), message(peer, whole), call.nbytes)

    yield from _folded(call, rank, exchanges)


def allreduce_reduce_scatter_allgather(call: Collective, rank: int, version: str) -> Iterator[Round]:
    """Exchange halves until each rank has one piece of the result; then gather the pieces the same way back."""

    def halving(place: int, folded: Folded) -> Iterator[Round]:
        pieces = element_pieces(call.nbytes, folded.places, call.element, version)
        yield from reduce_scatter_by_halving(place, folded, pieces)
        for other, kept, given in reversed(list(halves(place, folded.places))):
            peer = folded.rank(other)
            yield exchange(message(peer, pieces.of(kept)), message(peer, pieces.of(given)))

    yield from _folded(call, rank, halving)


def _folded(call: Collective, rank: int, among: Callable[[int, Folded], Iterator[Round]]) -> Iterator[Round]:
    """Allreduce of a power of two of ranks; before it the others give their vector to a neighbour, which returns it."""
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


def reduce_scatter_recursive_halving(call: Collective, rank: int) -> Iterator[Round]:
    """Exchange halves of the blocks at halving distance; some ranks stand in for their neighbour."""
    folded, pieces = Folded(call.size, odd=True), layout_of(call.blocks)
    whole = pieces.span(0, call.size)
    place, partner = folded.place(rank), folded.partner(rank)
    own = pieces[rank]
    if place is None:
        yield send(rank + 1, whole)
        if own:
            yield receive(rank + 1, own)
        return
    if partner is not None:
        yield receive(partner, whole, reduces=len(whole))
    yield from _halving(place, folded, pieces)
    if partner is not None and (theirs := pieces[partner]):
        yield send(partner, theirs)


def _halving(place: int, folded: Folded, pieces: DataLayout) -> Iterator[Round]:
    """Exchanges of the ranks that stay; empty messages are not sent."""
    # first block of each place, and the end of the last
    first = [2 * place if place < folded.pairs else place + folded.pairs for place in range(folded.places + 1)]
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
    """Send the rank at distance 1, 2, 3, ... its block, and receive one's own from the other side."""
    size, pieces = call.size, layout_of(call.blocks)
    own = pieces[rank]
    for step in range(1, size):
        target, source = (rank + step) % size, (rank - step) % size
        yield exchange(message(target, pieces[target]), message(source, own), len(own))


def reduce_scatter_noncommutative(call: Collective, rank: int) -> Iterator[Round]:
    """Exchange halves at doubling distance, of blocks in an order that leaves each rank its own."""
    size, pieces = call.size, layout_of(call.blocks)
    bits = size.bit_length() - 1
    order = [int(f"{place:0{bits}b}"[::-1], 2) for place in range(size)]
    for distance in doubling(size):
        middle = len(order) // 2
        lower, upper = order[:middle], order[middle:]
        order, given = (upper, lower) if rank & distance else (lower, upper)
        peer = rank ^ distance
        mine = message(peer, *(pieces[place] for place in order))
        yield exchange(message(peer, *(pieces[place] for place in given)), mine, mine.nbytes)


def reduce_scatter_recursive_doubling(call: Collective, rank: int) -> Iterator[Round]:
    """Exchange what others need at doubling distance, and pass it on to ranks without a partner."""
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


def scan_recursive_doubling(call: Collective, rank: int) -> Iterator[Round]:
    """Exchange combined parts at doubling distance; those of lower ranks also go into the result."""
    whole = range(call.nbytes)
    for distance in doubling(call.size):
        peer = rank ^ distance
        if peer < call.size:
            yield exchange(
                message(peer, whole, ranks=_combined(rank, distance, call.size)),
                message(peer, whole, ranks=_combined(peer, distance, call.size)),
                call.nbytes * (2 if peer < rank else 1),
            )


def _combined(rank: int, distance: int, size: int) -> range:
    """Ranks whose parts a rank has combined before the exchange at a distance.

    Without a partner it misses parts that the partner would have had. These are of higher ranks, so no result needs
    them from it.
    """
    last, step = rank, distance >> 1
    while step:
        if last < last ^ step < size:
            last ^= step
        step >>= 1
    return range(rank & -distance, last + 1)


def exscan_recursive_doubling(call: Collective, rank: int) -> Iterator[Round]:
    """Scan in which the first part of the result is copied, not combined."""
    has_result = False
    for step in scan_recursive_doubling(call, rank):
        is_first = step.sends[0].peer < rank and not has_result
        has_result = has_result or is_first
        yield step._replace(reduces=call.nbytes) if is_first else step
