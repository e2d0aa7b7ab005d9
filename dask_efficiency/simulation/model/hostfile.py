"""Hostfiles as MPI users write them: which hosts run how many workers."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from dask_efficiency.files.text_files import TextFileError, read_text

#: ``host:4`` as MPICH has it; a host in brackets is an IPv6 address.
_HOST = re.compile(r"(?P<host>\[[^\]\s]+\]|[^\s:=\[\]]+)(?::(?P<slots>\S+))?")

#: ``slots=4`` as Open MPI has it; spaces around the sign are allowed.
_SETTING = re.compile(r"(?P<name>[A-Za-z_-]+)\s*=\s*(?P<value>\S+)")

_EXPECTED = "expected 'host', 'host:4' or 'host slots=4 max_slots=8'"


@dataclass(frozen=True, slots=True)
class Hostfile:
    """What a hostfile says.

    Parameters
    ----------
    slots
        By host, in the order of the file: how many workers.
    lines
        By host: the line that names it first.
    """

    slots: Mapping[str, int]
    lines: Mapping[str, int]


def read_hostfile(path: str | os.PathLike[str]) -> Hostfile:
    """Read a hostfile.

    Raises
    ------
    TextFileError
        With the line that cannot be understood.
    OSError
        If the file cannot be read.

    References
    ----------
    Open MPI's ``slots=``, ``max_slots=`` (also ``max-slots``, ``count``) and the host alone for one slot; MPICH's
    ``host:slots``; repeated hosts add up. We differ: relative names such as ``+n0`` and a user before the host are
    refused, as a worker needs neither.
    """
    return parse_hostfile(read_text(path), path)


def parse_hostfile(text: str, path: str | os.PathLike[str]) -> Hostfile:
    """What a hostfile's text says; the path is for errors."""
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
    """The host of a line, its slots, and the most that it may have."""
    found = _HOST.match(content)
    rest = content[found.end() :] if found else ""
    if found is None or (rest and not rest[0].isspace()):
        raise TextFileError(path, number, f"{_EXPECTED}, got {content[:80]!r}")
    given = {} if found["slots"] is None else {"slots": found["slots"]}
    for setting in _SETTING.finditer(rest):
        name = setting["name"].replace("-", "_")
        name = {"count": "slots"}.get(name, name)
        if name not in ("slots", "max_slots") or name in given:
            raise TextFileError(path, number, f"{_EXPECTED}, got {setting[0]!r}")
        given[name] = setting["value"]
    if left := _SETTING.sub("", rest).strip():
        raise TextFileError(path, number, f"{_EXPECTED}, got {left[:80]!r}")
    counts = {name: _count(name, value, path, number) for name, value in given.items()}
    return found["host"].strip("[]"), counts.get("slots", 1), counts.get("max_slots")


def _count(name: str, value: str, path: str | os.PathLike[str], number: int) -> int:
    if not value.isascii() or not value.isdecimal() or len(value) > 6:
        raise TextFileError(path, number, f"{name}: expected a whole number of at least 0, got {value[:80]!r}")
    return int(value)
