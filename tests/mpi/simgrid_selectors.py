"""Which of SimGrid's algorithms sends the same messages as which of MPICH's.

Found by running SimGrid 3.32 with 4, 5, 6 and 8 ranks, 37 and 1000 bytes and two roots, each selector of a collective
in turn, with ``tracing/smpi/internals``: every rank's messages have the same peers and sizes in the same order, unless
noted.
"""

from collections.abc import Mapping

#: By collective and MPICH's algorithm, the value of SimGrid's option ``smpi/<collective>``. Where MPICH's algorithm is
#: one for powers of two of ranks only, so is the comparison.
#:
#: - ``reduce_scatter_allgather`` and ``reduce_scatter_gather`` cut the vector as version 3.2.1 does. 4.0.2's are equal
#:   where the elements divide evenly by the power of two at or below the number of ranks.
#: - SimGrid's ``ompi_binomial`` scatters to small subtrees first, MPICH to large ones: same messages, another order.
#: - ``basic_linear`` and ``ompi_basic_linear`` post all peers at once, MPICH 32, itself among them: equal up to 32
#:   ranks. In ``alltoallv`` SimGrid posts by rank, MPICH by distance, and SimGrid sends empty messages, too.
#:   (``mvapich2_scatter_dest``, and ``bruck`` of ``alltoallv``, which is none, post 4 at once.)
#: - ``mpich_noncomm`` was read, not run: it needs blocks of one size and a power of two of ranks.
#: - SimGrid sends what a rank keeps as a message to itself in ``pair`` and ``ring`` of ``alltoall`` and before
#:   ``scatter_gather``.
SELECTORS: Mapping[tuple[str, str], str] = {
    ("allgather", "brucks"): "bruck",
    ("allgather", "recursive_doubling"): "rdb",
    ("allgather", "ring"): "NTSLR",
    ("allgatherv", "brucks"): "ompi_bruck",
    ("allgatherv", "recursive_doubling"): "mpich_rdb",
    ("allgatherv", "ring"): "mpich_ring",
    ("allreduce", "recursive_doubling"): "rdb",
    ("allreduce", "reduce_scatter_allgather"): "rab_rdb",
    ("alltoall", "brucks"): "bruck",
    ("alltoall", "scattered"): "basic_linear",
    ("alltoallv", "scattered"): "ompi_basic_linear",
    ("barrier", "dissemination"): "ompi_bruck",
    ("bcast", "binomial"): "binomial_tree",
    ("bcast", "scatter_recursive_doubling_allgather"): "scatter_rdb_allgather",
    ("bcast", "scatter_ring_allgather"): "scatter_LR_allgather",
    ("gather", "binomial"): "ompi_binomial",
    ("reduce", "binomial"): "binomial",
    ("reduce", "reduce_scatter_gather"): "scatter_gather",
    ("reduce_scatter", "noncommutative"): "mpich_noncomm",
    ("reduce_scatter", "pairwise"): "mpich_pair",
    ("reduce_scatter", "recursive_doubling"): "mpich_rdb",
    ("reduce_scatter", "recursive_halving"): "ompi_basic_recursivehalving",
    ("scatter", "binomial"): "ompi_binomial",
}

#: SimGrid has two algorithms for MPICH's ``pairwise`` of ``alltoall``: for powers of two of ranks, and for others.
ALLTOALL_PAIRWISE = {True: "pair", False: "ring"}

#: What SimGrid has one algorithm for, and MPICH the same: it needs no option.
ALWAYS_EQUAL = {("gatherv", "linear"), ("scatterv", "linear")}


def options(collective: str, algorithm: str, size: int) -> list[str]:
    """Arguments of ``smpirun`` that make SimGrid use MPICH's algorithm.

    It has none for ``scan``, ``exscan``, ``reduce_scatter_block``, and ``smp`` of any, which is a KeyError.
    """
    key = (collective, algorithm)
    if key in ALWAYS_EQUAL:
        return []
    is_pairwise = key == ("alltoall", "pairwise")
    selector = ALLTOALL_PAIRWISE[not size & (size - 1)] if is_pairwise else SELECTORS[key]
    return [f"--cfg=smpi/{collective}:{selector}"]
