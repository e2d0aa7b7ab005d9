"""Processors: what each worker may use of its host, and how many cores several workers share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import reduce
from itertools import product
from operator import or_
from typing import Any, NamedTuple

from dask_efficiency.accounts.checks import RefusedPayload, mapping, short, text, whole
from dask_efficiency.accounts.intake import fitting

#: Bound of the processors of a machine; more are refused. A guess, above any real machine's.
MAX_PROCESSORS = 1 << 16
#: Key of the time of a worker's processors in its heartbeats.
USED = "used"
#: Pattern of an affinity mask.
_MASK = f"0*[1-9a-f][0-9a-f]{{0,{MAX_PROCESSORS // 4}}}"


class ProcessorTime(NamedTuple):
    """Time of some processors since the machine started, in nanoseconds."""

    #: Including idle and stolen time, and waits for disks.
    all: int
    #: Busy, for any process.
    computed: int
    #: Busy, for the process that reports it.
    own: int


@dataclass(frozen=True, slots=True)
class Processors:
    """The processors that one process may use."""

    #: Id of the machine, and of the group of processes that has the limit.
    machine: str
    group: str
    #: Bit ``i`` is set if the process may run on processor ``i``.
    affinity: int
    #: Cores that the group may use at once, by its CPU limit; None without one.
    quota: float | None = None
    used: ProcessorTime | None = None


#: Groups on one machine up to which the shared cores are exact, in 2**groups steps; beyond, an upper bound.
MAX_GROUPS = 10


def cores(workers: Iterable[Processors]) -> float:
    """Number of cores that some processes share, by affinity and by the limits of their groups."""
    machines: dict[str, dict[str, list[Processors]]] = {}
    for worker in workers:
        machines.setdefault(worker.machine, {}).setdefault(worker.group, []).append(worker)
    return sum(_of_machine([_of_group(members) for members in groups.values()]) for groups in machines.values())


#: One process, as it was at two instants.
Both = tuple[Processors, Processors]


def others_share(workers: Iterable[Both], scheduler: Both | None = None) -> float | None:
    """Share of some processes' processor time that others used; None if unknown, as where affinities overlap partly."""
    machines: dict[str, dict[int, list[ProcessorTime]]] = {}
    for then, now in workers:
        used = _between(then, now) or ProcessorTime(0, 0, 0)
        machines.setdefault(now.machine, {}).setdefault(now.affinity, []).append(used)
    everything = others = 0
    for machine, groups in machines.items():
        disjoint = _union(groups).bit_count() == sum(mask.bit_count() for mask in groups)
        if not disjoint or not all(used.all for group in groups.values() for used in group):
            continue
        own = sum(used.own for group in groups.values() for used in group)
        of_scheduler = _between(*scheduler) if scheduler is not None and scheduler[1].machine == machine else None
        own += of_scheduler.own if of_scheduler is not None else 0
        # Each process read them at another instant.
        most = [max(group, key=lambda used: used.all) for group in groups.values()]
        everything += sum(used.all for used in most)
        others += max(0, sum(used.computed for used in most) - own)
    return others / everything if everything else None


def taken_by_others(workers: Sequence[Both], scheduler: Both | None = None) -> float:
    """Share of the cores of some processes on one host that others took; 0.0 if unknown.

    A limit of the processes' own group leaves others the rest: that takes nothing from them.
    """
    now = [after for _, after in workers]
    share, allowed = others_share(workers, scheduler) or 0.0, cores(now)
    left = cores(replace(one, quota=None) for one in now) * (1.0 - share)
    return max(1.0 - left / allowed, 0.0) if allowed else 0.0


def _between(then: Processors, now: Processors) -> ProcessorTime | None:
    if then.used is None or now.used is None or (then.machine, then.affinity) != (now.machine, now.affinity):
        return None
    found = ProcessorTime(*(b - a for a, b in zip(then.used, now.used, strict=True)))
    return found if min(found) >= 0 else None


def _of_machine(groups: list[tuple[int, float]]) -> float:
    """The most cores that groups, with their processors and limits, can use at once: a maximum flow, by minimum cut."""
    if len(groups) > MAX_GROUPS:
        return min(sum(limit for _, limit in groups), float(_union(mask for mask, _ in groups).bit_count()))
    return min(
        _union(mask for (mask, _), whole in zip(groups, chosen, strict=True) if whole).bit_count()
        + sum(limit for (_, limit), whole in zip(groups, chosen, strict=True) if not whole)
        for chosen in product((False, True), repeat=len(groups))
    )


def _of_group(members: list[Processors]) -> tuple[int, float]:
    """Processors of a group as bits, and the number of them that it may use at once."""
    mask = _union(member.affinity for member in members)
    return mask, min([float(mask.bit_count()), *(member.quota for member in members if member.quota is not None)])


def _union(masks: Iterable[int]) -> int:
    return reduce(or_, masks, 0)


def encode_processors(processors: Processors) -> dict[str, Any]:
    """Plain data, as it travels."""
    used = None if processors.used is None else list(processors.used)
    named = {"machine": fitting(processors.machine), "group": fitting(processors.group)}
    return {**asdict(processors), **named, "affinity": f"{processors.affinity:x}", "used": used}


def decode_processors(payload: object) -> Processors:
    """Check and read what :func:`encode_processors` made; raises :class:`RefusedPayload`."""
    given = mapping("processors", payload)
    affinity, quota, used = given.get("affinity"), given.get("quota"), given.get("used")
    if not (isinstance(affinity, str) and re.fullmatch(_MASK, affinity)):
        raise RefusedPayload(f"processors.affinity is {short(affinity)}; expected a mask in hexadecimal, not 0")
    if quota is not None and not (isinstance(quota, float) and 0 < quota < MAX_PROCESSORS):
        raise RefusedPayload(f"processors.quota is {short(quota)}; expected a number of cores")
    return Processors(
        machine=text("processors.machine", given.get("machine")),
        group=text("processors.group", given.get("group")),
        affinity=int(affinity, 16),
        quota=quota,
        used=None if used is None else decode_used(used),
    )


def decode_used(payload: object) -> ProcessorTime:
    """Check and read the time of a process's processors; raises :class:`RefusedPayload`."""
    if not isinstance(payload, (list, tuple)) or len(payload) != len(ProcessorTime._fields):
        raise RefusedPayload(f"processors.used is {short(payload)}; expected {len(ProcessorTime._fields)} numbers")
    return ProcessorTime(
        *(whole(f"processors.used.{name}", ns) for name, ns in zip(ProcessorTime._fields, payload, strict=True))
    )
