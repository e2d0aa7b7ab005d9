"""ClusterWindow: the accounts of a cluster between two instants, put together from its workers' windows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from heapq import nlargest
from itertools import islice, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.buckets import CAUSES, UNKNOWN, Bucket, cause_name, fit_known_causes
from dask_efficiency.accounts.cluster.account import WHERE, Totals, between, named, place
from dask_efficiency.accounts.cluster.cluster import ClusterLedger
from dask_efficiency.accounts.cluster.idle import WorkClock
from dask_efficiency.accounts.cluster.losses import Loss, costs, in_window
from dask_efficiency.accounts.cluster.presence import Presence
from dask_efficiency.accounts.cluster.span_shares import SpanShares
from dask_efficiency.accounts.cluster.window_accounts import OwnPart, Rows, WindowAccounts
from dask_efficiency.accounts.gpu import GpuTotals
from dask_efficiency.accounts.processors import Processors, cores, others_share
from dask_efficiency.accounts.rows import add, cap, divide, growth
from dask_efficiency.accounts.wire.heartbeats import Received
from dask_efficiency.accounts.worker.balance import TASK_BUCKETS, Outcome, WindowBalance

#: Ratio of a prefix's waiting on workers that sampled it to that on those that did not, from which on the latter is
#: divided like the former. A guess: less may be the samples of one odd worker.
MIN_SAMPLED = 0.25
#: Times of a prefix on a worker that are divided so, the longest ones: some 10 ms of the scheduler's event loop.
MAX_UNSAMPLED = 1_000
#: Stands for an outcome: tasks finished on workers that left or fell silent before they reported them.
WITHOUT_ACCOUNT = "without account"
#: (start, stop) in nanoseconds by the scheduler's clock.
Interval = tuple[int, int]
#: Intervals that are kept; later ones extend the last. A guess that bounds memory.
MAX_INTERVALS = 10_000
#: Workers that joined during a window and are listed, and requests for workers that a client remembers. A guess that
#: bounds an answer.
MAX_ARRIVALS = 1_000

_PAUSED = place("finalized", Bucket.PAUSED)
_IDLE_CAUSES = frozenset(cause_name(Bucket.IDLE, cause) for cause in CAUSES[Bucket.IDLE])
_UNKNOWN_WAIT = cause_name(Bucket.THREAD_NONCPU, UNKNOWN)
_NO_TIME = (0,) * len(TASK_BUCKETS)
_ROW_BUCKETS = tuple(map(str, (*TASK_BUCKETS, Bucket.RUNNING)))


class ActiveIntervals:
    """Intervals in which a state was active."""

    def __init__(self, *, at: int, active: bool) -> None:
        self._closed: list[Interval] = []
        self._since = at if active else None

    def set(self, active: bool, *, at: int) -> None:
        """Begin or end an interval."""
        if active and self._since is None:
            self._since = at
        elif not active and self._since is not None:
            if len(self._closed) < MAX_INTERVALS:
                self._closed.append((self._since, at))
            else:
                self._closed[-1] = (self._closed[-1][0], at)
            self._since = None

    def until(self, at: int) -> list[Interval]:
        """List the intervals, the last one cut at ``at``."""
        return [*self._closed, *([] if self._since is None else [(self._since, at)])]


class _AtOpening(NamedTuple):
    """State of a worker at its beginning of the window."""

    account: NDArray[np.int64]
    running: int
    without_work: int
    received: Received | None
    here: bool
    processors: Processors | None = None
    #: True if it did not answer in time, and so opens the window later.
    late: bool = False


class ClusterWindow:
    """A window on a cluster from ``at`` on; the part of the spans that ``is_own`` selects is kept apart, too.

    ``graphs`` and ``running`` tell if a graph is being taken in, and if a task is processing.
    """

    def __init__(
        self,
        cluster: ClusterLedger,
        *,
        at: int,
        graphs: bool = False,
        running: bool = False,
        scheduler: Processors | None = None,
        is_own: Callable[[str], bool] | None = None,
    ) -> None:
        self.opened, self.scheduler = at, scheduler
        self.shares = SpanShares() if is_own is None else SpanShares(is_own)
        self._is_own = is_own
        self.graphs = ActiveIntervals(at=at, active=graphs)
        self.running = ActiveIntervals(at=at, active=running)
        self._cluster = cluster
        self._without_work = cluster.work.without_work(at=at)
        self._without_workers = cluster.work.without_workers(at=at)
        self._then = {presence: self._now(presence) for presence in cluster.present.values()}
        self._gpu, self._recomputed, self._extras = cluster.gpu_by_worker(), cluster.recomputed, cluster.extras()
        self._final: dict[Presence, WindowBalance] = {}

    def opened_on(self, address: str, *, late: bool = False) -> None:
        """Note that a worker has opened the window, and its accounts are up to date; or that it is late."""
        presence, cluster = self._cluster.present.get(address), self._cluster
        if presence is None or presence not in self._then:
            return
        if late:
            self._then[presence] = self._then[presence]._replace(late=True)
            return
        self._then[presence] = self._now(presence)._replace(processors=presence.processors)
        self._recomputed, self._extras = cluster.recomputed, cluster.extras()
        if presence.gpu is not None:
            self._gpu[presence.name] = cluster.gpu_of(presence)

    def _now(self, presence: Presence) -> _AtOpening:
        return _AtOpening(presence.account.copy(), presence.running, self._without_work, presence.received, here=True)

    def worker_joined(self, presence: Presence) -> None:
        """Add a worker that joined while the window was open; it counts from then on."""
        self._then[presence] = _AtOpening(presence.account.copy(), 0, presence.without_work, None, here=False)

    def worker_closed(self, presence: Presence, balance: WindowBalance) -> None:
        """Keep the part of the window that a closing worker sent ahead."""
        self._final[presence] = balance

    def stop(self, *, at: int) -> ClosingWindow:
        """End the window at this instant of the cluster's clock; the workers are then asked for theirs."""
        return ClosingWindow(self, self._cluster, at=at)

    def cores(self, work: WorkClock, *, at: int) -> float | None:
        """Mean number of cores that the workers shared until ``at``, by :func:`mean_cores`."""
        return mean_cores(self._then, work, start=self.opened, stop=at)

    def arrivals(self, *, at: int) -> dict[str, tuple[int, int | None]]:
        """Instants at which workers joined during the window, and got their first task, by name."""
        came = (p for p, then in self._then.items() if not then.here and p.joined < at)
        return {p.name: (p.joined, p.first_task) for p in islice(came, MAX_ARRIVALS)}


