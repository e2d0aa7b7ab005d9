"""Rounds of each rank of a collective call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from dask_efficiency.mpi.collectives import choice, data_movement, reductions, smp
from dask_efficiency.mpi.collectives.call import Collective
from dask_efficiency.mpi.collectives.rounds import Round

#: Cached rounds, of one call and rank each: 64 collectives of 64 ranks. Those of an alltoall are some 40 kB.
MAX_KEPT = 1 << 12

#: Collectives of blocks of one size and of several that share an algorithm.
_SHARED = {
    ("alltoall", "scattered"): "alltoallv",
    ("allgatherv", "brucks"): "allgather",
    ("allgatherv", "recursive_doubling"): "allgather",
    **{("reduce_scatter_block", algorithm): "reduce_scatter" for algorithm in choice.ALGORITHMS["reduce_scatter"]},
}

#: Algorithms that differ between versions of MPICH.
_BY_VERSION = {
    ("allgatherv", "ring"),
    ("allreduce", "reduce_scatter_allgather"),
    ("reduce", "reduce_scatter_gather"),
    ("bcast", "smp"),
}

_FUNCTIONS = {**vars(data_movement), **vars(reductions), **vars(smp)}

#: Functions of all algorithms, which are called as the algorithm of the collective.
_EXPANDS: Mapping[tuple[str, str], Callable[..., Iterator[Round]]] = {
    (name, how): _FUNCTIONS[f"{_SHARED.get((name, how), name)}_{how}"]
    for name, algorithms in choice.ALGORITHMS.items()
    for how in algorithms
}


def rounds_of(
    call: Collective,
    algorithm: str,
    rank: int,
    version: str = "4.0.2",
    forced: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Round, ...]:
    """Expand a call, which the algorithm can serve, into the rounds of a rank; ``forced`` is for calls inside."""
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
    return () if _returns_at_once(call, version) else tuple(_expanded(call, algorithm, rank, version, dict(forced)))


def _expanded(call: Collective, algorithm: str, rank: int, version: str, forced: Mapping[str, str]) -> Iterator[Round]:
    def expand(part: Collective, place: int) -> Iterable[Round]:
        return _expanded(part, choice.choose(part, version, forced), place, version, forced)

    if algorithm == "smp" and not call.has_shared_nodes:
        # 4.0.2 takes this algorithm for an empty allreduce even without shared nodes, where it sends no message.
        return iter(())
    key = (call.name, algorithm)
    more: tuple[Any, ...] = (expand,) if algorithm == "smp" else ()
    return _EXPANDS[key](call, rank, *more, *((version,) if key in _BY_VERSION else ()))
