"""History: the cluster's accounts at past instants, and the windows from one of these until now."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.accounts.cluster.account import WHERE, WIDTH, Totals, between, named
from dask_efficiency.accounts.cluster.closed_window import ClosedWindow
from dask_efficiency.accounts.cluster.failures import FailedAs
from dask_efficiency.accounts.cluster.losses import Loss, costs, in_window
from dask_efficiency.accounts.cluster.presence import Presence, Presences
from dask_efficiency.accounts.cluster.scheduler_loop import KeptTotals
from dask_efficiency.accounts.cluster.timeline import COLUMNS
from dask_efficiency.accounts.facts import Rows
from dask_efficiency.accounts.gpu import GpuTotals, add_totals
from dask_efficiency.accounts.processors import Processors, ProcessorTime, others_share
from dask_efficiency.accounts.rows import add, cap, growth, scale_down
from dask_efficiency.accounts.wire.gpu import GpuAccount
from dask_efficiency.accounts.wire.snapshots import EXTRAS
from dask_efficiency.accounts.worker.balance import TASK_BUCKETS, Outcome, results_of

#: Whole numbers that a history keeps, of 8 bytes, beside what holds them, as points share what did not change: 25 MB.
MAX_NUMBERS = 2_500_000
#: Stands for an outcome: tasks finished on workers that left or fell silent before they reported them.
WITHOUT_ACCOUNT = "without account"
#: Size, in whole numbers, of the time of a worker's processors, of a number in its GPU account, and of a name in the
#: account of the event loop.
_PROCESSOR_NUMBERS, _GPU_NUMBERS, _NAME_NUMBERS = 20, 6, 9
_NO_ROW = (0,) * len(TASK_BUCKETS)


class WorkerAt(NamedTuple):
    """Open accounts of one worker name at an instant, in thread-nanoseconds."""

    account: NDArray[np.int64]
    running: int
    nthreads: int
    #: Time until the instant that no snapshot covers yet, and the part of it without work.
    uncovered: int
    without_work: int
    #: Results that the scheduler received from it.
    finished: int
    #: Instant at which its last snapshot came; 0 without any.
    heard: int
    #: Time of its processors; None if unknown, or of several workers.
    used: ProcessorTime | None = None


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """Accounts of a cluster at one instant, by worker and by prefix."""

    at: int
    without_work: int = 0
    without_workers: int = 0
    workers: Mapping[str, WorkerAt] = field(default_factory=dict)
    #: Accounts of the workers that had left, by name.
    closed: Mapping[str, NDArray[np.object_]] = field(default_factory=dict)
    prefixes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    lost: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    recomputed: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    extras: tuple[Mapping[str, int], ...] = ({}, {}, {})
    #: As of :attr:`~dask_efficiency.accounts.cluster.idle.IdleWeights.parallelism`.
    waited_for: Mapping[str, int] = field(default_factory=dict)
    failures: Mapping[FailedAs, int] = field(default_factory=dict)
    #: By worker name: of ledgers that ended, and of open ones, whose kernels would be most of a history.
    gpus: Mapping[str, tuple[GpuTotals | GpuAccount, ...]] = field(default_factory=dict)
    #: Totals of the cluster's activities, as of :func:`~dask_efficiency.accounts.cluster.timeline.totals_of`.
    activity: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(len(COLUMNS), np.uint64))
    #: Time of the processors of the scheduler's process; and its event loop.
    scheduler: ProcessorTime | None = None
    loop: KeptTotals | None = None

    def sharing(self, before: HistoryPoint) -> tuple[HistoryPoint, int]:
        """The point with what did not change since ``before`` shared, and the numbers that are its own."""
        numbers = len(self.workers) * (WIDTH + _PROCESSOR_NUMBERS)
        shared: dict[str, Any] = {}
        for name in ("prefixes", "lost", "recomputed", "closed", "waited_for", "failures"):
            now, then = getattr(self, name), getattr(before, name)
            same = {key: then[key] for key, row in now.items() if key in then and _equal(then[key], row)}
            shared[name] = then if len(same) == len(now) == len(then) else {**now, **same}
            numbers += sum(np.size(row) for key, row in now.items() if key not in same)
            numbers += 0 if shared[name] is then else len(now)
        numbers += sum(map(len, self.extras)) + len(self.activity)
        numbers += sum(_GPU_NUMBERS * len(one.numbers) + one.by_prefix.rows.size for one in _held(self.gpus))
        if (loop := self.loop) is not None:
            if before.loop is not None and before.loop.names == loop.names:
                shared["loop"] = loop = replace(loop, names=before.loop.names)
            else:
                numbers += _NAME_NUMBERS * len(loop.names)
            numbers += loop.rows.size
        return replace(self, **shared), numbers


def _held(gpus: Mapping[str, Iterable[GpuTotals | GpuAccount]]) -> Iterator[GpuAccount]:
    return (one for row in gpus.values() for one in row if isinstance(one, GpuAccount))


def _equal(one: Any, other: Any) -> bool:
    return one is other if isinstance(one, np.ndarray) else bool(one == other)


class ClusterHistory:
    """Points in order; where there are too many numbers, every second one of the older half goes."""

    def __init__(self, max_points: int, max_numbers: int = MAX_NUMBERS) -> None:
        self._max_points, self._max_numbers = max_points, max_numbers
        self._points: deque[tuple[HistoryPoint, int]] = deque()
        self._numbers = 0

    def __iter__(self) -> Iterator[HistoryPoint]:
        return (point for point, _ in self._points)

    def add(self, point: HistoryPoint) -> None:
        """Add the newest point."""
        last = self._points[-1][0] if self._points else HistoryPoint(0)
        self._points.append(point.sharing(last))
        self._numbers += self._points[-1][1]
        while len(self._points) > self._max_points:
            self._numbers -= self._points.popleft()[1]
        if self._numbers > self._max_numbers and len(self._points) > 2:
            points = list(self._points)
            half = (len(points) + 1) // 2
            self._points = deque([*points[:half:2], *points[half:]])
            self._numbers = sum(numbers for _, numbers in self._points)

    def timeline(self, then: HistoryPoint, now: HistoryPoint) -> list[tuple[int, NDArray[np.uint64]]]:
        """Instants and activities from one point to a later one."""
        points = (then, *(point for point in self if then.at < point.at < now.at), now)
        return [(point.at, point.activity) for point in points]

    def before(self, at: int) -> HistoryPoint | None:
        """The last point at an instant or before it, or else the oldest; None without any."""
        return next((point for point, _ in reversed(self._points) if point.at <= at), next(iter(self), None))


def workers_at(presences: Presences, without_work: int, *, at: int) -> dict[str, WorkerAt]:
    """Open accounts by worker name; a restarted worker may have two."""
    found: dict[str, WorkerAt] = {}
    if not (there := list(presences.open())):
        return found
    accounts = np.stack([presence.account for presence in there])  # a copy, as they go on
    recorded = accounts[:, WHERE["activity"]].sum(axis=1).tolist()
    for presence, account, activity_ns in zip(there, accounts, recorded, strict=True):
        one = _worker_at(presence, account, activity_ns, without_work, at)
        if (other := found.get(presence.name)) is not None:
            one = WorkerAt(
                one.account + other.account,
                one.running + other.running,
                presence.nthreads,
                one.uncovered + other.uncovered,
                one.without_work + other.without_work,
                one.finished + other.finished,
                max(one.heard, other.heard),
            )
        found[presence.name] = one
    return found


def _worker_at(
    presence: Presence, account: NDArray[np.int64], activity_ns: int, without_work: int, at: int
) -> WorkerAt:
    nthreads = presence.nthreads
    until = at if presence.left is None else presence.left
    uncovered = 0 if presence.left is not None else max(0, nthreads * (until - presence.joined) - activity_ns)
    no_work = min(uncovered, nthreads * max(0, without_work - presence.without_work))
    finished, heard, used = presence.finished, presence.heard, presence.used
    return WorkerAt(account, presence.running, nthreads, uncovered, no_work, finished, heard, used)


def gpus_at(presences: Presences, ended: Mapping[str, GpuTotals]) -> dict[str, tuple[GpuTotals | GpuAccount, ...]]:
    """GPU accounts by worker name, as a point keeps them."""
    found: dict[str, tuple[GpuTotals | GpuAccount, ...]] = {name: (totals,) for name, totals in ended.items()}
    for presence in presences.open():
        if (held := presence.held_gpu) is not None:
            found[presence.name] = (*found.get(presence.name, ()), held.account)
    return found


def gpus_between(then: HistoryPoint, now: Mapping[str, GpuTotals], workers: Collection[str]) -> dict[str, GpuTotals]:
    """GPU accounts of these workers since a point; which kernels ran is known if the point has none of a GPU."""
    found = {}
    for name in workers:
        if (gpu := now.get(name)) is not None:
            gpu = replace(gpu, kernels=()) if then.gpus else gpu
            former = [one.totals if isinstance(one, GpuAccount) else one for one in then.gpus.get(name, ())]
            found[name] = gpu.since(replace(reduce(add_totals, former), kernels=())) if former else gpu
    return found


def others_between(then: HistoryPoint, presences: Presences, scheduler: Processors, *, at: int) -> float | None:
    """Share of the workers' cores that other processes used since a point; None if workers left meanwhile."""
    present = presences.present.values()
    if presences.attendance(start=then.at, stop=at)["workers"] > len(present):
        return None
    both = []
    for presence in present:
        if (now := presence.processors) is not None:
            before = then.workers.get(presence.name)
            both.append((replace(now, used=None if before is None else before.used), replace(now, used=presence.used)))
    return others_share(both, (replace(scheduler, used=then.scheduler), scheduler))


