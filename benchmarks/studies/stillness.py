"""Monitoring data of a training fleet in which a machine stands still while its peers breathe.

A job is a timeline of states (compute, exchange, load, ...). A metric is the mean level of a second's states, with
lasting differences, noise, an exporter that refreshes it and a collector that loses samples. A fault acts where it
would: a hang on the levels, a stuck exporter on what it gives out. "Brief" is the order for this file.

References
----------
Minder, NSDI 2025 (arXiv 2411.01791). Holmes, NSDI 2025: irregular iterations. C4, HPCA 2025 (arXiv 2406.04594):
homogeneous load in synchronised iterations. ByteRobust (arXiv 2509.16293): job hangs. gpu-monitoring-tools issue 188,
dcgm-exporter issue 164, node_exporter issues 475, 2500: exporters that hang or give old values. NVIDIA, "Configure
Prometheus for DCGM Exporter": scrapes more frequent than refreshes return one sample more than once.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.random import Generator as Rng
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float32]
Ints: TypeAlias = NDArray[np.int64]

TRAIN, TUNE, REPORT = range(500_000, 520_000), range(520_000, 540_000), range(540_000, 560_000)  #: disjoint seeds
SECONDS, MACHINES = 900, (8, 400)  #: of a window (Minder, brief); of a job, log-uniform (brief)
FAULTY_SHARE, SPARSE_SHARE = 0.6, 0.35  #: of windows: faulty if left open; a sample in 5 s, not 1 s (our guess)
#: Shifts and swings: a third (brief). Half of the rest: hangs, as all papers tell of; a slow clock is rarest (guess).
KINDS = {"hung_process": 0.33, "stuck_exporter": 0.12, "stuck_subset": 0.13, "slow_clock": 0.09,
         "level_shift": 0.18, "swings": 0.15}  # fmt: skip
SIZES = ("obvious", "clear", "inside")  #: equally likely (brief: a third each)
#: Seconds of a fault; the obvious outlasts the window. Minder: most last over five minutes.
LASTS = {"obvious": (1000.0, 2000.0), "clear": (300.0, 600.0), "inside": (150.0, 360.0)}
OUTLASTS_SHARE = 0.7  #: of `from_start` faults that outlast the window at any size (our guess: nobody restarted it)
HUNG_OF_EIGHT = {"obvious": (8, 8), "clear": (5, 7), "inside": (2, 4)}  #: processes, one a GPU, that hang (our guess)
#: Hung metrics stay at their mean, in busy-waiting (NCCL spins: 100 % duty, no tensor work) or idle (the split: guess).
HOLDS = {"obvious": (0.35, 0.45, 0.20), "clear": (0.6, 0.4, 0.0), "inside": (1.0, 0.0, 0.0)}
SYNCHRONOUS_SHARE = 0.75  #: of jobs (C4: large ones synchronise each iteration; the number is our guess)
PEERS_WAIT_SHARE, PEERS_WAIT_SECONDS = 0.6, (20.0, 180.0)  #: hangs there after which peers wait, delay (our guess)
#: Stuck at a mean (inside: all), not the last value; obvious with rates 0; slow clocks of both exporters (our guess).
STUCK_AT_MEAN_SHARE, STUCK_RATE_SHARE, SLOW_ALL_SHARE = 0.3, 0.4, 0.5
SLOW_REFRESH = {"obvious": (90, 120), "clear": (60, 90), "inside": (30, 60)}  #: seconds (brief; DCGM's default is 30)
SHIFTS = {"obvious": (8.0, 16.0), "clear": (4.0, 6.0), "inside": (1.0, 2.5)}  #: in `Metric.spread` (our guess)
WORSE_SHARE, SWING_SECONDS = 0.85, (8.0, 60.0)  #: shifts to the worse side; mean stay of a swing (our guess)
JOINT_SHARE, JOINT_MACHINES = 0.12, 16  #: faults of 2 or 3 machines, as at one switch, in jobs that large (our guess)

REFRESH = {1: 0.6, 5: 0.2, 10: 0.1, 15: 0.1}  #: healthy exporter's seconds (brief: 1 to 15) and shares (our guess)
OLDER_JOBS, OLDER_MACHINES, OLDER_REFRESH = 0.15, (0.05, 0.3), 15  #: jobs with machines of older exporters (our guess)
ITERATION_SECONDS, COMPUTE_SHARE, EXCHANGE_SHARE = (3.0, 40.0), (0.5, 0.7), (0.12, 0.25)  #: the rest loads (guess)
IRREGULAR_SHARE, IRREGULAR_FACTOR = 0.015, 2.3  #: iterations (Holmes: over twice the time; the share is our guess)
WAVE_EVERY, WAVE_FACTOR = (5, 20), (2.0, 5.0)  #: every so many iterations loading takes longer (our guess: a shard)
SAVE_EVERY, SAVE_SECONDS = (200.0, 1200.0), (8.0, 50.0)  #: checkpoints (our guess)
EVALUATIONS, PAUSES = (1.2, (40.0, 180.0)), (0.9, (30.0, 240.0))  #: of a job in an hour, and seconds (our guess)
#: Jobs of 2 to 4 groups (pipeline stages), their difference in log; a job's factor on lasting spreads (our guess).
GROUPED_SHARE, GROUP_SPREAD, SPREAD_FACTOR = 0.5, 0.06, (0.5, 2.0)
STAGE_LAG, MACHINE_LAG = (0.0, 2.5), 1.0  #: seconds that a stage lags behind the last, and a machine (our guess)
WEAK_JOBS, WEAK_MACHINES, WEAK_DEPTH = 0.5, (0.02, 0.12), (0.35, 0.8)  #: lastingly weaker rhythm (our guess)
CONSTANT_JOBS, CONSTANT_MACHINES, POWER_CAP = 0.5, (0.02, 0.3, 1.0), (0.8, 0.97)  #: naturally constant (our guess)
INTEGER_SHARE = 0.6  #: of jobs with whole percent and degrees (DCGM fields 203, 150); others average GPUs (our guess)
LOST_SHARE, GAPS_PER_HOUR, GAP_SECONDS = (0.0005, 0.02), 0.25, (4.0, 60.0)  #: samples; a machine's gaps (our guess)
BURSTS_PER_HOUR, BURST_SECONDS, BURST_FACTOR = 0.8, (2.0, 45.0), (0.4, 1.5)  #: of a machine (Minder: jitter; guess)
HEAT_SECONDS, SLOW_SECONDS, WANDER_SECONDS = 50.0, 40.0, 250.0  #: metal, machine's noise, job's wander (our guess)
FINE, LEAD, MOST_LAG = 4, 150, 12  #: pieces of a second; seconds computed before a stretch, and for lags (ours)
COMPUTE, EXCHANGE, LOAD, SAVE, EVALUATE, PAUSE, WAIT = range(7)  #: states of the job, columns of `Metric.levels`


class Metric(NamedTuple):
    """How a metric looks on a healthy machine, 0 to 1, after DCGM's and node exporter's meaning; sizes are guesses."""

    exporter: str
    levels: tuple[float, ...]
    spread: float  #: lasting standard deviation of machines, as a share of the resting level
    noise: float  #: of a sample, likewise
    worse: int = -1  #: direction
    kind: str = "gauge"  #: or counter, read as a rate; or store, which does not follow the work
    step: float = 0.0  #: of whole numbers


#: Names of `tests.fleet.generated` where the meaning is one; the others after Minder, DCGM and node exporter.
METRICS: dict[str, Metric] = {
    "cpu_usage": Metric("host", (0.30, 0.34, 0.62, 0.70, 0.35, 0.08, 0.45), 0.03, 0.05, 1),
    "gpu_duty_cycle": Metric("gpu", (0.97, 0.80, 0.25, 0.10, 0.85, 0.00, 1.00), 0.010, 0.012, step=0.01),
    "gpu_tensor": Metric("gpu", (0.62, 0.12, 0.03, 0.00, 0.45, 0.00, 0.00), 0.02, 0.02),
    "gpu_power": Metric("gpu", (0.88, 0.62, 0.34, 0.25, 0.75, 0.18, 0.40), 0.02, 0.012),
    "gpu_temperature": Metric("gpu", (0.66, 0.58, 0.50, 0.46, 0.62, 0.38, 0.48), 0.035, 0.003, 1, step=0.01),
    "nvlink_bandwidth": Metric("gpu", (0.55, 0.40, 0.05, 0.10, 0.35, 0.00, 0.01), 0.02, 0.03, -1, "counter"),
    "pcie": Metric("gpu", (0.25, 0.30, 0.60, 0.70, 0.25, 0.01, 0.02), 0.03, 0.05, -1, "counter"),
    "throughput": Metric("host", (0.15, 0.80, 0.20, 0.45, 0.06, 0.01, 0.01), 0.025, 0.05, -1, "counter"),
    "network_received": Metric("host", (0.16, 0.82, 0.30, 0.10, 0.12, 0.01, 0.01), 0.025, 0.05, -1, "counter"),
    "network_sent": Metric("host", (0.15, 0.80, 0.08, 0.60, 0.04, 0.005, 0.01), 0.025, 0.05, -1, "counter"),
    "pfc_tx_rate": Metric("host", (0.015, 0.06, 0.01, 0.02, 0.01, 0.002, 0.004), 0.10, 0.45, 1, "counter"),
    "disk_read": Metric("host", (0.04, 0.04, 0.40, 0.03, 0.20, 0.01, 0.005), 0.05, 0.12, -1, "counter"),
    "memory_usage": Metric("host", (0.58, 0.58, 0.59, 0.63, 0.56, 0.56, 0.58), 0.02, 0.002, 1, "store"),
    "disk_usage": Metric("host", (0.41, 0.41, 0.41, 0.414, 0.41, 0.41, 0.41), 0.04, 0.0006, 1, "store"),
}


@dataclass(frozen=True, slots=True)
class Window:
    """Monitoring data of a job's machines, with what is true of them."""

    values: Floats  #: (metrics, machines, samples), 0 to 1, NaN where lost
    metrics: tuple[str, ...]
    faulty: tuple[int, ...]  #: machines; empty in a healthy window
    kind: str | None  #: one of `KINDS`
    onset: float | None  #: seconds from the first sample; 0 if there from the start
    past: Floats | None  #: the machines just before, healthy
    every_seconds: int = 1  #: between samples
    size: str | None = None  #: one of `SIZES`
    stop: float | None = None  #: seconds; may lie after the window


