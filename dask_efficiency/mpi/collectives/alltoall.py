"""Alltoall and alltoallv: Bruck's algorithm, pairwise exchanges, or all messages at once.

References
----------
Bruck et al., IEEE TPDS 8 (11), 1997; MPICH 4.0.2, ``src/mpi/coll/alltoall/alltoall_intra_*.c`` and
``src/mpi/coll/alltoallv/alltoallv_intra_scattered.c``; MPICH 3.2.1, ``src/mpi/coll/alltoall.c`` and ``alltoallv.c``.
"""

from __future__ import annotations

from collections.abc import Iterator

from dask_efficiency.mpi.collectives.call import Collective
from dask_efficiency.mpi.collectives.layout import layout_of
from dask_efficiency.mpi.collectives.rounds import Message, Round, exchange, message
from dask_efficiency.mpi.collectives.thresholds import ALLTOALL_SCATTERED_PEERS
from dask_efficiency.mpi.collectives.trees import is_power_of_two


def alltoall_brucks(call: Collective, rank: int) -> Iterator[Round]:
    """To the rank 1, 2, 4, ... further all blocks whose way has this bit."""
    size, nbytes = call.size, call.nbytes
    distance = 1
    while distance < size:
        further, before = (rank + distance) % size, (rank - distance) % size
        yield exchange(
            message(further, *_on_their_way(rank, distance, size, nbytes)),
            message(before, *_on_their_way(before, distance, size, nbytes)),
        )
        distance <<= 1


def _on_their_way(rank: int, distance: int, size: int, nbytes: int) -> Iterator[range]:
    """The blocks that a rank passes on by this distance: their way is the sum of distances, shorter ones first."""
    for way in range(1, size):
        if way & distance:
            source = (rank - way % distance) % size
            start = (source * size + (source + way) % size) * nbytes
            yield range(start, start + nbytes)


def alltoall_pairwise(call: Collective, rank: int) -> Iterator[Round]:
    """One exchange after another, in pairs if the ranks are a power of two."""
    size, pairs = call.size, is_power_of_two(call.size)
    for step in range(1, size):
        target = rank ^ step if pairs else (rank + step) % size
        source = rank ^ step if pairs else (rank - step) % size
        yield exchange(
            message(target, _block(rank, target, call)),
            message(source, _block(source, rank, call)),
        )


def _block(source: int, target: int, call: Collective) -> range:
    start = (source * call.size + target) * call.nbytes
    return range(start, start + call.nbytes)


def alltoall_scattered(call: Collective, rank: int) -> Iterator[Round]:
    """All messages of some peers at once, then those of the next peers."""
    for sources, targets in _peers(rank, call.size):
        yield Round(
            tuple(message(target, _block(rank, target, call)) for target in targets),
            tuple(message(source, _block(source, rank, call)) for source in sources),
        )


def alltoallv_scattered(call: Collective, rank: int) -> Iterator[Round]:
    """As `alltoall_scattered`, without what is empty."""
    size, pieces = call.size, layout_of(call.sizes)

    def block(source: int, target: int) -> range:
        index = source * size + target
        return pieces.span(index, index + 1)

    for sources, targets in _peers(rank, size):
        sends = _not_empty(message(target, block(rank, target)) for target in targets)
        receives = _not_empty(message(source, block(source, rank)) for source in sources)
        if sends or receives:
            yield Round(sends, receives)


def _peers(rank: int, size: int) -> Iterator[tuple[list[int], list[int]]]:
    """From whom and to whom, at once; a rank's own block takes a place but is no message."""
    for first in range(0, size, ALLTOALL_SCATTERED_PEERS):
        steps = range(max(first, 1), min(first + ALLTOALL_SCATTERED_PEERS, size))
        if steps:
            yield [(rank + step) % size for step in steps], [(rank - step) % size for step in steps]


def _not_empty(messages: Iterator[Message]) -> tuple[Message, ...]:
    return tuple(each for each in messages if each.nbytes)