def window_between(then: HistoryPoint, now: HistoryPoint, losses: Iterable[Loss], *, asked: int) -> ClosedWindow:
    """Accounts of a cluster between two points, as of its heartbeats; ``losses`` are all that are remembered.

    Workers that have answered since ``asked`` count until their answer; the time of others since their last heartbeat
    is ``unmeasured``. Spans are not known, and tasks that ran before the window began count pro rata.
    """
    found = ClosedWindow(
        elapsed=now.at - then.at,
        outstanding=now.at - then.at - (now.without_work - then.without_work),
        no_workers=now.without_workers - then.without_workers,
        extras=dict(zip(EXTRAS, map(growth, now.extras, then.extras), strict=True)),
    )
    rows: dict[str, dict[str, int]] = {}
    causes: dict[str, dict[str, int]] = {}
    for name in dict.fromkeys((*now.workers, *now.closed)):
        _add_worker(found, rows, causes, name, then, now, asked=asked)
    found.facts.add_workers(rows, causes)
    _add_prefixes(found, rows, then, now)
    gained = {
        mark: [n - before for n, before in zip(row, then.recomputed.get(mark, (0, 0)), strict=True)]
        for mark, row in now.recomputed.items()
        if row != then.recomputed.get(mark)
    }
    went = [loss for loss in losses if loss.mark in gained or (loss.left > then.at and not loss.in_order)]
    lost, again = (_whole(rows, bucket) for bucket in (Bucket.LOST_WORKER, Bucket.RECOMPUTED))
    of_each = [loss.ns if loss.left > then.at else 0 for loss in went]
    parts = scale_down(of_each, min(lost, sum(of_each)))
    found.losses = costs(
        [(loss, in_window(loss, ns)) for loss, ns in zip(went, parts, strict=True)],
        *(gained, again, found.tasks.get(Outcome.RECOMPUTED, 0)),
    )
    return found


