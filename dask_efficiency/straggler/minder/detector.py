"""Minder: a worker whose metrics stay unlike those of its peers for minutes, one metric after the other."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.straggler.finding import Evidence, Finding
from dask_efficiency.straggler.lasting import lasting
from dask_efficiency.straggler.metric_series import REACH_SECONDS, WORSE, Samples, cause_of, filled, samples_of
from dask_efficiency.straggler.minder.distances import robust_scores
from dask_efficiency.straggler.minder.files import SETTINGS, read_detector, write_detector
from dask_efficiency.straggler.minder.network import Autoencoder
from dask_efficiency.straggler.minder.windows import normalised, windowed
from dask_efficiency.straggler.outliers import confidence_of

if TYPE_CHECKING:
    import pandas as pd

    from dask_efficiency.trace.run_trace import TraceTables

#: Length of a window, as in the paper.
WINDOW_SAMPLES = 8

#: Fewer workers than this have no majority.
MIN_WORKERS = 3

#: Workers that begin to look unlike their peers within the first time of each other began together; one that begins
#: later, but within the second, is the other's victim.
TOGETHER_SECONDS = 15.0
FOLLOW_SECONDS = 120.0

#: Windows of a run that are looked at, at most; of a longer run every second one, every third, and so on.
MAX_WINDOWS = 1000


@dataclass(frozen=True, slots=True)
class Minder:
    """A detector that was trained; :func:`~dask_efficiency.straggler.minder.train.train_minder` makes one.

    Parameters
    ----------
    models
        By metric, the autoencoder of its windows; the metrics are tried in this order, and the first one in which
        a worker stands apart decides.
    threshold
        Robust score, in deviations, above which a worker looks unlike its peers.
    continuity_seconds
        How long it must look so.
    share
        For how much of that time, in (0, 1].

    Raises
    ------
    ValueError
        If there is no model, a model takes other than one metric, or a number is not in its range.

    References
    ----------
    Deng et al., "Minder: Faulty Machine Detection for Large-scale Distributed Model Training", NSDI 2025. We differ:
    a robust score instead of the normal score, so that four workers are enough; several workers can be at fault, if
    they are not each other's victims; continuity asks for a share of the time, so that faults may come and go.
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
        """The metrics it knows, in the order in which they are tried."""
        return tuple(self.models)

    def find(self, run: Samples | TraceTables | pd.DataFrame) -> list[Finding]:
        """The workers at fault.

        Parameters
        ----------
        run
            A recorded run, or a table with the columns ``at`` (seconds), ``worker``, if wanted ``group`` and ``host``,
            and one for each metric. Metrics that were not trained on are not looked at.

        Returns
        -------
        list
            Most certain first; empty for a run that is shorter than the continuity asks for. Effect and time
            lost of each are None: metrics do not tell how much longer the work takes.

        Raises
        ------
        ValueError
            If there is no sample, or none of a metric that it knows.
        """
        samples = samples_of(run)
        if not set(self.models) & set(samples.metrics):
            raise ValueError(f"none of the metrics {samples.metrics[:20]!r} was trained on; expected {self.metrics!r}")
        found = [finding for group in samples.comparable() for finding in self._of_group(group)]
        return sorted(found, key=lambda finding: -finding.score)

    def _of_group(self, samples: Samples) -> list[Finding]:
        if len(samples.workers) < MIN_WORKERS:
            return []
        stride = -(-samples.values.shape[2] // MAX_WINDOWS)

        def windows(seconds: float) -> int:
            count: int = round(seconds / samples.step_seconds / stride)
            return max(count, 1)

        length = windows(self.continuity_seconds)
        for name in self.models:
            if name not in samples.metrics:
                continue
            scores = robust_scores(self.embeddings(samples, name, stride=stride))
            apart = scores > self.threshold
            first = lasting(apart, length=length, share=self.share)
            found = [
                self._finding(samples, name, int(i), int(first[i]), scores[i], stride)
                for i in np.flatnonzero(first >= 0)
            ]
            found = [finding for finding in found if _is_worse(finding.evidence[0])]
            if found:
                return found
        return []

    def embeddings(self, samples: Samples, metric: str, *, stride: int = 1) -> NDArray[np.float32]:
        """Windows of a metric as its autoencoder gives them back; shape (workers, windows, length)."""
        values = samples.values[[samples.metrics.index(metric)]]
        reach = max(int(REACH_SECONDS / samples.step_seconds), 1)
        series = filled(normalised(values)[0], reach=reach)
        return embedded(self.models[metric], windowed(series, length=WINDOW_SAMPLES, stride=stride))

    def save(self, path: str | os.PathLike[str], **storage_options: Any) -> None:
        """Write the detector to a local path or any fsspec URL; :func:`load_minder` reads it."""
        settings = {name: getattr(self, name) for name in SETTINGS}
        write_detector(path, self.models, settings, **storage_options)

    def _finding(
        self, samples: Samples, metric: str, worker: int, first: int, scores: NDArray[np.float32], stride: int
    ) -> Finding:
        score = float(np.median(scores[scores > self.threshold])) / self.threshold
        start = first * stride
        return Finding(
            worker=samples.workers[worker],
            host=samples.hosts[worker],
            cause=cause_of([metric]),
            score=score,
            confidence=confidence_of(score),
            since=samples.start + start * samples.step_seconds,
            effect=None,
            evidence=(evidence_of(samples, metric, worker, start, score * self.threshold),),
        )


def load_minder(path: str | os.PathLike[str], **storage_options: Any) -> Minder:
    """The detector that was saved to a local path or fsspec URL.

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
    return read_detector(path, lambda models, settings: Minder(models, **settings), **storage_options)


def embedded(model: Autoencoder, windows: NDArray[np.float32]) -> NDArray[np.float32]:
    """What a model of one metric gives back for windows of shape (workers, windows, length)."""
    flat = windows.reshape(-1, windows.shape[2], 1)
    return model.reconstruct(flat).reshape(windows.shape)


def evidence_of(samples: Samples, metric: str, worker: int, start: int, z: float) -> Evidence:
    """A worker's mean of a metric from an instant on, beside its peers' means."""
    values = samples.values[samples.metrics.index(metric), :, start:]
    known = np.isfinite(values)
    counts = known.sum(axis=1)
    with np.errstate(invalid="ignore"):
        means = np.where(known, values, 0).sum(axis=1, dtype=np.float64) / counts
    peers = np.delete(means, worker)
    peers = peers[np.isfinite(peers)]
    low, middle, high = np.quantile(peers, (0, 0.5, 1)) if len(peers) else (np.nan,) * 3
    return Evidence(metric, float(means[worker]), float(middle), float(low), float(high), float(z), int(counts[worker]))


def _is_worse(evidence: Evidence) -> bool:
    return (evidence.value - evidence.peers) * WORSE.get(evidence.signal, 0) >= 0
