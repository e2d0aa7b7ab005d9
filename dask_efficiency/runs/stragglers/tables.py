"""ObservedRun: all observations of a run, read from a table of tasks or from a recorded run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Bool, Float64, Int64, needs_pandas
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.runs.trace.schema import RunOutcome
from dask_efficiency.straggler.observations import Observations, TaskTimes, compare_by, observations_of
from dask_efficiency.straggler.signals import MIN_TRANSFER_BYTES

if TYPE_CHECKING:
    import pandas as pd

REQUIRED = ("worker", "prefix", "start", "stop")
#: Columns that a table may lack, in seconds or bytes; the signals that are read from them are then missing.
OPTIONAL = ("cpu_seconds", "input_bytes", "transfer_seconds", "disk_seconds", "io_wait_seconds")
#: Fewest workers of a host that are compared with each other.
MIN_WORKERS_OF_HOST = 3


class TableError(ValueError):
    """The table cannot be read."""


@dataclass(frozen=True, slots=True)
class ObservedRun:
    """Workers of a run, and all observations by which they can be compared."""

    workers: tuple[str, ...]
    #: By worker; empty where unknown.
    hosts: tuple[str, ...]
    observations: tuple[Observations, ...]

    def observed(self, signal: str) -> Observations | None:
        """Observations of a signal, if there are any."""
        return next((observations for observations in self.observations if observations.signal == signal), None)


def run_of_table(frame: pd.DataFrame) -> ObservedRun:
    """Read a table that has a row for each task, as :func:`.offline.find_stragglers` describes it."""
    missing = [name for name in REQUIRED if name not in frame.columns]
    if missing:
        columns = ", ".join(map(str, list(frame.columns)[:20]))
        raise TableError(f"the table has no column {missing[0]!r}; expected {', '.join(REQUIRED)}; there is: {columns}")
    numbers = {name: _numbers(frame, name) for name in ("start", "stop", *OPTIONAL)}
    start, stop = numbers["start"], numbers["stop"]
    _refuse(~np.isfinite(start), lambda row: f"start of row {row} is {float(start[row])!r}; expected seconds")
    early = "row {} stops at {!r}, before its start at {!r}; expected seconds".format
    _refuse(stop < start, lambda row: early(row, float(stop[row]), float(start[row])))
    names, worker = _positions(frame["worker"])
    hosts = [""] * len(names)
    for position, host in zip(worker.tolist(), _texts(frame, "host"), strict=True):
        hosts[position] = hosts[position] or host
    work = zip(_texts(frame, "prefix"), _texts(frame, "group"), strict=True)
    kinds, kind = _positions([f"{prefix} {group}".rstrip() for prefix, group in work])
    running = np.isnan(stop)
    end = float(np.nanmax(np.concatenate([start, stop]))) if len(start) else 0.0
    times = TaskTimes(
        worker=worker, kind=kind, kinds=tuple(kinds), start=start, stop=np.where(running, end, stop), running=running,
        cpu=numbers["cpu_seconds"], disk=numbers["disk_seconds"], io_wait=numbers["io_wait_seconds"],
        transfer=numbers["transfer_seconds"], input_bytes=numbers["input_bytes"],
    )  # fmt: skip
    return ObservedRun(tuple(names), tuple(hosts), _within_hosts(observations_of(times), hosts))


def _refuse(wrong: Bool, message: Callable[[int], str]) -> None:
    if wrong.any():
        raise TableError(message(int(wrong.argmax())))


def _numbers(frame: pd.DataFrame, name: str) -> Float64:
    with needs_pandas():
        import pandas as pd

    if name not in frame.columns:
        return np.full(len(frame), np.nan)
    try:
        values = pd.to_numeric(frame[name]).to_numpy(np.float64, na_value=np.nan)
    except (TypeError, ValueError) as error:
        raise TableError(f"column {name!r}: {str(error)[:200]}; expected numbers") from error
    if name in OPTIONAL:
        _refuse(values < 0, lambda row: f"{name} of row {row} is {float(values[row])!r}; expected 0 or more")
    return np.asarray(np.where(np.isinf(values), np.nan, values))


def _texts(frame: pd.DataFrame, name: str) -> list[str]:
    return [str(value) for value in frame[name].tolist()] if name in frame.columns else [""] * len(frame)


def _positions(values: Any) -> tuple[list[str], Int64]:
    """Number the distinct texts in order; returns them and the position of each value."""
    texts = [str(value) for value in values]
    known = {text: number for number, text in enumerate(sorted(set(texts)))}
    return list(known), np.array([known[text] for text in texts], np.int64)


def _within_hosts(of_run: Sequence[Observations], hosts: Sequence[str]) -> tuple[Observations, ...]:
    """Compare the disk within hosts of several workers, which share it."""
    counts, compared = Counter(hosts), []
    of_worker = [host if host and counts[host] >= MIN_WORKERS_OF_HOST else "" for host in hosts]
    for observations in of_run:
        if observations.signal == "disk" and any(of_worker):
            rows = zip(observations.work.tolist(), observations.worker.tolist(), strict=True)
            kinds, work = _positions(
                [f"{observations.kinds[kind]} {of_worker[worker]}".rstrip() for kind, worker in rows]
            )
            observations = replace(observations, work=work, kinds=tuple(kinds))
        compared.append(observations)
    return tuple(compared)


def run_of_trace(trace: RunTrace) -> ObservedRun:
    """Read a recorded run.

    Workers are compared with those of as many threads, as much memory and the same resources. The first task of each
    prefix on a worker is left out, as it imports and warms up.
    """
    runs = trace.runs
    names = tuple(spec.name for spec in trace.workers)
    hosts = tuple(spec.host for spec in trace.workers)
    ran = (runs.start != MISSING) & (runs.worker != MISSING) & (runs.task != MISSING)
    ended = ran & (runs.outcome == RunOutcome.SUCCEEDED) & (runs.stop >= runs.start)
    rows = np.flatnonzero(ended | (ran & (runs.outcome == RunOutcome.RUNNING)))
    rows = rows[np.argsort(runs.start[rows], kind="stable")]
    groups = [f"{spec.nthreads} {spec.memory_limit} {sorted(spec.resources.items())}" for spec in trace.workers]
    prefix = trace.tasks.prefix[runs.task[rows]]
    worker = runs.worker[rows].astype(np.int64)
    of_prefix = [trace.prefixes[position] if position != MISSING else "" for position in prefix.tolist()]
    kinds, kind = _positions([f"{name} {groups[w]}" for name, w in zip(of_prefix, worker.tolist(), strict=True)])
    place = kind * max(len(names), 1) + worker
    first = np.zeros(len(rows), np.bool_)
    first[np.unique(place, return_index=True)[1]] = True
    several = np.bincount(place, minlength=int(place.max(initial=0)) + 1)[place] > 1
    rows, worker, kind = (column[~(first & several)] for column in (rows, worker, kind))
    running = runs.outcome[rows] == RunOutcome.RUNNING
    cpu = np.where(runs.cpu_ns[rows] >= 0, runs.cpu_ns[rows] / 1e9, np.nan)
    disk = (np.maximum(runs.unspill_ns[rows], 0) + np.maximum(runs.spill_ns[rows], 0)) / 1e9
    work = TaskTimes(
        worker=worker, kind=kind, kinds=tuple(kinds), start=runs.start[rows] / 1e9,
        stop=np.where(running, np.maximum(trace.stop, runs.start[rows]), runs.stop[rows]) / 1e9, running=running,
        cpu=cpu, disk=np.where(disk > 0, disk, np.nan), io_wait=np.full(len(rows), np.nan),
        transfer=np.full(len(rows), np.nan), input_bytes=sizes_of_work(trace)[runs.task[rows]],
    )  # fmt: skip
    observed = [*_within_hosts(observations_of(work), hosts), *_of_transfers(trace, names), *_of_series(trace)]
    return ObservedRun(names, hosts, tuple(observations for observations in observed if len(observations.value)))


def sizes_of_work(trace: RunTrace) -> Float64:
    """By task: bytes of its inputs; or of its result if it has none, as a task that reads a file."""
    own = np.maximum(trace.tasks.nbytes, 0).astype(np.float64)
    total = np.concatenate([[0.0], np.cumsum(own[trace.dependencies])])
    inputs = total[trace.dependency_starts[1:]] - total[trace.dependency_starts[:-1]]
    return np.where(inputs > 0, inputs, own)


def _of_transfers(trace: RunTrace, names: Sequence[str]) -> list[Observations]:
    """Observe seconds a byte: receivers are compared by the same sender, senders by the same receiver."""
    observed = []
    results, messages = trace.transfers, trace.shuffled
    # A receiver of a shuffle's message may write it to disk before it answers: they are compared among themselves.
    shuffled = messages, messages.sender != messages.receiver, "shuffled "
    for moved, known, what in ((results, results.arrived, ""), shuffled):
        took = (moved.stop - moved.start) / 1e9
        rows = known & (moved.nbytes >= MIN_TRANSFER_BYTES) & (moved.start != MISSING) & (took > 0)
        rows &= (moved.sender != MISSING) & (moved.receiver != MISSING)
        cost, at = np.log(took[rows] / moved.nbytes[rows]), moved.start[rows] / 1e9
        sender, receiver = moved.sender[rows].astype(np.int64), moved.receiver[rows].astype(np.int64)
        senders, receivers = ([names[worker] for worker in column.tolist()] for column in (sender, receiver))
        observed.append(compare_by("receive", receiver, [f"{what}from {name}" for name in senders], cost, at))
        observed.append(compare_by("send", sender, [f"{what}to {name}" for name in receivers], cost, at))
    return observed


def _of_series(trace: RunTrace) -> list[Observations]:
    series = trace.series
    rows = series.worker != MISSING
    worker, at = series.worker[rows].astype(np.int64), series.at[rows] / 1e9
    alike = ["worker"] * len(worker)
    active = ("thread_cpu", "thread_noncpu", "waiting_on_data", "paused", "spill")
    busy = sum(getattr(series, name)[rows] for name in active)
    paused = np.where(busy > 0, series.paused[rows] / np.where(busy > 0, busy, 1.0), np.nan)
    lag = np.log(np.maximum(series.loop_interval[rows], 1e-3))
    return [
        compare_by("loop_lag", worker, alike, lag, at),
        compare_by("paused", worker, alike, -np.log(np.maximum(1.0 - paused, 0.02)), at),
    ]
