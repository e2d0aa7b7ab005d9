"""Observations: one signal of a run, with a number for each task, transfer or heartbeat, and corrected for size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dask_efficiency.accounts.tables import Bool, Float64, Int64
from dask_efficiency.straggler.peers import MIN_SHARE, NOISE, THREE_SIGMA
from dask_efficiency.straggler.signals import FAR_MORE, FINISHED, GIANT, MIN_TRANSFER_BYTES

#: Seconds of wait for the disk below which it counts as none: kernels count in hundredths or tenths.
IO_WAIT_SECONDS = 0.1
#: Assumed resolution of clocks, in seconds. A guess.
CLOCK_SECONDS = 1e-3


@dataclass(frozen=True, slots=True)
class Observations:
    """One signal of a run, of :data:`~dask_efficiency.straggler.signals.FINISHED`, by observation; larger is worse."""

    signal: str
    #: Index of the worker, and in ``kinds``; observations of one kind of work are compared.
    worker: Int64
    work: Int64
    #: Logarithm of a time, of a time a byte, or of a share, so that a difference is the logarithm of a ratio.
    value: Float64
    #: Weight of the observation for its worker, above 0.
    weight: Float64
    #: Logarithm of the bytes that the value may depend on; NaN if unknown.
    size: Float64
    #: Seconds.
    at: Float64
    #: Whether the value is only a lower bound, as the task has not ended.
    censored: Bool
    #: Names of the kinds of work, by which runs are compared with earlier ones.
    kinds: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.signal not in FINISHED:
            raise ValueError(f"there is no signal {self.signal[:80]!r}; expected one of {', '.join(FINISHED)}")

    def take(self, rows: Bool) -> Observations:
        """Some of the observations."""
        names = ("worker", "work", "value", "weight", "size", "at", "censored")
        return replace(self, **{name: getattr(self, name)[rows] for name in names})


@dataclass(frozen=True, slots=True)
class TaskTimes:
    """Tasks that ran, or still run, in seconds and bytes; NaN if unknown."""

    #: Index of the worker, and in ``kinds`` of the prefix within a group of comparable workers.
    worker: Int64
    kind: Int64
    kinds: tuple[str, ...]
    #: When the task was in its thread; if it has not ended, until the last instant of the run.
    start: Float64
    stop: Float64
    running: Bool
    #: Seconds on the CPU; moving data between memory and disk before ``start`` or after ``stop``; blocked on the disk
    #: between them; and fetching inputs from other workers.
    cpu: Float64
    disk: Float64
    io_wait: Float64
    transfer: Float64
    input_bytes: Float64


def observations_of(work: TaskTimes) -> list[Observations]:
    """Signals that tasks show."""
    took = work.stop - work.start
    tick = _tick(took)
    took = np.maximum(took, tick)
    cpu = np.minimum(work.cpu, took)
    computing = cpu >= MIN_SHARE * took
    share = np.where(computing, np.maximum(cpu, MIN_SHARE * took) / took, np.nan)
    spare = np.where(computing, took - cpu + MIN_SHARE * took, np.nan)
    size = np.log(np.fmax(work.input_bytes, 0.0) + 1.0)
    # Longer tasks count for more, within a bound. Without it a healthy worker is named in 25 of 40 runs, in place of 2,
    # as 2 of its 40 tasks take 20 times as long.
    of_time = np.sqrt(np.minimum(took, FAR_MORE * medians(took, work.kind, len(work.kinds))[work.kind]))
    alike, unsized, ended = np.ones(len(took)), np.full(len(took), np.nan), ~work.running
    non_cpu = (np.log(spare) - np.log(share * took + MIN_SHARE * took)) / 2
    moving = np.fmax(work.disk, 0.0)
    whole = np.where(np.isfinite(work.disk) & np.isfinite(work.io_wait), took + moving, np.nan)
    large = ended & (work.transfer > 0) & ~(np.maximum(work.input_bytes, 1.0) < MIN_TRANSFER_BYTES)
    of_signals = []
    for signal, value, weight, size_of, rows in (
        ("duration", np.log(took), of_time, size, alike > 0),
        ("cpu_share", -np.log(share), of_time, unsized, ended),
        ("non_cpu", non_cpu, of_time, unsized, ended),
        ("disk", np.log(np.maximum(work.disk, _tick(work.disk))), alike, size, ended),
        ("io_wait", np.log(work.io_wait + IO_WAIT_SECONDS), alike, unsized, ended),
        ("blocked", np.log(whole - cpu + tick), alike, unsized, ended),
        ("staging", np.log(moving + tick), alike, unsized, ended & np.isfinite(whole)),
        ("whole", np.log(whole), alike, unsized, ended),
        ("receive", np.log(np.where(large, work.transfer, 1.0)), alike, size, large),
    ):
        args = (signal, work.worker, work.kind, value, weight, size_of, work.start, work.running, work.kinds)
        of_signals.append(Observations(*args).take(rows & np.isfinite(value)))
    return [observations for observations in of_signals if len(observations.value)]


def _tick(seconds: Float64) -> float:
    """Resolution of the clock that measured the times: one second where all of them are whole."""
    known = seconds[np.isfinite(seconds)]
    return 1.0 if len(known) and known.max() > 0 and bool((known == np.rint(known)).all()) else CLOCK_SECONDS


def compare_by(signal: str, worker: Int64, other: Sequence[str], value: Float64, at: Float64) -> Observations:
    """Observations that are compared where something else is equal, such as the other end of a transfer."""
    names, work = np.unique(np.asarray(other, dtype=object).astype(str), return_inverse=True)
    alike, unsized, ended = np.ones(len(value)), np.full(len(value), np.nan), np.zeros(len(value), np.bool_)
    kinds = tuple(names.tolist())
    compared = Observations(signal, worker, work.astype(np.int64), value, alike, unsized, at, ended, kinds)
    return compared.take(np.isfinite(value))


def medians(values: Float64, group: Int64, groups: int) -> Float64:
    """Median of each group's values; NaN for an empty group."""
    order = np.lexsort((values, group))
    counts = np.bincount(group, minlength=groups)
    first = np.cumsum(counts) - counts
    middle = np.full(groups, np.nan)
    some = counts > 0
    ordered = values[order]
    low, high = first[some] + (counts[some] - 1) // 2, first[some] + counts[some] // 2
    middle[some] = (ordered[low] + ordered[high]) / 2
    return middle


