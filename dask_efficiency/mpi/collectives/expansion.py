"""Rounds of each rank of a collective call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType

from dask_efficiency.mpi.collectives import data_movement as data
from dask_efficiency.mpi.collectives import reductions, smp
from dask_efficiency.mpi.collectives.call import Collective
from dask_efficiency.mpi.collectives.choice import aborts, check_algorithm, check_version, choose, falls_back
from dask_efficiency.mpi.collectives.rounds import Round

#: Cached rounds, of one call and rank each: 64 collectives of 64 ranks. Those of an alltoall are some 40 kB.
MAX_KEPT = 1 << 12

_REDUCE_SCATTER = {
    "noncommutative": reductions.reduce_scatter_noncommutative,
    "pairwise": reductions.reduce_scatter_pairwise,
    "recursive_doubling": reductions.reduce_scatter_recursive_doubling,
    "recursive_halving": reductions.reduce_scatter_recursive_halving,
}
_SIMPLE: Mapping[tuple[str, str], Callable[[Collective, int], Iterator[Round]]] = {
    ("allgather", "brucks"): data.allgather_brucks,
    ("allgather", "recursive_doubling"): data.allgather_recursive_doubling,
    ("allgather", "ring"): data.allgather_ring,
    ("allgatherv", "brucks"): data.allgather_brucks,
    ("allgatherv", "recursive_doubling"): data.allgather_recursive_doubling,
    ("allreduce", "recursive_doubling"): reductions.allreduce_recursive_doubling,
    ("alltoall", "brucks"): data.alltoall_brucks,
    ("alltoall", "pairwise"): data.alltoall_pairwise,
    ("alltoall", "scattered"): data.alltoall_scattered,
    ("alltoallv", "scattered"): data.alltoallv_scattered,
    ("barrier", "dissemination"): data.barrier_dissemination,
    ("bcast", "binomial"): data.bcast_binomial,
    ("bcast", "scatter_recursive_doubling_allgather"): data.bcast_scatter_recursive_doubling_allgather,
    ("bcast", "scatter_ring_allgather"): data.bcast_scatter_ring_allgather,
    ("exscan", "recursive_doubling"): reductions.exscan_recursive_doubling,
    ("gather", "binomial"): data.gather_binomial,
    ("gatherv", "linear"): data.gatherv_linear,
    ("reduce", "binomial"): reductions.reduce_binomial,
    ("scan", "recursive_doubling"): reductions.scan_recursive_doubling,
    ("scatter", "binomial"): data.scatter_binomial,
    ("scatterv", "linear"): data.scatterv_linear,
    **{("reduce_scatter", algorithm): function for algorithm, function in _REDUCE_SCATTER.items()},
    **{("reduce_scatter_block", algorithm): function for algorithm, function in _REDUCE_SCATTER.items()},
}
_BY_VERSION: Mapping[tuple[str, str], Callable[[Collective, int, str], Iterator[Round]]] = {
    ("allgatherv", "ring"): data.allgatherv_ring,
    ("allreduce", "reduce_scatter_allgather"): reductions.allreduce_reduce_scatter_allgather,
    ("reduce", "reduce_scatter_gather"): reductions.reduce_reduce_scatter_gather,
}
_IN_LEVELS: Mapping[str, Callable[[Collective, int, smp.Expand], Iterator[Round]]] = {
    "allreduce": smp.allreduce_smp,
    "barrier": smp.barrier_smp,
    "reduce": smp.reduce_smp,
    "scan": smp.scan_smp,
}


def rounds_of(
    call: Collective,
    algorithm: str,
    rank: int,
    version: str = "4.0.2",
    forced: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Round, ...]:
    """Expand a collective call into the rounds of a rank, in order; none where MPICH returns at once.

    ``forced`` is for the calls inside ``smp`` algorithms. Raises ValueError for an algorithm that cannot serve the
    call.
    """
    return _rounds(call, algorithm, rank, version, tuple(sorted(forced.items())))


def _returns_at_once(call: Collective, version: str) -> bool:
    """True if MPICH sends no message: ``early_return`` in 4.0.2's ``src/binding/c/coll_api.txt``.

    It lets an empty allreduce run like any other if some ranks share a node or the operation is not commutative.
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
    if reason := falls_back(call, algorithm) or aborts(call, algorithm):
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
    return (
        smp.bcast_smp(call, rank, expand, version)
        if call.name == "bcast"
        else _IN_LEVELS[call.name](call, rank, expand)
    )
