"""Barrier: dissemination of empty messages.

References
----------
Hensgen, Finkel and Manber, Int. J. of Parallel Programming 17 (1), 1988; MPICH 4.0.2,
``src/mpi/coll/barrier/barrier_intra_dissemination.c``; MPICH 3.2.1, ``src/mpi/coll/barrier.c``.
"""

from __future__ import annotations

from collections.abc import Iterator

from dask_efficiency.mpi.collectives.call import Collective
from dask_efficiency.mpi.collectives.rounds import Round, exchange, message


def barrier_dissemination(call: Collective, rank: int) -> Iterator[Round]:
    """Empty messages: to the rank 1, 2, 4, ... further, and from the rank as far on the other side."""
    distance = 1
    while distance < call.size:
        yield exchange(message((rank + distance) % call.size), message((rank - distance) % call.size))
        distance <<= 1