class _Job(NamedTuple):  # what stays with a job; arrays are (metrics, machines) unless said otherwise
    names: tuple[str, ...]
    every: int
    iteration: NDArray[np.float64]  # seconds of compute, exchange, load
    wave: tuple[int, float]
    save_every: float
    levels: Floats  # (metrics, states)
    rest: Floats  # (metrics,), as is the next
    spread: Floats
    gain: Floats
    depth: Floats
    lag: Ints  # (machines,), in pieces of a second
    constant: Floats  # NaN where the metric moves
    cap: Floats  # (machines,)
    refresh: Ints
    integers: bool
    lost: float


class _Fault(NamedTuple):
    kind: str
    size: str
    machines: Ints
    rows: Ints
    onset: float
    stop: float
    hold: str
    amount: float  # share that hangs, seconds of a refresh or swing, or 1 if rates are 0
    shifts: Floats
    peers_wait_at: float


def generate(seed: int, *, machines: int | None = None, faults: bool | None = None, past_seconds: int = 0,
             from_start: bool = False) -> Window:  # fmt: skip
    """One window of one job; `machines` (4 or more) and `faults` are drawn where left out.

    With `past_seconds` the stretch just before is given too, which does not change the window. With `from_start` the
    fault is there from the first sample, and a past is refused with a `ValueError`.
    """
    if (from_start and past_seconds) or (machines is not None and machines < 4):
        raise ValueError(f"{machines=}, {past_seconds=}, {from_start=}: expected 4 machines and no past from the start")
    rng = np.random.default_rng([seed, 71])
    job = _draw_job(rng, machines)
    faulty = rng.random() < FAULTY_SHARE if faults is None else faults
    fault = _draw_fault(np.random.default_rng([seed, 72]), job, from_start) if faulty else None
    if fault is not None:
        job.constant[:, fault.machines], job.cap[fault.machines] = np.nan, np.inf
    values = _stretch(job, [seed, 73], 0, SECONDS, fault)
    past = _stretch(job, [seed, 74], -past_seconds, past_seconds, None) if past_seconds else None
    if fault is None:
        return Window(values, job.names, (), None, None, past, job.every)
    broken, onset = tuple(sorted(fault.machines.tolist())), max(fault.onset, 0.0)
    return Window(values, job.names, broken, fault.kind, onset, past, job.every, fault.size, fault.stop)


