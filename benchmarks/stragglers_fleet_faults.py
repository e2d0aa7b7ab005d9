"""Faults of a training fleet's machines and what they do to monitored metrics, after table 1 of the Minder paper.

The paper (Deng et al., "Minder: Faulty Machine Detection for Large-scale Distributed Model Training", NSDI 2025)
gives how often each type occurs and, for each type, how often it shows in each group of metrics. It does not publish
data, so how far, how fast and for how long a metric moves are our guesses; each constant says which it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

#: Groups of metrics in the columns of the paper's table 1, and the metrics of ours that show them.
GROUPS: dict[str, tuple[str, ...]] = {
    "cpu": ("cpu_usage",),
    "gpu": ("gpu_duty_cycle", "gpu_power", "gpu_temperature"),
    "pfc": ("pfc_tx_rate",),
    "throughput": ("throughput", "nvlink_bandwidth"),
    "disk": ("disk_usage",),
    "memory": ("memory_usage",),
}

#: Type: (share of all faults in percent, percent of them that show in each group, in the order of `GROUPS`).
#: The shares and the first three rows are the paper's; of the other rows we had only the paper's account of which
#: groups move (all of them in CPU or GPU, few in PFC or disk), and the numbers are our guesses. Its class "others"
#: (10.3 %) has no row and is left out.
FAULTS: dict[str, tuple[float, tuple[float, float, float, float, float, float]]] = {
    "ECC error": (38.9, (80.0, 65.7, 8.6, 45.7, 11.4, 57.1)),
    "PCIe downgrading": (6.6, (0.0, 8.3, 100.0, 33.3, 0.0, 0.0)),
    "NIC dropout": (5.7, (100.0, 100.0, 0.0, 100.0, 0.0, 100.0)),
    "GPU card drop": (2.0, (75.0, 70.0, 5.0, 40.0, 10.0, 55.0)),
    "NVLink error": (1.7, (66.0, 60.0, 15.0, 50.0, 0.0, 60.0)),
    "AOC error": (0.9, (25.0, 25.0, 50.0, 25.0, 0.0, 25.0)),
    "CUDA execution error": (14.6, (60.0, 75.0, 5.0, 40.0, 10.0, 50.0)),
    "GPU execution error": (7.7, (50.0, 70.0, 20.0, 45.0, 5.0, 35.0)),
    "HDFS error": (5.7, (60.0, 45.0, 0.0, 40.0, 10.0, 30.0)),
    "machine unreachable": (6.0, (85.0, 70.0, 0.0, 55.0, 5.0, 55.0)),
}

#: Types that spread over the task's communication groups, which the paper gives as its reason for a lower recall.
SPREADING = frozenset({"PCIe downgrading", "GPU execution error", "NIC dropout", "AOC error"})

#: How far a metric moves, as (least, most) share of its level; negative falls. PFC is added, in units of its scale.
#: Our guesses: a process that hangs or dies leaves its machine idle, a slowed one is at a part of its level.
MOVES: dict[str, tuple[float, float]] = {
    "cpu_usage": (-0.80, -0.25),
    "gpu_duty_cycle": (-0.90, -0.20),
    "gpu_power": (-0.60, -0.15),
    "gpu_temperature": (-0.30, -0.08),
    "pfc_tx_rate": (0.15, 0.80),
    "throughput": (-0.90, -0.25),
    "nvlink_bandwidth": (-0.90, -0.20),
    "disk_usage": (0.05, 0.25),
    "memory_usage": (-0.50, -0.08),
}

#: Share of faults that are mild, and by what their moves are multiplied (our guess: the paper's fail-slow cases).
MILD_SHARE, MILD_FACTOR = 0.25, (0.35, 0.6)

#: Share of faults in which busy-waiting or core dumps make the CPU rise instead of fall (our guess).
CPU_RISES_SHARE = 0.3

#: How long the pattern lasts before the task halts. The paper: most last over five minutes. A lognormal with this
#: median has a fifth under five minutes; the spread and the bounds are our guesses.
DURATION_MEDIAN, DURATION_SIGMA, MIN_DURATION, MAX_DURATION = 500.0, 0.6, 120.0, 1800.0

#: Of each metric, what is left on every machine once the task has halted (our guess).
HALTED: dict[str, float] = {
    "cpu_usage": 0.3,
    "gpu_duty_cycle": 0.03,
    "gpu_power": 0.3,
    "pfc_tx_rate": 0.1,
    "throughput": 0.03,
    "nvlink_bandwidth": 0.02,
}

#: Metrics that the wait for a slow machine lowers on all the others.
WAITING = ("gpu_duty_cycle", "gpu_power", "throughput", "nvlink_bandwidth")


@dataclass(frozen=True, slots=True)
class Move:
    """What one metric of one machine does from an instant on."""

    metric: str
    machine: int
    #: Share of the level, or for PFC of its scale; negative falls.
    size: float
    start: float
    ramp_seconds: float


@dataclass(frozen=True, slots=True)
class Fault:
    """One cause and all that it moves, in seconds of the window's clock (0 at its first sample)."""

    kind: str
    machines: tuple[int, ...]
    onset: float
    #: When the whole task halts, and from when on all machines look alike.
    stop: float
    moves: tuple[Move, ...]
    #: Share by which every machine that waits for the faulty one is slowed, and when that begins.
    slowdown: float
    slowdown_start: float


