"""Minder: workers whose metrics stay unlike those of their peers for minutes, one metric after the other."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.slow_worker import SlowWorker
from dask_efficiency.fleet.minder import files
from dask_efficiency.fleet.minder.distances import robust_scores
from dask_efficiency.fleet.minder.network import Autoencoder
from dask_efficiency.fleet.minder.windows import normalised, windowed
from dask_efficiency.fleet.outliers.lasting import lasting
from dask_efficiency.fleet.outliers.metric_series import (
    REACH_SECONDS,
    MetricSeries,
    evidence_of,
    filled,
    finding_of,
    metric_series_of,
)
from dask_efficiency.straggler.peers import MIN_PEERS

if TYPE_CHECKING:
    import pandas as pd

    from dask_efficiency.runs.trace.run_trace import RunTrace

#: Length of a window, as in the paper.
WINDOW_SAMPLES = 8

#: At most so many windows of a run are looked at: of a longer run every second one, every third, and so on.
MAX_WINDOWS = 1000


@dataclass(frozen=True, slots=True)
class Minder:
    """A trained detector; :func:`~dask_efficiency.fleet.minder.train.train_minder` makes one.

    Parameters
    ----------
    models
        By metric, the autoencoder of its windows. The metrics are tried in this order, and the first one in which a
        worker is an outlier decides.
    threshold
        Robust score, in deviations, above which a worker is an outlier.
    continuity_seconds
        How long it must be one.
    share
        For how much of that time, in (0, 1].

    Raises
    ------
    ValueError
        If there is no model, a model takes other than one metric, or a number is not in its range.

    References
    ----------
    Deng et al., "Minder: Faulty Machine Detection for Large-scale Distributed Model Training", NSDI 2025. We differ:
    a robust score instead of the normal score, so that four workers are enough; several workers can be at fault;
    continuity asks for a share of the time, so that faults may come and go.
    """

    models: Mapping[str, Autoencoder]
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
        """The metrics that it knows, in the order in which they are tried."""
        return tuple(self.models)

    def find(self, run: MetricSeries | RunTrace | pd.DataFrame) -> list[SlowWorker]:
        """The workers at fault.

        Parameters
        ----------
        run
            A recorded run; or a table with the columns ``at`` (seconds) and ``worker``, optionally ``group`` and
            ``host``, and one column for each metric. Metrics that it was not trained on are not looked at.

        Returns
        -------
        list
            The most certain first; empty for a run that is shorter than the continuity asks for. The effect and the
            time lost of each are None, as metrics do not tell how much longer the work takes.

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
            scores = robust_scores(self.embeddings(series, metric, stride=stride))
            first = lasting(scores > self.threshold, length=length, share=self.share)
            found = [
                self._finding(series, metric, worker, int(first[worker]) * stride, scores[worker])
                for worker in np.flatnonzero(first >= 0).tolist()
            ]
            found = [finding for finding in found if _is_worse(series, finding)]
            if found:
                return found
        return []

    def embeddings(self, series: MetricSeries, metric: str, *, stride: int = 1) -> NDArray[np.float32]:
        """Windows of a metric as its autoencoder gives them back; shape (workers, windows, length)."""
        values = series.values[[series.metrics.index(metric)]]
        reach = max(int(REACH_SECONDS / series.step_seconds), 1)
        smooth = filled(normalised(values)[0], reach=reach)
        return embedded(self.models[metric], windowed(smooth, length=WINDOW_SAMPLES, stride=stride))

    def save(self, path: str | os.PathLike[str], **storage_options: Any) -> None:
        """Write the detector to a file, which :func:`load_minder` reads.

        Parameters
        ----------
        path
            A local path or any fsspec URL; ``.npz`` is a good ending. A local file is replaced as a whole or not at
            all.
        **storage_options
            For the file system, as in :func:`fsspec.open`.
        """
        settings = {name: float(getattr(self, name)) for name in files.SETTINGS}
        files.write(path, self.models, settings, **storage_options)

    def _finding(
        self, series: MetricSeries, metric: str, worker: int, start: int, scores: NDArray[np.float32]
    ) -> SlowWorker:
        score = float(np.median(scores[scores > self.threshold])) / self.threshold
        return finding_of(
            series, worker, start, score, [evidence_of(series, metric, worker, start, score * self.threshold)]
        )


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
    return files.read(path, Minder, **storage_options)


def embedded(model: Autoencoder, windows: NDArray[np.float32]) -> NDArray[np.float32]:
    """What a model of one metric gives back for windows of shape (workers, windows, length)."""
    flat = windows.reshape(-1, windows.shape[2], 1)
    return model.reconstruct(flat).reshape(windows.shape)


def _is_worse(series: MetricSeries, finding: SlowWorker) -> bool:
    evidence = finding.evidence[0]
    return (evidence.value - evidence.peers) * series.meaning(evidence.signal).worse >= 0