class ClosingWindow:
    """A window that has ended, while its workers answer: counting all at once would block the scheduler long."""

    def __init__(self, window: ClusterWindow, cluster: ClusterLedger, *, at: int) -> None:
        self._window, self._cluster, self._at = window, cluster, at
        self._without_work = cluster.work.without_work(at=at)
        self._accounts = accounts = WindowAccounts(
            elapsed=at - window.opened,
            outstanding=max(0, at - window.opened - (self._without_work - window._without_work)),
            no_workers=max(0, cluster.work.without_workers(at=at) - window._without_workers),
        )
        if window._is_own is not None:
            accounts.own = OwnPart()
        self._present = [presence for presence in window._then if presence.joined < at]
        #: Workers at the end that have not answered, by address; and reasons why some cannot.
        self._awaited: dict[str, Presence] = {}
        self._reasons: dict[Presence, str] = {}
        self._counted: set[Presence] = set()
        #: Lost nanoseconds by prefix of each lost worker.
        self._lost: dict[Loss, Mapping[str, int]] = {}
        #: By prefix: its waiting by cause on workers that sampled it, and (nanoseconds, worker, span) on others.
        self._sampled: Rows = {}
        self._unsampled: dict[str, list[tuple[int, str, str]]] = {}
        #: Sums over the workers that were there throughout and answered: threads, time, and time with work.
        self._threads = self._elapsed = self._outstanding = 0
        for presence in self._present:
            accounts.workers[presence.name] = {}  # in this order, whoever answers first
            if self._is_there(presence):
                self._awaited[presence.address] = presence

    def take(self, address: str, answer: WindowBalance | str) -> None:
        """Count a worker's answer, or the reason why there is none; its accounts are up to date."""
        presence = self._awaited.get(address)
        if presence is None or presence in self._window._final:
            return
        if isinstance(answer, str):
            self._reasons[presence] = answer
        else:
            del self._awaited[address]
            self._count(presence, answer)
            if presence.gpu is not None:
                self._add_gpu(presence.name, self._cluster.gpu_of(presence))

    def close(self, scheduler: Processors | None = None) -> WindowAccounts:
        """Close the accounts; a worker without an answer counts at its last heartbeat, then ``unmeasured``."""
        accounts, cluster, window = self._accounts, self._cluster, self._window
        for presence in self._present:
            if presence in window._final:
                self._count(presence, window._final[presence])
        if self._threads:
            accounts.elapsed = self._elapsed // self._threads
            accounts.outstanding = self._outstanding // self._threads
        for presence in self._present:
            if presence not in self._counted:
                reason = self._reasons.get(presence, "it did not answer") if self._is_there(presence) else ""
                self._count(presence, reason)
        self._divide_unsampled()
        accounts.others_share = self._others_share(scheduler)
        accounts.attendance = cluster.attendance(start=window.opened, stop=self._at)
        accounts.losses = self._losses()
        accounts.outside, accounts.details, accounts.amounts = map(growth, cluster.extras(), window._extras)
        for name, gpu in cluster.gpu_by_worker().items():
            if name in accounts.workers and name not in accounts.gpu:
                self._add_gpu(name, gpu)
        return accounts

    def _is_there(self, presence: Presence) -> bool:
        """True if the worker was there at the window's end."""
        return presence.left is None or presence.left >= self._at

    def _others_share(self, scheduler: Processors | None) -> float | None:
        """Share of other processes, on machines whose workers all reported twice."""
        both = [
            (self._window._then[presence].processors or presence.processors, presence.processors)
            for presence in self._present
            if presence.processors is not None
        ]
        before = self._window.scheduler
        return others_share(both, None if before is None or scheduler is None else (before, scheduler))

    def _losses(self) -> list[dict[str, Any]]:
        accounts, before = self._accounts, self._window._recomputed
        gained = {
            mark: [now - then for now, then in zip(row, before.get(mark, (0, 0)), strict=True)]
            for mark, row in self._cluster.recomputed.items()
            if row != before.get(mark)
        }
        opened, at = self._window.opened, self._at
        went = [
            (loss, self._lost.get(loss, {}))
            for loss in self._cluster.losses
            if loss in self._lost or loss.mark in gained or (opened < loss.left <= at and not loss.in_order)
        ]
        whole = sum(row.get(Bucket.RECOMPUTED, 0) for row in accounts.workers.values())
        return costs(went, gained, whole, accounts.tasks.get(Outcome.RECOMPUTED, 0))

    def _count(self, presence: Presence, answer: WindowBalance | str) -> None:
        """Add a worker's part by its answer, or by its heartbeats if ``answer`` is the reason why there is none."""
        accounts, then = self._accounts, self._window._then[presence]
        self._counted.add(presence)
        before, now = then.received, presence.received
        restarted = before is not None and (now is None or before.incarnation != now.incarnation)
        if restarted and not isinstance(answer, str):
            answer = "its meter was restarted"
        throughout = then.here and not then.late and presence.left is None
        if presence in self._window._final and not isinstance(answer, str):  # it closed after the window, or before
            whole = answer.elapsed >= self._at - self._window.opened
            throughout = then.here and not then.late and whole and self._is_there(presence)
        stop = self._at if presence.left is None else min(presence.left, self._at)
        there = accounts.elapsed if throughout else max(0, stop - max(self._window.opened, presence.joined))
        expected = presence.nthreads * there
        causes = growth(presence.part("causes"), named(then.account[WHERE["causes"]], "causes"))
        if isinstance(answer, str):
            buckets = self._by_heartbeats(presence, then, expected, answer)
        else:
            if throughout:  # the worker's own length counts, see _by_answer
                expected = answer.nthreads * answer.elapsed
            buckets = self._by_answer(presence, then, answer, throughout=throughout)
            causes = {name: ns for name, ns in causes.items() if name in _IDLE_CAUSES}
            add(causes, _named(Bucket.OVERHEAD, answer.details.overhead))
            for row in answer.details.causes.values():
                add(causes, _named(Bucket.THREAD_NONCPU, row))
        add(buckets, {str(Bucket.UNMEASURED): max(0, expected - sum(buckets.values()))})
        late = "it did not answer in time when the window opened" if then.late else ""
        if reason := presence.reason or (answer if isinstance(answer, str) else late):
            accounts.not_measured[presence.name] = reason
        add(accounts.workers[presence.name], {bucket: ns for bucket, ns in buckets.items() if ns})
        add(accounts.worker_causes.setdefault(presence.name, {}), fit_known_causes(causes, buckets))
        accounts.nthreads[presence.name] = presence.nthreads

    def _by_answer(
        self, presence: Presence, then: _AtOpening, answer: WindowBalance, *, throughout: bool
    ) -> dict[str, int]:
        """Buckets of a worker by its answer; its rows, tasks and profiles are added."""
        accounts = self._accounts
        # A departed worker's clock of work stopped with its final snapshot.
        idle = (self._without_work if self._is_there(presence) else presence.without_work) - then.without_work
        if throughout:
            # Its window opened a little later and, if an event loop blocked in between, closed later, while the client
            # waited for it.
            later = answer.elapsed - (self._at - self._window.opened)
            idle += self._cluster.work.without_work(at=self._at + later) - self._without_work if later > 0 else later
            self._threads += answer.nthreads
            self._elapsed += answer.nthreads * answer.elapsed
            self._outstanding += answer.nthreads * min(answer.elapsed, max(0, answer.elapsed - idle))
        buckets = dict(answer.free)
        for row in answer.rows.values():
            add(buckets, dict(zip(_ROW_BUCKETS, row, strict=True)))
        _move_idle(buckets, Bucket.NO_WORK, answer.nthreads * max(0, idle))
        # The scheduler says of some idle time that tasks could have run, had the worker not been paused.
        grown = int(presence.account[_PAUSED] - then.account[_PAUSED])
        _move_idle(buckets, Bucket.PAUSED, grown - buckets.get(Bucket.PAUSED, 0))
        library = cap(answer.details.free_slot_library, buckets.get(Bucket.IDLE, 0))
        _move_idle(buckets, Bucket.LIBRARY_THREADS, sum(library.values()))
        for (span, prefix), ns in library.items():
            self._add_row(presence.name, span, prefix, {str(Bucket.LIBRARY_THREADS): ns})
        for (span, prefix), row in answer.rows.items():
            self._add_row(presence.name, span, prefix, {b: ns for b, ns in zip(_ROW_BUCKETS, row, strict=True) if ns})
        for (span, prefix), causes in answer.details.causes.items():
            self._add_waits(presence.name, span, prefix, _named(Bucket.THREAD_NONCPU, causes))
        add(accounts.tasks, answer.tasks)
        accounts.profiles.add(presence.name, answer.details)
        return buckets

    def _by_heartbeats(self, presence: Presence, then: _AtOpening, expected: int, reason: str) -> dict[str, int]:
        """Buckets of a worker without an answer, trimmed to ``expected``; its tasks and its loss are added."""
        former = Totals(self._window.opened, named(then.account[WHERE["finalized"]], "finalized"), then.running)
        buckets = between(former, presence.totals(self._at))
        buckets.pop(Bucket.UNMEASURED, None)  # which the caller adds, as what is missing
        buckets = cap(buckets, expected)  # one that did not answer at the opening has some time of before
        self._add_reported(presence, then.received, buckets)
        if ns := buckets.get(Bucket.LOST_WORKER, 0):
            self._lost[presence.loss] = lost = in_window(presence.loss, ns)
            for prefix, part in lost.items():
                if prefix and part:
                    add(self._accounts.prefixes.setdefault(prefix, {}), {str(Bucket.LOST_WORKER): part})
        if presence.unreported:
            add(self._accounts.tasks, {WITHOUT_ACCOUNT: presence.unreported})
        self._accounts.notes.append(_missing(presence, reason))
        return buckets

    def _add_gpu(self, name: str, now: GpuTotals) -> None:
        then = self._window._gpu.get(name)
        self._accounts.gpu[name] = now if then is None else now.since(then)

    def _add_row(self, worker: str, span: str, prefix: str, buckets: Mapping[str, int]) -> None:
        accounts = self._accounts
        cells = [(accounts.prefixes, prefix), (accounts.spans, span), (accounts.in_spans, worker)]
        if (own := self._own(span)) is not None:
            cells += [(own.workers, worker), (own.prefixes, prefix)]
        for rows, name in cells:
            add(rows.setdefault(name, {}), buckets)

    def _add_waits(self, worker: str, span: str, prefix: str, waits: dict[str, int]) -> None:
        """Add the causes of tasks' waiting, but to their worker; what was not sampled is divided at the end."""
        for rows, name in self._cause_cells(worker, span, prefix):
            add(rows.setdefault(name, {}), waits)
        if waits.keys() == {_UNKNOWN_WAIT}:
            self._unsampled.setdefault(prefix, []).append((waits[_UNKNOWN_WAIT], worker, span))
        else:
            add(self._sampled.setdefault(prefix, {}), waits)

    def _cause_cells(self, worker: str, span: str, prefix: str) -> list[tuple[Rows, str]]:
        """Rows that have the causes of a span's tasks, beside the worker's."""
        cells = [(self._accounts.prefix_causes, prefix), (self._accounts.span_causes, span)]
        if (own := self._own(span)) is not None:
            cells += [(own.worker_causes, worker), (own.prefix_causes, prefix)]
        return cells

    def _divide_unsampled(self) -> None:
        """Divide waiting that its worker did not sample like that of its prefix elsewhere, if that is enough."""
        found: list[tuple[int, str, str, str]] = []
        for prefix, times in self._unsampled.items():
            whole = sum([ns for ns, _, _ in times])
            if whole and sum(self._sampled.get(prefix, {}).values()) >= MIN_SAMPLED * whole:
                found += [(*time, prefix) for time in times]
        for ns, worker, span, prefix in nlargest(MAX_UNSAMPLED, found):
            for rows, name in [(self._accounts.worker_causes, worker), *self._cause_cells(worker, span, prefix)]:
                part = min(ns, rows[name].get(_UNKNOWN_WAIT, 0))
                add(rows[name], {_UNKNOWN_WAIT: -part})
                add(rows[name], divide(self._sampled[prefix], part))

    def _own(self, span: str) -> OwnPart | None:
        is_own = self._window._is_own
        return self._accounts.own if is_own is not None and is_own(span) else None

    def _add_reported(self, presence: Presence, then: Received | None, buckets: Mapping[str, int]) -> None:
        """Add the tasks that heartbeats reported, for a worker without an answer; their spans are unknown."""
        accounts = self._accounts
        last = presence.received
        if last is None:
            return
        now = last.snapshot.balance
        before = None if then is None or then.incarnation != last.incarnation else then.snapshot.balance
        add(accounts.tasks, growth(now.tasks, before.tasks if before else {}))
        former = before.prefixes if before else {}
        for i, bucket in enumerate(TASK_BUCKETS):
            gained = {prefix: row[i] - former.get(prefix, _NO_TIME)[i] for prefix, row in now.prefixes.items()}
            # Only a part of tasks that ran before the window began is in its buckets.
            for prefix, ns in cap(gained, buckets.get(bucket, 0)).items():
                if ns:
                    add(accounts.prefixes.setdefault(prefix, {}), {str(bucket): ns})


