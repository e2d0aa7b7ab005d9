"""Memory in a report: of each worker at its peak, and in byte-seconds, from what was metered."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dask_efficiency.accounts.metered import (
    ACTORS,
    AT_PEAK,
    BYTE_SECONDS,
    BYTES,
    BYTES_AN_HOUR,
    CONTAINER,
    GROWTH,
    HOST,
    IN_MEMORY,
    LIMIT,
    MANAGED,
    MEMORY,
    ON_DISK,
    OVERCOUNTED,
    PROCESS,
    THRESHOLDS,
    UNSPILLED,
)
from dask_efficiency.report.values import MeteredRow


@dataclass(frozen=True, slots=True)
class MemoryOfWorker:
    """Memory of one worker in a window, in bytes; sizes of results are estimates by Dask's ``sizeof``."""

    #: Its limit, and the thresholds ``target``, ``spill`` and ``pause`` that it has; a limit of 0 is none.
    limit: int
    thresholds: Mapping[str, int]
    #: The most of its process: the kernel's, where that can be asked, and else that of samples.
    peak: int
    #: The most in results at a time, in memory and on disk, each for itself.
    held_peak: int
    spilled_peak: int
    #: Results in memory and on disk by prefix when the process had most, or shortly after.
    at_peak: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    #: Byte-seconds of results in memory and on disk, and of the process.
    held: float = 0.0
    spilled: float = 0.0
    process: float = 0.0
    #: Bytes by which the memory beyond results grew in an hour, without what tasks take for a while; None if unknown.
    growth: float | None = None
    #: Memory of its host, or the limit of its control group; 0 if unknown.
    host: int = 0
    #: The most of its control group, if that rose in the window; 0 if unknown.
    container: int = 0
    #: The most in results at a time, wherever they are; and of the process with all of them in memory. 0 if unknown.
    managed_peak: int = 0
    unspilled_peak: int = 0
    #: The most by which results, by their sizes, were more than the process had, as where they share memory.
    overcounted: int = 0
    #: Bytes by which the state of actors grew, by prefix, as Dask estimates sizes.
    actors: Mapping[str, int] = field(default_factory=dict)

    @property
    def unmanaged_at_peak(self) -> int:
        """The peak without results; below 0 where their sizes are estimated too high, or shared."""
        return self.peak - sum(held for held, _ in self.at_peak.values())


def memory_by_worker(rows: Iterable[MeteredRow]) -> dict[str, MemoryOfWorker]:
    """Memory of each worker, the highest peak first."""
    of_workers: defaultdict[str, dict[tuple[str, str], float]] = defaultdict(dict)
    at_peak: defaultdict[str, dict[str, list[int]]] = defaultdict(dict)
    actors: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for row in rows:
        if row.context != MEMORY or not row.worker:
            continue
        if row.label in (IN_MEMORY + AT_PEAK, ON_DISK + AT_PEAK):
            at_peak[row.worker].setdefault(row.prefix, [0, 0])[row.label == ON_DISK + AT_PEAK] += round(row.value)
        elif row.label == ACTORS:
            actors[row.worker][row.prefix] = round(row.value)
        else:
            known = of_workers[row.worker]
            known[row.label, row.unit] = known.get((row.label, row.unit), 0.0) + row.value
    found = {
        worker: MemoryOfWorker(
            limit=round(known.get((LIMIT, BYTES), 0)),
            thresholds={name: round(known[name, BYTES]) for name in THRESHOLDS if (name, BYTES) in known},
            peak=round(known.get((PROCESS, BYTES), 0)),
            held_peak=round(known.get((IN_MEMORY, BYTES), 0)),
            spilled_peak=round(known.get((ON_DISK, BYTES), 0)),
            at_peak={prefix: (held, spilled) for prefix, (held, spilled) in at_peak[worker].items()},
            held=known.get((IN_MEMORY, BYTE_SECONDS), 0.0),
            spilled=known.get((ON_DISK, BYTE_SECONDS), 0.0),
            process=known.get((PROCESS, BYTE_SECONDS), 0.0),
            growth=known.get((GROWTH, BYTES_AN_HOUR)),
            host=round(known.get((HOST, BYTES), 0)),
            container=round(known.get((CONTAINER, BYTES), 0)),
            managed_peak=round(known.get((MANAGED, BYTES), 0)),
            unspilled_peak=round(known.get((UNSPILLED, BYTES), 0)),
            overcounted=round(known.get((OVERCOUNTED, BYTES), 0)),
            actors=dict(actors[worker]),
        )
        for worker, known in of_workers.items()
    }
    return dict(sorted(found.items(), key=lambda item: -item[1].peak))


def byte_seconds(rows: Iterable[MeteredRow]) -> dict[str, tuple[float, float]]:
    """Byte-seconds in memory and on disk by prefix, the most first."""
    found: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for row in rows:
        if row.context == MEMORY and row.unit == BYTE_SECONDS and row.label in (IN_MEMORY, ON_DISK):
            found[row.prefix][row.label == ON_DISK] += row.value
    return {prefix: (held, spilled) for prefix, (held, spilled) in sorted(found.items(), key=lambda row: -sum(row[1]))}
