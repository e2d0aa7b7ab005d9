import pytest

from dask_efficiency.mpi.collectives.call import Collective
from dask_efficiency.mpi.collectives.choice import ALGORITHMS, VERSIONS, choose
from tests.mpi.collectives.recorder.record import number_of_sizes

BOTH = ("3.2.1", "4.0.2")
OLD = ("3.2.1",)
NEW = ("4.0.2",)
RDA, RING = "scatter_recursive_doubling_allgather", "scatter_ring_allgather"

#: Collective, bytes (of the one size), ranks, versions, algorithm; each rank on a node of its own.
TABLE = [
    ("bcast", 1 << 20, 7, BOTH, "binomial"),
    ("bcast", 12_287, 8, BOTH, "binomial"),
    ("bcast", 12_288, 8, NEW, "binomial"),
    ("bcast", 12_288, 8, OLD, RDA),
    ("bcast", 12_289, 8, BOTH, RDA),
    ("bcast", 524_287, 64, BOTH, RDA),
    ("bcast", 524_288, 64, NEW, RDA),
    ("bcast", 524_288, 64, OLD, RING),
    ("bcast", 524_289, 64, BOTH, RING),
    ("bcast", 12_288, 9, NEW, "binomial"),
    ("bcast", 12_288, 9, OLD, RING),
    ("bcast", 12_289, 9, BOTH, RING),
    ("reduce", 2048, 8, BOTH, "binomial"),
    ("reduce", 2049, 8, BOTH, "reduce_scatter_gather"),
    ("reduce", 2049, 2, BOTH, "reduce_scatter_gather"),
    ("allreduce", 8, 8, BOTH, "recursive_doubling"),
    ("allreduce", 9, 8, NEW, "reduce_scatter_allgather"),
    ("allreduce", 9, 8, OLD, "recursive_doubling"),
    ("allreduce", 9, 16, NEW, "recursive_doubling"),
    ("allreduce", 9, 15, NEW, "reduce_scatter_allgather"),
    ("allreduce", 2048, 8, OLD, "recursive_doubling"),
    ("allreduce", 2049, 8, BOTH, "reduce_scatter_allgather"),
    ("allgather", 65_535, 8, BOTH, "recursive_doubling"),
    ("allgather", 65_536, 8, BOTH, "ring"),
    ("allgather", 8191, 10, BOTH, "brucks"),
    ("allgather", 8192, 10, BOTH, "ring"),
    ("alltoall", 256, 7, BOTH, "scattered"),
    ("alltoall", 256, 8, OLD, "brucks"),
    ("alltoall", 256, 8, NEW, "scattered"),
    ("alltoall", 256, 9, BOTH, "brucks"),
    ("alltoall", 257, 9, BOTH, "scattered"),
    ("alltoall", 32_768, 64, BOTH, "scattered"),
    ("alltoall", 32_769, 64, BOTH, "pairwise"),
    ("alltoall", 32_769, 3, BOTH, "pairwise"),
    ("reduce_scatter_block", 52_428, 10, BOTH, "recursive_halving"),
    ("reduce_scatter_block", 52_429, 10, BOTH, "pairwise"),
    ("gather", 1 << 20, 10, BOTH, "binomial"),
    ("scatter", 1 << 20, 10, BOTH, "binomial"),
    ("scan", 8, 10, BOTH, "recursive_doubling"),
    ("exscan", 8, 10, BOTH, "recursive_doubling"),
]


@pytest.mark.parametrize(("name", "nbytes", "size", "versions", "algorithm"), TABLE)
def test_mpich_chooses(name: str, nbytes: int, size: int, versions: tuple[str, ...], algorithm: str) -> None:
    for version in versions:
        assert choose(Collective(name, size, (nbytes,)), version) == algorithm


#: Two nodes of two ranks, one after the other.
NODES = (0, 0, 1, 1)

