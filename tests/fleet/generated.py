"""A second generator of a training fleet's monitoring data, written from the Minder paper alone.

It shares no code and no sizes with the first one (`benchmarks.studies.generator`), on which the detectors'
settings were chosen. What it has that real fleets have: machines that differ lastingly, a training rhythm and
checkpoints common to all, bursts of jitter on single machines, harmless drifts, lost samples, counters' noise. Sizes
that the paper does not give are our guesses and say so. Everything follows from the seed; a window is the same with
and without a past, so that the two can be compared in pairs.

References
----------
Deng et al., "Minder: Faulty Machine Detection for Large-scale Distributed Model Training", NSDI 2025: tasks of 4 to
1500 machines, 15 minutes at one sample a second; by type of fault, how often it occurs, and how often it shows in each
group of metrics (table 1). It publishes no data: how far, how fast and for how long a metric moves are our guesses.
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
    """A change of one metric of one machine from an instant on."""

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
    """One fault from the paper's table, that lasts for ``visible`` seconds at least from its onset on.

    Machines that fail together have one cause, as behind a switch: the same groups show on all of them, within ten
    seconds, each as far as its own draw says.
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


#: Seeds to train models on, to choose settings with, and to report; no seed serves two purposes.
TRAIN, TUNE, REPORT = range(10_000, 20_000), range(20_000, 30_000), range(30_000, 40_000)

#: The paper's range of tasks; sizes are drawn evenly in their logarithm (our guess).
MIN_MACHINES, MAX_MACHINES = 4, 1500

#: Share of windows without a fault, where the caller leaves it open.
HEALTHY_SHARE = 1 / 3

#: Seconds of a fault that a window shows at least, if its pattern lasts as long: the paper's Minder, called every
#: eight minutes on fifteen, sees any onset with at least seven minutes left in one of its windows.
MIN_VISIBLE = 300.0

#: Bursts of one machine's jitter: how many a machine has in an hour, median seconds and spread of their lengths, and
#: by what they multiply a metric. Our guesses; the paper says that jitter is common and shorter than a fault.
BURSTS_PER_HOUR, BURST_MEDIAN, BURST_SIGMA, BURST_FACTOR = 1.0, 12.0, 0.9, (0.3, 1.6)
MIN_BURST, MAX_BURST = 2.0, 120.0

#: Share of single samples lost, and gaps of a whole machine in an hour, with their seconds (our guesses).
LOST_SHARE, GAPS_PER_HOUR, GAP_SECONDS = 0.004, 0.3, (5.0, 40.0)

#: Share of machines with a harmless drift of their own, and its size as a share of the level (our guess: heat).
DRIFTING_SHARE, DRIFT_SIZE = 0.06, (0.005, 0.03)

#: Share of machines whose metric stands off the fleet by `Metric.lasting`; the others are within half a percent.
STANDING_OFF_SHARE = 0.3


@dataclass(frozen=True, slots=True)
class Metric:
    """Behaviour of a metric on a healthy machine, normalised to 0..1. Sizes are our guesses."""

    name: str
    #: Range of a task's level.
    level: tuple[float, float]
    #: How far the training step moves it, as a share of the level; negative is low while the GPU computes.
    swing: float
    #: What is left of it, on all machines, while a checkpoint is written.
    checkpoint: float
    #: Lasting difference of a machine that stands off, as a share of the level.
    lasting: tuple[float, float]
    #: Noise of a sample, as a share of the level.
    noise: float
    #: Common slow wander, as a share of the level.
    wander: float
    #: A rate read from a counter: a late reading takes from one second what it gives to the next.
    counter: bool = False


METRICS: tuple[Metric, ...] = (
    Metric("cpu_usage", (0.20, 0.50), -0.10, 1.3, (0.01, 0.03), 0.030, 0.02),
    Metric("gpu_duty_cycle", (0.80, 0.96), 0.06, 0.4, (0.01, 0.02), 0.012, 0.01),
    Metric("gpu_power", (0.60, 0.85), 0.10, 0.5, (0.01, 0.03), 0.010, 0.01),
    Metric("gpu_temperature", (0.55, 0.65), 0.004, 0.98, (0.02, 0.06), 0.002, 0.02),
    Metric("pfc_tx_rate", (0.01, 0.04), -0.20, 0.8, (0.01, 0.03), 0.500, 0.10, counter=True),
    Metric("throughput", (0.40, 0.70), -0.30, 0.6, (0.01, 0.03), 0.030, 0.01, counter=True),
    Metric("nvlink_bandwidth", (0.30, 0.60), 0.20, 0.3, (0.01, 0.03), 0.025, 0.01, counter=True),
    Metric("memory_usage", (0.45, 0.70), 0.0, 1.02, (0.01, 0.03), 0.0015, 0.005),
    Metric("disk_usage", (0.20, 0.60), 0.0, 1.005, (0.01, 0.03), 0.0005, 0.002),
)
NAMES = tuple(metric.name for metric in METRICS)

