"""The metrics of a fleet from a Prometheus: all queries of a file over a range of time, several at a time."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.files.text_files import known_names
from dask_efficiency.fleet.outliers.metric_series import MetricSeries
from dask_efficiency.fleet.prometheus.prometheus_query import Answered, PrometheusClient, QueryRefusedError, slices
from dask_efficiency.fleet.rounds.metrics_file import MetricQuery, MetricsFile, shown_duration

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


#: Values that are held at most, of all machines, metrics and instants: 512 MB.
MAX_VALUES = 1 << 27

#: If two series of one machine have values at more than this share of the shorter one's instants, the query does not
#: tell machines apart. Less is a machine that got other labels: its old series goes on for some minutes.
_MAX_SHARED = 0.5

Labels = Mapping[str, str]


class TooLargeError(ValueError):
    """More values than are held at most."""


class Gathered:
    """The answers to the queries of a file, for some even steps of time. May be filled by several threads.

    Parameters
    ----------
    file
        Which queries, in which order.
    start
        Time of the first sample, in seconds since the epoch.
    samples
        How many there are, each ``file.step_seconds`` after the one before.
    """

    def __init__(self, file: MetricsFile, *, start: float, samples: int) -> None:
        self.file = file
        self.start = start
        self.samples = samples
        self._rows: list[dict[str, NDArray[np.float32]]] = [{} for _ in file.metrics]
        self._labels: list[dict[str, Labels]] = [{} for _ in file.metrics]
        self._groups: dict[str, str] = {}
        self._values = 0
        self._lock = threading.Lock()

    def add(self, number: int, labels: Labels, at: NDArray[np.float64], values: NDArray[np.float32]) -> None:
        """Take a series of the query of that number.

        Raises
        ------
        TextFileError
            If it does not say which machine it is of, or that machine has another series at the same time.
        TooLargeError
            If there are too many of them.
        """
        metric = self.file.metrics[number]
        name = labels.get(metric.machine, "")
        if not name:
            there = known_names(metric.machine, sorted(labels))
            raise self.file.error(
                metric, f"a series of the query has no label {metric.machine!r}, the machine's name; {there}"
            )
        positions = np.rint((at - self.start) / self.file.step_seconds).astype(np.intp)
        inside = (positions >= 0) & (positions < self.samples)
        with self._lock:
            row = self._row(number, name)
            known = self._labels[number].setdefault(name, labels)
            if known != labels:
                _check_same(self.file, metric, name, row[positions[inside]], values[inside], (known, labels))
                self._labels[number][name] = labels
            row[positions[inside]] = np.where(np.isfinite(values[inside]), values[inside], row[positions[inside]])
            if metric.group and metric.group in labels:
                self._groups[name] = labels[metric.group]

    def _row(self, number: int, name: str) -> NDArray[np.float32]:
        row = self._rows[number].get(name)
        if row is None:
            self._values += self.samples
            if self._values > MAX_VALUES:
                raise TooLargeError(
                    f"{len(self._rows[number])} machines, {len(self._rows)} metrics and {self.samples} samples are "
                    f"more than {MAX_VALUES} values; expected a longer step, or less history"
                )
            row = self._rows[number][name] = np.full(self.samples, np.nan, np.float32)
        return row

    def series(self) -> MetricSeries:
        """All of it; of a metric of which nothing came, all values are missing.

        Raises
        ------
        TextFileError
            If machines have no label of their group.
        """
        machines = sorted({name for rows in self._rows for name in rows})
        self._check_groups(machines)
        values = np.full((len(self._rows), len(machines), self.samples), np.nan, np.float32)
        for j, rows in enumerate(self._rows):
            for i, name in enumerate(machines):
                if name in rows:
                    values[j, i] = rows.pop(name)  # so that not all is held twice
        return MetricSeries(
            tuple(metric.name for metric in self.file.metrics),
            tuple(machines),
            tuple(self._groups.get(name, "") for name in machines),
            ("",) * len(machines),
            self.start,
            self.file.step_seconds,
            values,
            {metric.name: metric.meaning for metric in self.file.metrics},
        )

    def _check_groups(self, machines: Sequence[str]) -> None:
        """A query that sums up may leave the group out, if another one has it."""
        asking = [j for j, metric in enumerate(self.file.metrics) if metric.group]
        without = [name for name in machines if name not in self._groups]
        for j in asking:
            for name in without:
                if name in self._labels[j]:
                    metric = self.file.metrics[j]
                    there = known_names(metric.group, sorted(self._labels[j][name]))
                    raise self.file.error(
                        metric, f"no series of {name[:80]!r} has a label {metric.group!r}, its group; {there}"
                    )


def _check_same(
    file: MetricsFile,
    metric: MetricQuery,
    name: str,
    known: NDArray[np.float32],
    values: NDArray[np.float32],
    labels: tuple[Labels, Labels],
) -> None:
    both = int((np.isfinite(known) & np.isfinite(values)).sum())
    if both > _MAX_SHARED * int(np.isfinite(values).sum()):
        one, other = labels
        differ = sorted(label for label in one.keys() | other.keys() if one.get(label) != other.get(label))
        raise file.error(
            metric,
            f"the query has several series of {name[:80]!r}, which differ in {', '.join(differ)[:80]}; expected one "
            f"a machine, as 'avg by ({metric.machine}) (...)' makes",
        )