def draw_fault(rng: np.random.Generator, *, machines: int, concurrent: int, onset: float, visible: float) -> Fault:
    """One fault from the paper's table.

    Parameters
    ----------
    machines
        Machines in the task.
    concurrent
        How many of them fail together from one cause, as behind a switch: the same groups show on all of them,
        within ten seconds, each as far as its own draw says.
    onset
        When it begins, in seconds of the window's clock.
    visible
        Seconds that it lasts at least.
    """
    names = list(FAULTS)
    shares = np.array([FAULTS[name][0] for name in names])
    kind = names[rng.choice(len(names), p=shares / shares.sum())]
    shown = _shown_groups(rng, kind)
    drawn = DURATION_MEDIAN * np.exp(DURATION_SIGMA * rng.standard_normal())
    stop = onset + max(visible, float(np.clip(drawn, MIN_DURATION, MAX_DURATION)))
    factor = rng.uniform(*MILD_FACTOR) if rng.random() < MILD_SHARE else 1.0
    rises = rng.random() < CPU_RISES_SHARE
    chosen = rng.permutation(machines)
    faulty, others = chosen[:concurrent], chosen[concurrent:]
    spread = others[: min(3, machines // 8)] if kind in SPREADING else others[:0]
    moves: list[Move] = []
    for machine, late, share in (
        *((m, rng.uniform(0, 10) if concurrent > 1 else 0.0, factor) for m in faulty),
        *((m, rng.uniform(20, 60), factor * rng.uniform(0.1, 0.35)) for m in spread),
    ):
        ramp = rng.uniform(1, 20)
        for metric in (metric for group in shown for metric in GROUPS[group]):
            size = share * rng.uniform(*MOVES[metric])
            if metric == "cpu_usage" and rises:
                size = -size
            moves.append(Move(metric, int(machine), size, onset + late, ramp))
    return Fault(
        kind=kind,
        machines=tuple(sorted(int(m) for m in faulty)),
        onset=onset,
        stop=stop,
        moves=tuple(moves),
        slowdown=rng.uniform(0.0, 0.3) * factor,
        slowdown_start=onset + rng.uniform(5, 40),
    )


def _shown_groups(rng: np.random.Generator, kind: str) -> tuple[str, ...]:
    """The groups in which this fault shows; one that shows in none is nobody's to find and is drawn again."""
    shares = np.array(FAULTS[kind][1]) / 100
    while True:
        shown = rng.random(len(shares)) < shares
        if shown.any():
            return tuple(group for group, shows in zip(GROUPS, shown, strict=True) if shows)


def apply_fault(
    values: NDArray[np.float32], times: NDArray[np.float64], fault: Fault, *, metrics: Sequence[str]
) -> None:
    """Change healthy `values` (metrics, machines, samples) at `times` (samples) in place as the fault would."""
    before_halt = times < fault.stop
    slowed = 1 - fault.slowdown * np.clip((times - fault.slowdown_start) / 20, 0, 1)
    for metric in WAITING:
        values[metrics.index(metric)] *= np.where(before_halt, slowed, 1).astype(np.float32)
    for move in fault.moves:
        since = times - move.start
        grown = np.clip(since / move.ramp_seconds, 0, 1)
        if move.metric == "gpu_temperature":
            # Metal cools slower than its load falls.
            grown = 1 - np.exp(-np.maximum(since, 0) / 90)
        grown = np.where(before_halt, grown, 0)
        row = values[metrics.index(move.metric), move.machine]
        if move.metric == "pfc_tx_rate":
            # Pause frames come in bursts: the machine's own noise, an order above its level.
            row += (move.size * grown).astype(np.float32) * (row / max(float(np.median(row)), 1e-6)).clip(0.3, 2)
        else:
            row *= (1 + move.size * grown).astype(np.float32)
    for metric, left in HALTED.items():
        values[metrics.index(metric)] *= np.where(before_halt, 1, left).astype(np.float32)
