"""Collective: one call of all its ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

#: Sizes of each collective: none, one, one for each rank, or one for each pair of ranks.
SIZES: Mapping[str, str] = {
    **dict.fromkeys(("allgather", "allreduce", "alltoall", "bcast", "exscan", "gather", "reduce"), "one"),
    **dict.fromkeys(("reduce_scatter_block", "scan", "scatter"), "one"),
    **dict.fromkeys(("allgatherv", "gatherv", "reduce_scatter", "scatterv"), "rank"),
    "alltoallv": "pair",
    "barrier": "none",
}


@dataclass(frozen=True, slots=True)
class Collective:
    """A call of a collective, whose parts fit together."""

    #: One of `SIZES`: the name of MPI's function without ``MPI_``.
    name: str
    #: Number of ranks.
    size: int
    #: Bytes, as MPI counts them: of the vector of ``bcast``, ``reduce``, ``allreduce``, ``scan`` and ``exscan``, or of
    #: one block; of the block of each rank; or of each pair of ranks: what rank 0 sends to rank 0, to rank 1, ..., then
    #: what rank 1 sends.
    sizes: tuple[int, ...] = ()
    #: Rank that sends or gets the data.
    root: int = 0
    #: Node of each rank; empty if each rank has its own.
    nodes: tuple[int, ...] = ()
    #: Bytes of an element of the datatype: some algorithms cut only between elements.
    element: int = 1
    #: Traces lack it; operations are taken for MPI's own, which are commutative.
    commutative: bool = True

    @property
    def nbytes(self) -> int:
        """The size of a call that has one, or else the sum of all."""
        return sum(self.sizes)

    @property
    def blocks(self) -> tuple[int, ...]:
        """Bytes of each rank's block, for calls whose data is one block a rank."""
        return self.sizes if SIZES[self.name] == "rank" else self.sizes * self.size

    @property
    def has_shared_nodes(self) -> bool:
        """True if some ranks share a node, so that MPICH may use an algorithm for nodes."""
        return bool(self.nodes) and len(set(self.nodes)) < self.size
