"""Simulations of MPI programs: on some hosts, and on several choices of hosts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from dask_efficiency.files.text_files import TextFileError
from dask_efficiency.mpi.machine import EAGER_BYTES, MpiSettings
from dask_efficiency.mpi.program import Program
from dask_efficiency.mpi.result import MpiPlacements, MpiPrediction, run
from dask_efficiency.show.figures import format_count
from dask_efficiency.show.progress import until_stopped
from dask_efficiency.simulation.model.cluster_file import read_cluster_file
from dask_efficiency.simulation.model.placement import PlacementError, read_hostfile_of
from dask_efficiency.simulation.model.topology import Topology
from dask_efficiency.simulation.model.units import parse_nbytes


def hosts_of_ranks(topology: Topology, slots: Mapping[str, int], ranks: int) -> tuple[str, ...]:
    """Place ranks on hosts, which are filled in their order, as by ``mpiexec -f``; ``slots`` has ranks by host."""
    hosts: list[str] = []
    for name, count in slots.items():
        host = topology.known_host(name)
        if (taken := hosts.count(host.name) + count) > host.slots:
            few = f"{host.name!r} gets {format_count(taken, 'rank')} and has {format_count(host.slots, 'slot')}"
            raise PlacementError(host.name, few)
        hosts += [host.name] * count
    if len(hosts) < ranks:
        raise PlacementError("", f"{format_count(ranks, 'rank')}, and {format_count(len(hosts), 'slot')}")
    return tuple(hosts[:ranks])


def read_hosts_of_ranks(topology: Topology, path: str | os.PathLike[str], ranks: int) -> tuple[str, ...]:
    """Place ranks by a hostfile; TextFileError has the line of an unknown host, or that there are too few slots."""
    try:
        return hosts_of_ranks(topology, read_hostfile_of(topology, path).slots, ranks)
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
    """Simulate a recorded MPI program on the hosts of a cluster.

    Parameters
    ----------
    program
        Result of :func:`~dask_efficiency.mpi.load_trace`.
    cluster
        A file that describes hosts, switches and links, as
        :meth:`ClusterSpec.from_file <dask_efficiency.ClusterSpec.from_file>` reads it.
    hostfile
        Hosts and their numbers of ranks, as for ``mpiexec -f``: hosts are filled in their order. By default all hosts
        with all their slots.
    mpich
        Version of MPICH that chooses the algorithms of collectives: ``"3.2.1"`` or ``"4.0.2"``.
    algorithms
        Algorithms by collective instead of MPICH's choice, such as ``{"bcast": "binomial"}``.
    eager
        Smaller messages are sent at once, others when their receiver is ready: bytes, or text such as ``"64 KiB"``.
    overhead_seconds
        Time of sender and of receiver for each message.
    instructions_per_second
        Of a host of speed 1; 0 means the trace's.

    Returns
    -------
    MpiPrediction
        Its makespan, critical path, and use of ranks and links.

    Raises
    ------
    TextFileError
        With the line of a file that cannot be read, an unknown host, or too few slots.
    MpiTraceError
        If ranks deadlock.
    ValueError
        If an algorithm or version does not exist.

    References
    ----------
    Casanova, Giersch, Legrand, Quinson, Suter: Versatile, Scalable, and Accurate Simulation of Distributed Applications
    and Platforms, JPDC 2014, whose SMPI replays the same traces. We differ: MPICH's own tables choose the algorithms.
    """
    settings = _settings(mpich, algorithms, eager, overhead_seconds, instructions_per_second)
    described = read_cluster_file(cluster)
    if hostfile is None:
        slots = {host.name: described.workers[host.name] for host in described.topology.hosts}
        return run(program, described.topology, hosts_of_ranks(described.topology, slots, program.size), settings)
    hosts = read_hosts_of_ranks(described.topology, hostfile, program.size)
    return run(program, described.topology, hosts, settings, Path(hostfile).name)


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
    """Compare choices of hosts for a recorded MPI program.

    Parameters
    ----------
    program, cluster, mpich, algorithms, eager, overhead_seconds, instructions_per_second
        See :func:`simulate`.
    hostfiles
        The choices.

    Returns
    -------
    MpiPlacements
        The fastest first. Ctrl-C ends the comparison early with the placements simulated so far; ``not_simulated`` has
        the others.

    Raises
    ------
    ValueError
        If there is no hostfile; also the errors of :func:`simulate`.
    """
    if isinstance(hostfiles, str | os.PathLike):
        hostfiles = (hostfiles,)
    if not hostfiles:
        raise ValueError("hostfiles is empty; expected at least one placement")
    described = read_cluster_file(cluster)
    settings = _settings(mpich, algorithms, eager, overhead_seconds, instructions_per_second)
    # all hostfiles are read before the first simulation
    placed = {os.fspath(path): read_hosts_of_ranks(described.topology, path, program.size) for path in hostfiles}
    short = {name: Path(name).name for name in placed}
    runs = until_stopped(
        lambda name: run(program, described.topology, placed[name], settings, short[name]), list(placed), "placements"
    )
    ranked = sorted(runs, key=lambda run: run.makespan_seconds)
    return MpiPlacements(tuple(ranked), tuple(short.values())[len(runs) :])


def _settings(
    mpich: str, algorithms: Mapping[str, str] | None, eager: int | str, overhead: float, speed: float
) -> MpiSettings:
    eager_bytes = parse_nbytes(eager) if isinstance(eager, str) else eager
    return MpiSettings(
        mpich, dict(algorithms or {}), eager_bytes, overhead_seconds=overhead, instructions_per_second=speed
    )
