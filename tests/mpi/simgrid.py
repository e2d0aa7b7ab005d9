"""SimGrid's replay of a trace on a network, as an oracle."""

import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from dask_efficiency.simulation.model.topology import Topology

#: Max-min sharing and latencies as they are, without SMPI's corrections for TCP, and MPI's own work taking no time.
_PLAIN = (
    "network/model:CM02",
    "network/TCP-gamma:0",
    "network/latency-factor:1",
    "network/bandwidth-factor:1",
    "network/weight-S:0",
    "network/crosstraffic:0",
    "smpi/os:0:0:0",
    "smpi/or:0:0:0",
    "smpi/ois:0:0:0",
    "smpi/test:0",
    "maxmin/precision:1e-9",
    "surf/precision:1e-9",
)


def replayed(
    trace: Path, topology: Topology, hosts: Sequence[str], folder: Path, eager: int, config: Iterable[str] = ()
) -> float:
    """Seconds that SimGrid's replay of all ranks' actions takes; a host of speed 1 does 1e9 instructions a second.

    Messages from ``eager`` bytes on wait for their receivers.
    """
    (folder / "platform.xml").write_text(_platform(topology))
    (folder / "hosts").write_text("".join(f"{host}\n" for host in hosts))
    (folder / "list").write_text(f"{trace.resolve()}\n")
    settings = (*_PLAIN, f"smpi/async-small-thresh:{eager}", f"smpi/send-is-detached-thresh:{eager}", *config)
    command = ["smpirun", "-np", str(len(hosts)), "-platform", str(folder / "platform.xml")]
    command += ["-hostfile", str(folder / "hosts"), *(f"--cfg={one}" for one in settings)]
    command += ["-replay", str(folder / "list")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=300, check=False)
    found = re.search(r"Simulation time ([0-9.e+-]+)", done.stdout + done.stderr)
    assert found, done.stderr[-2000:]
    return float(found[1])


def _platform(topology: Topology) -> str:
    """The topology as SimGrid reads it: two links for each, one for each direction, and all routes."""
    hosts = [f'<host id="{host.name}" speed="{1e9 * host.speed!r}f" core="64"/>' for host in topology.hosts]
    links = [
        f'<link id="{i}{way}" bandwidth="{bandwidth * topology.payload!r}Bps" latency="{link.latency_seconds!r}s"/>'
        for i, link in enumerate(topology.links)
        for way, bandwidth in (("forth", link.bandwidth), ("back", link.back))
    ]
    links += [
        f'<link id="{host.name}-loop" bandwidth="{host.loopback or 1e15!r}Bps" latency="0s"/>'
        for host in topology.hosts
    ]
    routes = []
    for one in topology.hosts:
        routes.append(f'<route src="{one.name}" dst="{one.name}"><link_ctn id="{one.name}-loop"/></route>')
        for other in topology.hosts:
            if one is not other:
                way = topology.route(one.name, other.name).links
                crossed = "".join(f'<link_ctn id="{i}{"forth" if forth else "back"}"/>' for i, forth in way)
                routes.append(f'<route src="{one.name}" dst="{other.name}" symmetrical="NO">{crossed}</route>')
    head = '<?xml version="1.0"?>\n<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">\n'
    lines = ['<platform version="4.1"><zone id="all" routing="Full">', *hosts, *links, *routes, "</zone></platform>"]
    return head + "\n".join(lines)


# Which of SimGrid's algorithms sends the same messages as which of MPICH's. Found by running SimGrid 3.32 with 4, 5, 6
# and 8 ranks, 37 and 1000 bytes and two roots, each selector of a collective in turn, with ``tracing/smpi/internals``:
# every rank's messages have the same peers and sizes in the same order, unless noted.

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