def _draw_job(rng: Rng, machines: int | None) -> _Job:
    # A monitor has the network's two directions or their sum.
    network, other = (["throughput"], ["network_received", "network_sent"])[:: rng.choice([-1, 1])]
    chosen = ["cpu_usage", "gpu_duty_cycle", "gpu_power", *network]
    spare = [name for name in METRICS if name not in (*chosen, *other)]
    chosen += rng.permutation(spare)[: rng.integers(6, 11) - len(chosen)].tolist()
    names = tuple(name for name in METRICS if name in chosen)
    metrics = [METRICS[name] for name in names]
    count = round(np.exp(rng.uniform(*np.log(MACHINES)))) if machines is None else machines
    shape = (len(names), count)
    compute, exchange = rng.uniform(*COMPUTE_SHARE), rng.uniform(*EXCHANGE_SHARE)
    iteration = np.exp(rng.uniform(*np.log(ITERATION_SECONDS))) * np.array([compute, exchange, 1 - compute - exchange])
    wave = (int(rng.integers(*WAVE_EVERY)), float(rng.uniform(*WAVE_FACTOR)))
    levels = np.array([metric.levels for metric in metrics], np.float32) * rng.uniform(0.85, 1.0, (len(names), 1))
    shares = iteration * (1, 1, 1 + (wave[1] - 1) / wave[0])
    rest = levels[:, :3] @ (shares / shares.sum())
    spread = np.array([metric.spread for metric in metrics]) * rng.uniform(*SPREAD_FACTOR)
    stages = int(rng.integers(2, min(4, count // 4) + 1)) if rng.random() < GROUPED_SHARE and count >= 8 else 1
    stage = np.arange(count) * stages // count
    group = np.exp(rng.normal(0, GROUP_SPREAD, (len(names), stages)) * (stages > 1))[:, stage]
    gain = group * (1 + spread[:, None] * np.clip(rng.standard_t(5, shape) / np.sqrt(5 / 3), -4, 4))
    depth = rng.normal(1, 0.04, shape)
    if rng.random() < WEAK_JOBS:
        weak = (rng.random(count) < rng.uniform(*WEAK_MACHINES)) & (rng.random(shape) < rng.choice([0.5, 1.0]))
        depth = np.where(weak, rng.uniform(*WEAK_DEPTH, shape), depth)
    constant, cap = np.full(shape, np.nan), np.full(count, np.inf)
    for name, value in (("memory_usage", None), ("disk_usage", 1.0), ("disk_read", 0.0), ("gpu_power", None)):
        if name not in names or rng.random() >= CONSTANT_JOBS:
            continue
        row, some = names.index(name), rng.random(count) < rng.choice(CONSTANT_MACHINES)
        if name == "gpu_power":
            cap[some] = levels[row, COMPUTE] * rng.uniform(*POWER_CAP)
        else:
            constant[row, some] = gain[row, some] * rest[row] if value is None else value
    refresh = np.empty(shape, np.int64)
    for exporter in ("gpu", "host"):
        usual = rng.choice(list(REFRESH), p=list(REFRESH.values()))
        older = rng.random(count) < (rng.uniform(*OLDER_MACHINES) if rng.random() < OLDER_JOBS else 0)
        refresh[[metric.exporter == exporter for metric in metrics]] = np.where(older, OLDER_REFRESH, usual)
    lag = np.round(FINE * (stage * rng.uniform(*STAGE_LAG) + rng.uniform(0, MACHINE_LAG, count))).astype(np.int64)
    return _Job(
        names, 5 if rng.random() < SPARSE_SHARE else 1, iteration, wave, rng.uniform(*SAVE_EVERY),
        levels.astype(np.float32), rest.astype(np.float32), spread.astype(np.float32), gain.astype(np.float32),
        depth.astype(np.float32), lag, constant.astype(np.float32), cap.astype(np.float32), refresh,
        bool(rng.random() < INTEGER_SHARE), float(np.exp(rng.uniform(*np.log(LOST_SHARE)))),
    )  # fmt: skip


def _draw_fault(rng: Rng, job: _Job, from_start: bool) -> _Fault:
    kind, size = str(rng.choice(list(KINDS), p=list(KINDS.values()))), str(rng.choice(SIZES))
    metrics = [METRICS[name] for name in job.names]
    exporter = rng.choice(["gpu", "host"])
    rows, hold, amount, peers_wait_at = np.arange(len(metrics)), "", 0.0, np.inf
    lasts = rng.uniform(*LASTS[size])
    onset = rng.uniform(60, max(150, SECONDS - 60 - min(lasts, 400)))
    if from_start:  # early enough for heat to arrive
        onset, lasts = -120.0, 120 + (2 * SECONDS if rng.random() < OUTLASTS_SHARE else lasts)
    count = int(rng.integers(2, 4)) if len(job.lag) >= JOINT_MACHINES and rng.random() < JOINT_SHARE else 1
    if kind == "hung_process":
        rows = rows[[metric.kind != "store" for metric in metrics]]
        hold = str(rng.choice(["mean", "wait", "idle"], p=HOLDS[size]))
        amount = rng.integers(HUNG_OF_EIGHT[size][0], HUNG_OF_EIGHT[size][1] + 1) / 8
        if rng.random() < SYNCHRONOUS_SHARE * PEERS_WAIT_SHARE:
            peers_wait_at = max(onset, 0.0) + rng.uniform(*PEERS_WAIT_SECONDS)
    elif kind == "stuck_subset" or (kind == "slow_clock" and rng.random() >= SLOW_ALL_SHARE):
        rows = rows[[metric.exporter == exporter for metric in metrics]]
    if kind.startswith("stuck"):
        hold = "mean" if size == "inside" or rng.random() < STUCK_AT_MEAN_SHARE else "last"
        amount = float(size == "obvious" and rng.random() < STUCK_RATE_SHARE)
    elif kind == "slow_clock":
        amount = float(rng.integers(SLOW_REFRESH[size][0], SLOW_REFRESH[size][1] + 1))
    elif kind in ("level_shift", "swings"):
        rows, amount = rng.permutation(rows)[: rng.integers(1, 5)], rng.uniform(*SWING_SECONDS)
    signs = np.array([metrics[row].worse for row in rows]) * np.where(rng.random(len(rows)) < WORSE_SHARE, 1, -1)
    shifts = (signs * rng.uniform(*SHIFTS[size], len(rows)) * job.spread[rows] * job.rest[rows]).astype(np.float32)
    chosen = rng.permutation(len(job.lag))[:count]
    return _Fault(kind, size, chosen, rows, float(onset), float(onset + lasts), hold, amount, shifts, peers_wait_at)


def _timeline(rng: Rng, job: _Job, seconds: int) -> Ints:
    """State of the job in each piece of `seconds`."""
    saves = np.arange(rng.uniform(0, job.save_every), seconds, job.save_every)
    events = [(float(at), SAVE, rng.uniform(*SAVE_SECONDS)) for at in saves]
    for state, (rate, lasts) in ((EVALUATE, EVALUATIONS), (PAUSE, PAUSES)):
        count = rng.poisson(rate * seconds / 3600)
        events += [(rng.uniform(0, seconds), state, rng.uniform(*lasts)) for _ in range(count)]
    events.sort()
    period = float(job.iteration.sum())
    pieces, clock, number = [], -rng.uniform(0, period), int(rng.integers(job.wave[0]))
    while clock < seconds:
        if events and events[0][0] <= clock:
            _, state, length = events.pop(0)
            turns = int(length / (0.3 * period)) if state == EVALUATE else 0
            parts = [(EVALUATE, 0.24 * period), (LOAD, 0.06 * period)] * turns or [(state, length)]
        else:
            compute, exchange, load = (job.iteration * np.exp(rng.normal(0, 0.04, 3))).tolist()
            exchange += (IRREGULAR_FACTOR - 1) * period * (rng.random() < IRREGULAR_SHARE)
            load *= 1 if number % job.wave[0] else job.wave[1]
            parts, number = [(COMPUTE, compute), (EXCHANGE, exchange), (LOAD, load)], number + 1
        for state, length in parts:
            clock += length
            pieces.append((clock, state))
    ends, states = np.array(pieces).T
    return np.array(states[np.searchsorted(ends, np.arange(seconds * FINE) / FINE, side="right")], np.int64)


def _follow(values: Floats, seconds: float, first: float = 1.0) -> Floats:
    """`values` (..., samples) as something with this time constant follows them from `first` of the first."""
    followed = values.T.copy()
    followed[0] *= first
    for last, row in pairwise(followed):
        row += (last - row) * (1 - 1 / seconds)
    return followed.T


def _stretch(job: _Job, seed: list[int], start: int, seconds: int, fault: _Fault | None) -> Floats:
    """Samples of all machines from `start` on, in seconds of the window's clock."""
    rng = np.random.default_rng(seed)
    times = np.arange(start - LEAD, start + seconds)
    states = _timeline(rng, job, len(times) + MOST_LAG + 1)
    there = np.flatnonzero((times >= fault.onset) & (times < fault.stop)) if fault is not None else times[:0]
    if fault is not None:
        fine = times[0] - MOST_LAG + np.arange(len(states)) / FINE
        states[(fine >= fault.peers_wait_at) & (fine < fault.stop)] = WAIT
    spent = np.vstack([np.zeros(7), np.cumsum(np.eye(7)[states], axis=0)]).astype(np.float32)
    piece = (np.arange(len(times)) + MOST_LAG) * FINE - job.lag[:, None]
    values = np.moveaxis((spent[piece + FINE] - spent[piece]) / FINE @ job.levels.T, 2, 0).astype(np.float32)
    values = job.rest[:, None, None] + job.depth[:, :, None] * (values - job.rest[:, None, None])
    if fault is not None and fault.kind == "hung_process":
        target = {"mean": job.rest, "wait": job.levels[:, WAIT], "idle": job.levels[:, PAUSE]}[fault.hold]
        box = np.ix_(fault.rows, fault.machines, there)
        values[box] += np.float32(fault.amount) * (target[fault.rows, None, None] - values[box])
    for row in (row for row, name in enumerate(job.names) if name == "gpu_temperature"):
        values[row] = _follow(values[row], HEAT_SECONDS)
    values *= job.gain[:, :, None]
    wander, slowness = np.sqrt(2 * WANDER_SECONDS), np.sqrt(2 * SLOW_SECONDS)  # make the variance 1
    common = wander * _follow(rng.standard_normal((len(values), len(times)), np.float32), WANDER_SECONDS, 1 / wander)
    for row, noise in enumerate(METRICS[name].noise for name in job.names):
        white, slow = rng.standard_normal((2, *values[row].shape), np.float32)
        noises = noise * (white + 0.4 * slowness * _follow(slow, SLOW_SECONDS, 1 / slowness))
        noises += min(0.01, noise) * common[row]
        values[row] += job.rest[row] * np.sqrt(np.clip(values[row] / job.rest[row], 0.02, 4)) * noises  # as of counts
    if fault is not None and fault.kind in ("level_shift", "swings"):
        ramp = np.clip((times - fault.onset) / 10, 0, 1) * (times < fault.stop)
        for row, shift in zip(fault.rows, fault.shifts, strict=True):
            turns = np.cumsum(rng.random(len(times)) < 1 / fault.amount) % 2 if fault.kind == "swings" else 0
            values[row, fault.machines] += shift * ramp * (1 - 2 * turns)
    machines, bursting = len(job.lag), [row for row, name in enumerate(job.names) if METRICS[name].noise >= 0.01]
    for _ in range(rng.poisson(BURSTS_PER_HOUR * machines * len(times) / 3600)):
        rows, at = rng.permutation(bursting)[: rng.integers(1, 4)], rng.integers(len(times))
        lasts, factor = int(rng.uniform(*BURST_SECONDS)), np.float32(rng.uniform(*BURST_FACTOR))
        values[rows, rng.integers(machines), at : at + lasts] *= factor
    np.clip(values, 0, 1, out=values)
    _export(values, rng, there, job, fault)
    values = np.array(values[:, :, LEAD :: job.every], np.float32)
    values[rng.random(values.shape, np.float32) < job.lost] = np.nan
    for _ in range(rng.poisson(GAPS_PER_HOUR * machines * seconds / 3600)):
        at, stop = rng.integers(seconds) + np.array([0.0, rng.uniform(*GAP_SECONDS)])
        values[:, rng.integers(machines), int(at) // job.every : int(stop) // job.every + 1] = np.nan
    return values


def _export(values: Floats, rng: Rng, there: Ints, job: _Job, fault: _Fault | None) -> None:
    """Caps, whole numbers, constants, exporters' refreshes, and exporters that are stuck, in place."""
    number, phases = np.arange(values.shape[2]), rng.integers(0, 120, (len(job.lag), 1))
    for row, name in enumerate(job.names):
        metric, exported = METRICS[name], values[row]
        if name == "gpu_power":
            exported[:] = np.minimum(exported, job.cap[:, None] * (1 + 0.001 * rng.standard_normal(exported.shape)))
        if job.integers and metric.step:
            exported[:] = np.round(exported / metric.step) * metric.step
        exported[:] = np.where(np.isnan(job.constant[row][:, None]), exported, job.constant[row][:, None])
        refresh = np.repeat(job.refresh[row][:, None], len(number), axis=1)
        if fault is not None and fault.kind == "slow_clock" and row in fault.rows:
            refresh[np.ix_(fault.machines, there)] = int(fault.amount)
        exported[:] = np.take_along_axis(exported, np.maximum(number - (number + phases) % refresh, 0), axis=1)
        if fault is not None and fault.kind.startswith("stuck") and row in fault.rows:
            before = exported[fault.machines, : there[0]]
            kept = before[:, -90:].mean(axis=1) if fault.hold == "mean" else before[:, -1]
            exported[np.ix_(fault.machines, there)] = 0 if fault.amount and metric.kind == "counter" else kept[:, None]