def _add_worker(
    found: ClosedWindow,
    rows: dict[str, dict[str, int]],
    of_causes: dict[str, dict[str, int]],
    name: str,
    then: HistoryPoint,
    now: HistoryPoint,
    *,
    asked: int,
) -> None:
    """Add the time and causes of one worker name; it is silent if it did not answer since it was ``asked``."""
    before, after = then.workers.get(name, _NOBODY), now.workers.get(name, _NOBODY)
    closed = now.closed.get(name, _NONE) - then.closed.get(name, _NONE)
    if not (after.nthreads or closed.any() or before.account.any()):
        return
    grown = closed + after.account - before.account
    totals = [
        Totals(point.at, named(account[WHERE["finalized"]], "finalized"), worker.running)
        for point, account, worker in ((then, 0 * grown, before), (now, grown, after))
    ]
    buckets = between(*totals)
    # What the first snapshot of the window brought of the time before it.
    without_work = buckets.pop(Bucket.NO_WORK, 0)
    early = min(before.without_work, without_work)
    buckets = cap(buckets, max(0, sum(buckets.values()) - before.uncovered + early))
    add(buckets, {str(Bucket.NO_WORK): without_work - early})
    # By its arrival: as its ledger has it, an answer may be older than the question, by the error of its clock.
    if after.heard < asked and after.uncovered > after.nthreads * (now.at - asked):
        add(buckets, {str(Bucket.NO_WORK): after.without_work})
        add(buckets, {str(Bucket.UNMEASURED): after.uncovered - after.without_work})
        found.not_measured[name] = "no answer came"
    rows[name] = {bucket: ns for bucket, ns in buckets.items() if ns}
    tasks = {outcome: n for outcome, n in named(grown[WHERE["tasks"]], "tasks").items() if n > 0}
    add(found.tasks, tasks)
    if before.nthreads and after.nthreads and not closed.any():
        unreported = after.finished - before.finished - results_of(tasks)
        add(found.tasks, {WITHOUT_ACCOUNT: unreported} if unreported > 0 else {})
    if after.nthreads or before.nthreads:
        found.nthreads[name] = after.nthreads or before.nthreads
    of_causes[name] = {cause: ns for cause, ns in named(grown[WHERE["causes"]], "causes").items() if ns > 0}


def _add_prefixes(found: ClosedWindow, rows: Rows, then: HistoryPoint, now: HistoryPoint) -> None:
    """Say of which prefixes the time was, at most that of the workers in each bucket."""
    gained: dict[str, dict[str, int]] = {
        bucket: {prefix: row[i] - then.prefixes.get(prefix, _NO_ROW)[i] for prefix, row in now.prefixes.items()}
        for i, bucket in enumerate(TASK_BUCKETS)
    }
    gained[Bucket.LOST_WORKER] = {prefix: ns - then.lost.get(prefix, (0,))[0] for prefix, (ns,) in now.lost.items()}
    for bucket, of_prefixes in gained.items():
        for prefix, ns in cap(of_prefixes, _whole(rows, bucket)).items():
            found.facts.move(ns, {"bucket": bucket}, prefix=prefix)


def _whole(rows: Rows, bucket: str) -> int:
    return sum(row.get(bucket, 0) for row in rows.values())


_NONE: NDArray[np.object_] = np.zeros(WIDTH, object)
_NOBODY = WorkerAt(np.zeros(WIDTH, np.int64), 0, 0, 0, 0, 0, 0)
