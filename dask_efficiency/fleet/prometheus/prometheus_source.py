"""The metrics of a fleet from a Prometheus: all queries of a file over a range of time, several at a time."""

from __future__ import annotations

import math
import re
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass

import numpy as np

from dask_efficiency.files.text_files import known_names
from dask_efficiency.fleet.outliers.metric_series import MetricSeries
from dask_efficiency.fleet.prometheus.matrix import Answered
from dask_efficiency.fleet.prometheus.prometheus_query import PrometheusClient, QueryRefusedError, slices
from dask_efficiency.fleet.rounds.durations import shown_duration
from dask_efficiency.fleet.rounds.gathered import Gathered
from dask_efficiency.fleet.rounds.metrics_file import MetricQuery, MetricsFile

#: Prometheus answers 11,000 points a series at most. Fewer at a time, for one answer that breaks off is asked again.
SLICE_STEPS = 3_600

#: Queries at a time: Prometheus evaluates 20 at a time, and others ask it too.
THREADS = 4

#: What is no name of a metric: strings, labels, ranges, and the labels after a word that groups.
_NO_NAMES = re.compile(
    r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\{[^}]*\}|\[[^]]*\]"""
    r"""|\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)"""
)
_NAMES = re.compile(r"(?<![\w.:])[a-zA-Z_:][\w:]*(?![\w:]|\s*\()")
_KEYWORDS = frozenset({"and", "or", "unless", "bool", "offset", "inf", "nan", "group_left", "group_right"})


@dataclass(frozen=True, slots=True)
class PrometheusSource:
    """Pulls the metrics of a file.

    Parameters
    ----------
    client
        The server.
    file
        What is asked.
    threads
        Queries at a time.
    """

    client: PrometheusClient
    file: MetricsFile
    threads: int = THREADS

    @property
    def name(self) -> str:
        """Where they come from."""
        return self.client.url

    @property
    def step_seconds(self) -> float:
        """Between two samples."""
        return self.file.step_seconds

    def pull(self, *, start: float, stop: float) -> MetricSeries:
        """The metrics between two instants, in seconds since the epoch; at multiples of the step.

        Raises
        ------
        TextFileError
            If Prometheus refuses a query of the file, or answers something else than a series a machine.
        PrometheusAwayError
            If it does not answer.
        """
        step = self.file.step_seconds
        first, last = math.ceil(start / step - 1e-6) * step, math.floor(stop / step + 1e-6) * step
        gathered = Gathered(self.file, start=first, samples=max(round((last - first) / step) + 1, 0))
        tasks = [
            (number, part)
            for part in slices(first, last, step, steps=SLICE_STEPS)
            for number in range(len(self.file.metrics))
        ]
        with ThreadPoolExecutor(self.threads) as pool:
            asked = [pool.submit(self._ask, gathered, number, *part) for number, part in tasks]
            try:
                for done in wait(asked, return_when=FIRST_EXCEPTION).done:
                    done.result()
            finally:
                pool.shutdown(cancel_futures=True)
        return gathered.series()

    def check(self, series: MetricSeries) -> None:
        """Raise TextFileError if a metric that is not optional has no value.

        Raises
        ------
        TextFileError
            With the line of the query, and the metric that Prometheus does not have, if it is that.
        """
        for j, metric in enumerate(self.file.metrics):
            if not metric.optional and not np.isfinite(series.values[j]).any():
                raise self.file.error(metric, self._why_empty(metric, series))

    def _why_empty(self, metric: MetricQuery, series: MetricSeries) -> str:
        names = self.client.metric_names()
        unknown = [name for name in metric_names(metric.query) if name not in names]
        if unknown:
            return f"Prometheus has no metric {unknown[0][:80]!r}; {known_names(unknown[0], names)}"
        span = shown_duration(round(series.values.shape[2] * series.step_seconds))
        return f"the query returned nothing for the last {span}; expected a series a machine, or 'optional: true'"

    def _ask(self, gathered: Gathered, number: int, start: float, stop: float) -> None:
        """A part of the time; in halves, if it is too much for the server."""
        metric = self.file.metrics[number]

        def take(series: Answered) -> None:
            gathered.add(number, series.labels, series.at, series.values)

        try:
            self.client.range_query(
                metric.query, start=start, stop=stop, step_seconds=self.file.step_seconds, take=take
            )
        except QueryRefusedError as error:
            steps = round((stop - start) / self.file.step_seconds) + 1
            if error.kind != "execution" or "too many samples" not in str(error) or steps < 2:
                raise self.file.error(metric, f"Prometheus refuses the query: {str(error)[:400]}") from error
            for part in slices(start, stop, self.file.step_seconds, steps=(steps + 1) // 2):
                self._ask(gathered, number, *part)


def metric_names(query: str) -> list[str]:
    """What look like names of metrics in a query."""
    return [name for name in _NAMES.findall(_NO_NAMES.sub(" ", query)) if name.lower() not in _KEYWORDS]