#: Metrics that drift harmlessly on single machines: heat, what heat costs, and the page cache.
DRIFTING = ("gpu_temperature", "gpu_power", "memory_usage")


@dataclass(frozen=True, slots=True)
class FleetWindow:
    """Monitoring data of one task's machines, with what is true of them."""

    #: Shape (metrics, machines, samples), one sample a second, 0..1, NaN where a sample was lost.
    values: NDArray[np.float32]
    metrics: tuple[str, ...]
    #: Numbers of the faulty machines; empty in a healthy window.
    faulty: tuple[int, ...]
    kind: str | None
    #: Seconds from the window's first sample; negative where the fault was there before.
    onset: float | None
    #: The same for when the task halts, from when on all machines look alike.
    stop: float | None
    #: The same machines just before, of shape (metrics, machines, past samples).
    past: NDArray[np.float32] | None


@dataclass(frozen=True, slots=True)
class _Task:
    """Constants of a task: its machines' lasting differences and its rhythm."""

    levels: NDArray[np.float64]
    #: Shape (metrics, machines), about 1.
    standing: NDArray[np.float32]
    step_seconds: float
    #: Part of a second by which a machine's collector is behind.
    behind: NDArray[np.float64]
    checkpoint_every: float
    checkpoint_seconds: float
    checkpoint_at: float
    #: Common wander: phases by metric and harmonic.
    phases: NDArray[np.float64]
    #: Harmless drifts, (metrics, machines): size, start and length.
    drifts: NDArray[np.float64]


def generate(
    seed: int,
    *,
    machines: int | None = None,
    seconds: int = 900,
    past_seconds: int = 0,
    faults: bool | None = None,
    concurrent: int = 1,
    onset_before: bool = False,
) -> FleetWindow:
    """One window of one task.

    Machines, and whether there is a fault, are drawn where left out. The past is just before the window, and does not
    change it. With ``onset_before``, the fault is there when the window begins, since one to ten minutes.
    """
    rng = np.random.default_rng([seed, 0])
    machines = _machines(rng) if machines is None else machines
    if not 2 * concurrent < machines:
        raise ValueError(f"concurrent={concurrent} of machines={machines} fail: expected less than half")
    has_fault = rng.random() >= HEALTHY_SHARE if faults is None else faults
    task = _draw_task(rng, machines)
    fault = None
    if has_fault:
        rng = np.random.default_rng([seed, 1])
        onset = -rng.uniform(60, 600) if onset_before else rng.uniform(min(60, seconds / 4), _last_onset(seconds))
        visible = MIN_VISIBLE - onset if onset_before else 0.0
        fault = draw_fault(rng, machines=machines, concurrent=concurrent, onset=onset, visible=visible)
    return _window(
        _stretch(task, [seed, 2], 0, seconds, (fault,)),
        fault,
        _stretch(task, [seed, 3], -past_seconds, past_seconds, (fault,)) if past_seconds else None,
    )


def _machines(rng: np.random.Generator) -> int:
    return round(float(np.exp(rng.uniform(np.log(MIN_MACHINES), np.log(MAX_MACHINES)))))


def _last_onset(seconds: int) -> float:
    return max(seconds - MIN_VISIBLE, seconds / 2)


def _window(
    values: NDArray[np.float32], fault: Fault | None, past: NDArray[np.float32] | None, start: float = 0.0
) -> FleetWindow:
    if fault is None:
        return FleetWindow(values, NAMES, (), None, None, None, past)
    return FleetWindow(values, NAMES, fault.machines, fault.kind, fault.onset - start, fault.stop - start, past)


def _standing(rng: np.random.Generator, machines: int) -> NDArray[np.float32]:
    shape = (len(METRICS), machines)
    low, high = np.array([metric.lasting for metric in METRICS]).T[:, :, None]
    far = rng.choice([-1.0, 1.0], shape) * rng.uniform(low, high, shape)
    near = np.clip(rng.normal(0, 0.003, shape), -0.005, 0.005)
    return (1 + np.where(rng.random(shape) < STANDING_OFF_SHARE, far, near)).astype(np.float32)