#: Sizes count where they differ by more than this factor from the median of their kind of work: a slope that is fitted
#: to less is chance. Without it healthy workers whose inputs are 0.75 times as large as the others', and hardly differ
#: on each worker, are named in 27 of 40 runs, in place of none.
SIZES_DIFFER = 2.0
#: Giants are left out if they are at most this share of their work's observations; a guess.
FEW_GIANTS = 0.1

#: Least deviation from a worker's median, as a logarithm, that differences are winsorised in multiples of.
MIN_SPREAD = math.sqrt(NOISE)
#: Greatest power of its size by which a task's time grows: beyond n log n, short of n squared. A guess.
MAX_POWER = 1.5


def sized(observations: Observations, workers: int) -> Observations:
    """Subtract what their size explains, by differences within workers, where sizes differ much in a kind of work."""
    observations = without_giants(observations)
    known = np.isfinite(observations.size)
    if not known.any():
        return observations
    kinds, work, value = len(observations.kinds), observations.work, observations.value
    place = work * workers + observations.worker
    middle = medians(observations.size[known], work[known], kinds)
    x = np.where(known, observations.size, 0.0) - np.where(known, middle[work], 0.0)
    far = np.zeros(kinds)
    np.maximum.at(far, work, np.abs(x))
    x_in = x - medians(x, place, kinds * workers)[place]
    y_in = value - medians(value, place, kinds * workers)[place]
    usual = np.maximum(medians(np.abs(y_in), work, kinds), MIN_SPREAD)[work]
    limit = THREE_SIGMA * usual + MAX_POWER * np.abs(x_in)
    y_in = np.clip(y_in, -limit, limit)
    cross = np.bincount(work, x_in * y_in, minlength=kinds)
    square = np.bincount(work, x_in * x_in, minlength=kinds)
    known = (square > 1e-9) & (far > math.log(SIZES_DIFFER))
    slope = np.where(known, np.clip(cross / np.maximum(square, 1e-9), 0.0, MAX_POWER), 0.0)
    return replace(observations, value=value - slope[work] * x, size=np.full(len(value), np.nan))


def without_giants(observations: Observations) -> Observations:
    """Drop the few observations far larger than others of their work, whose expected time is unknown."""
    known = np.isfinite(observations.size)
    if not known.any():
        return observations
    kinds, work = len(observations.kinds), observations.work
    middle = medians(observations.size[known], work[known], kinds)[work]
    with np.errstate(invalid="ignore"):
        giant = observations.size > middle + GIANT
    few = np.bincount(work[giant], minlength=kinds) <= FEW_GIANTS * np.bincount(work, minlength=kinds)
    return observations.take(~(giant & few[work]))
