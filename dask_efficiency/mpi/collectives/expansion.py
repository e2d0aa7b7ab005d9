"""Rounds of each rank of a collective call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType

from dask_efficiency.mpi.collectives.call import Collective
from dask_efficiency.mpi.collectives.choice import aborts, check_algorithm, check_version, choose, falls_back
from dask_efficiency.mpi.collectives.data_movement import (
    allgather_brucks,
    allgather_recursive_doubling,
    allgather_ring,
    allgatherv_ring,
    alltoall_brucks,
    alltoall_pairwise,
    alltoall_scattered,
    alltoallv_scattered,
    barrier_dissemination,
    bcast_binomial,
    bcast_scatter_recursive_doubling_allgather,
    bcast_scatter_ring_allgather,
    gather_binomial,
    gatherv_linear,
    scatter_binomial,
    scatterv_linear,
)
from dask_efficiency.mpi.collectives.reductions import (
    allreduce_recursive_doubling,
    allreduce_reduce_scatter_allgather,
    exscan_recursive_doubling,
    reduce_binomial,
    reduce_reduce_scatter_gather,
    reduce_scatter_noncommutative,
    reduce_scatter_pairwise,
    reduce_scatter_recursive_doubling,
    reduce_scatter_recursive_halving,
    scan_recursive_doubling,
)
from dask_efficiency.mpi.collectives.rounds import Round
from dask_efficiency.mpi.collectives.smp import Expand, allreduce_smp, barrier_smp, bcast_smp, reduce_smp, scan_smp

#: Cached rounds, of one call and rank each: 64 collectives of 64 ranks. Those of an alltoall are some 40 kB.
MAX_KEPT = 1 << 12


_SIMPLE: dict[tuple[str, str], Callable[[Collective, int], Iterator[Round]]] = {
    ("allgather", "brucks"): allgather_brucks,
    ("allgather", "recursive_doubling"): allgather_recursive_doubling,
    ("allgather", "ring"): allgather_ring,
    ("allgatherv", "brucks"): allgather_brucks,
    ("allgatherv", "recursive_doubling"): allgather_recursive_doubling,
    ("allreduce", "recursive_doubling"): allreduce_recursive_doubling,
    ("alltoall", "brucks"): alltoall_brucks,
    ("alltoall", "pairwise"): alltoall_pairwise,
    ("alltoall", "scattered"): alltoall_scattered,
    ("alltoallv", "scattered"): alltoallv_scattered,
    ("barrier", "dissemination"): barrier_dissemination,
    ("bcast", "binomial"): bcast_binomial,
    ("bcast", "scatter_recursive_doubling_allgather"): bcast_scatter_recursive_doubling_allgather,
    ("bcast", "scatter_ring_allgather"): bcast_scatter_ring_allgather,
    ("exscan", "recursive_doubling"): exscan_recursive_doubling,
    ("gather", "binomial"): gather_binomial,
    ("gatherv", "linear"): gatherv_linear,
    ("reduce", "binomial"): reduce_binomial,
    ("scan", "recursive_doubling"): scan_recursive_doubling,
    ("scatter", "binomial"): scatter_binomial,
    ("scatterv", "linear"): scatterv_linear,
}
_BY_VERSION: Mapping[tuple[str, str], Callable[[Collective, int, str], Iterator[Round]]] = {
    ("allgatherv", "ring"): allgatherv_ring,
    ("allreduce", "reduce_scatter_allgather"): allreduce_reduce_scatter_allgather,
    ("reduce", "reduce_scatter_gather"): reduce_reduce_scatter_gather,
}
_IN_LEVELS: Mapping[tuple[str, str], Callable[[Collective, int, Expand], Iterator[Round]]] = {
    ("allreduce", "smp"): allreduce_smp,
    ("barrier", "smp"): barrier_smp,
    ("reduce", "smp"): reduce_smp,
    ("scan", "smp"): scan_smp,
}


def rounds_of(
    call: Collective,
    algorithm: str,
    rank: int,
    version: str = "4.0.2",
    forced: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Round, ...]:
    """Expand a collective call into the rounds of a rank.

    Parameters
    ----------
    call
        The call.
    algorithm
        One of `ALGORITHMS` of the collective, such as `choose` returns.
    rank
        From 0 to the number of ranks - 1.
    version
        One of `VERSIONS`, as some algorithms cut the data differently.
    forced
        See `choose`; for the calls inside ``smp`` algorithms.

    Returns
    -------
    tuple of Round
        In order; empty where MPICH returns at once. Data that a rank sends to itself are no message.

    Raises
    ------
    ValueError
        If the rank, version or algorithm does not exist, or if the algorithm cannot serve the call.
    """
    return _rounds(call, algorithm, rank, version, tuple(sorted(forced.items())))


def _returns_at_once(call: Collective, version: str) -> bool:
    """True if MPICH sends no message.

    References
    ----------
    4.0.2, ``early_return`` in ``src/binding/c/coll_api.txt``. It lets an empty allreduce run like any other if some
    ranks share a node or the operation is not commutative.
    """
    if call.size == 1:
        return True
    if call.nbytes or call.name == "barrier":
        return False
    return call.name != "allreduce" or version == "3.2.1" or (call.commutative and not call.has_shared_nodes)


@lru_cache(maxsize=MAX_KEPT)
def _rounds(
    call: Collective, algorithm: str, rank: int, version: str, forced: tuple[tuple[str, str], ...]
) -> tuple[Round, ...]:
    check_version(version)
    check_algorithm(call.name, algorithm)
    if not 0 <= rank < call.size:
        raise ValueError(f"{call.name} of {call.size} ranks has no rank {rank}")
    if _returns_at_once(call, version):
        return ()
    reason = falls_back(call, algorithm) or aborts(call, algorithm)
    if reason:
        raise ValueError(f"{call.name} cannot use {algorithm!r}: {reason}")
    return tuple(_expanded(call, algorithm, rank, version, dict(forced)))


def _expanded(call: Collective, algorithm: str, rank: int, version: str, forced: Mapping[str, str]) -> Iterator[Round]:
    key = (call.name, algorithm)
    if key in _SIMPLE:
        return _SIMPLE[key](call, rank)
    if key in _BY_VERSION:
        return _BY_VERSION[key](call, rank, version)

    def expand(part: Collective, place: int) -> Iterable[Round]:
        return _expanded(part, choose(part, version, forced), place, version, forced)

    if not call.has_shared_nodes:
        # 4.0.2 takes this algorithm for an empty allreduce even without shared nodes, where it sends no message.
        return iter(())
    if key == ("bcast", "smp"):
        return bcast_smp(call, rank, expand, version)
    return _IN_LEVELS[key](call, rank, expand)


for _name in ("reduce_scatter", "reduce_scatter_block"):
    _SIMPLE[_name, "noncommutative"] = reduce_scatter_noncommutative
    _SIMPLE[_name, "pairwise"] = reduce_scatter_pairwise
    _SIMPLE[_name, "recursive_doubling"] = reduce_scatter_recursive_doubling
    _SIMPLE[_name, "recursive_halving"] = reduce_scatter_recursive_halving
