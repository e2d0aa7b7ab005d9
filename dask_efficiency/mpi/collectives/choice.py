"""The algorithm that MPICH chooses for a collective call: its thresholds, and the calls that an algorithm cannot serve.

Source: MPICH 4.0.2 with ``MPIR_CVAR_DEVICE_COLLECTIVES=none``: ``maint/tuning/coll/mpir/generic.json``,
``src/mpi/coll/cvars.txt``, ``src/mpi/coll/coll_algorithms.txt`` (what falls back) and the assertions of
``src/mpi/coll/*/*_intra_*.c`` (what aborts). MPICH 3.2.1: ``src/mpi/coll/*.c``, whose unnamed algorithms have 4.0.2's
names here. Thresholds are equal in both unless noted. Left out: ``nb``, the nonblocking forms, and
``pairwise_sendrecv_replace``, for data in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from dask_efficiency.mpi.collectives.call import Collective
from dask_efficiency.mpi.collectives.trees import by_node, is_power_of_two, power_at_most

#: ``MPIR_CVAR_BCAST_SHORT_MSG_SIZE``: a broadcast of at least this size scatters; in 4.0.2 a larger one.
MIN_BCAST_SCATTER_BYTES = 12_288
#: ``MPIR_CVAR_BCAST_LONG_MSG_SIZE``: below it (in 4.0.2 up to it) a broadcast to a power of two of ranks doubles.
MAX_BCAST_RECURSIVE_DOUBLING_BYTES = 524_288
#: ``MPIR_CVAR_BCAST_MIN_PROCS``: fewer ranks never scatter.
MIN_BCAST_SCATTER_RANKS = 8
#: ``MPIR_CVAR_REDUCE_SHORT_MSG_SIZE``: a reduce up to this size takes the tree.
MAX_REDUCE_BINOMIAL_BYTES = 2048
#: An allreduce up to this doubles: ``MPIR_CVAR_ALLREDUCE_SHORT_MSG_SIZE`` of 3.2.1, ``avg_msg_size<=8`` of 4.0.2.
MAX_ALLREDUCE_RECURSIVE_DOUBLING_BYTES = {"3.2.1": 2048, "4.0.2": 8}
#: ``MPIR_CVAR_ALLGATHER_LONG_MSG_SIZE``, of all blocks: below it a power of two of ranks doubles.
MAX_ALLGATHER_RECURSIVE_DOUBLING_BYTES = 524_288
#: ``MPIR_CVAR_ALLGATHER_SHORT_MSG_SIZE``, of all blocks: below it other numbers of ranks take Bruck's algorithm.
MAX_ALLGATHER_BRUCKS_BYTES = 81_920
#: ``MPIR_CVAR_ALLTOALL_SHORT_MSG_SIZE``, of a block: up to it many ranks take Bruck's algorithm.
MAX_ALLTOALL_BRUCKS_BYTES = 256
#: Fewest ranks that take Bruck's algorithm. 4.0.2 evaluates its ``comm_size<8`` as "at most 8" here: the condition
#: comes after one on the call (in place or not), so it is evaluated for each call, which compares with ``<=``
#: (``src/mpi/coll/src/csel.c``).
MIN_ALLTOALL_BRUCKS_RANKS = {"3.2.1": 8, "4.0.2": 9}
#: ``MPIR_CVAR_ALLTOALL_MEDIUM_MSG_SIZE``, of a block: up to it all messages are posted at once.
MAX_ALLTOALL_SCATTERED_BYTES = 32_768
#: ``MPIR_CVAR_REDSCAT_COMMUTATIVE_LONG_MSG_SIZE``, of all blocks: below it a reduce-scatter halves.
MAX_REDUCE_SCATTER_HALVING_BYTES = 524_288

_REDUCE_SCATTER = ("noncommutative", "pairwise", "recursive_doubling", "recursive_halving")

#: Algorithms of each collective.
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
_NEEDS_ELEMENTS = {("allreduce", "reduce_scatter_allgather"), ("reduce", "reduce_scatter_gather")}
_NEEDS_COMMUTATIVE = {
    *_NEEDS_ELEMENTS,
    *((name, "smp") for name in ("allreduce", "reduce")),
    *((f"reduce_scatter{form}", how) for form in ("", "_block") for how in ("pairwise", "recursive_halving")),
}

#: Known versions of MPICH.
VERSIONS = ("3.2.1", "4.0.2")
#: Lets MPICH choose.
AUTO = "auto"


def falls_back(call: Collective, algorithm: str) -> bool:
    """True if MPICH ignores the algorithm for this call and chooses one."""
    key = (call.name, algorithm)
    return (
        (key in _NEEDS_POWER_OF_TWO and not is_power_of_two(call.size))
        or (key in _NEEDS_COMMUTATIVE and not call.commutative)
        or (key in _NEEDS_ELEMENTS and _has_few_elements(call))
        or (algorithm == "smp" and not call.has_shared_nodes)
        or (key == ("scan", "smp") and not by_node(call.nodes).is_consecutive)
        or (call.name == "reduce_scatter_block" and aborts(call, algorithm) != "")
    )


def aborts(call: Collective, algorithm: str) -> str:
    """Reason why MPICH aborts if the algorithm is set for this call; empty if it does not."""
    if algorithm == "noncommutative" and not is_power_of_two(call.size):
        return f"it needs a power of two of ranks, not {call.size}"
    if algorithm == "noncommutative" and len(set(call.blocks)) > 1:
        return "it needs blocks of the same size for all ranks"
    return ""


def choose(call: Collective, version: str = "4.0.2", forced: Mapping[str, str] = MappingProxyType({})) -> str:
    """Choose the algorithm for a call, or take the one that is forced, if MPICH would not ignore it for the call.

    Raises ValueError if MPICH would abort.
    """
    wanted = forced.get(call.name, AUTO)
    if wanted != AUTO and not falls_back(call, wanted):
        if reason := aborts(call, wanted):
            raise ValueError(f"{call.name} cannot use {wanted!r}: {reason}")
        return wanted
    if len(ALGORITHMS[call.name]) == 1:
        return ALGORITHMS[call.name][0]
    return _CHOICES[call.name](call, version)


def check_version(version: str) -> None:
    """Raise a ValueError for an unknown version."""
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


def _bcast(call: Collective, version: str) -> str:
    is_old = version == "3.2.1"
    if call.has_shared_nodes and (is_old or not call.nbytes):
        return "smp"
    # sizes are "short" and "medium" below a threshold in 3.2.1, and up to it in 4.0.2
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


_CHOICES: Mapping[str, Callable[[Collective, str], str]] = {
    "allgather": _allgather,
    "allgatherv": _allgather,
    "allreduce": _allreduce,
    "alltoall": _alltoall,
    "barrier": lambda call, version: "smp" if call.has_shared_nodes else "dissemination",
    "bcast": _bcast,
    "reduce": _reduce,
    "reduce_scatter": _reduce_scatter,
    "reduce_scatter_block": _reduce_scatter,
    "scan": _scan,
}