def mean_cores(workers: Iterable[Presence], work: WorkClock, *, start: int, stop: int) -> float | None:
    """Mean number of cores that the workers shared while there was work; None if there was none, or unknown."""

    def without(at: int) -> int:
        return work.without_work(at=at) + work.without_workers(at=at)

    stretches = [(max(start, w.joined), stop if w.left is None else min(stop, w.left), w.processors) for w in workers]
    edges = sorted({edge for first, last, _ in stretches for edge in (first, last) if start <= edge <= stop})
    weighted, whole = 0.0, 0
    for left, right in pairwise(edges):
        there = [processors for first, last, processors in stretches if first <= left and right <= last]
        with_work = right - left - (without(right) - without(left))
        if not there or with_work <= 0:
            continue
        known = [processors for processors in there if processors is not None]
        if len(known) < len(there):
            return None
        weighted += with_work * cores(known)
        whole += with_work
    return weighted / whole if whole else None


def _move_idle(buckets: dict[str, int], bucket: Bucket, ns: int) -> None:
    """Move idle time to another bucket, as far as there is any."""
    moved = min(buckets.get(Bucket.IDLE, 0), ns)
    if moved > 0:
        buckets[Bucket.IDLE] -= moved
        add(buckets, {str(bucket): moved})


def _missing(presence: Presence, reason: str) -> str:
    tasks = f"{presence.unreported} task{'' if presence.unreported == 1 else 's'}"
    more = f"; of {tasks} that it finished since, only the number is known" if presence.unreported else ""
    if presence.left is None:
        return f"worker {presence.name} counts at its last heartbeat: {presence.reason or reason}{more}"
    left = "closed and could not send its final snapshot" if presence.closing else f"was lost ({presence.loss.why})"
    if presence.received is None:
        return f"worker {presence.name} {left} before its first heartbeat{more}"
    return f"worker {presence.name} {left}: its tasks count at its last heartbeat, and in no span{more}"


def _named(bucket: Bucket, causes: Mapping[str, int]) -> dict[str, int]:
    return {cause_name(bucket, cause): ns for cause, ns in causes.items()}
