"""Monitoring data of training jobs with known faulty machines, after what Minder's paper tells of its own.

Written and committed before any detector was tuned on it. Seeds decide everything: :data:`TRAIN` is what models learn
from, :data:`TUNE` what thresholds are chosen on, :data:`REPORT` what figures are reported of.

The mix of the faults is that of the paper's table 1 (seven months of production). How often a fault shows in a metric
follows that table too, rounded, as does what the paper describes: 4 to 1500 machines, a sample a second, bursts of
jitter that last seconds to minutes, faults that last minutes, PCIe and GPU execution faults that spread to the
machines of a group, machines that stop answering. A fault may show in no metric at all, and a third of the windows
have no fault. All sizes of effects are our guesses, in units of a metric's own noise.

References
----------
Deng et al., "Minder: Faulty Machine Detection for Large-scale Distributed Model Training", NSDI 2025.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

#: Seeds of windows: to learn from, to choose thresholds on, to report.
TRAIN = range(1000, 1040)
TUNE = range(2000, 2150)
REPORT = range(3000, 3300)

SECONDS = 900

#: Share of the windows without a fault.
FAULT_FREE = 1 / 3


@dataclass(frozen=True, slots=True)
class Metric:
    """Behaviour of a metric while all is well."""

    #: Usual value, and the standard deviation of a machine's noise.
    base: float
    noise: float
    #: Share of the base with which it shows the job's common rhythm.
    follows: float
    #: Whether faults make it fall (or else rise), mostly.
    falls: bool


METRICS = {
    "cpu": Metric(40.0, 2.0, 0.15, falls=True),
    "gpu_duty": Metric(92.0, 2.5, 0.2, falls=True),
    "gpu_tensor": Metric(45.0, 2.5, 0.3, falls=True),
    "pfc": Metric(200.0, 40.0, 0.3, falls=False),
    "throughput": Metric(80.0, 5.0, 0.4, falls=True),
    "nvlink": Metric(120.0, 8.0, 0.4, falls=True),
    "memory": Metric(60.0, 0.8, 0.02, falls=True),
    "disk": Metric(10.0, 2.0, 0.1, falls=False),
    "temperature": Metric(62.0, 1.5, 0.03, falls=False),
    "retransmits": Metric(5.0, 2.0, 0.0, falls=False),
}

#: The metrics that detectors get.
SEVEN = ("cpu", "gpu_duty", "gpu_tensor", "pfc", "throughput", "nvlink", "memory")

#: The package's names for these: there, "memory" is that of a Dask worker's process, and more of it is worse.
HOST_NAMES = tuple("memory_usage" if name == "memory" else name for name in SEVEN)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault's share of all faults, and the shares in which it shows in each group of metrics and spreads."""

    share: float
    cpu: float
    gpu: float
    pfc: float
    throughput: float
    disk: float
    memory: float
    nvlink: float = 0.1
    spreads: float = 0.1
    silences: float = 0.0


FAULTS = {
    "ECC error": Fault(0.389, 0.80, 0.66, 0.09, 0.46, 0.09, 0.57, nvlink=0.2),
    "PCIe downgrading": Fault(0.066, 0.0, 0.08, 1.0, 0.33, 0.0, 0.0, spreads=0.7),
    "NIC dropout": Fault(0.057, 1.0, 1.0, 0.0, 1.0, 0.0, 1.0, silences=0.5),
    "GPU card drop": Fault(0.020, 0.75, 0.70, 0.10, 0.50, 0.10, 0.65),
    "NVLink error": Fault(0.017, 0.67, 0.67, 0.0, 0.33, 0.0, 0.33, nvlink=0.9),
    "AOC error": Fault(0.009, 0.25, 0.25, 0.25, 0.50, 0.0, 0.25),
    "CUDA execution error": Fault(0.146, 0.60, 0.65, 0.10, 0.45, 0.10, 0.40),
    "GPU execution error": Fault(0.077, 0.60, 0.70, 0.20, 0.40, 0.10, 0.40, spreads=0.6),
    "HDFS error": Fault(0.057, 0.57, 0.29, 0.0, 0.15, 0.50, 0.15),
    "machine unreachable": Fault(0.060, 0.40, 0.50, 0.30, 0.50, 0.10, 0.50, silences=0.6),
    "others": Fault(0.102, 0.35, 0.35, 0.35, 0.35, 0.20, 0.35),
}


