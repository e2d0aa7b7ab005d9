"""Samples: the metrics of workers at even steps of time, from a recorded run or a plain table."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.straggler.finding import Cause
from dask_efficiency.trace.run_trace import Series, TraceTables
from dask_efficiency.trace.tables import MISSING

if TYPE_CHECKING:
    import pandas as pd

Values = NDArray[np.float32]

#: What a worker's slots do while they have work to do; how long they have none is a consequence, and never a cause.
BUSY = ("thread_cpu", "gpu", "thread_noncpu", "spill", "overhead", "paused", "waiting_on_data")

#: Metrics of a worker's process, event loop and host.
HOST = ("memory", "spilled", "net_read", "net_write", "disk_read", "disk_write", "loop_interval")

#: What it means that a worker stands apart in a metric.
CAUSES: Mapping[str, Cause] = {
    "gpu": Cause.GPU,
    "thread_noncpu": Cause.CONTENTION,
    "spill": Cause.DISK,
    "disk_read": Cause.DISK,
    "disk_write": Cause.DISK,
    "spilled": Cause.MEMORY,
    "paused": Cause.MEMORY,
    "waiting_on_data": Cause.NETWORK,
    "net_read": Cause.NETWORK,
    "net_write": Cause.NETWORK,
    "loop_interval": Cause.GIL,
}

#: Which way a metric is worse, where that is known; of the others any difference counts.
WORSE: Mapping[str, int] = {
    "thread_cpu": -1,
    "gpu": 1,
    "thread_noncpu": 1,
    "spill": 1,
    "overhead": 1,
    "paused": 1,
    "waiting_on_data": 1,
    "memory": 1,
    "spilled": 1,
    "loop_interval": 1,
}

#: A sample stands in for the instants that are no further away than this many steps, or this many seconds.
REACH_STEPS = 5
REACH_SECONDS = 30.0

#: Less of a heartbeat's time than this is too little to say what the work was like.
MIN_BUSY = 0.05

#: Most steps of time; a longer run has longer steps.
MAX_STEPS = 20_000


@dataclass(frozen=True, slots=True)
class Samples:
    """The metrics of workers at even steps of time.

    Parameters
    ----------
    metrics, workers
        Their names.
    groups
        By worker; only workers of the same group are compared.
    hosts
        By worker; empty where that is not known.
    start
        Time of the first sample, in seconds since the epoch (of a table: in the table's own time).
    step_seconds
        Between one sample and the next.
    values
        Shape (metrics, workers, samples); NaN where a worker was absent, or said nothing for long.

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

    def __post_init__(self) -> None:
        shape = (len(self.metrics), len(self.workers))
        if self.values.ndim != 3 or self.values.shape[:2] != shape:
            raise ValueError(f"values have shape {self.values.shape}; expected {shape} and the number of samples")
        if len(self.groups) != len(self.workers) or len(self.hosts) != len(self.workers):
            raise ValueError(
                f"{len(self.groups)} groups, {len(self.hosts)} hosts; expected {len(self.workers)} of each"
            )
        if not self.step_seconds > 0:
            raise ValueError(f"step_seconds is {self.step_seconds!r}; expected more than 0")

    @classmethod
    def of(cls, values: Any, *, metrics: Sequence[str], step_seconds: float = 1.0) -> Samples:
        """From an array of shape (metrics, workers, samples); workers are numbered, and all comparable."""
        values = np.asarray(values, np.float32)
        workers = tuple(str(number) for number in range(values.shape[1] if values.ndim > 1 else 0))
        blank = ("",) * len(workers)
        return cls(tuple(metrics), workers, blank, blank, 0.0, step_seconds, values)

    def only(self, workers: NDArray[np.intp]) -> Samples:
        """The same of some workers, by position."""
        return Samples(
            self.metrics,
            tuple(self.workers[i] for i in workers),
            tuple(self.groups[i] for i in workers),
            tuple(self.hosts[i] for i in workers),
            self.start,
            self.step_seconds,
            self.values[:, workers],
        )

    def comparable(self) -> list[Samples]:
        """The same, by group."""
        groups: dict[Hashable, list[int]] = {}
        for position, group in enumerate(self.groups):
            groups.setdefault(group, []).append(position)
        return [self.only(np.array(positions)) for positions in groups.values()]


def samples_of(run: Samples | TraceTables | pd.DataFrame) -> Samples:
    """The samples of a recorded run, or of a table.

    Parameters
    ----------
    run
        A recorded run; or a table with the columns ``at`` (seconds), ``worker``, if wanted ``group`` and ``host``, and
        one for each metric.

    Raises
    ------
    ValueError
        If there is no sample, or a column is missing.
    """
    if isinstance(run, Samples):
        return run
    return _of_trace(run) if isinstance(run, TraceTables) else _of_table(run)


def _of_trace(trace: TraceTables) -> Samples:
    series = trace.series.take(trace.series.at != MISSING)
    if not len(series):
        raise ValueError(f"the run {trace.name[:80]!r} has no series; expected the heartbeats of its workers")
    columns = _busy_shares(series) | {name: getattr(series, name) for name in HOST}
    grid, step = _grid(series.at / 1e9, series.worker)
    values = _on_grid(series.at / 1e9, series.worker, list(columns.values()), len(trace.workers), grid, step)
    return _useful(
        Samples(
            tuple(columns),
            tuple(worker.name for worker in trace.workers),
            tuple((w.nthreads, w.memory_limit, *sorted(w.resources.items())) for w in trace.workers),
            tuple(worker.host for worker in trace.workers),
            float(grid[0]),
            step,
            values,
        )
    )


def _busy_shares(series: Series) -> dict[str, NDArray[np.float64]]:
    """What share of their busy time the slots spent in each way; NaN where there was hardly any."""
    seconds = {name: np.nan_to_num(getattr(series, name)) for name in BUSY}
    busy = sum(seconds.values(), start=np.zeros(len(series)))
    free = np.nan_to_num(series.idle) + np.nan_to_num(series.no_work) + np.nan_to_num(series.constrained)
    with np.errstate(invalid="ignore", divide="ignore"):
        enough = busy > MIN_BUSY * (busy + free)
        return {name: np.where(enough, value / busy, np.nan) for name, value in seconds.items()}


def _of_table(table: pd.DataFrame) -> Samples:
    for column in ("at", "worker"):
        if column not in table:
            raise ValueError(f"column {column!r} is missing; there is: {[str(name)[:80] for name in table][:20]}")
    metrics = [name for name in table if name not in ("at", "worker", "group", "host")]
    if not metrics or not len(table):
        raise ValueError(f"{len(table)} rows of {len(metrics)} metrics; expected one of each at least")
    names, workers = np.unique(table["worker"].astype(str).to_numpy(), return_inverse=True)
    at = table["at"].to_numpy(np.float64)
    grid, step = _grid(at, workers)
    columns = [table[name].to_numpy(np.float64) for name in metrics]
    firsts = [int(np.argmax(workers == worker)) for worker in range(len(names))]
    return _useful(
        Samples(
            tuple(str(name) for name in metrics),
            tuple(str(name) for name in names),
            tuple(table["group"].iloc[row] if "group" in table else "" for row in firsts),
            tuple(str(table["host"].iloc[row]) if "host" in table else "" for row in firsts),
            float(grid[0]),
            step,
            _on_grid(at, workers, columns, len(names), grid, step),
        )
    )


def _grid(at: NDArray[np.float64], workers: NDArray[Any]) -> tuple[NDArray[np.float64], float]:
    """Even steps, as long as it mostly takes from one of a worker's samples to the next, and a second at least."""
    if not np.isfinite(at).all():
        raise ValueError(f"'at' holds {at[~np.isfinite(at)][0]!r}; expected seconds")
    order = np.lexsort((at, workers))
    gaps = np.diff(at[order])[np.diff(workers[order]) == 0]
    gaps = gaps[gaps > 0]
    usual = float(np.median(gaps)) if len(gaps) else 1.0
    length = float(at.max() - at.min())
    step = max(1.0, usual, length / MAX_STEPS)
    return at.min() + step * np.arange(int(length / step) + 1), step


def _on_grid(
    at: NDArray[np.float64],
    workers: NDArray[Any],
    columns: Sequence[NDArray[np.float64]],
    count: int,
    grid: NDArray[np.float64],
    step: float,
) -> Values:
    """The nearest sample to each instant, where one is in reach."""
    reach = max(REACH_STEPS * step, REACH_SECONDS)
    values = np.full((len(columns), count, len(grid)), np.nan, np.float32)
    order = np.lexsort((at, workers))
    edges = np.searchsorted(workers[order], np.arange(count + 1))
    for worker in range(count):
        rows = order[edges[worker] : edges[worker + 1]]
        for j, column in enumerate(columns):
            known = rows[np.isfinite(column[rows])]
            if len(known):
                values[j, worker] = _nearest(at[known], column[known], grid, reach)
    return values


def _nearest(
    at: NDArray[np.float64], column: NDArray[np.float64], grid: NDArray[np.float64], reach: float
) -> NDArray[np.float64]:
    after = np.clip(np.searchsorted(at, grid), 0, len(at) - 1)
    before = np.maximum(after - 1, 0)
    nearest = np.where(np.abs(at[before] - grid) <= np.abs(at[after] - grid), before, after)
    return np.where(np.abs(at[nearest] - grid) <= reach, column[nearest], np.nan)


def _useful(samples: Samples) -> Samples:
    """Without the metrics that never changed, as those of a GPU where there is none."""
    kept = []
    for j, values in enumerate(samples.values):
        known = values[np.isfinite(values)]
        if len(known) and known.min() < known.max():
            kept.append(j)
    return Samples(
        tuple(samples.metrics[j] for j in kept),
        samples.workers,
        samples.groups,
        samples.hosts,
        samples.start,
        samples.step_seconds,
        samples.values[kept],
    )


def cause_of(metrics: Sequence[str]) -> Cause:
    """What slows a worker that stands apart in these metrics, the strongest first.

    Notes
    -----
    Less CPU is what every kind of waiting makes of a share; where nothing tells of another kind, it waited for a core.
    """
    known = [CAUSES[name] for name in metrics if name in CAUSES]
    return known[0] if known else Cause.CONTENTION if "thread_cpu" in metrics else Cause.UNKNOWN


def filled(values: Values, *, reach: int) -> Values:
    """Missing samples replaced by the nearest one in time that is at most ``reach`` steps away.

    Parameters
    ----------
    values
        Shape (..., samples).
    """
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
