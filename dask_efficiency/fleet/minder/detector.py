"""Minder: distances between what autoencoders make of workers' metrics, judged as any other metrics are."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.checks import short
from dask_efficiency.accounts.slow_worker import SlowWorker
from dask_efficiency.fleet.minder.network import WEIGHTS, Autoencoder, normalised, windowed
from dask_efficiency.fleet.outliers.departures import CONTINUITY_SECONDS
from dask_efficiency.fleet.outliers.metric_series import (
    REACH_SECONDS,
    Metric,
    MetricSeries,
    cause_of,
    evidence_of,
    filled,
    least_change,
    metric_of,
    metric_series_of,
)
from dask_efficiency.fleet.outliers.outliers import by_host, find_outliers
from dask_efficiency.runs.trace.archive import Archive, Format, read_archive, write_archive
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.straggler.peers import median

if TYPE_CHECKING:
    import pandas as pd


#: Samples of a window, as in the paper.
WINDOW_SAMPLES = 8
#: Most windows of a run that are looked at: of a longer run every second one, every third, and so on. Bounds time.
MAX_WINDOWS = 1000
#: Score from which a worker is an outlier: the noise of distances, which are positive, has a longer tail than that of
#: metrics, and a burst of three minutes would count at 0.8. F1 on tuning seeds is .90 with
#: 1.0 (``python -m benchmarks.who_is_slow metrics --tuning``) and .91 with 0.8.
THRESHOLD = 1.0


@dataclass(frozen=True, slots=True)
class Minder:
    """A trained detector: autoencoders by metric, whose windows of a worker are compared with its peers' median window.

    Deng et al., "Minder: Faulty Machine Detection for Large-scale Distributed Model Training", NSDI 2025. We differ:
    the distances are metrics for :func:`~dask_efficiency.fleet.find_outliers`, which takes a worker's time before a
    fault within the run, all metrics at once and several faults into account; a history it does not get. The paper's
    way, one metric after the other by a score of each window, has a lower F1 (``benchmarks.studies.rivals``).
    """

    models: Mapping[str, Autoencoder]

    def __post_init__(self) -> None:
        if not self.models:
            raise ValueError("models is empty; expected one a metric")
        for name, model in self.models.items():
            if model.channels != 1:
                raise ValueError(f"the model of {name[:80]!r} takes {model.channels} metrics; expected 1")

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics that it knows."""
        return tuple(self.models)

    def find(
        self,
        run: MetricSeries | RunTrace | pd.DataFrame,
        *,
        continuity_seconds: float = CONTINUITY_SECONDS,
        same_work: bool | None = None,
    ) -> list[SlowWorker]:
        """Workers at fault.

        Parameters
        ----------
        run
            A recorded run; or a table with the columns ``at`` (seconds) and ``worker``, optionally ``group`` and
            ``host``, and one column for each metric. Other metrics than those it was trained on are ignored.
        continuity_seconds, same_work
            As of :func:`~dask_efficiency.fleet.find_outliers`.

        Returns
        -------
        list
            The most certain first; empty for a run shorter than the continuity. Effect and lost time of each are None,
            as metrics do not tell how much longer the work takes.

        Raises
        ------
        ValueError
            If there is no sample, or none of a metric that it knows.
        """
        series = metric_series_of(run)
        if not set(self.models) & set(series.metrics):
            raise ValueError(f"none of the metrics {series.metrics[:20]!r} was trained on; expected {self.metrics!r}")
        if series.values.shape[2] < WINDOW_SAMPLES:
            return []
        if same_work is None:
            same_work = not isinstance(run, RunTrace)
        found = find_outliers(
            self.distances(series), threshold=THRESHOLD, continuity_seconds=continuity_seconds, same_work=same_work
        )
        workers, hosts = by_host(series)
        worse = (_on_the_worse_side(hosts if hosts and one.workers else workers, one) for one in found)
        return [finding for finding in worse if finding is not None]

    def distances(self, series: MetricSeries) -> MetricSeries:
        """Distances of each worker's windows from the peers' median window, at the windows' last samples."""
        stride = -(-series.values.shape[2] // MAX_WINDOWS)
        metrics = tuple(name for name in self.models if name in series.metrics)
        count = -(-(series.values.shape[2] - WINDOW_SAMPLES + 1) // stride)
        values = np.empty((len(metrics), len(series.workers), count), np.float32)
        groups = np.unique([str(group) for group in series.groups], return_inverse=True)[1]
        for j, name in enumerate(metrics):
            for group in range(groups.max(initial=-1) + 1):
                rows = np.flatnonzero(groups == group)
                windows = windowed(smooth(series.only(rows), name), length=WINDOW_SAMPLES, stride=stride)
                made = embedded(self.models[name], windows)
                away = made - median(made, 0)
                values[j, rows] = np.sqrt((away**2).sum(axis=2))
        return replace(
            series,
            metrics=metrics,
            start=series.start + (WINDOW_SAMPLES - 1) * series.step_seconds,
            step_seconds=stride * series.step_seconds,
            values=values,
            meanings={name: Metric(1, of_host=series.meaning(name).of_host) for name in metrics},
        )

    def save(self, path: str | os.PathLike[str], **storage_options: Any) -> None:
        """Write the detector to a file, which :func:`load_minder` reads.

        Parameters
        ----------
        path
            A local path or any fsspec URL. A local file is replaced as a whole or not at all.
        **storage_options
            For the file system, as in :func:`fsspec.open`.
        """
        described = {"metrics": list(self.models)}
        groups = (
            (f"{number}/{name}", {"values": getattr(model, name).ravel()})
            for number, model in enumerate(self.models.values())
            for name in WEIGHTS
        )
        write_archive(path, _FORM, described, groups, **storage_options)


def load_minder(path: str | os.PathLike[str], **storage_options: Any) -> Minder:
    """Read a detector from a file.

    Parameters
    ----------
    path
        As given to :meth:`Minder.save`.
    **storage_options
        For the file system, as in :func:`fsspec.open`.

    Raises
    ------
    MinderFileError
        If the file is foreign, truncated, damaged, forged or of a newer version.
    FileNotFoundError
        If there is no such file.
    """
    return read_archive(path, _FORM, _minder, **storage_options)


def smooth(series: MetricSeries, metric: str) -> NDArray[np.float32]:
    """A metric between 0 and 1, with gaps filled; shape (workers, samples)."""
    values = normalised(series.values[[series.metrics.index(metric)]])[0]
    return filled(values, reach=max(int(REACH_SECONDS / series.step_seconds), 1))


def embedded(model: Autoencoder, windows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Reconstruct windows of one metric, of shape (workers, windows, length)."""
    flat = windows.reshape(-1, windows.shape[2], 1)
    return model.reconstruct(flat).reshape(windows.shape)


def _on_the_worse_side(series: MetricSeries, finding: SlowWorker) -> SlowWorker | None:
    """Finding with the metrics themselves as evidence; None if all are better than the comparable peers' by much."""
    # Swings and movement raise a distance too, with a level that is like the peers'.
    group = next(group for group in series.comparable() if finding.subject in group.workers)
    worker = group.workers.index(finding.subject)
    start = max(round((finding.since - series.start) / series.step_seconds), 0)
    z: dict[str, float] = {}
    for item in finding.evidence:
        z.setdefault(metric_of(item.signal), item.z)
    seen = {name: evidence_of(group, name, worker, start, far) for name, far in z.items()}
    levels = np.array([abs(seen[name].peers) if name in seen else 0.0 for name in group.metrics], np.float32)
    least = dict(zip(group.metrics, least_change(group, levels), strict=True))
    worse = tuple(
        one for name, one in seen.items() if (one.value - one.peers) * series.meaning(name).worse >= -least[name]
    )
    cause = cause_of([one.signal for one in worse], {one.signal: series.meaning(one.signal) for one in worse})
    return replace(finding, cause=cause, evidence=worse) if worse else None


class MinderFileError(ValueError):
    """The file is not a detector that this version can read."""


_FORM = Format("dask-efficiency-minder", 1, "minder.json", MinderFileError)


def _minder(archive: Archive) -> Minder:
    models: dict[str, Autoencoder] = {}
    try:
        for number, metric in enumerate(archive.listed("metrics", str)):
            groups = {name: archive.columns(f"{number}/{name}", {"values": np.float32}) for name in WEIGHTS}
            if metric in models:
                raise MinderFileError(f"metric {short(metric)} is there twice")
            models[metric] = Autoencoder.of({name: columns["values"] for name, columns in groups.items()})
        return Minder(models)
    except MinderFileError:
        raise
    except ValueError as error:
        raise MinderFileError(f"its parts do not fit: {error}") from error
