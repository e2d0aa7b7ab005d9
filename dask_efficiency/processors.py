"""Processors: what each worker may use of its host, and how many cores several workers share."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
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


def cores(workers: Iterable[Processors]) -> float:
    """How many cores some processes share: what they may run on, no more than the limits of their groups allow."""
    machines: dict[str, dict[str, list[Processors]]] = {}
    for worker in workers:
        machines.setdefault(worker.machine, {}).setdefault(worker.group, []).append(worker)
    total = 0.0
    for groups in machines.values():
        allowed = sum(_of_group(members) for members in groups.values())
        total += min(allowed, _union(worker for members in groups.values() for worker in members))
    return total


def _of_group(members: list[Processors]) -> float:
    quotas = [member.quota for member in members if member.quota is not None]
    return min([float(_union(members)), *quotas])


def _union(workers: Iterable[Processors]) -> int:
    mask = 0
    for worker in workers:
        mask |= worker.affinity
    return mask.bit_count()


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