def _draw_task(rng: np.random.Generator, machines: int) -> _Task:
    shape = (len(METRICS), machines)
    drifts = np.stack(
        [
            rng.choice([-1.0, 1.0], shape) * rng.uniform(*DRIFT_SIZE, shape) * (rng.random(shape) < DRIFTING_SHARE),
            rng.uniform(-1800, 900, shape),
            rng.uniform(300, 1800, shape),
        ]
    )
    drifts[0, [name not in DRIFTING for name in NAMES]] = 0
    return _Task(
        levels=np.array([rng.uniform(*metric.level) for metric in METRICS]),
        standing=_standing(rng, machines),
        step_seconds=rng.uniform(2, 30),
        behind=rng.uniform(0, 1, machines),
        checkpoint_every=rng.uniform(300, 1200),
        checkpoint_seconds=rng.uniform(10, 40),
        checkpoint_at=rng.uniform(0, 1200),
        phases=rng.uniform(0, 2 * np.pi, (len(METRICS), 3)),
        drifts=drifts,
    )


def _stretch(
    task: _Task, seed: list[int], start: float, seconds: int, faults: tuple[Fault | None, ...]
) -> NDArray[np.float32]:
    """Samples of all machines from `start` on, in seconds of the task's clock."""
    rng = np.random.default_rng(seed)
    times = start + np.arange(seconds, dtype=float)
    values = _healthy(task, rng, times)
    _jitter(values, rng)
    for fault in faults:
        if fault is not None:
            apply_fault(values, times, fault, metrics=NAMES)
    np.clip(values, 0, 1, out=values)
    _lose(values, rng)
    return values


def _healthy(task: _Task, rng: np.random.Generator, times: NDArray[np.float64]) -> NDArray[np.float32]:
    machines = task.standing.shape[1]
    turn = 2 * np.pi * (times[None, :] - task.behind[:, None]) / task.step_seconds
    wave = (np.sin(turn) + 0.3 * np.sin(2 * turn)).astype(np.float32)
    saving = (times - task.checkpoint_at) % task.checkpoint_every < task.checkpoint_seconds
    hiccups = 1 - 0.3 * _hiccups(rng, times)
    # Slow noise of each machine: its own draw every twenty seconds, with straight lines between.
    knots = np.arange(0, len(times) + 20, 20)
    between = np.maximum(0, 1 - np.abs(np.arange(len(times))[None, :] - knots[:, None]) / 20).astype(np.float32)
    values = np.empty((len(METRICS), machines, len(times)), np.float32)
    for number, metric in enumerate(METRICS):
        harmonics = 2 * np.pi * times[None, :] / np.array([[7200.0], [2700.0], [1100.0]])
        common = 1 + metric.wander / 3 * np.sin(harmonics + task.phases[number][:, None]).sum(axis=0)
        common = common * np.where(saving, metric.checkpoint, 1)
        if abs(metric.swing) > 0.01:
            common = common * hiccups
        size, began, length = task.drifts[:, number]
        drift = size[:, None] * np.clip((times[None, :] - began[:, None]) / length[:, None], 0, 1)
        noise = rng.standard_normal((machines, len(times)), np.float32)
        if metric.counter:
            noise[:, 1:] -= 0.5 * noise[:, :-1].copy()
        slow = rng.standard_normal((machines, len(knots)), np.float32) @ between
        shares = metric.noise * (noise + 0.5 * slow)
        level = (task.levels[number] * common).astype(np.float32)
        values[number] = level * (task.standing[number][:, None] + drift) * (1 + metric.swing * wave) * np.exp(shares)
    return values


def _hiccups(rng: np.random.Generator, times: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 while a stall of the input holds all machines up, about once in five minutes for some seconds, else 0."""
    held = np.zeros(len(times))
    for _ in range(rng.poisson(len(times) / 300)):
        start = rng.integers(len(times))
        held[start : start + rng.integers(3, 15)] = 1
    return held


def _jitter(values: NDArray[np.float32], rng: np.random.Generator) -> None:
    """Bursts on single machines, in one to three metrics each."""
    metrics, machines, samples = values.shape
    for _ in range(rng.poisson(BURSTS_PER_HOUR * machines * samples / 3600)):
        lasts = np.clip(BURST_MEDIAN * np.exp(BURST_SIGMA * rng.standard_normal()), MIN_BURST, MAX_BURST)
        machine, start = rng.integers(machines), rng.integers(samples)
        for metric in rng.permutation(metrics)[: rng.integers(1, 4)]:
            quiet = NAMES[metric] in ("gpu_temperature", "memory_usage", "disk_usage")
            factor = 1 + (rng.uniform(*BURST_FACTOR) - 1) * (0.1 if quiet else 1.0)
            values[metric, machine, start : start + int(lasts)] *= np.float32(factor)


def _lose(values: NDArray[np.float32], rng: np.random.Generator) -> None:
    """Single samples and whole machines that were not heard."""
    _, machines, samples = values.shape
    values[rng.random(values.shape, np.float32) < LOST_SHARE] = np.nan
    for _ in range(rng.poisson(GAPS_PER_HOUR * machines * samples / 3600)):
        machine, start = rng.integers(machines), rng.integers(samples)
        values[:, machine, start : start + int(rng.uniform(*GAP_SECONDS))] = np.nan
