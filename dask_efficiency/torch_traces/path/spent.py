"""Seconds of stretches by kind, by name of the event or by rank."""

from __future__ import annotations

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Int64
from dask_efficiency.runs.path.kinds import KINDS
from dask_efficiency.torch_traces.kineto.trace import KinetoTrace
from dask_efficiency.torch_traces.path.stretches import Stretches

#: Stands for no event.
NOBODY = "-"

#: What stretches can be grouped by.
GROUPS = ("kind", "name", "rank")


def seconds_by(by: str, stretches: Stretches, trace: KinetoTrace) -> dict[str, float]:
    """Seconds of each group, largest first; of what is in none under :data:`NOBODY`.

    Raises
    ------
    ValueError
        If ``by`` is none of :data:`GROUPS`.
    """
    position, names = _grouped(by, stretches, trace)
    added = np.zeros(len(names) + 1, np.int64)
    np.add.at(added, position, stretches.stop - stretches.start)
    found = {name: ns for name, ns in zip([*names, NOBODY], added.tolist(), strict=True) if ns}
    return {name: ns / 1e9 for name, ns in sorted(found.items(), key=lambda item: (-item[1], item[0]))}


def _grouped(by: str, stretches: Stretches, trace: KinetoTrace) -> tuple[Int64, list[str]]:
    """By stretch, the position of its group in a list of names; missing where it is in none."""
    if by == "kind":
        return stretches.kind.astype(np.int64), [str(kind) for kind in KINDS]
    if by == "rank":
        return stretches.rank.astype(np.int64), [str(rank.rank) for rank in trace.ranks]
    if by != "name":
        raise ValueError(f"by is {by!r}; expected one of {', '.join(GROUPS)}")
    numbers: dict[str, int] = {}
    found = np.full(len(stretches), MISSING, np.int64)
    for position, rank in enumerate(trace.ranks):
        rows = np.flatnonzero((stretches.rank == position) & (stretches.event != MISSING))
        distinct, which = np.unique(rank.events.name[stretches.event[rows]], return_inverse=True)
        known = [numbers.setdefault(rank.names[name], len(numbers)) for name in distinct.tolist()]
        found[rows] = np.array(known, np.int64)[which]
    return found, list(numbers)


def in_figures(seconds: float) -> str:
    """A duration in three figures or more: ``"9.57 ms"``, ``"929 ms"``, ``"1.23 s"``, ``"4321 s"``."""
    value, unit = (seconds, "s") if seconds >= 0.9995 else (1e3 * seconds, "ms")
    return f"{value:.0f} {unit}" if value >= 99.95 else f"{value:.3g} {unit}"
