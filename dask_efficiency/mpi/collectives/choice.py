"""Which algorithm MPICH chooses for a collective call.

References
----------
MPICH 4.0.2 with ``MPIR_CVAR_DEVICE_COLLECTIVES=none``, ``maint/tuning/coll/mpir/generic.json``; MPICH 3.2.1,
``src/mpi/coll/*.c``, whose unnamed algorithms have 4.0.2's names here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from dask_efficiency.mpi.collectives.call import Collective
from dask_efficiency.mpi.collectives.nodes import by_node
from dask_efficiency.mpi.collectives.restrictions import ALGORITHMS, aborts, falls_back
from dask_efficiency.mpi.collectives.thresholds import (
    MAX_ALLGATHER_BRUCKS_BYTES,
    MAX_ALLGATHER_RECURSIVE_DOUBLING_BYTES,
    MAX_ALLREDUCE_RECURSIVE_DOUBLING_BYTES,
    MAX_ALLTOALL_BRUCKS_BYTES,
    MAX_ALLTOALL_SCATTERED_BYTES,
    MAX_BCAST_RECURSIVE_DOUBLING_BYTES,
    MAX_REDUCE_BINOMIAL_BYTES,
    MAX_REDUCE_SCATTER_HALVING_BYTES,
    MIN_ALLTOALL_BRUCKS_RANKS,
    MIN_BCAST_SCATTER_BYTES,
    MIN_BCAST_SCATTER_RANKS,
)
from dask_efficiency.mpi.collectives.trees import is_power_of_two, power_at_most

#: MPICH's versions whose tables are known.
VERSIONS = ("3.2.1", "4.0.2")

#: What a user writes to let MPICH choose.
AUTO = "auto"


def choose(call: Collective, version: str = "4.0.2", forced: Mapping[str, str] = MappingProxyType({})) -> str:
    """The algorithm for a call.

    Parameters
    ----------
    call
        The call.
    version
        One of `VERSIONS`.
    forced
        By collective, the algorithm that the user sets (as ``MPIR_CVAR_BCAST_INTRA_ALGORITHM``), or `AUTO`. One that
        MPICH cannot use for the call is ignored where MPICH ignores it.

    Returns
    -------
    str
        One of `ALGORITHMS` of the collective.

    Raises
    ------
    ValueError
        If the version or the forced algorithm is unknown, or if MPICH would abort.
    """
    check_version(version)
    wanted = forced.get(call.name, AUTO)
    if wanted == AUTO:
        return _TABLE[call.name](call, version)
    check_algorithm(call.name, wanted)
    if falls_back(call, wanted):
        return _TABLE[call.name](call, version)
    reason = aborts(call, wanted)
    if reason:
        raise ValueError(f"{call.name} cannot use {wanted!r}: {reason}")
    return wanted


def check_version(version: str) -> None:
    """Raise a ValueError unless the version's tables are known."""
    if version not in VERSIONS:
        raise ValueError(f"MPICH {version!r} is not known; expected one of {', '.join(VERSIONS)}")


def check_algorithm(name: str, algorithm: str) -> None:
    """Raise a ValueError unless the collective exists and has the algorithm."""
    if name not in ALGORITHMS:
        raise ValueError(f"{name!r} is not a collective; expected one of {', '.join(ALGORITHMS)}")
    if algorithm not in ALGORITHMS[name]:
        expected = ", ".join((*ALGORITHMS[name], AUTO))
        raise ValueError(f"{name} has no algorithm {algorithm!r}; expected one of {expected}")


def _allgather(call: Collective, version: str) -> str:
    total = sum(call.blocks)
    if is_power_of_two(call.size) and total < MAX_ALLGATHER_RECURSIVE_DOUBLING_BYTES:
        return "recursive_doubling"
    if not is_power_of_two(call.size) and total < MAX_ALLGATHER_BRUCKS_BYTES:
        return "brucks"
    return "ring"


def _allreduce(call: Collective, version: str) -> str:
    by_nodes = call.has_shared_nodes if version == "3.2.1" else not call.nbytes
    if by_nodes and call.commutative:
        return "smp"
    short = call.nbytes <= MAX_ALLREDUCE_RECURSIVE_DOUBLING_BYTES[version]
    if short or not call.commutative or _has_few_elements(call):
        return "recursive_doubling"
    return "reduce_scatter_allgather"


def _alltoall(call: Collective, version: str) -> str:
    if call.nbytes <= MAX_ALLTOALL_BRUCKS_BYTES and call.size >= MIN_ALLTOALL_BRUCKS_RANKS[version]:
        return "brucks"
    return "scattered" if call.nbytes <= MAX_ALLTOALL_SCATTERED_BYTES else "pairwise"


def _barrier(call: Collective, version: str) -> str:
    return "smp" if call.has_shared_nodes else "dissemination"


def _bcast(call: Collective, version: str) -> str:
    is_old = version == "3.2.1"
    if call.has_shared_nodes and (is_old or not call.nbytes):
        return "smp"
    # 3.2.1 says "short" and "medium" below a threshold, 4.0.2 up to it.
    nbytes = call.nbytes + is_old
    if call.size < MIN_BCAST_SCATTER_RANKS or nbytes <= MIN_BCAST_SCATTER_BYTES:
        return "binomial"
    if is_power_of_two(call.size) and nbytes <= MAX_BCAST_RECURSIVE_DOUBLING_BYTES:
        return "scatter_recursive_doubling_allgather"
    return "scatter_ring_allgather"


def _reduce(call: Collective, version: str) -> str:
    if call.has_shared_nodes and call.commutative and (version == "3.2.1" or not call.nbytes):
        return "smp"
    if call.nbytes <= MAX_REDUCE_BINOMIAL_BYTES or not call.commutative or _has_few_elements(call):
        return "binomial"
    return "reduce_scatter_gather"


def _reduce_scatter(call: Collective, version: str) -> str:
    if call.commutative:
        return "recursive_halving" if sum(call.blocks) < MAX_REDUCE_SCATTER_HALVING_BYTES else "pairwise"
    is_regular = len(set(call.blocks)) == 1
    return "noncommutative" if is_regular and is_power_of_two(call.size) else "recursive_doubling"


def _scan(call: Collective, version: str) -> str:
    is_consecutive = call.has_shared_nodes and by_node(call.nodes).is_consecutive
    return "smp" if is_consecutive else "recursive_doubling"


def _has_few_elements(call: Collective) -> bool:
    return call.nbytes // call.element < power_at_most(call.size)


def _only(algorithm: str) -> Callable[[Collective, str], str]:
    return lambda call, version: algorithm


_TABLE: Mapping[str, Callable[[Collective, str], str]] = {
    "allgather": _allgather,
    "allgatherv": _allgather,
    "allreduce": _allreduce,
    "alltoall": _alltoall,
    "alltoallv": _only("scattered"),
    "barrier": _barrier,
    "bcast": _bcast,
    "exscan": _only("recursive_doubling"),
    "gather": _only("binomial"),
    "gatherv": _only("linear"),
    "reduce": _reduce,
    "reduce_scatter": _reduce_scatter,
    "reduce_scatter_block": _reduce_scatter,
    "scan": _scan,
    "scatter": _only("binomial"),
    "scatterv": _only("linear"),
}
