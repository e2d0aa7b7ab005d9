"""Disks of hosts: tells workers that keep a disk busy from those that only wait for it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dask_efficiency.accounts.tables import Bool, Float64, Int64
from dask_efficiency.straggler.observations import Observations, medians
from dask_efficiency.straggler.score import ROUNDING, Scores, Usual
from dask_efficiency.straggler.signals import FINISHED, SLOWER

#: Spread of each signal of a worker that may use a slow disk. With a z of 3, which flags one of a few dozen workers, it
#: waits 1.4 times as long as usual, or its tasks are blocked 1.6 times as long.
SPREADS = {signal: FINISHED[signal].floor for signal in ("io_wait", "blocked")}
AT_THE_DISK = frozenset(SPREADS)
#: A worker was held up if its tasks are blocked this many times as long as usual; a guess. With 1.1, of 36 workers that
#: wait for the disk, and whose tasks take 0.05 s longer, none is named in place of 30.
HELD_UP = 1.05

#: A worker whose wait exceeds the limit this many times is why the others of its host are slow. Below, the others
#: remain suspects. A guess.
CLEARLY = 3.0

#: Signals compared with earlier runs, not with peers, which wait for the same disk.
AGAINST_USUAL = tuple(name for name, signal in FINISHED.items() if signal.against_usual)


@dataclass(frozen=True, slots=True)
class DiskVerdict:
    """Verdict on the disks of a run's hosts."""

    #: ``io_wait`` of workers that wait for the disk themselves, and ``blocked`` of those that are suspects, as nothing
    #: tells which of their host's workers use the disk.
    scores: tuple[Scores, ...]
    #: By worker, whether it only waits for another one's use of the disk.
    waiting: Bool
    #: By worker, how much longer than usual its tasks take with their data, as a logarithm; NaN if unknown.
    whole: Float64

    def effect(self, worker: int) -> float:
        """Factor by which a worker's tasks take longer than usual; 1 or more."""
        return math.exp(max(float(np.nan_to_num(self.whole[worker])), 0.0))


def judge_disks(
    observations: Mapping[str, Observations],
    hosts: Sequence[str],
    usuals: Mapping[str, Usual],
    behind: Float64,
    limit: float,
) -> DiskVerdict | None:
    """Tell the workers that hold a disk up from those that wait for it; None if times or usual figures are unknown.

    A slow disk slows all workers of its host, so they are compared with earlier runs. Those that wait for the disk in
    the kernel for longer than usual use it, and the others wait for them. If none does, a worker is a suspect if each
    of its tasks is blocked for longer, and not only those that ran at the same time as another worker's.

    ``behind`` is how much longer than the others of its host each worker takes to move data, as a logarithm; ``limit``
    the z that flags a worker.
    """
    if any(signal not in observations or signal not in usuals for signal in (*AGAINST_USUAL, "io_wait")):
        return None
    workers = len(hosts)
    blocked = _off(observations["blocked"], usuals["blocked"].level)
    mean_blocked = np.nan_to_num(_means(observations["blocked"].worker, blocked, workers))
    staging, whole = (
        _means(observations[signal].worker, _off(observations[signal], usuals[signal].level), workers)
        for signal in ("staging", "whole")
    )
    held_up = mean_blocked > math.log(HELD_UP)
    waited = np.maximum(_off(observations["io_wait"], usuals["io_wait"].high), 0.0)
    own = np.where(held_up, np.nan_to_num(_means(observations["io_wait"].worker, waited, workers)), 0.0)
    names: dict[object, int] = {}
    place = np.array([names.setdefault(host or number, len(names)) for number, host in enumerate(hosts)], np.int64)
    waits = own / SPREADS["io_wait"]
    clear = _any(waits >= CLEARLY * limit, place)
    least, known = np.full(workers, math.inf), np.isfinite(blocked)
    np.minimum.at(least, observations["blocked"].worker[known], blocked[known])
    least = np.nan_to_num(least, posinf=0.0)
    known = np.isfinite(staging)
    slow_disk = medians(staging[known], place[known], workers)[place] > math.log(SLOWER)
    suspect = np.where(slow_disk & (behind >= -ROUNDING) & ~clear, np.maximum(least, 0.0), 0.0) / SPREADS["blocked"]
    flagged = (waits >= limit) | (suspect >= limit)
    scores = (
        _scores(observations["io_wait"], own, waits, SPREADS["io_wait"]),
        _scores(observations["blocked"], mean_blocked, suspect, SPREADS["blocked"]),
    )
    return DiskVerdict(scores, held_up & ~flagged & _any(flagged, place), whole)


def _scores(observations: Observations, level: Float64, z: Float64, spread: float) -> Scores:
    count = np.bincount(observations.worker, minlength=len(level))
    return Scores(observations.signal, level, z, count, count > 0, spread)


def _off(observations: Observations, reference: Mapping[str, float]) -> Float64:
    """Subtract from each observation the usual figure of its work; NaN if unknown."""
    usual = np.array([reference.get(kind, math.nan) for kind in observations.kinds], np.float64)
    off: Float64 = observations.value - usual[observations.work]
    return off


def _means(worker: Int64, values: Float64, workers: int) -> Float64:
    known = np.isfinite(values)
    count = np.bincount(worker[known], minlength=workers)
    total = np.bincount(worker[known], values[known], minlength=workers)
    return np.where(count > 0, total / np.maximum(count, 1), math.nan)


def _any(holds: Bool, place: Int64) -> Bool:
    any_holds: Bool = np.bincount(place, holds)[place] > 0
    return any_holds
