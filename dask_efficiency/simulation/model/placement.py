"""Placement of workers: hostfiles, slots of a topology's hosts, and copies of recorded workers."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from dask_efficiency.files.text_files import TextFileError, known_names, read_text
from dask_efficiency.runs.trace.run_trace import WorkerSpec
from dask_efficiency.show.figures import format_count
from dask_efficiency.simulation.model.topology import Host, Topology
from dask_efficiency.simulation.model.units import parse_int

#: ``host:4`` of MPICH; a host in brackets is an IPv6 address.
_HOST = re.compile(r"(?P<host>\[[^\]\s]+\]|[^\s:=\[\]]+)(?::(?P<slots>\S+))?")
#: ``slots=4`` of Open MPI; spaces around the sign are allowed.
_SETTING = re.compile(r"(?P<name>[A-Za-z_-]+)\s*=\s*(?P<value>\S+)")

_EXPECTED = "expected 'host', 'host:4' or 'host slots=4 max_slots=8'"


@dataclass(frozen=True, slots=True)
class Hostfile:
    """Contents of a hostfile, in its order: number of workers by host, and the first line that names it."""

    slots: Mapping[str, int]
    lines: Mapping[str, int]


def read_hostfile(path: str | os.PathLike[str]) -> Hostfile:
    """Read a hostfile of Open MPI (``slots=``, ``max_slots=``, ``count=``) or MPICH (``host:slots``).

    We differ: relative names such as ``+n0`` and a user before the host are refused, as a worker needs neither.
    """
    return parse_hostfile(read_text(path), path)


def read_hostfile_of(topology: Topology, path: str | os.PathLike[str]) -> Hostfile:
    """Read a hostfile of hosts of a topology."""
    hostfile = read_hostfile(path)
    for name, line in hostfile.lines.items():
        if topology.host(name) is None:
            known = known_names(name, [host.name for host in topology.hosts])
            raise TextFileError(path, line, f"no host {name!r} in the topology; {known}")
    return hostfile


def parse_hostfile(text: str, path: str | os.PathLike[str]) -> Hostfile:
    """Parse a hostfile's text; the path is for errors."""
    slots: dict[str, int] = {}
    lines: dict[str, int] = {}
    most: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not (content := line.partition("#")[0].strip()):
            continue
        host, count, limit = _parsed(content, path, number)
        lines.setdefault(host, number)
        slots[host] = slots.get(host, 0) + count
        if limit is not None:
            most[host] = limit
        if slots[host] > most.get(host, slots[host]):
            raise TextFileError(path, number, f"{host!r} has {slots[host]} slots, and max_slots={most[host]}")
    if not any(slots.values()):
        raise TextFileError(path, 0, "no slot of any host in the hostfile")
    return Hostfile(slots, lines)


def _parsed(content: str, path: str | os.PathLike[str], number: int) -> tuple[str, int, int | None]:
    """Parse a line: the host, its slots, and its largest number of slots."""
    parsed = _HOST.match(content)
    rest = content[parsed.end() :] if parsed else ""
    if parsed is None or (rest and not rest[0].isspace()):
        raise TextFileError(path, number, f"{_EXPECTED}, got {content[:80]!r}")
    given = {} if parsed["slots"] is None else {"slots": parsed["slots"]}
    for setting in _SETTING.finditer(rest):
        name = {"count": "slots"}.get(setting["name"], setting["name"].replace("-", "_"))
        if name not in ("slots", "max_slots") or name in given:
            raise TextFileError(path, number, f"{_EXPECTED}, got {setting[0]!r}")
        given[name] = setting["value"]
    if left := _SETTING.sub("", rest).strip():
        raise TextFileError(path, number, f"{_EXPECTED}, got {left[:80]!r}")
    counts: dict[str, int] = {"slots": 1}
    for name, value in given.items():
        try:
            counts[name] = parse_int(value)
        except ValueError as error:
            raise TextFileError(path, number, f"{name}: {error}") from error
    return parsed["host"].strip("[]"), counts["slots"], counts.get("max_slots")


#: Port of the first worker that a topology places on a host; the others follow. Nothing depends on it.
FIRST_PORT = 40_000


class PlacementError(ValueError):
    """There are more workers than slots of a host; of all hosts if it is empty."""

    def __init__(self, host: str, wrong: str) -> None:
        super().__init__(wrong)
        self.host = host


def place_workers(topology: Topology, workers: Mapping[str, int]) -> tuple[WorkerSpec, ...]:
    """Place a number of workers on each host, which gives their threads and their memory, in the order of joining."""
    placed: list[WorkerSpec] = []
    counts: Counter[str] = Counter()
    for name, wanted in workers.items():
        host = topology.known_host(name)
        taken = counts[host.name]
        if taken + wanted > host.slots:
            slots = format_count(host.slots, "slot")
            raise PlacementError(host.name, f"{host.name!r} gets {taken + wanted} workers and has {slots}")
        placed += [_worker(host, taken + i) for i in range(wanted)]
        counts[host.name] += wanted
    return tuple(placed)


def add_to_hosts(topology: Topology, workers: Sequence[WorkerSpec], more: int) -> tuple[WorkerSpec, ...]:
    """Add workers in the free slots, host by host."""
    taken = Counter(topology.known_host(worker.host).name for worker in workers)
    names, addresses = {worker.name for worker in workers}, {worker.address for worker in workers}
    added: list[WorkerSpec] = []
    for host in topology.hosts:
        free = min(more - len(added), host.slots - taken[host.name])
        candidates = (_worker(host, i) for i in count())
        fresh = (worker for worker in candidates if worker.name not in names and worker.address not in addresses)
        added += [worker for worker, _ in zip(fresh, range(free), strict=False)]
    if len(added) < more:
        total = format_count(sum(host.slots for host in topology.hosts), "slot")
        raise PlacementError("", f"{len(workers) + more} workers, and the hosts of the topology have {total}")
    return (*workers, *added)


def copy_workers(workers: Sequence[WorkerSpec], more: int) -> tuple[tuple[WorkerSpec, WorkerSpec], ...]:
    """Copy workers, taken in turn, with their hosts if these are several; each copy comes with its original."""
    hosts, names = {worker.host for worker in workers}, {worker.name for worker in workers}
    addresses = {worker.address for worker in workers}
    copies: list[tuple[WorkerSpec, WorkerSpec]] = []
    for i in range(more):
        original, turn = workers[i % len(workers)], i // len(workers) + 1
        host = original.host if len(hosts) == 1 else _unused(original.host, hosts, turn)
        name = _unused(original.name, names, turn)
        # The address contains the host.
        address = _unused(_address(host, i), addresses, 0)
        names.add(name)
        addresses.add(address)
        copies.append((replace(original, name=name, host=host, address=address), original))
    return tuple(copies)


def _unused(name: str, used: Iterable[str], turn: int) -> str:
    """Make an unused name."""
    candidates = (f"{name}-{turn}{'+' * i}" if turn else f"{name}{'0' * i}" for i in count())
    return next(candidate for candidate in candidates if candidate not in used)


def _worker(host: Host, i: int) -> WorkerSpec:
    memory = host.memory // host.slots if host.slots else host.memory
    return WorkerSpec(f"{host.name}-{i}", _address(host.address or host.name, i), host.name, host.nthreads, memory)


def _address(host: str, i: int) -> str:
    return f"tcp://[{host}]:{FIRST_PORT + i}" if ":" in host else f"tcp://{host}:{FIRST_PORT + i}"
