"""PrometheusSource: a fleet's metrics from all queries of a file over a range of time, several queries at a time."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ALL_COMPLETED, FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.checks import MAX_NAME_LENGTH
from dask_efficiency.files.text_files import known_names
from dask_efficiency.fleet.outliers.metric_series import MetricSeries
from dask_efficiency.fleet.prometheus.prometheus_query import Answered, PrometheusClient, QueryRefusedError, slices
from dask_efficiency.fleet.rounds.exclusions import Exclusion, LeavingOut
from dask_efficiency.fleet.rounds.metrics_file import MetricQuery, MetricsFile, shown_duration

#: Points of a series a request: Prometheus answers 11,000 at most, and a broken answer is asked again whole.
SLICE_STEPS = 3_600
#: Queries at a time: Prometheus evaluates 20, and serves others too.
THREADS = 4
#: Times that a part of the time is halved: each of 32 parts may take as long as a whole answer.
MAX_HALVED = 5

#: Parts of a query that hold no names of metrics: strings, labels, ranges, and labels after grouping words.
_NO_NAMES = re.compile(
    r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\{[^}]*\}|\[[^]]*\]"""
    r"""|\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)"""
)
_NAMES = re.compile(r"(?<![\w.:])[a-zA-Z_:][\w:]*(?![\w:]|\s*\()")
_KEYWORDS = frozenset({"and", "or", "unless", "bool", "offset", "inf", "nan", "group_left", "group_right"})


