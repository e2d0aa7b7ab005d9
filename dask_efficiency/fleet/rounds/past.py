"""Past and window of a fleet's series, extended by each round's samples; faulty machines keep their earlier past."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.slow_worker import SlowWorker
from dask_efficiency.fleet.outliers.block_signals import evenly
from dask_efficiency.fleet.outliers.metric_series import MetricSeries, Values
from dask_efficiency.straggler.peers import median


def extended(known: MetricSeries | None, latest: MetricSeries, *, start: float) -> MetricSeries:
    """Series of both from an instant on, on one grid, of the machines with later samples; the latest samples count."""
    if known is None or known.step_seconds != latest.step_seconds:
        return latest
    step = latest.step_seconds
    skipped = max(round((start - known.start) / step), 0)
    ahead = round((latest.start - known.start) / step) - skipped
    if ahead < 0:  # time went backwards
        return latest
    metrics = tuple(dict.fromkeys((*latest.metrics, *known.metrics)))
    machines = tuple(sorted({*known.workers, *latest.workers}))
    count = ahead + latest.values.shape[2]
    values = np.full((len(metrics), len(machines), count), np.nan, np.float32)
    kept = known.values[:, :, skipped : skipped + count]
    values[(*_places(known, metrics, machines), slice(kept.shape[2]))] = kept
    new = (*_places(latest, metrics, machines), slice(ahead, None))
    values[new] = np.where(np.isfinite(latest.values), latest.values, values[new])
    groups, hosts = (
        dict(zip(known.workers, getattr(known, name), strict=True))
        | dict(zip(latest.workers, getattr(latest, name), strict=True))
        for name in ("groups", "hosts")
    )
    there = np.flatnonzero(np.isfinite(values).any(axis=(0, 2)))
    names = tuple(machines[i] for i in there)
    return MetricSeries(
        metrics,
        names,
        tuple(groups[name] for name in names),
        tuple(hosts[name] for name in names),
        known.start + skipped * step,
        step,
        values if len(there) == len(machines) else values[:, there],
        {**known.meanings, **latest.meanings},
    )


def parted(known: MetricSeries, *, window_start: float) -> tuple[MetricSeries | None, MetricSeries]:
    """Past before the window, None if it is empty; and the window, for its machines and metrics."""
    count = min(max(round((window_start - known.start) / known.step_seconds), 0), known.values.shape[2])
    there: NDArray[np.bool_] = np.asarray(np.isfinite(known.values[:, :, count:]).any(axis=2))
    machines = known.only(np.flatnonzero(there.any(axis=0)))
    having: NDArray[np.bool_] = np.asarray(there.any(axis=1))
    if not having.all():  # a metric that nobody has would make the others count less
        metrics = tuple(name for name, has in zip(known.metrics, having, strict=True) if has)
        machines = replace(machines, metrics=metrics, values=machines.values[having])
    later = machines.start + count * machines.step_seconds
    window = replace(machines, start=later, values=machines.values[:, :, count:])
    past = replace(machines, values=machines.values[:, :, :count])
    return (past if np.isfinite(past.values).any() else None), window


def missing_samples(series: MetricSeries) -> int:
    """Number of missing samples of metrics that a machine has some of."""
    known = np.isfinite(series.values).sum(axis=2)
    return int((series.values.shape[2] - known[known > 0]).sum())


def _places(series: MetricSeries, metrics: Sequence[str], machines: Sequence[str]) -> tuple[Any, Any]:
    """Index of its values among those of more metrics and machines."""
    rows, columns = {name: i for i, name in enumerate(metrics)}, {name: i for i, name in enumerate(machines)}
    mine = np.array([rows[name] for name in series.metrics], np.intp)
    return mine[:, None], np.array([columns[name] for name in series.workers], np.intp)[None]


class Habits:
    """Differences of machines from their peers before they were found, kept for as long as they are at fault.

    Without them, a machine at fault for longer than the history goes back would have no other past than its fault, and
    seem to have always been like that.
    """

    def __init__(self) -> None:
        #: By machine, the metrics and its difference from its peers in each; shape (metrics, samples).
        self._kept: dict[str, tuple[tuple[str, ...], Values]] = {}

    def keep(self, findings: Iterable[SlowWorker], known: MetricSeries) -> None:
        """Remember machines of all findings that go on, as they were until their fault began; forget all others."""
        ongoing = {name: finding.since for finding in findings for name in finding.workers or (finding.subject,)}
        self._kept = {name: kept for name, kept in self._kept.items() if name in ongoing}
        for name in ongoing.keys() & set(known.workers) - self._kept.keys():
            worker = known.workers.index(name)
            differs = known.values[:, worker] - _usual(known, worker)
            # Nothing is kept of one that was at fault from the start: it has no history then, and is judged without.
            count = max(int((ongoing[name] - known.start) // known.step_seconds), 0)
            self._kept[name] = known.metrics, differs[:, :count]

    def applied(self, past: MetricSeries | None) -> MetricSeries | None:
        """The past as if those machines had not changed."""
        if past is None or not self._kept.keys() & set(past.workers):
            return past
        values = past.values.copy()
        for worker, name in enumerate(past.workers):
            if name in self._kept:
                values[:, worker] = _usual(past, worker) + self._of(name, past)
        return replace(past, values=values)

    def _of(self, name: str, past: MetricSeries) -> Values:
        """Difference of a machine from its peers, for as many samples as there are."""
        metrics, kept = self._kept[name]
        samples = min(kept.shape[1], past.values.shape[2])
        differs = np.full((len(past.metrics), past.values.shape[2]), np.nan, np.float32)
        for j, metric in enumerate(past.metrics):
            if metric in metrics:
                differs[j, :samples] = kept[metrics.index(metric), kept.shape[1] - samples :]
        return differs


def _usual(past: MetricSeries, worker: int) -> Values:
    """Median of the machines it is compared with; shape (metrics, samples), NaN without any."""
    alike = np.array([i for i, group in enumerate(past.groups) if group == past.groups[worker]])
    return median(past.values[:, alike[evenly(len(alike))]], 1)
