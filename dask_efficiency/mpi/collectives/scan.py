"""Scan and exscan: recursive doubling.

References
----------
MPICH 4.0.2, ``src/mpi/coll/{scan,exscan}/*_intra_recursive_doubling.c``; MPICH 3.2.1, ``src/mpi/coll/{scan,exscan}.c``.
"""

from __future__ import annotations

from collections.abc import Iterator

from dask_efficiency.mpi.collectives.call import Collective
from dask_efficiency.mpi.collectives.rounds import Round, exchange, message


def scan_recursive_doubling(call: Collective, rank: int) -> Iterator[Round]:
    """What one has combined, exchanged at doubling distance; what comes from before goes into the result, too."""
    whole = range(call.nbytes)
    distance = 1
    while distance < call.size:
        peer = rank ^ distance
        if peer < call.size:
            yield exchange(
                message(peer, whole, ranks=_combined(rank, distance, call.size)),
                message(peer, whole, ranks=_combined(peer, distance, call.size)),
                call.nbytes * (2 if peer < rank else 1),
            )
        distance <<= 1


def _combined(rank: int, distance: int, size: int) -> range:
    """The ranks whose parts a rank has combined before the exchange at a distance.

    Not all of those below it in the tree: without a partner it misses those that the partner would have known. They
    all come after it, so no result needs them from it.
    """
    last, step = rank, distance >> 1
    while step:
        if last < last ^ step < size:
            last ^= step
        step >>= 1
    return range(rank & -distance, last + 1)


def exscan_recursive_doubling(call: Collective, rank: int) -> Iterator[Round]:
    """As `scan_recursive_doubling`, but the first part of the result is copied, not combined."""
    has_result = False
    for each in scan_recursive_doubling(call, rank):
        is_first = each.sends[0].peer < rank and not has_result
        has_result = has_result or is_first
        yield each._replace(reduces=call.nbytes) if is_first else each
