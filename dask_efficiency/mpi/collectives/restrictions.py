"""The algorithms of each collective, and for which calls MPICH does not use them.

References
----------
MPICH 4.0.2, ``src/mpi/coll/coll_algorithms.txt`` (what falls back) and the assertions of ``src/mpi/coll/*/*_intra_*.c``
(what aborts). We leave out ``nb``, the nonblocking forms, and ``pairwise_sendrecv_replace``, for data in place.
"""

from __future__ import annotations

from collections.abc import Mapping

from dask_efficiency.mpi.collectives.call import Collective
from dask_efficiency.mpi.collectives.nodes import by_node
from dask_efficiency.mpi.collectives.trees import is_power_of_two, power_at_most

_REDUCE_SCATTER = ("noncommutative", "pairwise", "recursive_doubling", "recursive_halving")

#: By collective, its algorithms.
ALGORITHMS: Mapping[str, tuple[str, ...]] = {
    "allgather": ("brucks", "recursive_doubling", "ring"),
    "allgatherv": ("brucks", "recursive_doubling", "ring"),
    "allreduce": ("recursive_doubling", "reduce_scatter_allgather", "smp"),
    "alltoall": ("brucks", "pairwise", "scattered"),
    "alltoallv": ("scattered",),
    "barrier": ("dissemination", "smp"),
    "bcast": ("binomial", "scatter_recursive_doubling_allgather", "scatter_ring_allgather", "smp"),
    "exscan": ("recursive_doubling",),
    "gather": ("binomial",),
    "gatherv": ("linear",),
    "reduce": ("binomial", "reduce_scatter_gather", "smp"),
    "reduce_scatter": _REDUCE_SCATTER,
    "reduce_scatter_block": _REDUCE_SCATTER,
    "scan": ("recursive_doubling", "smp"),
    "scatter": ("binomial",),
    "scatterv": ("linear",),
}

_NEEDS_POWER_OF_TWO = {("allgather", "recursive_doubling"), ("allgatherv", "recursive_doubling")}
_NEEDS_COMMUTATIVE = {
    ("allreduce", "reduce_scatter_allgather"),
    ("allreduce", "smp"),
    ("reduce", "reduce_scatter_gather"),
    ("reduce", "smp"),
    ("reduce_scatter", "pairwise"),
    ("reduce_scatter", "recursive_halving"),
    ("reduce_scatter_block", "pairwise"),
    ("reduce_scatter_block", "recursive_halving"),
}
_NEEDS_ELEMENTS = {("allreduce", "reduce_scatter_allgather"), ("reduce", "reduce_scatter_gather")}


def falls_back(call: Collective, algorithm: str) -> str:
    """What the algorithm needs and the call lacks, so that MPICH silently chooses as if none were set; else empty."""
    key = (call.name, algorithm)
    if key in _NEEDS_POWER_OF_TWO and not is_power_of_two(call.size):
        return f"it needs a power of two of ranks, not {call.size}"
    if key in _NEEDS_COMMUTATIVE and not call.commutative:
        return "it needs a commutative operation"
    if key in _NEEDS_ELEMENTS and call.nbytes // call.element < power_at_most(call.size):
        return f"it needs at least {power_at_most(call.size)} elements, not {call.nbytes // call.element}"
    if algorithm == "smp" and not call.has_shared_nodes:
        return "it needs ranks that share a node"
    if key == ("scan", "smp") and not by_node(call.nodes).is_consecutive:
        return "it needs the ranks of each node one after another"
    return aborts(call, algorithm) if call.name == "reduce_scatter_block" else ""


def aborts(call: Collective, algorithm: str) -> str:
    """What the algorithm needs and the call lacks, so that MPICH would stop the program; else empty."""
    if algorithm == "noncommutative" and not is_power_of_two(call.size):
        return f"it needs a power of two of ranks, not {call.size}"
    if algorithm == "noncommutative" and len(set(call.blocks)) > 1:
        return "it needs blocks of the same size for all ranks"
    return ""
