"""Where pieces of a collective's data lie, in bytes."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import accumulate

from dask_efficiency.mpi.collectives.rounds import Blocks


class Layout:
    """Pieces that lie one after another.

    Parameters
    ----------
    sizes
        Bytes of each piece.
    """

    __slots__ = ("starts",)

    def __init__(self, sizes: Iterable[int]) -> None:
        #: Where each piece starts, in bytes, and where the last one ends.
        self.starts = tuple(accumulate(sizes, initial=0))

    def span(self, first: int, stop: int) -> range:
        """The bytes of pieces `first` to `stop` - 1; those beyond the last piece do not exist."""
        last = len(self.starts) - 1
        return range(self.starts[min(first, last)], self.starts[min(stop, last)])

    def ring(self, first: int, stop: int) -> Blocks:
        """The bytes of pieces `first` to `stop` - 1, of which the first follows the last."""
        count = len(self.starts) - 1
        turns = first // count * count
        first, stop = first - turns, stop - turns
        return self.span(first, stop), self.span(0, stop - count) if stop > count else range(0)


@lru_cache(maxsize=64)
def layout_of(sizes: tuple[int, ...]) -> Layout:
    """The layout of pieces of these sizes, kept, as each rank of an alltoallv needs that of all pairs."""
    return Layout(sizes)


@lru_cache(maxsize=64)
def ceiling_pieces(nbytes: int, count: int) -> Layout:
    """Equal pieces of a vector, rounded up, so that the last ones may be shorter or empty."""
    piece = -(-nbytes // count)
    return Layout(max(0, min(piece, nbytes - index * piece)) for index in range(count))


@lru_cache(maxsize=64)
def element_pieces(nbytes: int, count: int, element: int, version: str) -> Layout:
    """Almost equal pieces of a vector, cut between its elements.

    References
    ----------
    MPICH: 3.2.1 gives the rest to the last piece (``src/mpi/coll/allreduce.c``), 4.0.2 an element to each of the first
    ones (``src/mpi/coll/allreduce/allreduce_intra_reduce_scatter_allgather.c``).
    """
    each, rest = divmod(nbytes // element, count)
    if version == "3.2.1":
        return Layout([each * element] * (count - 1) + [(each + rest) * element])
    return Layout((each + (index < rest)) * element for index in range(count))