@dataclass(frozen=True, slots=True)
class PrometheusSource:
    """Pulls the metrics of a file of queries from a server."""

    client: PrometheusClient
    file: MetricsFile

    @property
    def name(self) -> str:
        """URL of the server."""
        return self.client.url

    @property
    def step_seconds(self) -> float:
        """Seconds between two samples."""
        return self.file.step_seconds

    def pull(self, *, start: float, stop: float, leave_out: LeavingOut | None = None) -> MetricSeries:
        """Metrics between two instants, in seconds since the epoch, at multiples of the step.

        A metric whose query fails, and a machine without a group, are an error; unless ``leave_out`` takes them, and
        some metric is left.
        """
        step = self.file.step_seconds
        first, last = math.ceil(start / step - 1e-6) * step, math.floor(stop / step + 1e-6) * step
        samples = max(round((last - first) / step) + 1, 0)
        gathered = Gathered(self.file, start=first, samples=samples, strict=leave_out is None)
        parts = slices(first, last, step, steps=SLICE_STEPS)
        with ThreadPoolExecutor(THREADS) as pool:
            asked = {
                pool.submit(self._ask, gathered, number, *part): metric.name
                for part in parts
                for number, metric in enumerate(self.file.metrics)
            }
            try:
                failed = self._failed(asked, strict=leave_out is None)
            finally:
                pool.shutdown(cancel_futures=True)
        if leave_out is not None:
            for name, error in failed.items():
                leave_out(Exclusion("metric", (name,), error))
                gathered.forget(name)
        return gathered.series(leave_out)

    def _failed(self, asked: Mapping[Future[None], str], *, strict: bool) -> dict[str, Exception]:
        """Errors of metrics, where some metric has none; an error that is no metric's own is raised."""
        failed: dict[str, Exception] = {}
        for done in wait(asked, return_when=FIRST_EXCEPTION if strict else ALL_COMPLETED).done:
            try:
                done.result()
            except OSError:
                raise
            except Exception as error:
                if strict or isinstance(error, TooLargeError):
                    raise
                failed[asked[done]] = error
        if failed and len(failed) == len(self.file.metrics):
            raise next(iter(failed.values()))
        return failed

    def check(self, series: MetricSeries) -> None:
        """Raise TextFileError if a metric that is not optional has no value, or Prometheus has no such metric."""
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

    def _ask(self, gathered: Gathered, number: int, start: float, stop: float, *, halved: int = 0) -> None:
        """Ask for a part of the time; in halves, if it is too much for the server."""
        metric, step, take = self.file.metrics[number], self.file.step_seconds, partial(gathered.add, number)
        try:
            self.client.range_query(metric.query, start=start, stop=stop, step_seconds=step, take=take)
        except QueryRefusedError as error:
            steps = round((stop - start) / step) + 1
            if (
                error.kind != "execution"
                or "too many samples" not in str(error)
                or min(steps // 2, MAX_HALVED - halved) < 1
            ):
                raise self.file.error(metric, f"Prometheus refuses the query: {str(error)[:400]}") from error
            for part in slices(start, stop, step, steps=(steps + 1) // 2):
                self._ask(gathered, number, *part, halved=halved + 1)


def metric_names(query: str) -> list[str]:
    """Names in a query that look like metrics."""
    return [name for name in _NAMES.findall(_NO_NAMES.sub(" ", query)) if name.lower() not in _KEYWORDS]


#: Most values held, of all machines, metrics and instants: 512 MB. Labels count for as many as take their place.
MAX_VALUES = 1 << 27
#: Bytes of a value, and of a label beside its characters.
_VALUE_BYTES, _LABEL_BYTES = 4, 200

#: Two series of a machine may share this part of the shorter one's instants: a machine that got other labels has its
#: old series for some minutes more. If they share more, the query does not tell machines apart.
_MAX_SHARED = 0.5

Labels = Mapping[str, str]


class TooLargeError(ValueError):
    """More values than can be held."""


class Gathered:
    """Answers to the queries of a file, for so many steps since an instant. Several threads may fill it."""

    def __init__(self, file: MetricsFile, *, start: float, samples: int, strict: bool = True) -> None:
        self.file = file
        self.start = start
        self.samples = samples
        self._rows: list[dict[str, NDArray[np.float32]]] = [{} for _ in file.metrics]
        self._labels: list[dict[str, Labels]] = [{} for _ in file.metrics]
        self._groups: dict[str, str] = {}
        #: Errors of single machines in the answers to queries, which are no errors of the whole unless it is strict.
        self._strict = strict
        self._wrong: dict[tuple[int, str], Exception] = {}
        self._values = 0
        self._lock = threading.Lock()

    def add(self, number: int, series: Answered) -> None:
        """Add a series of the query of this number; TextFileError if it is not the only one of a machine at a time."""
        metric, labels = self.file.metrics[number], series.labels
        name = labels.get(metric.machine, "")
        if not name:
            there = known_names(metric.machine, sorted(labels))
            wrong = f"a series of the query has no label {metric.machine!r}, the machine's name; {there}"
            raise self.file.error(metric, wrong)
        if len(name) > MAX_NAME_LENGTH:
            wrong = f"a machine's name has {len(name)} characters; expected at most {MAX_NAME_LENGTH}"
            raise self.file.error(metric, wrong)
        positions = np.rint((series.at - self.start) / self.file.step_seconds).astype(np.intp)
        inside = (positions >= 0) & (positions < self.samples)
        positions, values = positions[inside], series.values[inside]
        with self._lock:
            row = self._row(number, name)
            known = self._labels[number].get(name)
            if known is None or known != labels:
                nbytes = sum(_LABEL_BYTES + len(label) + len(value) for label, value in labels.items())
                self._hold(number, nbytes // _VALUE_BYTES)
            known = self._labels[number].setdefault(name, labels)
            both = int((np.isfinite(row[positions]) & np.isfinite(values)).sum())
            if known != labels and both > _MAX_SHARED * int(np.isfinite(values).sum()):
                differ = ", ".join(sorted({label for label, _ in known.items() ^ labels.items()}))[:80]
                wrong = f"the query has several series of {name[:80]!r}, which differ in {differ}"
                expected = f"{wrong}; expected one a machine"
                error = self.file.error(metric, f"{expected}, as 'avg by ({metric.machine}) (...)' makes")
                if self._strict:
                    raise error
                self._wrong[number, name] = error
                return
            self._labels[number][name] = labels
            row[positions] = np.where(np.isfinite(values), values, row[positions])
            if metric.group and metric.group in labels:
                self._groups[name] = labels[metric.group]

    def _row(self, number: int, name: str) -> NDArray[np.float32]:
        row = self._rows[number].get(name)
        if row is None:
            self._hold(number, self.samples)
            row = self._rows[number][name] = np.full(self.samples, np.nan, np.float32)
        return row

    def _hold(self, number: int, values: int) -> None:
        """Count what is about to be held; TooLargeError if it is too much."""
        self._values += values
        if self._values > MAX_VALUES:
            found = f"{len(self._rows[number])} machines, {len(self._rows)} metrics and {self.samples} samples"
            expected = "expected fewer labels, a longer step, or less history"
            raise TooLargeError(f"{found}, with their labels, are more than {MAX_VALUES} values; {expected}")

    def forget(self, metric: str) -> None:
        """Forget what was answered of a metric."""
        for number, one in enumerate(self.file.metrics):
            if one.name == metric:
                self._rows[number], self._labels[number] = {}, {}
                self._wrong = {place: error for place, error in self._wrong.items() if place[0] != number}

    def series(self, leave_out: LeavingOut | None = None) -> MetricSeries:
        """Series of all machines, NaN for a metric without an answer.

        A machine without a group is a TextFileError, unless ``leave_out`` takes it.
        """
        machines = sorted({name for rows in self._rows for name in rows})
        wrong = self._without_group(machines) | {name: error for (_, name), error in self._wrong.items()}
        for name, error in wrong.items():
            if leave_out is None:
                raise error
            leave_out(Exclusion("machine", (name,), error))
        machines = [name for name in machines if name not in wrong]
        values = np.full((len(self._rows), len(machines), self.samples), np.nan, np.float32)
        for j, rows in enumerate(self._rows):
            for i, name in enumerate(machines):
                if name in rows:
                    values[j, i] = rows.pop(name)  # not all is held twice
        meanings = {metric.name: metric.meaning for metric in self.file.metrics}
        groups, hosts = tuple(self._groups.get(name, "") for name in machines), ("",) * len(machines)
        step = self.file.step_seconds
        return MetricSeries(tuple(meanings), tuple(machines), groups, hosts, self.start, step, values, meanings)

    def _without_group(self, machines: Sequence[str]) -> dict[str, Exception]:
        """Error of each machine without a group; a query that sums up may drop it, if another one has it."""
        errors: dict[str, Exception] = {}
        without = [name for name in machines if name not in self._groups]
        for metric, labels in zip(self.file.metrics, self._labels, strict=True):
            for name in without if metric.group else ():
                if name in labels and name not in errors:
                    there = known_names(metric.group, sorted(labels[name]))
                    wrong = f"no series of {name[:80]!r} has a label {metric.group!r}, its group; {there}"
                    errors[name] = self.file.error(metric, wrong)
        return errors
