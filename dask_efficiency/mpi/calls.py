"""Simulations of MPI programs: on some hosts, and on several choices of hosts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from dask_efficiency.files.text_files import TextFileError, known_names
from dask_efficiency.mpi.program import Program
from dask_efficiency.mpi.result import MpiPlacements, MpiPrediction, compared, run
from dask_efficiency.mpi.settings import EAGER_BYTES, MpiSettings
from dask_efficiency.show.progress import until_stopped
from dask_efficiency.simulation.model.cluster_file import ClusterFile, read_cluster_file
from dask_efficiency.simulation.model.hostfile import Hostfile, read_hostfile
from dask_efficiency.simulation.model.placement import PlacementError
from dask_efficiency.simulation.model.topology import Topology
from dask_efficiency.simulation.model.units import nbytes_of, shown_count


def hosts_of_ranks(topology: Topology, slots: Mapping[str, int], ranks: int) -> tuple[str, ...]:
    """The host of each rank: hosts are filled in their order, as ``mpiexec -f`` does.

    Parameters
    ----------
    topology
        What has these hosts.
    slots
        By host: how many ranks it takes.
    ranks
        How many there are.

    Raises
    ------
    PlacementError
        If there are fewer slots, or a host has fewer than it is given.
    KeyError
        If a host is unknown.

    References
    ----------
    Hydra, MPICH's process manager: blocks of a host's slots in the order of the file. We differ where there are more
    ranks than slots: it begins again with the first host, and here that is an error.
    """
    found: list[str] = []
    for name, count in slots.items():
        host = topology.host(name)
        if host is None:
            raise KeyError(f"no host {name!r} in the topology")
        if (taken := found.count(host.name) + count) > host.slots:
            raise PlacementError(
                host.name, f"{host.name!r} gets {shown_count(taken, 'rank')} and has {shown_count(host.slots, 'slot')}"
            )
        found += [host.name] * count
    if len(found) < ranks:
        raise PlacementError("", f"{shown_count(ranks, 'rank')}, and {shown_count(len(found), 'slot')}")
    return tuple(found[:ranks])


def read_hosts_of_ranks(topology: Topology, path: str | os.PathLike[str], ranks: int) -> tuple[str, ...]:
    """The host of each rank, as a hostfile says.

    Raises
    ------
    TextFileError
        With the line that names a host that is not there, or if the slots are too few.
    OSError
        If the file cannot be read.
    """
    hostfile: Hostfile = read_hostfile(path)
    for name, line in hostfile.lines.items():
        if topology.host(name) is None:
            known = known_names(name, [host.name for host in topology.hosts])
            raise TextFileError(path, line, f"no host {name!r} in the cluster; {known}")
    try:
        return hosts_of_ranks(topology, hostfile.slots, ranks)
    except PlacementError as error:
        raise TextFileError(path, 0, str(error)) from error


def simulate(
    program: Program,
    cluster: str | os.PathLike[str],
    hostfile: str | os.PathLike[str] | None = None,
    *,
    mpich: str = "4.0.2",
    algorithms: Mapping[str, str] | None = None,
    eager: int | str = EAGER_BYTES,
    overhead_seconds: float = 0.0,
    instructions_per_second: float = 0.0,
) -> MpiPrediction:
    """What a recorded MPI program would take on the hosts of a cluster.

    Parameters
    ----------
    program
        What :func:`~dask_efficiency.mpi.load_trace` read.
    cluster
        A file that describes hosts, switches and links, as
        :meth:`ClusterSpec.from_file <dask_efficiency.ClusterSpec.from_file>` reads it.
    hostfile
        Which hosts run how many ranks, as ``mpiexec -f`` takes it: hosts are filled in their order. By default all
        hosts, with their slots.
    mpich
        The version whose choice of algorithms for collectives is followed: ``"3.2.1"`` or ``"4.0.2"``.
    algorithms
        By collective: an algorithm instead of MPICH's choice, such as ``{"bcast": "binomial"}``.
    eager
        Smaller messages go at once, others when their receiver has asked: bytes, or text such as ``"64 KiB"``.
    overhead_seconds
        That each message takes its sender, and its receiver.
    instructions_per_second
        Of a host of speed 1; 0 takes the trace's.

    Returns
    -------
    MpiPrediction
        It shows itself.

    Raises
    ------
    TextFileError
        With the line of a file that cannot be understood, a host that is not there, or too few slots.
    MpiTraceError
        If ranks wait for one another for ever.
    ValueError
        If an algorithm or a version does not exist.

    References
    ----------
    Casanova, Giersch, Legrand, Quinson, Suter: Versatile, Scalable, and Accurate Simulation of Distributed Applications
    and Platforms, JPDC 2014, whose SMPI replays the same traces. We differ: MPICH's own tables choose the algorithms.
    """
    found = read_cluster_file(cluster)
    settings = _settings(mpich, algorithms, eager, overhead_seconds, instructions_per_second)
    return _simulated(program, found, hostfile, settings)


def place(
    program: Program,
    cluster: str | os.PathLike[str],
    hostfiles: Sequence[str | os.PathLike[str]],
    *,
    mpich: str = "4.0.2",
    algorithms: Mapping[str, str] | None = None,
    eager: int | str = EAGER_BYTES,
    overhead_seconds: float = 0.0,
    instructions_per_second: float = 0.0,
) -> MpiPlacements:
    """Which hosts are the best for a recorded MPI program, by how much and why.

    Parameters
    ----------
    program, cluster, mpich, algorithms, eager, overhead_seconds, instructions_per_second
        As of :func:`simulate`.
    hostfiles
        The choices.

    Returns
    -------
    MpiPlacements
        It shows itself, the fastest first. Ctrl-C ends it early, with the placements that were simulated by then;
        ``not_simulated`` has the others.

    Raises
    ------
    ValueError
        If there is no hostfile; and whatever :func:`simulate` refuses.
    """
    if isinstance(hostfiles, str | os.PathLike):
        hostfiles = (hostfiles,)
    if not hostfiles:
        raise ValueError("hostfiles is empty; expected at least one placement")
    found = read_cluster_file(cluster)
    settings = _settings(mpich, algorithms, eager, overhead_seconds, instructions_per_second)
    # All are read before the first is simulated.
    placed = {os.fspath(path): read_hosts_of_ranks(found.topology, path, program.size) for path in hostfiles}
    short = {name: Path(name).name for name in placed}
    runs = until_stopped(
        lambda name: run(program, found.topology, placed[name], settings, short[name]), list(placed), "placements"
    )
    return compared(runs, tuple(short.values())[len(runs) :])


def _simulated(
    program: Program, cluster: ClusterFile, hostfile: str | os.PathLike[str] | None, settings: MpiSettings
) -> MpiPrediction:
    if hostfile is None:
        slots = {host.name: cluster.workers[host.name] for host in cluster.topology.hosts}
        hosts, name = hosts_of_ranks(cluster.topology, slots, program.size), ""
    else:
        hosts, name = read_hosts_of_ranks(cluster.topology, hostfile, program.size), Path(hostfile).name
    return run(program, cluster.topology, hosts, settings, name)


def _settings(
    mpich: str,
    algorithms: Mapping[str, str] | None,
    eager: int | str,
    overhead_seconds: float,
    instructions_per_second: float,
) -> MpiSettings:
    return MpiSettings(
        mpich,
        dict(algorithms or {}),
        nbytes_of(eager) if isinstance(eager, str) else eager,
        overhead_seconds=overhead_seconds,
        instructions_per_second=instructions_per_second,
    )
