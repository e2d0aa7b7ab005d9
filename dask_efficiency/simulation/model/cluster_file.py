"""Cluster files: hosts, switches, links and the scheduler's host in YAML, with ranges of host names."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

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
from dask_efficiency.show.figures import format_count
from dask_efficiency.simulation.model.topology import ETHERNET_PAYLOAD, Cable, Host, Topology, TopologyError
from dask_efficiency.simulation.model.units import parse_bandwidth, parse_int, parse_nbytes, parse_seconds

#: Most hosts of a cluster file: a simulation of more would take too long.
MAX_NAMES = 10_000

_RANGED = re.compile(r"(?P<stem>[^\[\]]*)\[(?P<ranges>[^\[\]]+)\](?P<tail>[^\[\]]*)")
_RANGE = re.compile(r"\s*(?P<first>\d{1,9})\s*(?:-\s*(?P<last>\d{1,9})\s*)?", re.ASCII)
_NUMBERED = re.compile(r"(?P<stem>.*?)(?P<number>\d+)", re.DOTALL | re.ASCII)


def expand_names(pattern: str) -> list[str]:
    """Expand a pattern, such as ``pc[01-10,12]`` of SLURM and ClusterShell; numbers keep their leading zeros."""
    if "[" not in pattern and "]" not in pattern:
        return [pattern]
    ranged = _RANGED.fullmatch(pattern)
    if ranged is None:
        raise ValueError(f"expected names such as 'pc[01-10,12]', got {pattern[:80]!r}")
    names: list[str] = []
    for part in ranged["ranges"].split(","):
        limits = _RANGE.fullmatch(part)
        if limits is None:
            raise ValueError(f"expected numbers such as '01-10', got {part[:80]!r} in {pattern[:80]!r}")
        first, last = limits["first"], limits["last"] or limits["first"]
        if not 0 <= int(last) - int(first) < MAX_NAMES - len(names):
            raise ValueError(f"expected 1 to {MAX_NAMES} ascending numbers, got {pattern[:80]!r}")
        numbers = range(int(first), int(last) + 1)
        names += [f"{ranged['stem']}{number:0{len(first)}}{ranged['tail']}" for number in numbers]
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
    own, following = _NUMBERED.fullmatch(name), _NUMBERED.fullmatch(after)
    if own is None or following is None or own["stem"] != following["stem"]:
        return False
    # 10 follows 9, and 09, too, as in a range of either width.
    return f"{int(own['number']) + 1:0{len(own['number'])}}" == following["number"]


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
    parts = _Parts(path)
    for node in cluster.items("switches"):
        parts.claim(text_of(node, path), node)
        parts.switches.append(text_of(node, path))
    for key, node in cluster.pairs("hosts"):
        parts.add_hosts(key, YamlSection(node, path, {*_HOST, "switch", *_LINK}))
    if not parts.hosts:
        raise TextFileError(path, cluster.line("hosts"), "expected 'hosts:' with at least one host")
    for node in cluster.items("links"):
        parts.add_link(YamlSection(node, path, {"between", *_LINK}))
    scheduler = cluster.get("scheduler", str, "")
    if scheduler and scheduler not in parts.hosts:
        raise cluster.error("scheduler", f"no host {scheduler!r}; {known_names(scheduler, parts.hosts)}")
    payload = cluster.get("payload", _share, ETHERNET_PAYLOAD)
    try:
        topology = Topology(tuple(parts.hosts.values()), tuple(parts.switches), tuple(parts.links), payload)
    except TopologyError as error:
        raise TextFileError(path, parts.lines.get(error.about, 0), str(error)) from error
    return ClusterFile(topology, scheduler, parts.workers)


def _above_0(text: str, most: float = sys.float_info.max, expected: str = "a number above 0") -> float:
    with suppress(ValueError):
        if 0 < (value := float(text)) <= most:
            return value
    raise ValueError(f"expected {expected}, got {text[:80]!r}")


def _share(text: str) -> float:
    return _above_0(text, 1, "a part above 0 and at most 1")


#: Settings of a host, and of a link, with what reads each.
_HOST: Mapping[str, Callable[[str], Any]] = {
    "slots": parse_int,
    "cores": parse_int,
    "nthreads": partial(parse_int, least=1),
    "workers": parse_int,
    "memory": parse_nbytes,
    "address": str,
    "speed": _above_0,
    "loopback": parse_bandwidth,
    "room": str,
}
_LINK: Mapping[str, Callable[[str], Any]] = {
    "bandwidth": parse_bandwidth,
    "bandwidth_back": parse_bandwidth,
    "latency": parse_seconds,
    "queue": parse_seconds,
}


def _given(section: YamlSection, settings: Mapping[str, Callable[[str], Any]]) -> dict[str, Any]:
    return {name: section.get(name, read, None) for name, read in settings.items() if name in section}


@dataclass(slots=True)
class _Parts:
    """Parts that have been read so far."""

    path: str | os.PathLike[str]
    switches: list[str] = field(default_factory=list)
    hosts: dict[str, Host] = field(default_factory=dict)
    links: list[Cable] = field(default_factory=list)
    workers: dict[str, int] = field(default_factory=dict)
    #: By name of a host, switch or link.
    lines: dict[str, int] = field(default_factory=dict)

    def claim(self, name: str, node: yaml.Node) -> None:
        """Claim a name for a host or switch."""
        if not name:
            raise TextFileError(self.path, line_of(node), "expected a name, got nothing")
        if name in self.lines:
            raise TextFileError(self.path, line_of(node), f"{name!r} stands in line {self.lines[name]} already")
        self.lines[name] = line_of(node)

    def add_hosts(self, key: yaml.Node, section: YamlSection) -> None:
        try:
            names = expand_names(text_of(key, self.path))
        except ValueError as error:
            raise TextFileError(self.path, line_of(key), str(error)) from error
        if "address" in section and len(names) > 1:
            raise section.error("address", f"expected an address for one host only, got one for {len(names)}")
        if len(self.hosts) + len(names) > MAX_NAMES:
            raise TextFileError(self.path, line_of(key), f"expected at most {MAX_NAMES} hosts")
        if "slots" in section and "cores" in section:
            raise section.error("cores", "expected slots or cores, not both")
        given = _given(section, _HOST)
        given.setdefault("slots", max(1, given.pop("cores", 1) // given.get("nthreads", 1)))
        workers = given.pop("workers", given["slots"])
        for name in names:
            self.claim(name, key)
            if workers > given["slots"]:
                slots = format_count(given["slots"], "slot")
                raise section.error("workers", f"{name!r} gets {workers} workers and has {slots}")
            self.hosts[name], self.workers[name] = Host(name, **given), workers
            self._add_link_to_switch(name, section, line_of(key))

    def _add_link_to_switch(self, name: str, section: YamlSection, line: int) -> None:
        node = section.node("switch")
        if node is not None:
            switch = text_of(node, self.path)
            if switch not in self.switches:
                raise section.error("switch", f"no switch {switch!r}; {known_names(switch, self.switches)}")
            self._connect(name, switch, section, line)
            return
        for setting in _LINK:
            if setting in section:
                raise section.error(setting, f"a {setting} needs the 'switch:' that it leads to")

    def add_link(self, section: YamlSection) -> None:
        ends = [text_of(node, self.path) for node in section.items("between")]
        for name, node in zip(ends, section.items("between"), strict=True):
            if name not in self.hosts and name not in self.switches:
                known = known_names(name, [*self.switches, *self.hosts])
                raise TextFileError(self.path, line_of(node), f"no host or switch {name!r}; {known}")
        if len(ends) != 2 or ends[0] == ends[1]:
            raise section.error("between", f"a link needs 'between: [one, other]', two hosts or switches, got {ends}")
        self._connect(ends[0], ends[1], section, section.line())

    def _connect(self, first: str, second: str, section: YamlSection, line: int) -> None:
        given = _given(section, _LINK)
        if "bandwidth" not in given:
            raise section.error("", f"the link between {first!r} and {second!r} needs a bandwidth, such as '1 Gbit'")
        seconds = {f"{name}_seconds": given.pop(name) for name in ("latency", "queue") if name in given}
        link = Cable((first, second), **given, **seconds)
        self.links.append(link)
        self.lines[link.name] = line
