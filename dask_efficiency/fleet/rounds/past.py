"""What is known of a fleet so far: the newest samples put to those of earlier rounds, and cut into past and window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.fleet.outliers.metric_series import MetricSeries


def extended(known: MetricSeries | None, latest: MetricSeries, *, start: float) -> MetricSeries:
    """The samples of both from an instant on, those of the latest where both have some.

    Parameters
    ----------
    known
        With the same step as ``latest``, and at instants of the same grid.
    start
        Earlier samples are left out, and machines that have no later ones.
    """
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
    joined = MetricSeries(
        metrics,
        machines,
        tuple(groups[name] for name in machines),
        tuple(hosts[name] for name in machines),
        known.start + skipped * step,
        step,
        values,
        {**known.meanings, **latest.meanings},
    )
    return _there(joined)


def parted(known: MetricSeries, *, window_start: float) -> tuple[MetricSeries | None, MetricSeries]:
    """What came before the window, None where there is nothing; and the window, for the machines and metrics in it."""
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
    """How many samples are missing of metrics that a machine has some of."""
    known = np.isfinite(series.values).sum(axis=2)
    return int((series.values.shape[2] - known[known > 0]).sum())


def _places(series: MetricSeries, metrics: Sequence[str], machines: Sequence[str]) -> tuple[Any, Any]:
    """Where its values are among those of more metrics and machines, as an index."""
    rows, columns = {name: i for i, name in enumerate(metrics)}, {name: i for i, name in enumerate(machines)}
    mine = np.array([rows[name] for name in series.metrics], np.intp)
    return mine[:, None], np.array([columns[name] for name in series.workers], np.intp)[None]


def _there(series: MetricSeries) -> MetricSeries:
    found = np.isfinite(series.values).any(axis=(0, 2))
    return series if found.all() else series.only(np.flatnonzero(found))
