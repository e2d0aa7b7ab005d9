"""Collective: one call of all its ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

#: Sizes of each collective: none, one, one for each rank, or one for each pair of ranks.
SIZES: Mapping[str, str] = {
    "allgather": "one",
    "allgatherv": "rank",
    "allreduce": "one",
    "alltoall": "one",
    "alltoallv": "pair",
    "barrier": "none",
    "bcast": "one",
    "exscan": "one",
    "gather": "one",
    "gatherv": "rank",
    "reduce": "one",
    "reduce_scatter": "rank",
    "reduce_scatter_block": "one",
    "scan": "one",
    "scatter": "one",
    "scatterv": "rank",
}


@dataclass(frozen=True, slots=True)
class Collective:
    """A call of a collective.

    Parameters
    ----------
    name
        One of `SIZES`: the name of MPI's function without ``MPI_``.
    size
        Number of ranks, at least 1.
    sizes
        Bytes, as MPI counts them: one number (of the vector of ``bcast``, ``reduce``, ``allreduce``, ``scan`` and
        ``exscan``; of one block of ``gather``, ``scatter``, ``allgather``, ``alltoall`` and ``reduce_scatter_block``),
        one number for each rank (``gatherv``, ``scatterv``, ``allgatherv``, ``reduce_scatter``), or for each pair
        (``alltoallv``: what rank 0 sends to rank 0, to rank 1, ..., then what rank 1 sends ...). None for
        ``barrier``.
    root
        Rank that sends or gets the data.
    nodes
        Node of each rank; empty if each rank has its own.
    element
        Bytes of an element of the datatype, at least 1: some algorithms cut only between elements.
    commutative
        True for a commutative operation, which is taken for one of MPI's own, as traces lack it.

    Raises
    ------
    ValueError
        If these do not fit together.
    """

    name: str
    size: int
    sizes: tuple[int, ...] = ()
    root: int = 0
    nodes: tuple[int, ...] = ()
    element: int = 1
    commutative: bool = True

    def __post_init__(self) -> None:
        if self.name not in SIZES:
            raise ValueError(f"{self.name!r} is not a collective; expected one of {', '.join(SIZES)}")
        if self.size < 1:
            raise ValueError(f"{self.name} of {self.size} ranks; expected at least 1")
        if not 0 <= self.root < self.size:
            raise ValueError(f"{self.name} has root {self.root}; expected a rank from 0 to {self.size - 1}")
        if self.nodes and len(self.nodes) != self.size:
            raise ValueError(f"{self.name} of {self.size} ranks has {len(self.nodes)} nodes; expected all or none")
        if self.element < 1:
            raise ValueError(f"{self.name} has elements of {self.element} bytes; expected at least 1")
        self._check_sizes()

    def _check_sizes(self) -> None:
        expected = {"none": 0, "one": 1, "rank": self.size, "pair": self.size**2}[SIZES[self.name]]
        if len(self.sizes) != expected and not (self.name == "barrier" and self.sizes == (0,)):
            raise ValueError(f"{self.name} of {self.size} ranks has {len(self.sizes)} sizes; expected {expected}")
        for nbytes in self.sizes:
            if nbytes < 0 or nbytes % self.element:
                raise ValueError(f"{self.name} has a size of {nbytes}; expected a multiple of {self.element} bytes")

    @property
    def nbytes(self) -> int:
        """The size of a call that has one, or else the sum of all."""
        return sum(self.sizes)

    @property
    def blocks(self) -> tuple[int, ...]:
        """Bytes of each rank's block, shape (ranks,), for calls whose data is one block a rank."""
        return self.sizes if SIZES[self.name] == "rank" else self.sizes * self.size

    @property
    def has_shared_nodes(self) -> bool:
        """True if some ranks share a node, so that MPICH may use an algorithm for nodes."""
        return bool(self.nodes) and len(set(self.nodes)) < self.size
