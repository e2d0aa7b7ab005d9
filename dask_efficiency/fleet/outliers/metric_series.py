"""MetricSeries: the metrics of workers at even steps of time, from a recorded run or a plain table."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.slow_worker import Cause, Evidence, SlowWorker, confidence_of
from dask_efficiency.accounts.tables import MISSING, Float64
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.runs.trace.schema import Series
from dask_efficiency.straggler.causes import BY_METRIC
from dask_efficiency.straggler.peers import LITTLE, beside_peers

if TYPE_CHECKING:
    import pandas as pd

Values = NDArray[np.float32]


#: Least change that matters, as a share of a metric's level: healthy machines of a fleet differ lastingly by 1 to 3 %,
#: and drift by as much (``tests.fleet.generated``).
MIN_CHANGE = 0.03


@dataclass(frozen=True, slots=True)
class Metric:
    """Meaning of a metric of a worker."""

    #: Which way it is worse: 1 if more of it is, -1 if less is, and 0 if unknown, so that any difference counts.
    worse: int = 0
    #: Cause of slowness of an outlier in this metric; None if the metric does not tell.
    cause: Cause | None = None
    #: Whether it is a share of the time in which the worker's slots have work. Time without work is a consequence and
    #: never a cause.
    of_busy_time: bool = False
    #: Least change that matters, as a share of the usual level; of a share of busy time, in shares.
    least: float = MIN_CHANGE
    #: The least change in the metric's unit, where known; it overrides the share.
    least_value: float | None = None
    #: Whether it is the host's, and equal for all workers there.
    of_host: bool = False


_METRICS: Mapping[str, Metric] = {
    "thread_cpu": Metric(-1, of_busy_time=True),
    "gpu": Metric(1, of_busy_time=True),
    "thread_noncpu": Metric(1, of_busy_time=True),
    "spill": Metric(1, of_busy_time=True),
    "overhead": Metric(1, of_busy_time=True),
    "paused": Metric(1, of_busy_time=True),
    "waiting_on_data": Metric(1, of_busy_time=True),
    "memory": Metric(1),
    "spilled": Metric(1),
    "net_read": Metric(0, of_host=True),
    "net_write": Metric(0, of_host=True),
    "disk_read": Metric(0, of_host=True),
    "disk_write": Metric(0, of_host=True),
    "loop_interval": Metric(1),
    # Sensors of the host, and of the GPUs; see dask_efficiency.accounts.sensors. Many are 0 nearly always, and a
    # share of their level would be nothing: their least changes are our judgement, in their units.
    "host_cpu": Metric(0, least_value=MIN_CHANGE, of_host=True),
    "steal": Metric(1, least_value=MIN_CHANGE, of_host=True),
    "run_queue": Metric(1, least_value=0.5, of_host=True),
    "cpu_clock": Metric(-1, of_host=True),
    "cpu_throttles": Metric(1, least_value=1, of_host=True),
    "cpu_pressure": Metric(1, least_value=MIN_CHANGE, of_host=True),
    "memory_available": Metric(-1, of_host=True),
    "swap_in": Metric(1, least_value=1e5, of_host=True),
    "swap_out": Metric(1, least_value=1e5, of_host=True),
    "memory_pressure": Metric(1, least_value=MIN_CHANGE, of_host=True),
    "disk_busy": Metric(1, least_value=MIN_CHANGE, of_host=True),
    "disk_wait": Metric(1, least_value=1e-3, of_host=True),
    "disk_pressure": Metric(1, least_value=MIN_CHANGE, of_host=True),
    "net_errors": Metric(1, least_value=1, of_host=True),
    "net_drops": Metric(1, least_value=1, of_host=True),
    "retransmits": Metric(1, least_value=1, of_host=True),
    "rdma_read": Metric(0, of_host=True),
    "rdma_write": Metric(0, of_host=True),
    "rdma_ecn": Metric(1, least_value=1, of_host=True),
    "rdma_cnp": Metric(1, least_value=1, of_host=True),
    "pfc_sent": Metric(1, least_value=1, of_host=True),
    "pfc_received": Metric(1, least_value=1, of_host=True),
    "gpu_utilisation": Metric(0, least_value=MIN_CHANGE),
    "gpu_memory": Metric(0),
    "gpu_clock": Metric(-1),
    "gpu_temperature": Metric(1),
    "gpu_power": Metric(0),
    "gpu_throttled": Metric(1, least_value=MIN_CHANGE),
    "gpu_pcie": Metric(0),
    "gpu_nvlink": Metric(0),
}

#: Metrics of Dask's workers and their sensors, with the causes that they show.
METRICS = {name: replace(metric, cause=BY_METRIC.get(name)) for name, metric in _METRICS.items()}

#: Assumed for metrics outside the table.
_UNKNOWN = Metric()
#: A sample also counts for instants at most this many steps, or seconds, away. A guess.
REACH_STEPS = 5
REACH_SECONDS = 30.0

#: Signals of a metric: its mean, the variance of its difference from the peers, and how far it moves by itself. In
#: evidence, the metric's name is followed by the signal's, except for the mean's.
LEVEL, SWINGS, MOVEMENT = KINDS = ("level", "swings", "movement")

#: Larger numbers are no samples: squares of them would be no numbers of four bytes. Bytes of all disks of a large site
#: are below.
MAX_VALUE = 1e17

#: Most steps of time; a longer run has longer steps. Bounds memory.
MAX_STEPS = 20_000


@dataclass(frozen=True, slots=True)
class MetricSeries:
    """Metrics of workers at even steps of time.

    Parameters
    ----------
    metrics, workers
        Their names.
    groups
        By worker; only workers of one group are compared.
    hosts
        By worker; empty if unknown.
    start
        Time of the first sample, in seconds since the epoch (of a table: in the table's own time).
    step_seconds
        Time between two samples.
    values
        Shape (metrics, workers, samples); NaN where a worker was absent, or reported nothing for long.
    meanings
        Meanings of metrics that differ from :data:`METRICS`.

    Raises
    ------
    ValueError
        If the parts do not fit each other.
    """

    metrics: tuple[str, ...]
    workers: tuple[str, ...]
    groups: tuple[Hashable, ...]
    hosts: tuple[str, ...]
    start: float
    step_seconds: float
    values: Values
    meanings: Mapping[str, Metric] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shape = (len(self.metrics), len(self.workers))
        if self.values.ndim != 3 or self.values.shape[:2] != shape:
            raise ValueError(f"values have shape {self.values.shape}; expected {shape} and the number of samples")
        if len(self.groups) != len(self.workers) or len(self.hosts) != len(self.workers):
            found = f"{len(self.groups)} groups, {len(self.hosts)} hosts"
            raise ValueError(f"{found}; expected {len(self.workers)} of each")
        if not self.step_seconds > 0:
            raise ValueError(f"step_seconds is {self.step_seconds!r}; expected more than 0")

    @classmethod
    def of(cls, values: Any, *, metrics: Sequence[str], step_seconds: float = 1.0) -> MetricSeries:
        """Series from an array of shape (metrics, workers, samples); workers are numbered, and all comparable."""
        values = np.asarray(values, np.float32)
        workers = tuple(str(number) for number in range(values.shape[1] if values.ndim > 1 else 0))
        blank = ("",) * len(workers)
        return cls(tuple(metrics), workers, blank, blank, 0.0, step_seconds, values)

    def only(self, workers: NDArray[np.intp]) -> MetricSeries:
        """Series of some workers, by position."""
        return replace(
            self,
            workers=tuple(self.workers[i] for i in workers),
            groups=tuple(self.groups[i] for i in workers),
            hosts=tuple(self.hosts[i] for i in workers),
            values=self.values[:, workers],
        )

    def meaning(self, metric: str) -> Metric:
        """Meaning of one of its metrics."""
        return self.meanings.get(metric) or METRICS.get(metric, _UNKNOWN)

    def comparable(self) -> list[MetricSeries]:
        """Series of each group of comparable workers."""
        groups: dict[Hashable, list[int]] = {}
        for position, group in enumerate(self.groups):
            groups.setdefault(group, []).append(position)
        return [self.only(np.array(positions)) for positions in groups.values()]


def metric_series_of(run: MetricSeries | RunTrace | pd.DataFrame) -> MetricSeries:
    """Metric series of a recorded run, or of a table; ValueError without a sample, or a column that is needed."""
    if isinstance(run, MetricSeries):
        return _without_wrong(run)
    return _of_trace(run) if isinstance(run, RunTrace) else _of_table(run)


def _without_wrong(series: MetricSeries) -> MetricSeries:
    """Series in which what can be no sample is missing."""
    wrong = np.abs(series.values) > MAX_VALUE
    return replace(series, values=np.where(wrong, np.float32(np.nan), series.values)) if wrong.any() else series


def _of_trace(trace: RunTrace) -> MetricSeries:
    series = trace.series.take(trace.series.at != MISSING)
    if not len(series):
        raise ValueError(f"the run {trace.name[:80]!r} has no series; expected the heartbeats of its workers")
    shares = _busy_shares(series)
    columns = shares | {name: getattr(series, name) for name in METRICS if name not in shares}
    names, hosts = tuple(one.name for one in trace.workers), tuple(one.host for one in trace.workers)
    groups = tuple((one.nthreads, one.memory_limit, *sorted(one.resources.items())) for one in trace.workers)
    return _on_even_steps(series.at / 1e9, series.worker, columns, names, groups, hosts)


def _busy_shares(series: Series) -> dict[str, Float64]:
    """Share of busy time that slots spent in each way; NaN if there was hardly any."""
    seconds = {name: np.nan_to_num(getattr(series, name)) for name, metric in METRICS.items() if metric.of_busy_time}
    busy = sum(seconds.values(), start=np.zeros(len(series)))
    free = np.nan_to_num(series.idle) + np.nan_to_num(series.no_work) + np.nan_to_num(series.constrained)
    with np.errstate(invalid="ignore", divide="ignore"):
        enough = busy > LITTLE * (busy + free)
        return {name: np.where(enough, value / busy, np.nan) for name, value in seconds.items()}


def _of_table(table: pd.DataFrame) -> MetricSeries:
    for column in ("at", "worker"):
        if column not in table:
            raise ValueError(f"column {column!r} is missing; there is: {[str(name)[:80] for name in table][:20]}")
    metrics = [name for name in table if name not in ("at", "worker", "group", "host")]
    if not metrics or not len(table):
        raise ValueError(f"{len(table)} rows of {len(metrics)} metrics; expected one of each at least")
    names, workers = np.unique(table["worker"].astype(str).to_numpy(), return_inverse=True)
    columns = {str(name): table[name].to_numpy(np.float64) for name in metrics}
    firsts = [int(np.argmax(workers == worker)) for worker in range(len(names))]
    groups = tuple(table["group"].iloc[row] if "group" in table else "" for row in firsts)
    hosts = tuple(str(table["host"].iloc[row]) if "host" in table else "" for row in firsts)
    at = table["at"].to_numpy(np.float64)
    return _on_even_steps(at, workers, columns, tuple(map(str, names)), groups, hosts)


def _on_even_steps(
    at: Float64,
    workers: NDArray[Any],
    columns: Mapping[str, Float64],
    names: tuple[str, ...],
    groups: tuple[Hashable, ...],
    hosts: tuple[str, ...],
) -> MetricSeries:
    """Series of the metrics that ever changed; the sample nearest to each step counts, if one is in reach."""
    # A step is the median time between two samples of a worker, at least a second.
    if not np.isfinite(at).all():
        raise ValueError(f"'at' holds {at[~np.isfinite(at)][0]!r}; expected seconds")
    order = np.lexsort((at, workers))
    gaps = np.diff(at[order])[np.diff(workers[order]) == 0]
    gaps = gaps[gaps > 0]
    usual = float(np.median(gaps)) if len(gaps) else 1.0
    length = float(at.max() - at.min())
    step = max(1.0, usual, length / MAX_STEPS)
    grid = at.min() + step * np.arange(int(length / step) + 1)
    reach = max(REACH_STEPS * step, REACH_SECONDS)
    values = np.full((len(columns), len(names), len(grid)), np.nan, np.float32)
    for worker, rows in enumerate(np.split(order, np.searchsorted(workers[order], np.arange(1, len(names))))):
        for j, column in enumerate(columns.values()):
            known = rows[np.abs(column[rows]) <= MAX_VALUE]
            if len(known):
                values[j, worker] = _nearest(at[known], column[known], grid, reach)
    metrics = []
    for name, of_metric in zip(columns, values, strict=True):
        found = of_metric[np.isfinite(of_metric)]
        if len(found) and found.min() < found.max():  # others are those of a GPU where there is none, say
            metrics.append(name)
    values = values[[name in metrics for name in columns]]
    return MetricSeries(tuple(metrics), names, groups, hosts, float(grid[0]), step, values)


def _nearest(at: Float64, column: Float64, grid: Float64, reach: float) -> Float64:
    after = np.clip(np.searchsorted(at, grid), 0, len(at) - 1)
    before = np.maximum(after - 1, 0)
    nearest = np.where(np.abs(at[before] - grid) <= np.abs(at[after] - grid), before, after)
    return np.where(np.abs(at[nearest] - grid) <= reach, column[nearest], np.nan)


def least_change(series: MetricSeries, levels: Values) -> Values:
    """Least change of each metric that matters, in its unit, at these usual levels."""
    known = [series.meaning(name) for name in series.metrics]
    units = np.where([metric.of_busy_time for metric in known], 1, np.nan_to_num(levels))
    least = units * [metric.least for metric in known]
    in_units = np.array([math.nan if metric.least_value is None else metric.least_value for metric in known])
    return np.asarray(np.where(np.isnan(in_units), least, in_units), np.float32)


def cause_of(metrics: Sequence[str], meanings: Mapping[str, Metric] = METRICS) -> Cause:
    """Cause of an outlier in these metrics, the strongest first; contention, of a lower share of CPU time alone."""
    known = [cause for name in metrics if (cause := meanings.get(name, _UNKNOWN).cause) is not None]
    return known[0] if known else Cause.CONTENTION if "thread_cpu" in metrics else Cause.UNKNOWN


def finding_of(
    series: MetricSeries, worker: int, start: int, score: float, evidence: Sequence[Evidence], wrong: float
) -> SlowWorker:
    """Finding of a worker that is an outlier from a sample on; its evidence has the strongest metric first."""
    metrics = [metric_of(item.signal) for item in evidence]
    return SlowWorker(
        worker=series.workers[worker],
        host=series.hosts[worker],
        cause=cause_of(metrics, {name: series.meaning(name) for name in metrics}),
        score=score,
        confidence=confidence_of(score, wrong=wrong),
        since=series.start + start * series.step_seconds,
        effect=None,
        evidence=tuple(evidence),
    )


def metric_of(signal: str) -> str:
    """Metric of a signal in evidence."""
    return signal.removesuffix(f" {SWINGS}").removesuffix(f" {MOVEMENT}")


def evidence_of(
    series: MetricSeries, metric: str, worker: int, start: int, z: float, kind: str = LEVEL, peers: Values | None = None
) -> Evidence:
    """A signal of a worker from a sample on, and the peers' figures: the mean, or a standard deviation."""
    # Swings are about the ``peers``, medians of shape (metrics, samples): a movement of all workers is nobody's own.
    row = series.metrics.index(metric)
    values = series.values[row, :, start:].astype(np.float64)
    if kind == SWINGS and peers is not None:
        values = values[:, : peers.shape[1] - start] - peers[row, start:]
    known = np.isfinite(values)
    counts = known.sum(axis=1)
    of_worker = np.where(known, values, 0).sum(axis=1) / np.maximum(counts, 1)
    if kind != LEVEL:
        squares = np.where(known, (values - of_worker[:, None]) ** 2, 0)
        of_worker = np.sqrt(squares.sum(axis=1) / np.maximum(counts, 1))
    name = metric if kind == LEVEL else f"{metric} {kind}"
    figures = np.where((counts > 0) | (np.arange(len(values)) == worker), of_worker, np.nan)
    return beside_peers(name, figures, worker, z=float(z), tasks=int(counts[worker]))


def filled(values: Values, *, reach: int) -> Values:
    """Replace each missing sample by the nearest one on the last axis, at most ``reach`` steps away."""
    missing = np.isnan(values)
    if not missing.any():
        return values
    steps = np.arange(values.shape[-1], dtype=np.int32)
    far = np.int32(2 * len(steps) + reach)
    before = np.maximum.accumulate(np.where(missing, -far, steps), axis=-1)
    after = np.minimum.accumulate(np.where(missing, far, steps)[..., ::-1], axis=-1)[..., ::-1]
    nearest = np.where(steps - before <= after - steps, before, after)
    near = np.abs(nearest - steps) <= reach
    taken = np.take_along_axis(values, np.clip(nearest, 0, len(steps) - 1), axis=-1)
    return np.where(near, taken, np.float32(np.nan))
