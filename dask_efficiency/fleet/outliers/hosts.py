"""Hosts: what workers of one host say of it counts once, and accuses the host."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from dask_efficiency.accounts.slow_worker import SlowWorker
from dask_efficiency.fleet.outliers.metric_series import MetricSeries, Values


def by_host(series: MetricSeries) -> tuple[MetricSeries, MetricSeries | None]:
    """The metrics of the workers themselves, and those of their hosts, by the hosts' names.

    Each worker reads its host for itself, a little sooner or later than the others there, which tells nothing of it.

    Returns
    -------
    workers, hosts
        No hosts where none has several workers: then all metrics are the worker's.
    """
    of_host = np.array([series.meaning(name).of_host for name in series.metrics], np.bool_)
    counts = Counter(host for host in series.hosts if host)
    if not of_host.any() or max(counts.values(), default=0) < 2:
        return series, None
    metrics = tuple(name for name, of in zip(series.metrics, of_host, strict=True) if of)
    own = tuple(name for name, of in zip(series.metrics, of_host, strict=True) if not of)
    names = tuple(counts)
    on = [[i for i, host in enumerate(series.hosts) if host == name] for name in names]
    values = np.stack([_mean(series.values[of_host][:, workers]) for workers in on], axis=1)
    hosts = replace(
        series,
        metrics=metrics,
        workers=names,
        groups=tuple(tuple(sorted({str(series.groups[i]) for i in workers})) for workers in on),
        hosts=names,
        values=values,
    )
    return replace(series, metrics=own, values=series.values[~of_host]), hosts


def of_host(finding: SlowWorker, series: MetricSeries) -> SlowWorker:
    """The finding of a host as one that all its workers share."""
    there = tuple(name for name, host in zip(series.workers, series.hosts, strict=True) if host == finding.host)
    return replace(finding, worker="", workers=there)


def _mean(values: Values) -> Values:
    """Over the workers, of shape (metrics, workers, samples), of what is known."""
    known = np.isfinite(values)
    counts = known.sum(axis=1)
    sums = np.where(known, values, np.float32(0)).sum(axis=1)
    return np.asarray(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan), np.float32)
