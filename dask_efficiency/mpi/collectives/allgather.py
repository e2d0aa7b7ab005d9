"""Allgather and allgatherv: Bruck's algorithm, recursive doubling, or a ring.

References
----------
Bruck et al., IEEE TPDS 8 (11), 1997; MPICH 4.0.2, ``src/mpi/coll/allgather/allgather_intra_*.c`` and
``src/mpi/coll/allgatherv/allgatherv_intra_*.c``; MPICH 3.2.1, ``src/mpi/coll/allgather.c`` and ``allgatherv.c``.
"""

from __future__ import annotations

from collections.abc import Iterator

from dask_efficiency.mpi.collectives.call import Collective
from dask_efficiency.mpi.collectives.doubling import doubling_allgather
from dask_efficiency.mpi.collectives.layout import layout_of
from dask_efficiency.mpi.collectives.rounds import Round, exchange, message, receive, send
from dask_efficiency.mpi.collectives.thresholds import ALLGATHERV_PIECE_BYTES


def allgather_brucks(call: Collective, rank: int) -> Iterator[Round]:
    """All that one has to the rank 1, 2, 4, ... before, and in the last round only what is missing there."""
    size, pieces = call.size, layout_of(call.blocks)
    distance = 1
    while distance < size:
        count = min(distance, size - distance)
        before, after = (rank - distance) % size, (rank + distance) % size
        yield exchange(
            message(before, *pieces.ring(rank, rank + count)), message(after, *pieces.ring(after, after + count))
        )
        distance <<= 1


def allgather_recursive_doubling(call: Collective, rank: int) -> Iterator[Round]:
    """All that one has, exchanged with the rank at distance 1, 2, 4, ..."""
    return doubling_allgather(rank, range(call.size), layout_of(call.blocks))


def allgather_ring(call: Collective, rank: int) -> Iterator[Round]:
    """To the next rank what came from the one before, beginning with one's own block."""
    size, pieces = call.size, layout_of(call.blocks)
    right, left = (rank + 1) % size, (rank - 1) % size
    for step in range(size - 1):
        sent, received = (rank - step) % size, (left - step) % size
        yield exchange(message(right, pieces.span(sent, sent + 1)), message(left, pieces.span(received, received + 1)))


def allgatherv_ring(call: Collective, rank: int, version: str) -> Iterator[Round]:
    """As `allgather_ring`, but large blocks go in pieces, and what is empty is not sent."""
    right, left = (rank + 1) % call.size, (rank - 1) % call.size
    piece = _piece_bytes(call, version)
    sends, receives = _pieces(call, rank, piece), _pieces(call, left, piece)
    # Rounds go on while there is something to do: an empty block takes a round of its side, too.
    for index in range(max(len(sends), len(receives))):
        sent = sends[index] if index < len(sends) else range(0)
        received = receives[index] if index < len(receives) else range(0)
        if sent and received:
            yield exchange(message(right, sent), message(left, received))
        elif sent:
            yield send(right, sent)
        elif received:
            yield receive(left, received)


def _pieces(call: Collective, first: int, piece: int) -> list[range]:
    """What goes from a rank to the next one, in order: its own block first, never the next one's own."""
    layout = layout_of(call.blocks)
    pieces: list[range] = []
    for step in range(call.size - 1):
        owner = (first - step) % call.size
        block = layout.span(owner, owner + 1)
        pieces.extend(block[start : start + piece] for start in range(0, max(1, len(block)), piece))
    return pieces


def _piece_bytes(call: Collective, version: str) -> int:
    """Bytes of a piece; MPICH has no piece smaller than an element.

    References
    ----------
    3.2.1 takes the smallest block if that is larger; 4.0.2 always the pipeline's size.
    """
    piece = max(ALLGATHERV_PIECE_BYTES // call.element, 1) * call.element
    return max(piece, min(call.blocks)) if version == "3.2.1" else piece
