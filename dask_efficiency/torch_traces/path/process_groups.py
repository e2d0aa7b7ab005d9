"""ProcessGroups: which group of ranks each exchange of a rank belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Int64
from dask_efficiency.torch_traces.kineto.trace import KinetoTrace, RankTrace
from dask_efficiency.torch_traces.path.communication import Communication


@dataclass(frozen=True, slots=True)
class ProcessGroups:
    """The groups of a job, numbered over all ranks."""

    #: Names, which are not unique: groups of one name whose members differ are different groups. Where a trace does not
    #: name the groups of kernels, each stream counts as one, and on the CPU each library.
    names: tuple[str, ...]
    #: Those whose ranks are taken to do the same in the same order: all but streams, which groups may share.
    ordered: frozenset[int]
    #: By rank the group of each row of its :class:`Communication`.
    numbers: tuple[Int64, ...]


def process_groups(trace: KinetoTrace, parts: Sequence[Communication]) -> ProcessGroups:
    """The groups of what the ranks exchanged."""
    streams = [tuple(np.unique(part.stream[part.stream != MISSING]).tolist()) for part in parts]
    # A stream's number means the same on all ranks if all use the same ones; otherwise its place among them has to do.
    alike = len({used for used in streams if used}) <= 1
    known: dict[tuple[str, tuple[int, ...]], int] = {}
    ordered = set()
    numbers = []
    for rank, part, used in zip(trace.ranks, parts, streams, strict=True):
        number = np.empty(len(part), np.int64)
        annotation = np.where(part.stream == MISSING, rank.events.name[part.event], MISSING)
        for group, stream, name in {*zip(part.group.tolist(), part.stream.tolist(), annotation.tolist(), strict=True)}:
            place = stream if alike or stream == MISSING else used.index(stream)
            mine = (part.group == group) & (part.stream == stream) & (annotation == name)
            found = known.setdefault(_key(rank, group, place, name), len(known))
            number[mine] = found
            if group != MISSING or stream == MISSING:
                ordered.add(found)
        numbers.append(number)
    return ProcessGroups(tuple(name for name, _ in known), frozenset(ordered), tuple(numbers))


def _key(rank: RankTrace, group: int, stream: int, annotation: int) -> tuple[str, tuple[int, ...]]:
    if group != MISSING:
        name = rank.names[group]
        return name, tuple(rank.groups.get(name, ()))
    if annotation != MISSING:
        return rank.names[annotation].split(":", 1)[0], ()
    return f"stream {stream}", ()
