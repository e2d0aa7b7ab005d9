"""SimGrid's replay of a trace on a network, as an oracle."""

import re
import subprocess
from collections.abc import Iterable, Sequence
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
