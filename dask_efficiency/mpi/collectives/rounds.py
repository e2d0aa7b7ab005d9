"""Rounds of a collective: what a rank sends, receives and combines, and where pieces of the data lie."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

#: Ranges of bytes of a collective's data, in the order in which they travel.
Blocks = tuple[range, ...]

_NONE = range(0)


class Message(NamedTuple):
    """A message to or from another rank."""

    #: The other rank, in the communicator of the call.
    peer: int
    #: Sum of the blocks' lengths, but for the few bytes with which a node's first rank releases the others.
    nbytes: int
    #: Bytes of the call's data that it carries. The data of ``bcast``, ``reduce``, ``allreduce``, ``scan`` and
    #: ``exscan`` is their vector; of ``alltoall`` and ``alltoallv`` all send buffers one after another; of the others
    #: all blocks one after another.
    blocks: Blocks = ()
    #: Ranks whose parts are combined in it, for ``scan``, ``exscan`` and ``recursive_doubling`` of ``reduce_scatter``;
    #: in other reductions it is all that the sender has combined so far.
    ranks: range = _NONE


class Round(NamedTuple):
    """Messages that a rank posts together, receives first, each in this order, and then waits for."""

    sends: tuple[Message, ...]
    receives: tuple[Message, ...]
    #: Bytes that the rank combines with an operation afterwards.
    reduces: int = 0
    #: Sends end only when they are received, whatever their size (``MPI_Ssend``).
    synchronous: bool = False

    def mapped(self, change: Callable[[Message], Message]) -> Round:
        """The round with each message changed."""
        return self._replace(sends=tuple(map(change, self.sends)), receives=tuple(map(change, self.receives)))


def message(peer: int, *blocks: range, ranks: range = _NONE) -> Message:
    """A message of some blocks, without empty ones, and with neighbours joined."""
    joined: list[range] = []
    for block in blocks:
        if not block:
            continue
        if joined and joined[-1].stop == block.start:
            joined[-1] = range(joined[-1].start, block.stop)
        else:
            joined.append(block)
    return Message(peer, sum(map(len, joined)), tuple(joined), ranks)


def send(peer: int, *blocks: range, ranks: range = _NONE) -> Round:
    """A round of one send."""
    return Round((message(peer, *blocks, ranks=ranks),), ())


def receive(peer: int, *blocks: range, ranks: range = _NONE, reduces: int = 0) -> Round:
    """A round of one receive, and the bytes combined after it."""
    return Round((), (message(peer, *blocks, ranks=ranks),), reduces)


def exchange(sent: Message, received: Message, reduces: int = 0) -> Round:
    """A round of one send and one receive, and the bytes combined after it."""
    return Round((sent,), (received,), reduces)


class DataLayout:
    """Byte ranges of consecutive pieces."""

    __slots__ = ("starts",)

    def __init__(self, sizes: Iterable[int]) -> None:
        #: Start of each piece in bytes, and the end of the last.
        self.starts = tuple(accumulate(sizes, initial=0))

    def __getitem__(self, piece: int) -> range:
        return range(self.starts[piece], self.starts[piece + 1])

    def span(self, first: int, stop: int) -> range:
        """Bytes of pieces `first` to `stop` - 1, up to the last piece."""
        last = len(self.starts) - 1
        return range(self.starts[min(first, last)], self.starts[min(stop, last)])

    def of(self, pieces: range) -> range:
        """Bytes of consecutive pieces."""
        return self.span(pieces.start, pieces.stop)

    def ring(self, first: int, stop: int) -> Blocks:
        """Bytes of pieces `first` to `stop` - 1, which wrap around."""
        count = len(self.starts) - 1
        turns = first // count * count
        first, stop = first - turns, stop - turns
        return self.span(first, stop), self.span(0, stop - count) if stop > count else range(0)


@lru_cache(maxsize=64)
def layout_of(sizes: tuple[int, ...]) -> DataLayout:
    """Cached layout of pieces of some sizes, as every rank of an alltoallv needs that of all pairs."""
    return DataLayout(sizes)


@lru_cache(maxsize=64)
def ceiling_pieces(nbytes: int, count: int) -> DataLayout:
    """Equal pieces of a vector, rounded up; the last ones may be shorter or empty."""
    piece = -(-nbytes // count)
    return DataLayout(max(0, min(piece, nbytes - index * piece)) for index in range(count))


@lru_cache(maxsize=64)
def element_pieces(nbytes: int, count: int, element: int, version: str) -> DataLayout:
    """Almost equal pieces of a vector, cut between its elements.

    MPICH 3.2.1 gives the rest to the last piece (``src/mpi/coll/allreduce.c``), 4.0.2 an element to each of the first
    ones (``src/mpi/coll/allreduce/allreduce_intra_reduce_scatter_allgather.c``).
    """
    elements, rest = divmod(nbytes // element, count)
    if version == "3.2.1":
        return DataLayout([elements * element] * (count - 1) + [(elements + rest) * element])
    return DataLayout((elements + (index < rest)) * element for index in range(count))
