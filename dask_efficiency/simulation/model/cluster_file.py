"""Cluster files: hosts, switches, links and the scheduler's host in YAML, with ranges of host names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf

import yaml

from dask_efficiency.files.text_files import (
    TextFileError,
    YamlSection,
    composed,
    known_names,
    line_of,
    read_text,
    text_of,
)
from dask_efficiency.simulation.model.topology import ETHERNET_PAYLOAD, Cable, Host, Topology, TopologyError
from dask_efficiency.simulation.model.units import parse_bandwidth, parse_nbytes, parse_seconds, shown_count

#: Most hosts of a cluster file: a simulation of more would take too long.
MAX_NAMES = 10_000

_RANGED = re.compile(r"(?P<stem>[^\[\]]*)\[(?P<ranges>[^\[\]]+)\](?P<tail>[^\[\]]*)")
_RANGE = re.compile(r"\s*(?P<first>\d{1,9})\s*(?:-\s*(?P<last>\d{1,9})\s*)?", re.ASCII)
_NUMBERED = re.compile(r"(?P<stem>.*?)(?P<number>\d+)", re.DOTALL | re.ASCII)


def expand_names(pattern: str) -> list[str]:
    """Expand a pattern, such as ``pc[01-10,12]`` of SLURM and ClusterShell; numbers keep their leading zeros."""
    if "[" not in pattern and "]" not in pattern:
        return [pattern]
    found = _RANGED.fullmatch(pattern)
    if found is None:
        raise ValueError(f"expected names such as 'pc[01-10,12]', got {pattern[:80]!r}")
    names: list[str] = []
    for part in found["ranges"].split(","):
        limits = _RANGE.fullmatch(part)
        if limits is None:
            raise ValueError(f"expected numbers such as '01-10', got {part[:80]!r} in {pattern[:80]!r}")
        first, last = limits["first"], limits["last"] or limits["first"]
        if not 0 <= int(last) - int(first) < MAX_NAMES - len(names):
            raise ValueError(f"expected 1 to {MAX_NAMES} ascending numbers, got {pattern[:80]!r}")
        numbers = range(int(first), int(last) + 1)
        names += [f"{found['stem']}{number:0{len(first)}}{found['tail']}" for number in numbers]
    return names


def abbreviate_names(names: Iterable[str]) -> str:
    """Abbreviate names: consecutive ones that differ only in a number at the end become a range."""
    runs: list[list[str]] = []
    for name in names:
        if runs and _follows(runs[-1][-1], name):
            runs[-1].append(name)
        else:
            runs.append([name])
    return ", ".join(map(_pattern, runs))


def _follows(name: str, after: str) -> bool:
    one, other = _NUMBERED.fullmatch(name), _NUMBERED.fullmatch(after)
    if one is None or other is None or one["stem"] != other["stem"]:
        return False
    # 10 follows 9, and 09, too, as in a range of either width.
    return f"{int(one['number']) + 1:0{len(one['number'])}}" == other["number"]


def _pattern(run: Sequence[str]) -> str:
    first, last = _NUMBERED.fullmatch(run[0]), _NUMBERED.fullmatch(run[-1])
    if len(run) == 1 or first is None or last is None:
        return run[0]
    return f"{first['stem']}[{first['number']}-{last['number']}]"


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """Contents of a cluster file."""

    topology: Topology
    #: The scheduler's host; empty if the file does not name it.
    scheduler: str
    #: By host, in the order of the file: its number of workers without a hostfile.
    workers: Mapping[str, int]


def read_cluster_file(path: str | os.PathLike[str]) -> ClusterFile:
    """Read a cluster file."""
    return parse_cluster_file(read_text(path), path)


def parse_cluster_file(text: str, path: str | os.PathLike[str]) -> ClusterFile:
    """Parse the text of a cluster file; the path is for errors."""
    cluster = YamlSection(composed(text, path), path, {"scheduler", "payload", "switches", "hosts", "links"})
    parts = _ClusterParts(path)
    for node in cluster.items("switches"):
        parts.named(text_of(node, path), node)
        parts.switches.append(text_of(node, path))
    _read_hosts(cluster, parts)
    for node in cluster.items("links"):
        _read_link(YamlSection(node, path, {"between", "bandwidth", "bandwidth_back", "latency", "queue"}), parts)
    scheduler = cluster.get("scheduler", str, "")
    if scheduler and scheduler not in parts.hosts:
        raise cluster.error("scheduler", f"no host {scheduler!r}; {known_names(scheduler, parts.hosts)}")
    payload = cluster.get("payload", _share, ETHERNET_PAYLOAD)
    try:
        topology = Topology(tuple(parts.hosts.values()), tuple(parts.switches), tuple(parts.links), payload)
    except TopologyError as error:
        raise TextFileError(path, parts.lines.get(error.about, 0), str(error)) from error
    return ClusterFile(topology, scheduler, parts.workers)


@dataclass(slots=True)
class _ClusterParts:
    """Parts that have been read so far, with their lines."""

    path: str | os.PathLike[str]
    switches: list[str] = field(default_factory=list)
    hosts: dict[str, Host] = field(default_factory=dict)
    links: list[Cable] = field(default_factory=list)
    workers: dict[str, int] = field(default_factory=dict)
    #: By name of a host, switch or link.
    lines: dict[str, int] = field(default_factory=dict)

    def named(self, name: str, node: yaml.Node) -> None:
        """Claim a name for a host or switch."""
        if not name:
            raise TextFileError(self.path, line_of(node), "expected a name, got nothing")
        if name in self.lines:
            raise TextFileError(self.path, line_of(node), f"{name!r} stands in line {self.lines[name]} already")
        self.lines[name] = line_of(node)

    def end(self, node: yaml.Node) -> str:
        """Look up the host or switch at an end of a link."""
        name = text_of(node, self.path)
        if name not in self.hosts and name not in self.switches:
            known = known_names(name, [*self.switches, *self.hosts])
            raise TextFileError(self.path, line_of(node), f"no host or switch {name!r}; {known}")
        return name

    def add(self, link: Cable, line: int) -> None:
        self.links.append(link)
        self.lines[link.name] = line


_LINK_SETTINGS = ("bandwidth", "bandwidth_back", "latency", "queue")

_HOST_SETTINGS = {"slots", "cores", "nthreads", "workers", "memory", "address", "speed", "loopback", "room", "switch"}


def _read_hosts(cluster: YamlSection, parts: _ClusterParts) -> None:
    for key, node in cluster.pairs("hosts"):
        section = YamlSection(node, parts.path, _HOST_SETTINGS.union(_LINK_SETTINGS))
        try:
            names = expand_names(text_of(key, parts.path))
        except ValueError as error:
            raise TextFileError(parts.path, line_of(key), str(error)) from error
        if "address" in section and len(names) > 1:
            raise section.error("address", f"expected an address for one host only, got one for {len(names)}")
        if len(parts.hosts) + len(names) > MAX_NAMES:
            raise TextFileError(parts.path, line_of(key), f"expected at most {MAX_NAMES} hosts")
        for name in names:
            parts.named(name, key)
            _read_host(name, section, parts, line_of(key))
    if not parts.hosts:
        raise TextFileError(parts.path, cluster.line("hosts"), "expected 'hosts:' with at least one host")


def _read_host(name: str, section: YamlSection, parts: _ClusterParts, line: int) -> None:
    nthreads = section.get("nthreads", _at_least_1, 1)
    if "slots" in section and "cores" in section:
        raise section.error("cores", "expected slots or cores, not both")
    slots = max(1, section.get("cores", _whole, 1) // nthreads)
    slots = section.get("slots", _whole, slots)
    workers = section.get("workers", _whole, slots)
    if workers > slots:
        raise section.error("workers", f"{name!r} gets {workers} workers and has {shown_count(slots, 'slot')}")
    parts.hosts[name] = Host(
        name,
        slots=slots,
        nthreads=nthreads,
        memory=section.get("memory", parse_nbytes, 0),
        address=section.get("address", str, ""),
        speed=section.get("speed", _above_0, 1.0),
        loopback=section.get("loopback", parse_bandwidth, None),
        room=section.get("room", str, ""),
    )
    parts.workers[name] = workers
    if switch := section.node("switch"):
        if text_of(switch, parts.path) not in parts.switches:
            text = text_of(switch, parts.path)
            raise section.error("switch", f"no switch {text!r}; {known_names(text, parts.switches)}")
        parts.add(_link(name, text_of(switch, parts.path), section), line)
    else:
        for setting in _LINK_SETTINGS:
            if setting in section:
                raise section.error(setting, f"a {setting} needs the 'switch:' that it leads to")


def _read_link(section: YamlSection, parts: _ClusterParts) -> None:
    ends = [parts.end(node) for node in section.items("between")]
    if len(ends) != 2 or ends[0] == ends[1]:
        raise section.error("between", f"a link needs 'between: [one, other]', two hosts or switches, got {ends}")
    parts.add(_link(ends[0], ends[1], section), section.line())


def _link(one: str, other: str, section: YamlSection) -> Cable:
    if "bandwidth" not in section:
        raise section.error("", f"the link between {one!r} and {other!r} needs a bandwidth, such as '1 Gbit'")
    return Cable(
        (one, other),
        section.get("bandwidth", parse_bandwidth, 0.0),
        section.get("latency", parse_seconds, 0.0),
        section.get("bandwidth_back", parse_bandwidth, None),
        section.get("queue", parse_seconds, 0.0),
    )


# -- numbers without a unit ------------------------------------------------------------------------


def _whole(text: str, least: int = 0) -> int:
    whole = text.isascii() and text.isdecimal() and len(text) <= 6
    if not whole or int(text) < least:
        raise ValueError(f"expected a whole number of at least {least}, got {text[:80]!r}")
    return int(text)


def _at_least_1(text: str) -> int:
    return _whole(text, 1)


def _above_0(text: str, most: float = inf, expected: str = "a number above 0") -> float:
    with suppress(ValueError):
        if 0 < (value := float(text)) <= most and value < inf:
            return value
    raise ValueError(f"expected {expected}, got {text[:80]!r}")


def _share(text: str) -> float:
    return _above_0(text, 1, "a part above 0 and at most 1")
