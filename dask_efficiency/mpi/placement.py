"""Which host each rank runs on."""

from __future__ import annotations

import os
from collections.abc import Mapping

from dask_efficiency.files.text_files import TextFileError, known_names
from dask_efficiency.simulation.model.hostfile import Hostfile, read_hostfile
from dask_efficiency.simulation.model.placement import PlacementError
from dask_efficiency.simulation.model.topology import Topology
from dask_efficiency.simulation.model.units import shown_count


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
