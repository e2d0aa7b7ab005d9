"""Recordings of what the watch for stragglers is given of a cluster, by which live detection is replayed without one.

A recording is gzipped JSON: the fault and its worker, and the calls of a
:class:`~dask_efficiency.straggler.online.StragglerWatch` in their order. ``python -m benchmarks.stragglers_faults
--record FOLDER`` makes them; those of ``tests/data/heartbeats`` are replayed by ``python -m benchmarks.who_is_slow``.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from dask_efficiency.accounts.slow_worker import SlowWorker
from dask_efficiency.straggler.online import StragglerChange, StragglerWatch
from dask_efficiency.straggler.task_rates import TASK_UNITS, TRANSFER_UNITS, RunningTask, TaskRates


@dataclass(slots=True)
class Recording:
    """What a watch was told of a cluster whose worker has a fault; fault and worker are empty for none."""

    fault: str
    shape: str
    victim: str = ""
    #: Monotonic nanoseconds at which the fault began.
    began: int = 0
    calls: list[list[Any]] = field(default_factory=list)

    def save(self, path: Path) -> None:
        """Write it to a file."""
        content = {name: getattr(self, name) for name in ("fault", "shape", "victim", "began", "calls")}
        path.write_bytes(gzip.compress(json.dumps(content, separators=(",", ":")).encode(), 9, mtime=0))


def read_recording(path: Path) -> Recording:
    """A recording of a file."""
    return Recording(**json.loads(gzip.decompress(path.read_bytes())))


@contextmanager
def recorded(recording: Recording) -> Iterator[None]:
    """Record the watch of a scheduler in this process."""
    joined, left, receive, poll = (getattr(StragglerWatch, name) for name in ("joined", "left", "receive", "poll"))

    def on_joined(watch: StragglerWatch, worker: str, *, host: str, group: Any, at: int) -> None:
        recording.calls.append(["joined", worker, host, str(group), at])
        joined(watch, worker, host=host, group=group, at=at)

    def on_left(watch: StragglerWatch, worker: str, *, now: float) -> None:
        recording.calls.append(["left", worker, now])
        left(watch, worker, now=now)

    def on_receive(watch: StragglerWatch, worker: str, rates: TaskRates, *, at: int, **others: Any) -> None:
        others.pop("kernels", None)
        tasks, transfers = (
            np.rint(sums / units).astype(np.int64).tolist()
            for sums, units in ((rates.tasks, TASK_UNITS), (rates.transfers, TRANSFER_UNITS))
        )
        running = [[task.prefix, round(task.seconds, 4), task.nbytes] for task in rates.running]
        process = [round(number, 6) for number in rates.process.tolist()]
        row = [list(rates.prefixes), tasks, list(rates.senders), transfers, process, running]
        recording.calls.append(["receive", worker, row, at, {name: round(n, 6) for name, n in others.items()}])
        receive(watch, worker, rates, at=at, **others)

    def on_poll(
        watch: StragglerWatch, *, at: int, now: float, interval_seconds: float, **others: Any
    ) -> StragglerChange:
        recording.calls.append(["poll", at, now, interval_seconds])
        change: StragglerChange = poll(watch, at=at, now=now, interval_seconds=interval_seconds, **others)
        return change

    wrapped: dict[str, Any] = {"joined": on_joined, "left": on_left, "receive": on_receive, "poll": on_poll}
    with mock.patch.multiple(StragglerWatch, **wrapped):
        yield


@dataclass(frozen=True, slots=True)
class Replayed:
    """Findings of a replay: the latest of each worker, and the seconds from the fault until the victim was named."""

    found: dict[str, SlowWorker]
    seconds: float | None


def replayed(recording: Recording) -> Replayed:
    """Let a watch judge a recording."""
    watch, found, seconds = StragglerWatch(), dict[str, SlowWorker](), None
    for what, *args in recording.calls:
        if what == "joined":
            worker, host, group, at = args
            watch.joined(worker, host=host, group=group, at=at)
        elif what == "left":
            watch.left(args[0], now=args[1])
        elif what == "receive":
            worker, (prefixes, tasks, senders, transfers, process, running), at, others = args
            rates = TaskRates(
                tuple(prefixes),
                np.array(tasks, np.float64).reshape(-1, len(TASK_UNITS)) * TASK_UNITS,
                tuple(senders),
                np.array(transfers, np.float64).reshape(-1, len(TRANSFER_UNITS)) * TRANSFER_UNITS,
                np.array(process),
                tuple(RunningTask(*task) for task in running),
            )
            watch.receive(worker, rates, at=at, **others)
        else:
            at, now, interval_seconds = args
            watch.poll(at=at, now=now, interval_seconds=interval_seconds)
            for finding in watch.findings:
                if finding.subject == recording.victim and seconds is None and at >= recording.began:
                    seconds = (at - recording.began) / 1e9
                found[finding.subject] = finding
    return Replayed(found, seconds)