#: Calls for which both versions choose the same: vectors by the sum of their sizes; no vector of fewer elements than
#: ranks is cut; no operation that is not commutative is reordered; barriers and scans know nodes.
CALLS = [
    (Collective("allgatherv", 4, (0, 0, 0, 524_287)), "recursive_doubling"),
    (Collective("allgatherv", 4, (0, 0, 0, 524_288)), "ring"),
    (Collective("allgatherv", 3, (0, 0, 81_919)), "brucks"),
    (Collective("allgatherv", 3, (0, 0, 81_920)), "ring"),
    (Collective("reduce_scatter", 3, (0, 0, 524_287)), "recursive_halving"),
    (Collective("reduce_scatter", 3, (0, 0, 524_288)), "pairwise"),
    (Collective("alltoallv", 2, (0, 1, 2, 3)), "scattered"),
    (Collective("gatherv", 2, (0, 1)), "linear"),
    (Collective("scatterv", 2, (0, 1)), "linear"),
    (Collective("reduce", 15, (7 * 1024,), element=1024), "binomial"),
    (Collective("reduce", 15, (8 * 1024,), element=1024), "reduce_scatter_gather"),
    (Collective("allreduce", 15, (7 * 1024,), element=1024), "recursive_doubling"),
    (Collective("allreduce", 15, (8 * 1024,), element=1024), "reduce_scatter_allgather"),
    (Collective("reduce", 4, (1 << 20,), nodes=NODES, commutative=False), "binomial"),
    (Collective("allreduce", 4, (1 << 20,), nodes=NODES, commutative=False), "recursive_doubling"),
    (Collective("reduce_scatter_block", 4, (8,), nodes=NODES, commutative=False), "noncommutative"),
    (Collective("reduce_scatter_block", 6, (8,), commutative=False), "recursive_doubling"),
    (Collective("reduce_scatter", 4, (8, 8, 8, 8), nodes=NODES, commutative=False), "noncommutative"),
    (Collective("reduce_scatter", 4, (8, 8, 8, 9), nodes=NODES, commutative=False), "recursive_doubling"),
    (Collective("barrier", 4, nodes=NODES), "smp"),
    (Collective("barrier", 4, nodes=(0, 1, 2, 3)), "dissemination"),
    (Collective("barrier", 4), "dissemination"),
    (Collective("scan", 4, (8,), nodes=NODES), "smp"),
    (Collective("scan", 4, (8,), nodes=(0, 1, 0, 1)), "recursive_doubling"),
]


@pytest.mark.parametrize(("call", "algorithm"), CALLS)
@pytest.mark.parametrize("version", VERSIONS)
def test_both_versions_choose_the_same(call: Collective, algorithm: str, version: str) -> None:
    assert choose(call, version) == algorithm


@pytest.mark.parametrize("name", ["bcast", "reduce", "allreduce"])
def test_3_2_1_knows_nodes_for_all_sizes_and_4_0_2_does_not(name: str) -> None:
    call = Collective(name, 4, (1 << 20,), nodes=NODES)
    assert choose(call, "3.2.1") == "smp"
    assert choose(call, "4.0.2") != "smp"
    assert choose(Collective(name, 4, (1 << 20,), nodes=(3, 2, 1, 0)), "3.2.1") != "smp"


def test_a_forced_algorithm_is_taken() -> None:
    for name, algorithms in ALGORITHMS.items():
        call = Collective(name, 4, (64,) * number_of_sizes(name, 4), nodes=NODES)
        for algorithm in algorithms:
            assert choose(call, forced={name: algorithm, "other": "ignored"}) == algorithm
        assert choose(call, forced={name: "auto"}) == choose(call)


def test_a_forced_algorithm_that_cannot_serve_falls_back_as_in_mpich() -> None:
    for call, forced in (
        (Collective("allgather", 6, (8,)), "recursive_doubling"),
        (Collective("bcast", 6, (8,)), "smp"),
        (Collective("reduce", 6, (3000,), element=1000), "reduce_scatter_gather"),
        (Collective("reduce_scatter_block", 6, (8,)), "noncommutative"),
        (Collective("reduce_scatter", 6, (8,) * 6, commutative=False), "recursive_halving"),
    ):
        assert choose(call, forced={call.name: forced}) == choose(call)


def test_an_algorithm_for_commutative_operations_falls_back_for_others() -> None:
    for name, algorithms in {
        "allreduce": ("reduce_scatter_allgather", "smp"),
        "reduce": ("reduce_scatter_gather", "smp"),
        "reduce_scatter": ("pairwise", "recursive_halving"),
        "reduce_scatter_block": ("pairwise", "recursive_halving"),
    }.items():
        call = Collective(name, 4, (64,) * (4 if name == "reduce_scatter" else 1), nodes=NODES, commutative=False)
        for algorithm in algorithms:
            assert choose(call, forced={name: algorithm}) == choose(call) != algorithm


def test_mpich_would_abort_where_it_does_not_fall_back() -> None:
    says = "reduce_scatter cannot use 'noncommutative': it needs a power of two of ranks, not 6"
    with pytest.raises(ValueError, match=says):
        choose(Collective("reduce_scatter", 6, (8,) * 6), forced={"reduce_scatter": "noncommutative"})
