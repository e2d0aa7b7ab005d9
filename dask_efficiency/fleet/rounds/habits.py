"""Habits: how machines differed from their peers before they were found, for as long as they are at fault.

Without them, a machine that stays at fault for longer than the history goes back would have no other past than its
fault, and be taken for one that was always like that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from dask_efficiency.accounts.slow_worker import SlowWorker
from dask_efficiency.fleet.outliers.block_signals import evenly, median_of_workers
from dask_efficiency.fleet.outliers.metric_series import MetricSeries, Values


class Habits:
    """Keeps the past of machines that are at fault."""

    def __init__(self) -> None:
        #: By machine, the metrics and by how much it differed from its peers in each; shape (metrics, samples).
        self._kept: dict[str, tuple[tuple[str, ...], Values]] = {}

    def keep(self, findings: Iterable[SlowWorker], past: MetricSeries | None) -> None:
        """Remember who was found, as they were until their fault began, and forget all others.

        Parameters
        ----------
        findings
            All that go on.
        past
            What came before the window, of all machines.
        """
        ongoing = {name: finding.since for finding in findings for name in finding.workers or (finding.subject,)}
        self._kept = {name: kept for name, kept in self._kept.items() if name in ongoing}
        if past is None:
            return
        for name in ongoing.keys() & set(past.workers) - self._kept.keys():
            worker = past.workers.index(name)
            differs = past.values[:, worker] - _usual(past, worker)
            count = max(int((ongoing[name] - past.start) // past.step_seconds), 0)
            if np.isfinite(differs[:, :count]).any():
                self._kept[name] = past.metrics, differs[:, :count]

    def applied(self, past: MetricSeries | None) -> MetricSeries | None:
        """The past as it would be if those machines had gone on as they were."""
        if past is None or not self._kept.keys() & set(past.workers):
            return past
        values = past.values.copy()
        for worker, name in enumerate(past.workers):
            if name in self._kept:
                values[:, worker] = _usual(past, worker) + self._of(name, past)
        return replace(past, values=values)

    def _of(self, name: str, past: MetricSeries) -> Values:
        """By how much a machine differed, for as many samples as there are."""
        metrics, kept = self._kept[name]
        samples = min(kept.shape[1], past.values.shape[2])
        differs = np.full((len(past.metrics), past.values.shape[2]), np.nan, np.float32)
        for j, metric in enumerate(past.metrics):
            if metric in metrics:
                differs[j, :samples] = kept[metrics.index(metric), kept.shape[1] - samples :]
        return differs


def _usual(past: MetricSeries, worker: int) -> Values:
    """The median of the machines that it is compared with; shape (metrics, samples), NaN where nobody was there."""
    alike = np.array([i for i, group in enumerate(past.groups) if group == past.groups[worker]])
    return median_of_workers(past.values[:, alike[evenly(len(alike))]])[:, 0]