@dataclass(frozen=True, slots=True)
class Window:
    """Fifteen minutes of a job."""

    #: Shape (metrics, machines, seconds), in the order of :data:`METRICS`; NaN where a sample is missing.
    values: NDArray[np.float32]
    #: The machines with a fault of their own, not those that it spread to.
    faulty: tuple[int, ...]
    #: Its name; empty where there is none; the second at which it began, and the metrics that it shows in.
    fault: str
    onset: int
    shows: tuple[str, ...]

    def metrics(self, names: tuple[str, ...]) -> NDArray[np.float32]:
        """The values of some metrics, shape (names, machines, seconds)."""
        order = list(METRICS)
        return self.values[[order.index(name) for name in names]]


def generate(
    seed: int, *, machines: int | None = None, concurrent: int = 1, noise: float = 1.0, faulty: bool | None = None
) -> Window:
    """One window; the seed decides all that is not given. Machines are drawn evenly on a logarithmic scale."""
    random = np.random.default_rng(seed)
    drawn = round(math.exp(random.uniform(math.log(4), math.log(1500))))
    drawn_faulty = random.random() >= FAULT_FREE
    count = drawn if machines is None else machines
    values, sds = _healthy(random, count, noise)
    window = Window(values, (), "", -1, ())
    if drawn_faulty if faulty is None else faulty:
        window = _with_fault(random, values, sds, min(concurrent, count // 2))
    _lose_samples(random, values)
    return window


def _healthy(random: np.random.Generator, machines: int, noise: float) -> tuple[NDArray, NDArray]:
    """Values, and each series' standard deviation, shape (metrics, machines)."""
    seconds = np.arange(SECONDS)
    rhythm, checkpoint = _rhythm(random, seconds)
    scale = np.array([metric.noise for metric in METRICS.values()]) * noise
    sds = scale[:, None] * np.exp(0.25 * random.standard_normal((len(METRICS), machines)))
    values = _correlated(random, (len(METRICS), machines)) * sds[:, :, None].astype(np.float32)
    lags = random.integers(0, 3, machines)
    late = np.maximum(seconds[None, :] - lags[:, None], 0)
    for j, (name, metric) in enumerate(METRICS.items()):
        common = metric.follows * rhythm
        if name in ("cpu", "gpu_duty", "gpu_tensor", "throughput", "nvlink"):
            common = common - 0.6 * checkpoint
        elif name == "disk":
            common = common + 4 * checkpoint
        offsets = 0.6 * metric.noise * random.standard_normal(machines)
        values[j] += (metric.base * (1 + common)).astype(np.float32)[late] + offsets[:, None].astype(np.float32)
    _add_jitter(random, values, sds)
    return values, sds


def _rhythm(random: np.random.Generator, seconds: NDArray) -> tuple[NDArray, NDArray]:
    """The common rhythm of all machines, -1 to 1 around 0, and 1 during checkpoints."""
    period = random.uniform(8, 40)
    step = np.sin(2 * np.pi * seconds / period + random.uniform(0, 6)) * random.uniform(0.1, 0.6)
    drift = np.cumsum(random.standard_normal(len(seconds))) * 0.01
    checkpoint = np.zeros(len(seconds))
    every, length = random.uniform(150, 400), random.uniform(5, 25)
    checkpoint[(seconds + random.uniform(0, 400)) % every < length] = 1
    return np.clip(step + drift, -1, 1), checkpoint


def _correlated(random: np.random.Generator, shape: tuple[int, int], memory: float = 0.7) -> NDArray[np.float32]:
    """Noise of variance 1 whose neighbours in time resemble each other."""
    fresh = random.standard_normal((SECONDS, *shape), dtype=np.float32) * np.float32(math.sqrt(1 - memory**2))
    fresh[0] /= np.float32(math.sqrt(1 - memory**2))
    for i in range(1, SECONDS):
        fresh[i] += np.float32(memory) * fresh[i - 1]
    return np.ascontiguousarray(fresh.transpose(1, 2, 0))


def _add_jitter(random: np.random.Generator, values: NDArray, sds: NDArray) -> None:
    """Bursts of one series (one in 40 minutes), and of all series of a machine (one in 2 hours)."""
    metrics, machines, seconds = values.shape
    alone = random.poisson(metrics * machines * seconds / 2400)
    together = random.poisson(machines * seconds / 7200)
    for n in range(alone + together):
        machine = int(random.integers(machines))
        rows = [int(random.integers(metrics))] if n < alone else range(metrics)
        length = int(min(math.exp(random.normal(math.log(20), 0.8)), 180)) + 1
        start = int(random.integers(-length, seconds))
        span = slice(max(start, 0), max(start + length, 0))
        for row in rows:
            height = random.uniform(3, 12) * random.choice((-1, 1)) * sds[row, machine]
            values[row, machine, span] += np.float32(height)


def _with_fault(random: np.random.Generator, values: NDArray, sds: NDArray, concurrent: int) -> Window:
    name = str(random.choice(list(FAULTS), p=_mix()))
    fault = FAULTS[name]
    machines = values.shape[1]
    order = random.permutation(machines)
    faulty = tuple(int(machine) for machine in order[: max(concurrent, 1)])
    onset = int(random.integers(120, SECONDS - 300))
    length = int(math.exp(random.normal(math.log(480), 0.35)))
    shows = _shows(random, fault)
    if random.random() < 0.6:
        _slow_all(random, values, onset, length)
    kinds = {metric: ("swings" if random.random() < 0.3 else "shifts") for metric in shows}
    for machine in faulty:
        _disturb(random, values, sds, machine, onset, length, kinds, strength=1.0)
    if random.random() < fault.spreads:
        for machine in order[len(faulty) : len(faulty) + max(1, min(16, round(0.1 * machines)))]:
            later = int(random.integers(20, 90))
            strength = random.uniform(0.4, 0.7)
            _disturb(random, values, sds, int(machine), onset + later, length - later, kinds, strength=strength)
    if random.random() < fault.silences:
        for machine in faulty:
            silent = onset + np.flatnonzero(random.random(min(length, SECONDS - onset)) < random.uniform(0.3, 0.8))
            values[:, machine, silent] = np.nan
    return Window(values, faulty, name, onset, shows)


def _mix() -> NDArray:
    shares = np.array([fault.share for fault in FAULTS.values()])
    return shares / shares.sum()


def _shows(random: np.random.Generator, fault: Fault) -> tuple[str, ...]:
    gpu = random.random() < fault.gpu
    chances = {
        "cpu": fault.cpu,
        "gpu_duty": 0.9 * gpu,
        "gpu_tensor": 0.8 * gpu,
        "pfc": fault.pfc,
        "throughput": fault.throughput,
        "nvlink": fault.nvlink,
        "memory": fault.memory,
        "disk": fault.disk,
        "temperature": 0.3 * gpu,
        "retransmits": 0.3 * fault.throughput,
    }
    return tuple(metric for metric, chance in chances.items() if random.random() < chance)


def _slow_all(random: np.random.Generator, values: NDArray, onset: int, length: int) -> None:
    """Machines wait for the faulty one: all do less."""
    less = np.float32(1 - random.uniform(0, 0.4))
    order = list(METRICS)
    for metric in ("gpu_duty", "gpu_tensor", "throughput", "nvlink"):
        values[order.index(metric), :, onset : onset + length] *= less


def _disturb(
    random: np.random.Generator,
    values: NDArray,
    sds: NDArray,
    machine: int,
    onset: int,
    length: int,
    kinds: dict[str, str],
    *,
    strength: float,
) -> None:
    """Shift some series of a machine, or make them swing, for a while, in full or on and off."""
    stop = min(onset + length, SECONDS)
    if stop <= onset:
        return
    envelope = np.minimum(np.arange(1, stop - onset + 1) / random.uniform(1, 60), 1)
    if random.random() < 0.2:
        envelope = envelope * _on_and_off(random, stop - onset)
    for metric, kind in kinds.items():
        row = list(METRICS).index(metric)
        down = METRICS[metric].falls == (random.random() < 0.85)
        if kind == "shifts":
            height = strength * math.exp(random.normal(math.log(5), 0.5)) * (-1 if down else 1)
            change = height * envelope
        else:
            times = random.uniform(2.5, 5) * strength
            change = _correlated(random, (1, 1))[0, 0, : stop - onset] * times * envelope
        values[row, machine, onset:stop] += (change * sds[row, machine]).astype(np.float32)


def _on_and_off(random: np.random.Generator, seconds: int) -> NDArray:
    """1 for most of the time, in stretches of seconds to tens of seconds, else 0."""
    share = random.uniform(0.6, 0.9)
    pattern: list[float] = []
    while len(pattern) < seconds:
        dwell = random.uniform(5, 30)
        pattern += [1.0] * max(1, round(dwell * share)) + [0.0] * max(1, round(dwell * (1 - share)))
    return np.array(pattern[:seconds])


def _lose_samples(random: np.random.Generator, values: NDArray) -> None:
    """One sample in a hundred, and gaps of seconds in all metrics of a machine, one in ten minutes."""
    _, machines, seconds = values.shape
    lost = random.integers(0, values.size, values.size // 100)
    values.reshape(-1)[lost] = np.nan
    for _ in range(random.poisson(machines * seconds / 600)):
        start = int(random.integers(seconds))
        values[:, int(random.integers(machines)), start : start + int(random.integers(3, 9))] = np.nan
