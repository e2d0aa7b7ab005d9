"""ClusterWindow: the accounts of a cluster between two instants, put together from its workers' windows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from heapq import nlargest
from itertools import islice, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.buckets import CAUSES, UNKNOWN, Bucket, cause_name, causes_of, fit_known_causes
from dask_efficiency.accounts.checks import RefusedPayload
from dask_efficiency.accounts.cluster.account import WHERE, Totals, between, named, place
from dask_efficiency.accounts.cluster.closed_window import MAX_FACTS, ClosedWindow, OthersTime
from dask_efficiency.accounts.cluster.cluster import ClusterLedger
from dask_efficiency.accounts.cluster.history import WITHOUT_ACCOUNT
from dask_efficiency.accounts.cluster.idle import MAX_TURNS, WorkClock
from dask_efficiency.accounts.cluster.losses import Loss, costs, in_window
from dask_efficiency.accounts.cluster.presence import Presence, with_slack
from dask_efficiency.accounts.cluster.span_shares import SHARED, SpanShares
from dask_efficiency.accounts.facts import Facts
from dask_efficiency.accounts.gpu import GpuTotals
from dask_efficiency.accounts.processors import Processors, cores, others_share
from dask_efficiency.accounts.rows import add, cap, divide, growth
from dask_efficiency.accounts.wire.heartbeats import Received
from dask_efficiency.accounts.wire.snapshots import EXTRAS
from dask_efficiency.accounts.worker.answer import WindowAnswer, beside_in, metered_in
from dask_efficiency.accounts.worker.balance import TASK_BUCKETS, Outcome, results_of

#: Ratio of a prefix's waiting on workers that sampled it to that on those that did not, from which on the latter is
#: divided like the former. A guess: less may be the samples of one odd worker.
MIN_SAMPLED = 0.25
#: Times of a prefix on a worker that are divided so, the longest ones: some 10 ms of the scheduler's event loop.
MAX_UNSAMPLED = 1_000
#: (start, stop) in nanoseconds by the scheduler's clock.
Interval = tuple[int, int]
#: Workers that joined during a window and are listed, and requests for workers that a client remembers. A guess that
#: bounds an answer.
MAX_ARRIVALS = 1_000

_PAUSED = place("finalized", Bucket.PAUSED)
_IDLE_CAUSES = frozenset(cause_name(Bucket.IDLE, cause) for cause in CAUSES[Bucket.IDLE])
_NO_TIME = (0,) * len(TASK_BUCKETS)


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
            if len(self._closed) < MAX_TURNS:
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
    #: Results that the scheduler had received from it.
    finished: int = 0


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
        self.graphs = ActiveIntervals(at=at, active=graphs)
        self.running = ActiveIntervals(at=at, active=running)
        self._cluster = cluster
        self._without_work = cluster.work.without_work(at=at)
        self._without_workers = cluster.work.without_workers(at=at)
        self._then = {presence: self._now(presence) for presence in cluster.present.values()}
        self._gpu, self._recomputed, self._extras = cluster.gpu_by_worker(), cluster.recomputed, cluster.extras()
        self._final: dict[Presence, WindowAnswer] = {}

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
        account, finished = presence.account.copy(), presence.finished
        return _AtOpening(
            account, presence.running, self._without_work, presence.received, here=True, finished=finished
        )

    def worker_joined(self, presence: Presence) -> None:
        """Add a worker that joined while the window was open; it counts from then on."""
        self._then[presence] = _AtOpening(presence.account.copy(), 0, presence.without_work, None, here=False)

    def worker_closed(self, presence: Presence, balance: WindowAnswer, *, at: int) -> None:
        """Keep the part of the window that a closing worker sent ahead; RefusedPayload if it cannot be its own."""
        self.check(presence, balance, at=at)
        self._final[presence] = balance

    def check(self, presence: Presence, balance: WindowAnswer, *, at: int) -> None:
        """Refuse the accounts of a worker, which came at an instant, if they cannot be of this window."""
        if balance.nthreads != presence.nthreads:
            raise RefusedPayload(f"nthreads is {balance.nthreads}; expected {presence.nthreads}")
        if balance.elapsed > with_slack(at - self.opened):
            longest = (at - self.opened) / 1e9
            raise RefusedPayload(f"the window took {balance.elapsed / 1e9:.3f} s; expected at most {longest:.3f} s")

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
        self._closed = closed = ClosedWindow(
            elapsed=at - window.opened,
            outstanding=max(0, at - window.opened - (self._without_work - window._without_work)),
            no_workers=max(0, cluster.work.without_workers(at=at) - window._without_workers),
        )
        self._present = [presence for presence in window._then if presence.joined < at]
        #: Workers at the end that have not answered, by address; and reasons why some cannot.
        self._awaited: dict[str, Presence] = {}
        self._reasons: dict[Presence, str] = {}
        self._counted: set[Presence] = set()
        #: Lost nanoseconds by prefix of each lost worker; and recomputed ones of all.
        self._lost: dict[Loss, Mapping[str, int]] = {}
        self._recomputed = 0
        #: By prefix: (nanoseconds, worker, span) of waiting on workers that did not sample it.
        self._unsampled: dict[str, list[tuple[int, str, str]]] = {}
        #: Workers beyond :data:`MAX_FACTS`; the time of their tasks by span, prefix, bucket and cause.
        self._beyond: set[str] = set()
        self._of_others = OthersTime()
        #: Sums over the workers that were there throughout and answered: threads, time, and time with work.
        self._threads = self._elapsed = self._outstanding = 0
        for presence in self._present:
            closed.facts.add(0, worker=presence.name, bucket=Bucket.IDLE)  # in this order, whoever answers first
            if self._is_there(presence):
                self._awaited[presence.address] = presence

    def take(self, address: str, answer: WindowAnswer | str, *, at: int) -> None:
        """Count a worker's answer, which came at ``at``, or the reason why there is none; its accounts are current."""
        presence = self._awaited.get(address)
        if presence is None or presence in self._window._final:
            return
        if not isinstance(answer, str):
            try:
                self._window.check(presence, answer, at=at)
            except RefusedPayload as refusal:
                answer = f"its window was refused: {refusal}"
        if isinstance(answer, str):
            self._reasons[presence] = answer
        else:
            del self._awaited[address]
            self._count(presence, answer)
            if presence.gpu is not None:
                self._add_gpu(presence.name, self._cluster.gpu_of(presence))

    def close(self, scheduler: Processors | None = None) -> ClosedWindow:
        """Close the accounts; a worker without an answer counts at its last heartbeat, then ``unmeasured``."""
        closed, cluster, window = self._closed, self._cluster, self._window
        for presence in self._present:
            if presence in window._final:
                self._count(presence, window._final[presence])
        if self._threads:
            closed.elapsed = self._elapsed // self._threads
            closed.outstanding = self._outstanding // self._threads
        for presence in self._present:
            if presence not in self._counted:
                reason = self._reasons.get(presence, "no answer came") if self._is_there(presence) else ""
                self._count(presence, reason)
        closed.not_measured |= dict(cluster.turned_away.values())
        others = self._of_others.merged()
        closed.facts.append(others)
        for (bucket, cause), ns in others.sums("bucket", "cause").items():
            closed.facts.add(-ns, bucket=bucket, cause=cause)
        self._divide_unsampled()
        closed.others_share = self._others_share(scheduler)
        closed.attendance = cluster.attendance(start=window.opened, stop=self._at)
        closed.losses = self._losses()
        closed.extras = dict(zip(EXTRAS, map(growth, cluster.extras(), window._extras), strict=True))
        names = {presence.name for presence in self._present}
        for name, gpu in cluster.gpu_by_worker().items():
            if name in names and name not in closed.gpu:
                self._add_gpu(name, gpu)
        return closed

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
        before = self._window._recomputed
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
        return costs(went, gained, self._recomputed, self._closed.tasks.get(Outcome.RECOMPUTED, 0))

    def _count(self, presence: Presence, answer: WindowAnswer | str) -> None:
        """Add a worker's part by its answer, or by its heartbeats if ``answer`` is the reason why there is none."""
        closed, then = self._closed, self._window._then[presence]
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
        there = closed.elapsed if throughout else max(0, stop - max(self._window.opened, presence.joined))
        expected = presence.nthreads * there
        causes = growth(presence.part("causes"), named(then.account[WHERE["causes"]], "causes"))
        if isinstance(answer, str):
            counted = self._count_heartbeats(presence, then, expected, causes, answer)
        else:
            counted = answer.nthreads * answer.elapsed
            if throughout:  # the worker's own length counts, see _count_answer
                expected = counted
            self._count_answer(presence, then, causes, answer, throughout=throughout)
        missing = max(0, expected - counted)
        no_work = min(missing, presence.nthreads * self._idle_before(presence, then))
        self._add_time(presence.name, {Bucket.NO_WORK: no_work, Bucket.UNMEASURED: missing - no_work}, {})
        late = "no answer came in time when the window opened" if then.late else ""
        if reason := presence.reason or (answer if isinstance(answer, str) else late):
            closed.not_measured[presence.name] = reason
        closed.nthreads[presence.name] = presence.nthreads

    def _add_time(self, worker: str, row: Mapping[str, int], causes: Mapping[str, int]) -> None:
        """Add a worker's time by bucket, of which nothing else is known; free time is to be shared by spans."""
        self._closed.facts.add_time(row, causes, worker=worker)
        for bucket in row.keys() & SHARED:
            of_causes = causes_of(causes, Bucket.IDLE) if bucket == Bucket.IDLE else {}
            add(self._closed.free, {(str(bucket), cause): ns for cause, ns in (of_causes or {"": row[bucket]}).items()})

    def _count_answer(
        self, presence: Presence, then: _AtOpening, causes: Mapping[str, int], answer: WindowAnswer, *, throughout: bool
    ) -> None:
        """Add a worker's answer: the scheduler knows of its idle time how much was without work, and why the rest."""
        closed, name = self._closed, presence.name
        # A departed worker's clock of work stopped with its final snapshot.
        idle = (self._without_work if self._is_there(presence) else presence.without_work) - then.without_work
        idle -= self._idle_before(presence, then)
        if throughout:
            # Its window opened a little later and, if an event loop blocked in between, closed later, while the client
            # waited for it.
            later = answer.elapsed - (self._at - self._window.opened)
            idle += self._cluster.work.without_work(at=self._at + later) - self._without_work if later > 0 else later
            self._threads += answer.nthreads
            self._elapsed += answer.nthreads * answer.elapsed
            self._outstanding += answer.nthreads * min(answer.elapsed, max(0, answer.elapsed - idle))
        time, rows = answer.facts.time, answer.facts.time.rows
        nobodys = (rows.span == 0) & (rows.prefix == 0) & time.named("bucket", SHARED)
        free = {bucket: ns for (bucket,), ns in time.take(nobodys).sums("bucket").items()}
        _move_idle(free, Bucket.NO_WORK, answer.nthreads * max(0, idle))
        # The scheduler says of some idle time that tasks could have run, had the worker not been paused.
        grown = int(presence.account[_PAUSED] - then.account[_PAUSED])
        _move_idle(free, Bucket.PAUSED, grown - free.get(Bucket.PAUSED, 0))
        library = cap(beside_in(answer.facts), free.get(Bucket.IDLE, 0))
        add(free, {str(Bucket.IDLE): -sum(library.values())} if library else {})
        for (span, prefix), ns in library.items():
            closed.spans.add(span)
            closed.facts.add(ns, worker=name, span=span, prefix=prefix, bucket=Bucket.LIBRARY_THREADS)
        of_idle = {cause: ns for cause, ns in causes.items() if cause in _IDLE_CAUSES}
        self._add_time(name, free, fit_known_causes(of_idle, free))
        self._add_tasks(name, time.take(~nobodys))
        add(closed.tasks, answer.tasks)
        closed.profiles.add(name, answer.details, metered_in(answer.facts))

    def _add_tasks(self, worker: str, facts: Facts) -> None:
        """Add what a worker's tasks held; beyond :data:`MAX_FACTS` by worker, and by span and prefix."""
        closed = self._closed
        closed.spans.update(facts.used("span"))
        if len(closed.facts) + len(facts) <= MAX_FACTS:
            closed.facts.append(facts, worker=worker)
        else:
            closed.facts.append(facts.merged("bucket", "cause"), worker=worker)
            self._beyond.add(worker)
            self._of_others.add(facts)
        if Bucket.RECOMPUTED in facts.names:
            self._recomputed += sum(facts.rows.value[facts.named("bucket", {Bucket.RECOMPUTED})].tolist())
        waits = facts.take(facts.named("bucket", {Bucket.THREAD_NONCPU}) & (facts.rows.cause != 0))
        places = waits.rows.span.astype(np.int64) * len(facts.names) + waits.rows.prefix
        unsampled = ~np.isin(places, places[~waits.named("cause", {UNKNOWN})])
        for (span, prefix), ns in waits.take(unsampled).sums("span", "prefix").items():
            self._unsampled.setdefault(prefix, []).append((ns, worker, span))

    def _idle_before(self, presence: Presence, then: _AtOpening) -> int:
        """Nanoseconds without work before the ledger of a worker that joined meanwhile."""
        if then.here or presence.received is None:
            return 0
        return max(0, self._cluster.work.without_work(at=presence.began) - then.without_work)

    def _count_heartbeats(
        self, presence: Presence, then: _AtOpening, expected: int, causes: Mapping[str, int], reason: str
    ) -> int:
        """Add a worker without an answer by its heartbeats, trimmed to ``expected``; returns the nanoseconds."""
        former = Totals(self._window.opened, named(then.account[WHERE["finalized"]], "finalized"), then.running)
        buckets = between(former, presence.totals(self._at))
        buckets.pop(Bucket.UNMEASURED, None)  # which the caller adds, as what is missing
        buckets = cap(buckets, expected)  # one that did not answer at the opening has some time of before
        self._add_time(presence.name, buckets, fit_known_causes(causes, buckets))
        self._recomputed += buckets.get(Bucket.RECOMPUTED, 0)
        self._add_reported(presence, then.received, buckets)
        if ns := buckets.get(Bucket.LOST_WORKER, 0):
            self._lost[presence.loss] = lost = in_window(presence.loss, ns)
            for prefix, part in lost.items():
                self._add_prefix(presence.name, prefix, Bucket.LOST_WORKER, part)
        unreported = _unreported(presence, then)
        if unreported:
            add(self._closed.tasks, {WITHOUT_ACCOUNT: unreported})
        self._closed.notes.append(_missing(presence, reason, unreported))
        return sum(buckets.values())

    def _add_prefix(self, worker: str, prefix: str, bucket: Bucket, ns: int) -> None:
        """Say of a worker's time that it was of a prefix; of which span, and for which causes, is not known."""
        if prefix:
            self._closed.facts.move(ns, {"worker": worker, "bucket": bucket}, prefix=prefix)
            if bucket in SHARED:
                add(self._closed.free, {(str(bucket), ""): -ns})

    def _add_gpu(self, name: str, now: GpuTotals) -> None:
        then = self._window._gpu.get(name)
        self._closed.gpu[name] = now if then is None else now.since(then)

    def _divide_unsampled(self) -> None:
        """Divide waiting that its worker did not sample like that of its prefix elsewhere, if that is enough."""
        if not self._unsampled or self._of_others.is_full:
            return
        facts = self._closed.facts.build()
        waits = facts.named("bucket", {Bucket.THREAD_NONCPU}) & (facts.rows.cause != 0) & (facts.rows.prefix != 0)
        sampled: dict[str, dict[str, int]] = {}
        for (prefix, cause), ns in facts.take(waits).sums("prefix", "cause").items():
            sampled.setdefault(prefix, {})[cause] = ns
        found: list[tuple[int, str, str, str]] = []
        for prefix, times in self._unsampled.items():
            whole, row = sum([ns for ns, _, _ in times]), sampled.get(prefix, {})
            add(row, {UNKNOWN: -whole})
            if whole and sum(row.values()) >= MIN_SAMPLED * whole:
                found += [(*time, prefix) for time in times]
        for ns, worker, span, prefix in nlargest(MAX_UNSAMPLED, found):
            waited = {"bucket": Bucket.THREAD_NONCPU, "cause": UNKNOWN}
            for cause, part in divide(sampled[prefix], ns).items():
                if worker in self._beyond:
                    self._closed.facts.move(part, {**waited, "worker": worker}, cause=cause)
                    self._closed.facts.move(-part, waited, span=span, prefix=prefix)
                    self._closed.facts.move(part, {**waited, "cause": cause}, span=span, prefix=prefix)
                else:
                    self._closed.facts.move(
                        part, {**waited, "worker": worker, "span": span, "prefix": prefix}, cause=cause
                    )

    def _add_reported(self, presence: Presence, then: Received | None, buckets: Mapping[str, int]) -> None:
        """Add the tasks that heartbeats reported, for a worker without an answer; their spans are unknown."""
        last = presence.received
        if last is None:
            return
        now = last.snapshot.balance
        before = None if then is None or then.incarnation != last.incarnation else then.snapshot.balance
        add(self._closed.tasks, growth(now.tasks, before.tasks if before else {}))
        former = before.prefixes if before else {}
        for i, bucket in enumerate(TASK_BUCKETS):
            gained = {prefix: row[i] - former.get(prefix, _NO_TIME)[i] for prefix, row in now.prefixes.items()}
            # Only a part of tasks that ran before the window began is in its buckets.
            for prefix, ns in cap(gained, buckets.get(bucket, 0)).items():
                self._add_prefix(presence.name, prefix, bucket, ns)


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


def _unreported(presence: Presence, then: _AtOpening) -> int:
    """Tasks that a worker finished in the window, and that are in no snapshot yet."""
    before, now = then.received, presence.received
    reported = 0 if now is None else results_of(now.tasks)
    if now is not None and before is not None and before.incarnation == now.incarnation:
        reported -= results_of(before.tasks)
    # A result may arrive after the heartbeat that reports it.
    return min(presence.unreported, max(0, presence.finished - then.finished - reported))


def _missing(presence: Presence, reason: str, unreported: int) -> str:
    tasks = f"{unreported} task{'' if unreported == 1 else 's'}"
    more = f"; of {tasks} that it finished since, only the number is known" if unreported else ""
    if presence.left is None:
        return f"worker {presence.name} counts at its last heartbeat: {presence.reason or reason}{more}"
    left = "closed and could not send its final snapshot" if presence.closing else f"was lost ({presence.loss.why})"
    if presence.received is None:
        return f"worker {presence.name} {left} before its first heartbeat{more}"
    return f"worker {presence.name} {left}: its tasks count at its last heartbeat, and in no span{more}"
