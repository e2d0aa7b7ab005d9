"""Minder: finds workers whose metrics stay unlike their peers' for minutes, one metric after the other."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.checks import short
from dask_efficiency.accounts.slow_worker import WRONG_BY_METRICS, SlowWorker
from dask_efficiency.accounts.tables import Bool
from dask_efficiency.fleet.minder.network import WEIGHTS, Autoencoder, normalised, windowed
from dask_efficiency.fleet.outliers.metric_series import (
    REACH_SECONDS,
    MetricSeries,
    evidence_of,
    filled,
    finding_of,
    metric_series_of,
)
from dask_efficiency.runs.trace.archive import Archive, Format, read_archive, write_archive
from dask_efficiency.straggler.peers import MAD_TO_DEVIATION, MIN_PEERS, Places

if TYPE_CHECKING:
    import pandas as pd

    from dask_efficiency.runs.trace.run_trace import RunTrace


#: Samples of a window, as in the paper.
WINDOW_SAMPLES = 8
#: Most windows of a run that are looked at: of a longer run every second one, every third, and so on.
MAX_WINDOWS = 1000


@dataclass(frozen=True, slots=True)
class Minder:
    """A trained detector: autoencoders by metric, of which the first in which a worker is an outlier decides.

    Deng et al., "Minder: Faulty Machine Detection for Large-scale Distributed Model Training", NSDI 2025. We differ: a
    robust score instead of the normal score, so that four workers are enough; several workers can be at fault;
    continuity is needed for a share of the time only, so that faults may come and go.
    """

    models: Mapping[str, Autoencoder]
    #: Robust score, in deviations, above which a worker is an outlier; how long it must be one; and for which share.
    threshold: float = 2.5
    continuity_seconds: float = 240.0
    share: float = 0.9

    def __post_init__(self) -> None:
        if not self.models:
            raise ValueError("models is empty; expected one a metric")
        for name, model in self.models.items():
            if model.channels != 1:
                raise ValueError(f"the model of {name[:80]!r} takes {model.channels} metrics; expected 1")
        for field, most in (("threshold", np.inf), ("continuity_seconds", np.inf), ("share", 1.0)):
            value = getattr(self, field)
            if not 0 < value <= most:
                raise ValueError(f"{field} is {value!r}; expected more than 0 and at most {most}")

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics that it knows, in the order in which they are tried."""
        return tuple(self.models)

    def find(self, run: MetricSeries | RunTrace | pd.DataFrame) -> list[SlowWorker]:
        """Workers at fault.

        Parameters
        ----------
        run
            A recorded run; or a table with the columns ``at`` (seconds) and ``worker``, optionally ``group`` and
            ``host``, and one column for each metric. Other metrics than those it was trained on are ignored.

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
        found = [finding for group in series.comparable() for finding in self._of_group(group)]
        return sorted(found, key=lambda finding: -finding.score)

    def _of_group(self, series: MetricSeries) -> list[SlowWorker]:
        if len(series.workers) < MIN_PEERS:
            return []
        stride = -(-series.values.shape[2] // MAX_WINDOWS)
        length = max(round(self.continuity_seconds / series.step_seconds / stride), 1)
        for metric in self.models:
            if metric not in series.metrics:
                continue
            windows = windowed(smooth(series, metric), length=WINDOW_SAMPLES, stride=stride)
            scores = robust_scores(embedded(self.models[metric], windows))
            first = lasting(scores > self.threshold, length=length, share=self.share)
            found = []
            for worker in np.flatnonzero(first >= 0).tolist():
                start = int(first[worker]) * stride
                score = float(np.median(scores[worker][scores[worker] > self.threshold])) / self.threshold
                seen = evidence_of(series, metric, worker, start, score * self.threshold)
                if (seen.value - seen.peers) * series.meaning(metric).worse >= 0:
                    found.append(finding_of(series, worker, start, score, [seen], WRONG_BY_METRICS))
            if found:
                return found
        return []

    def save(self, path: str | os.PathLike[str], **storage_options: Any) -> None:
        """Write the detector to a file, which :func:`load_minder` reads.

        Parameters
        ----------
        path
            A local path or any fsspec URL. A local file is replaced as a whole or not at all.
        **storage_options
            For the file system, as in :func:`fsspec.open`.
        """
        described = {"metrics": list(self.models), **{name: float(getattr(self, name)) for name in SETTINGS}}
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


#: Least spread of the distances, in normalised units; less is noise of the embedding. A guess.
MIN_SPREAD = 0.01


def robust_scores(embeddings: NDArray[np.float32]) -> NDArray[np.float32]:
    """Distance of a worker from the median embedding, less the median distance, over their MAD; NaN if absent.

    Shape (workers, windows, length) becomes (workers, windows). It works from 4 workers on, where the paper's score, of
    the sums of distances to all others, can reach 1.7 at most.
    """
    distances = np.sqrt(((embeddings - _median(embeddings)) ** 2).sum(axis=2))
    beyond = distances - _median(distances)
    spread = MAD_TO_DEVIATION * _median(np.abs(beyond))
    return np.asarray(beyond / np.maximum(spread, MIN_SPREAD), np.float32)


def _median(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Median over the workers; np.nanmedian is many times slower where nothing is missing."""
    missing = np.isnan(values).reshape(len(values), -1)
    if missing.any():
        values = values[~missing.all(axis=1)]
        if np.isnan(values).any():
            return np.asarray(np.nanmedian(values, axis=0), np.float32)
    return np.asarray(np.median(values, axis=0), np.float32)


#: Numbers of a detector in its file.
SETTINGS = ("threshold", "continuity_seconds", "share")


class MinderFileError(ValueError):
    """The file is not a detector that this version can read."""


_FORM = Format("dask-efficiency-minder", 1, "minder.json", MinderFileError)


def _minder(archive: Archive) -> Minder:
    models: dict[str, Autoencoder] = {}
    settings = {name: archive.field(name, float) for name in SETTINGS}
    try:
        for number, metric in enumerate(archive.listed("metrics", str)):
            groups = {name: archive.columns(f"{number}/{name}", {"values": np.float32}) for name in WEIGHTS}
            if metric in models:
                raise MinderFileError(f"metric {short(metric)} is there twice")
            models[metric] = Autoencoder.of({name: columns["values"] for name, columns in groups.items()})
        return Minder(models, **settings)
    except MinderFileError:
        raise
    except ValueError as error:
        raise MinderFileError(f"its parts do not fit: {error}") from error


def lasting(holds: Bool, *, length: int, share: float) -> Places:
    """First instant, by row, from which something held for a share of a stretch, without stray ones; else -1."""
    rows, instants = holds.shape
    if instants < length:
        return np.full(rows, -1, np.intp)
    sums = np.zeros((rows, instants + 1), np.int32)
    np.cumsum(holds, axis=1, out=sums[:, 1:])
    enough = sums[:, length:] - sums[:, :-length] >= np.ceil(share * length - 1e-9)
    first = np.where(enough.any(axis=1), enough.argmax(axis=1), -1)
    some = max(length // 8, 1)
    for row in np.flatnonzero(first >= 0):
        within = sums[row, first[row] : first[row] + length + 1]
        dense = holds[row, first[row] : first[row] + length - some + 1] & (
            within[some:] - within[:-some] >= share * some
        )
        first[row] += int(dense.argmax() if dense.any() else holds[row, first[row] :].argmax())
    return first
