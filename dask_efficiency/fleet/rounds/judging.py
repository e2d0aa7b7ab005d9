"""Who is unlike the others in a window: one of two detectors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dask_efficiency.accounts.slow_worker import SlowWorker
from dask_efficiency.files.text_files import known_names
from dask_efficiency.fleet.minder.detector import Minder
from dask_efficiency.fleet.outliers.departures import MIN_PAST_SECONDS
from dask_efficiency.fleet.outliers.metric_series import MetricSeries
from dask_efficiency.fleet.outliers.outliers import CONTINUITY_SECONDS, find_outliers
from dask_efficiency.straggler.peers import MIN_PEERS


class Detector(Protocol):
    """Finds machines that are unlike their peers."""

    def __call__(self, window: MetricSeries, past: MetricSeries | None, /) -> list[SlowWorker]:
        """Those of a window; the past is of the same machines, right before it."""


@dataclass(frozen=True, slots=True)
class Outliers:
    """:func:`~dask_efficiency.fleet.find_outliers`."""

    continuity_seconds: float | None = None

    def __call__(self, window: MetricSeries, past: MetricSeries | None, /) -> list[SlowWorker]:
        """Those of a window."""
        if self.continuity_seconds is None:
            return find_outliers(window, history=past)
        return find_outliers(window, history=past, continuity_seconds=self.continuity_seconds)


@dataclass(frozen=True, slots=True)
class ByMinder:
    """A trained detector."""

    minder: Minder

    def __call__(self, window: MetricSeries, past: MetricSeries | None, /) -> list[SlowWorker]:
        """Those of a window; the past does not count."""
        return self.minder.find(window)


def unjudged(window: MetricSeries, past: MetricSeries | None, *, continuity_seconds: float | None = None) -> str:
    """Why nobody of a window could be found, whoever is at fault; empty if somebody could."""
    if not window.workers:
        return "nobody reported anything"
    alike = max(Counter(window.groups).values())
    if alike < MIN_PEERS:
        return f"{len(window.workers)} reported, of which {alike} can be compared; expected {MIN_PEERS} at least"
    expected = CONTINUITY_SECONDS if continuity_seconds is None else continuity_seconds
    expected += 0 if past is not None else MIN_PAST_SECONDS
    known = int(np.isfinite(window.values).any(axis=(0, 1)).sum()) * window.step_seconds
    if known < expected:
        return f"what was reported covers {known:.0f} s; expected {expected:.0f} s at least"
    return ""


def check_model(minder: Minder, path: str, names: Sequence[str], source: str) -> None:
    """Raise ValueError if a trained detector looks at metrics that there are not.

    Parameters
    ----------
    minder, path
        The detector, and its file.
    names, source
        The metrics that there are, and who has them.
    """
    unknown = [name for name in minder.metrics if name not in names]
    if unknown:
        raise ValueError(
            f"{path} was trained on {unknown[0][:80]!r}, which {source} does not have; "
            f"{known_names(unknown[0], names)}; expected a model of the same metrics, as `fleet train` makes"
        )
