"""The disk of a host: which of its workers hold it up, and which only wait for it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dask_efficiency.straggler.observations import Readings, medians
from dask_efficiency.straggler.score import ROUNDING, Scores, Usual
from dask_efficiency.trace.tables import Bool, Float64, Int64

#: Signals that are compared with what is usual, not with peers: those wait for the same disk.
AGAINST_USUAL = ("blocked", "staging", "whole")

#: What counts as a spread: a z of 3, which flags one of a few dozen workers, is then waiting for the disk 1.5 times as
#: long as is usual, and tasks that are blocked 1.6 times as long. Chosen on FlowBench; half or twice does little.
SPREADS = {"io_wait": 0.13, "blocked": 0.16}

#: A host's disk is slow if its workers move data for so many times as long as is usual.
SLOWER = 1.2

#: Where a worker waits for the disk by this many times what flags it, it is why the others of its host are slow. Where
#: it is not so clear they remain suspects.
CLEARLY = 3.0

#: A worker that is blocked for longer by less has not been held up.
HELD_UP = 1.05


@dataclass(frozen=True, slots=True)
class Disks:
    """What a run says of the disks of its hosts.

    Parameters
    ----------
    scores
        ``io_wait`` of those that wait for the disk themselves, and ``blocked`` of those for which nothing tells who it
        is: all that their host is slow for.
    waiting
        By worker, whether it only waits for what another one does to the disk.
    whole
        By worker, how much longer its tasks take than is usual, data included, as a logarithm; NaN if not known.
    """

    scores: tuple[Scores, ...]
    waiting: Bool
    whole: Float64

    def effect(self, worker: int) -> float:
        """How many times as long as is usual a worker's tasks take; 1 or more."""
        return math.exp(max(float(np.nan_to_num(self.whole[worker])), 0.0))


def judge_disks(
    found: Mapping[str, Readings], hosts: Sequence[str], usuals: Mapping[str, Usual], behind: Float64, limit: float
) -> Disks | None:
    """Tell those that hold a disk up from those that wait for it.

    A slow disk makes all workers of its host slow, and comparing them with each other says nothing. So they are
    compared with what is usual. If some of a host wait for the disk in the kernel for longer than they usually do, they
    use it, and the others wait for them. If nobody does, those are suspects for which each single task is blocked for
    longer, not only those that met with another one's.

    Parameters
    ----------
    found
        Readings by signal.
    hosts
        By worker; a worker of which it is not known has a disk of its own.
    usuals
        What is usual, by signal.
    behind
        By worker, how much longer than the others of its host it takes to move data, as a logarithm.
    limit
        The z that flags a worker.

    Returns
    -------
    Disks, or None
        None where the times are not known, or what is usual is not.
    """
    needed = (*AGAINST_USUAL, "io_wait")
    if any(signal not in found or signal not in usuals for signal in needed):
        return None
    workers = len(hosts)
    off = {signal: _off(found[signal], usuals[signal].level) for signal in AGAINST_USUAL}
    mean = {signal: _means(found[signal].worker, values, workers) for signal, values in off.items()}
    waited = np.maximum(_off(found["io_wait"], usuals["io_wait"].high), 0.0)
    own = np.nan_to_num(_means(found["io_wait"].worker, waited, workers))
    own = np.where(np.nan_to_num(mean["blocked"]) > math.log(HELD_UP), own, 0.0)
    place = _places(hosts)
    waits = own / SPREADS["io_wait"]
    clear = _any(waits >= CLEARLY * limit, place)
    least = np.nan_to_num(_least(found["blocked"].worker, off["blocked"], workers), posinf=0.0)
    slow_disk = _middle(mean["staging"], place) > math.log(SLOWER)
    suspect = np.where(slow_disk & (behind >= -ROUNDING) & ~clear, np.maximum(least, 0.0), 0.0) / SPREADS["blocked"]
    flagged = (waits >= limit) | (suspect >= limit)
    held_up = np.nan_to_num(mean["blocked"]) > math.log(HELD_UP)
    scores = (
        _scores(found["io_wait"], own, waits, SPREADS["io_wait"]),
        _scores(found["blocked"], np.nan_to_num(mean["blocked"]), suspect, SPREADS["blocked"]),
    )
    return Disks(scores, held_up & ~flagged & _any(flagged, place), mean["whole"])


def _scores(readings: Readings, level: Float64, z: Float64, spread: float) -> Scores:
    count = np.bincount(readings.worker, minlength=len(level))
    return Scores(readings.signal, level, z, count, count > 0, spread)


def _off(readings: Readings, reference: Mapping[str, float]) -> Float64:
    """By reading, how much more than is usual for its work; NaN where that is not known."""
    usual = np.array([reference.get(kind, math.nan) for kind in readings.kinds], np.float64)
    found: Float64 = readings.value - usual[readings.work]
    return found


def _means(worker: Int64, values: Float64, workers: int) -> Float64:
    known = np.isfinite(values)
    count = np.bincount(worker[known], minlength=workers)
    total = np.bincount(worker[known], values[known], minlength=workers)
    return np.where(count > 0, total / np.maximum(count, 1), math.nan)


def _least(worker: Int64, values: Float64, workers: int) -> Float64:
    least = np.full(workers, math.inf)
    known = np.isfinite(values)
    np.minimum.at(least, worker[known], values[known])
    return least


def _places(hosts: Sequence[str]) -> Int64:
    """Position of each worker's host."""
    names: dict[object, int] = {}
    return np.array([names.setdefault(host or number, len(names)) for number, host in enumerate(hosts)], np.int64)


def _any(holds: Bool, place: Int64) -> Bool:
    found: Bool = np.bincount(place, holds, minlength=int(place.max(initial=0)) + 1)[place] > 0
    return found


def _middle(values: Float64, place: Int64) -> Float64:
    """By worker, the median of its host."""
    known = np.isfinite(values)
    return medians(values[known], place[known], int(place.max(initial=0)) + 1)[place]
