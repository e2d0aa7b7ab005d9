"""Processors: what each worker may use of its host, and how many cores several workers share."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import Any

from dask_efficiency.checks import RefusedPayload, mapping, short, text

#: More processors than any machine has.
MAX_PROCESSORS = 1 << 16

#: A bit for each of them.
_MASK = f"0*[1-9a-f][0-9a-f]{{0,{MAX_PROCESSORS // 4}}}"


@dataclass(frozen=True, slots=True)
class Processors:
    """The processors that one process may use."""

    #: Which machine, and which group of processes has the limit.
    machine: str
    group: str
    #: Bit ``i`` is set if the process may run on processor ``i``.
    affinity: int
    #: Cores that the group may use at once, by its CPU limit; None without one.
    quota: float | None = None


#: Groups of processes on one machine for which it is computed exactly what they share; for more it is an upper bound.
MAX_GROUPS = 10


def cores(workers: Iterable[Processors]) -> float:
    """How many cores some processes share: what they may run on, no more than the limits of their groups allow."""
    machines: dict[str, dict[str, list[Processors]]] = {}
    for worker in workers:
        machines.setdefault(worker.machine, {}).setdefault(worker.group, []).append(worker)
    return sum(_of_machine([_of_group(members) for members in groups.values()]) for groups in machines.values())


def _of_machine(groups: list[tuple[int, float]]) -> float:
    """The most that groups, with their processors and limits, can use at once: a maximum flow, by its least cut."""
    if len(groups) > MAX_GROUPS:
        return min(sum(limit for _, limit in groups), float(_count(mask for mask, _ in groups)))
    least = math.inf
    for chosen in product((False, True), repeat=len(groups)):
        parts = list(zip(groups, chosen, strict=True))
        whole = _count(mask for (mask, _), whole in parts if whole)
        least = min(least, whole + sum(limit for (_, limit), whole in parts if not whole))
    return least


def _of_group(members: list[Processors]) -> tuple[int, float]:
    """The processors of a group as bits, and how many of them it may use at once."""
    mask = 0
    for member in members:
        mask |= member.affinity
    quotas = [member.quota for member in members if member.quota is not None]
    return mask, min([float(mask.bit_count()), *quotas])


def _count(masks: Iterable[int]) -> int:
    together = 0
    for mask in masks:
        together |= mask
    return together.bit_count()


def encode_processors(processors: Processors) -> dict[str, Any]:
    """Plain data, as it travels."""
    return {
        "machine": processors.machine,
        "group": processors.group,
        "affinity": f"{processors.affinity:x}",
        "quota": processors.quota,
    }


def decode_processors(payload: object) -> Processors:
    """What a worker sent.

    Raises
    ------
    RefusedPayload
        If it is not what :func:`encode_processors` makes.
    """
    given = mapping("processors", payload)
    affinity, quota = given.get("affinity"), given.get("quota")
    if not (isinstance(affinity, str) and re.fullmatch(_MASK, affinity)):
        raise RefusedPayload(f"processors.affinity is {short(affinity)}; expected a mask in hexadecimal, not 0")
    if quota is not None and not (isinstance(quota, float) and 0 < quota < MAX_PROCESSORS):
        raise RefusedPayload(f"processors.quota is {short(quota)}; expected a number of cores")
    return Processors(
        machine=text("processors.machine", given.get("machine")),
        group=text("processors.group", given.get("group")),
        affinity=int(affinity, 16),
        quota=quota,
    )
