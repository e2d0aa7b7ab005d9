"""IdleWatch: samples the scheduler's state while work is outstanding, to find the causes of idle slots."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TypeVar

from distributed import Scheduler
from distributed.core import Status
from distributed.scheduler import TaskState, WorkerState
from tornado.ioloop import PeriodicCallback

from dask_efficiency.accounts.cluster.cluster import ClusterLedger
from dask_efficiency.accounts.cluster.idle import ClusterState, WorkerSlots
from dask_efficiency.accounts.cluster.span_shares import Path
from dask_efficiency.accounts.worker.log import prefix_of
from dask_efficiency.plugin.guard import Guard
from dask_efficiency.plugin.scheduler.loop_meter import LoopMeter
from dask_efficiency.plugin.scheduler.outstanding import WorkTracker

#: Milliseconds between two looks at the state, up to a hundred workers: short tasks are seen in several.
INTERVAL_MS = 50.0
#: Milliseconds between two looks for each worker beyond, as a look takes time with each worker.
INTERVAL_MS_PER_WORKER = 0.5
#: Share of a core for these looks: long looks are taken less often.
MAX_SHARE = 0.004
#: Random share of an interval, so that tasks as long as an interval are seen in all their phases.
JITTER = 0.2
#: Share of a core for extra looks when work has just begun: a quarter of the regular looks'.
SHARE = 0.001
#: CPU nanoseconds of it that can be saved up for bursts of short work. A guess: hundreds of looks.
MAX_SAVED = 20_000_000
#: Shortest time, nanoseconds, for which the rest of the event loop is read: that takes 10 us and releases the GIL.
MIN_REST_NS = 1_000_000
#: Threads of the largest workers whose states are made once and shared: 4 MB if workers have every number of threads.
MAX_SHARED = 256
#: Tasks whose restrictions, and whose prefixes, are read at each look.
MAX_TASKS = 64

_T = TypeVar("_T")


class IdleWatch:
    """Samples a scheduler's state and weighs it, from :meth:`start` to :meth:`stop`; asleep while there is no work.

    The state of one look holds until the next. While the event loop is blocked this is exact: nothing is sent, no
    result is received, a graph is still being taken in, and slots that lack ready tasks would lack them anyway. Slots
    that workers free in the meantime are idle beyond the scheduler's knowledge:
    :meth:`~dask_efficiency.accounts.cluster.idle.IdleWeights.split` counts them as ``scheduler`` or, while tasks are
    queued and the event loop has nothing to do, as ``round-trips``: then a result or the next task is under way, and
    only more tasks for each worker (``worker-saturation``) would fill the slot. The loop has nothing to do while it
    waits for messages, and its thread neither has a core nor waits for one.

    A failure is logged once and the meter goes on without it: idle time is ``unknown`` from then on.
    """

    def __init__(self, scheduler: Scheduler, work: WorkTracker, cluster: ClusterLedger, loop: LoopMeter) -> None:
        self.weights = cluster.idle
        self.cost_seconds = 0.0
        self._scheduler, self._work, self._cluster = scheduler, work, cluster
        self._loop_meter = loop
        self.guard = Guard("the watch for idle slots", "dask_efficiency cannot tell why slots are idle", self.stop)
        self._poller = PeriodicCallback(lambda: self.guard(self._tick), INTERVAL_MS, jitter=JITTER)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._working = self._graphs = False
        #: State of the last look; None while there is no work, or before the first look at it.
        self._held: ClusterState | None = None
        self._newest: tuple[Path, ...] = ()
        #: Last state that was seen while no graph was taken in.
        self._last: ClusterState | None = None
        self._soon = False
        self.quiet_until = 0
        #: CPU nanoseconds of the last look; nanoseconds saved up for extra looks, and the instant up to which they are.
        self._took, self._saved, self._saved_until = 0, float(MAX_SAVED), 0
        #: Busy time of the loop's thread, and waiting of the loop, at the last reading.
        self._busy, self._waited = _busy_ns(), loop.waited
        self._chance = random.Random(0)
        #: By number of slots and of free ones: the shared state of such workers.
        self._slots: dict[int, list[WorkerSlots]] = {}

    def start(self) -> None:
        """Watch, from the scheduler's event loop."""
        self._loop = asyncio.get_running_loop()
        self._work.changed = lambda: self.guard(self._work_changed)
        self._work.changed()

    def stop(self) -> None:
        """Watch no more; the time until now is counted."""
        if self._loop is None:
            return
        self._loop = None
        self._work.changed = lambda: None
        self._poller.stop()
        if self.guard.off is None:
            self.catch_up()
        self._working, self._held = False, None

    def catch_up(self, *, at: int | None = None) -> None:
        """Count the time until now, without another look; call before weights are split."""
        at = time.monotonic_ns() if at is None else at
        if not self._working:
            self.weights.accrue(None, at=at)
        elif self._held is not None:
            self.weights.accrue(self._held, at=at, at_rest=self._at_rest(self._held, at))

    def _at_rest(self, held: ClusterState, at: int) -> int:
        """Nanoseconds since the last call in which tasks were queued and the event loop had nothing to do."""
        if not held.queued or at - self.weights.at < MIN_REST_NS:
            return 0
        busy, waited = self._busy, self._waited
        self._busy, self._waited = _busy_ns(), self._loop_meter.waited
        return max(0, min(self._waited - waited, at - self.weights.at - (self._busy - busy)))

    def sample(self, *, at: int | None = None) -> None:
        """Count the time until now, and look again."""
        at = time.monotonic_ns() if at is None else at
        if not self._working:
            self.weights.accrue(None, at=at)
            return
        began = time.thread_time_ns()
        seen = self._look()
        # Work that began since the last look counts with this state, from the moment at which all tasks were sent.
        held = self._held or seen
        self.weights.accrue(held, at=at, at_rest=self._at_rest(held, at))
        self._graph_is_of_spans()
        if seen.queued and not held.queued:
            self._busy, self._waited = _busy_ns(), self._loop_meter.waited
        self._held = seen
        if not seen.graphs:
            self._last = seen
        self._took = time.thread_time_ns() - began
        self.cost_seconds += self._took / 1e9

    def _work_changed(self) -> None:
        """Note that work or a graph may have begun or ended; the scheduler may be in the midst of a stimulus."""
        working, graphs = self._cluster.work.outstanding, self._work.graphs
        if (working, graphs) == (self._working, self._graphs):
            return
        at = time.monotonic_ns()
        self.catch_up(at=at)
        if self._working and self._held is None and self._last is not None:
            # Over before any look: the state before stands for it. While a graph was taken in, its spans were
            # unknown; work after it is of the graph's spans.
            spans = () if self._graphs else self._newest
            self.weights.accrue(replace(self._last, graphs=self._graphs, only=None, spans=spans), at=at)
        self.weights.accrue(None, at=at)
        self._graph_is_of_spans()
        if graphs and working and self._held is not None:
            self._held = replace(self._held, graphs=True)  # nothing else has changed
        else:
            self._held = None
        self._working, self._graphs = working, graphs
        if working:
            if not self._poller.is_running():
                self._poller.callback_time = self._interval()
                self._poller.start()
            self._look_soon(at)

    def _graph_is_of_spans(self) -> None:
        """Attribute the graphs that were taken in until now to their spans."""
        newest = self._work.spans.take_newest() if self.weights.shares else ()
        if newest:
            self._newest = newest
            for shares in self.weights.shares.values():
                shares.taken_in(newest)

    def _look_soon(self, at: int) -> None:
        """Look as soon as the present stimulus is over, if the saved time allows."""
        self._saved = min(MAX_SAVED, self._saved + SHARE * (at - self._saved_until))
        self._saved_until = at
        if self._loop is not None and not self._soon and self._saved >= self._took:
            self._saved -= self._took
            self._soon = True
            self._loop.call_soon(self.guard, self._look_now)

    def _look_now(self) -> None:
        if self._loop is not None and (quiet := self.quiet_until - time.monotonic_ns()) > 0:
            self._loop.call_later(quiet / 1e9, self.guard, self._look_now)
            return
        self._soon = False
        if self._loop is not None:
            self.sample()

    def _tick(self) -> None:
        if not self._working:
            self._poller.stop()
            return
        if time.monotonic_ns() < self.quiet_until:
            return
        self.sample()
        self._poller.callback_time = self._interval()

    def _interval(self) -> float:
        workers = len(self._scheduler.workers)
        return max(INTERVAL_MS, INTERVAL_MS_PER_WORKER * workers, self._took / 1e6 / MAX_SHARE)

    def _look(self) -> ClusterState:
        scheduler, present, known = self._scheduler, self._cluster.present, self._slots
        running = Status.running
        workers: dict[Hashable, WorkerSlots] = {}
        free, busy, full, paused, away = [], [], [], [], []
        slots = beyond = active = kept_free = 0
        for address, ws in scheduler.workers.items():
            presence = present.get(address)
            if presence is None:
                continue
            nthreads = ws.nthreads
            taken = len(ws.processing)
            if ws.long_running:
                taken -= len(ws.long_running)
                away.append(ws.long_running)
            left = nthreads - taken
            if taken:
                active += taken
                busy.append(ws)
            if left < 0:
                beyond -= left
                full.append(ws)
                left = 0
            elif left:
                if ws.status is running:
                    slots += left
                    free.append(ws)
                elif ws.status is Status.paused:
                    kept_free += left
                    paused.append(ws)
                    workers[presence] = WorkerSlots(left, nthreads, paused=True)
                    continue
                else:
                    left = 0
            if nthreads > MAX_SHARED:
                workers[presence] = WorkerSlots(left, nthreads)
                continue
            if nthreads not in known:
                known[nthreads] = [WorkerSlots(n, nthreads) for n in range(nthreads + 1)]
            workers[presence] = known[nthreads][left]
        spans = self._work.spans.outstanding(away) if self.weights.shares else ()
        queued, restricted = len(scheduler.queued), len(scheduler.unrunnable)
        if not slots and not kept_free:
            return ClusterState(workers, 0, queued, graphs=self._work.graphs, spans=spans)
        held_up = self._held_up(paused) if paused and restricted else 0
        kept_away = self._kept_away(full, free, beyond) if beyond and slots + kept_free > queued else 0
        waiting, restricted = beyond - kept_away, restricted + kept_away
        waited_for: Mapping[str, int] = {}
        if slots + kept_free > queued + waiting + restricted:
            waited_for = Counter(prefix_of(ts.prefix.name) for ts in self._waited_for(busy))
        only = None
        if active == 1:
            ts = next(_tasks_with_slots(busy[0]))
            only = ts.key, prefix_of(ts.prefix.name)
        graphs = self._work.graphs
        return ClusterState(
            workers, slots, queued, waiting, restricted, kept_free, held_up, graphs, waited_for, only, spans
        )

    def _some(self, workers: Sequence[_T]) -> Sequence[_T]:
        """Random sample of at most :data:`MAX_TASKS`: workers of one kind may follow at regular steps."""
        return workers if len(workers) <= MAX_TASKS else self._chance.sample(workers, MAX_TASKS)

    def _waited_for(self, busy: Sequence[WorkerState]) -> list[TaskState]:
        """Sample of the tasks that run or, if none runs, of those that hold up all others."""
        if busy:
            return [ts for ws in self._some(busy) for ts in islice(_tasks_with_slots(ws), _quota(busy))]
        away = (ts for ws in self._scheduler.workers.values() for ts in ws.long_running)
        return list(islice(away, MAX_TASKS)) or list(islice(self._scheduler.unrunnable, MAX_TASKS))

    def _kept_away(self, full: Sequence[WorkerState], free: Iterable[WorkerState], beyond: int) -> int:
        """Estimate from a sample how many tasks that wait on full workers may not run on any free one.

        Waiting are the tasks that the worker's last heartbeat did not report as running.
        """
        open_to = set(free)
        answers: dict[Hashable, bool] = {}
        looked_at = restricted = 0.0
        for ws in self._some(full):
            executing = ws.executing
            candidates = (ts for ts in _tasks_with_slots(ws) if ts not in executing)
            tasks = list(islice(candidates, _quota(full))) or list(islice(_tasks_with_slots(ws), _quota(full)))
            wait = len(ws.processing) - len(ws.long_running) - ws.nthreads
            looked_at += wait
            restricted += wait * sum(self._must_stay(ts, open_to, answers) for ts in tasks) / len(tasks)
        return round(beyond * restricted / looked_at)

    def _held_up(self, paused: Sequence[WorkerState]) -> int:
        """Estimate from a sample how many tasks without a worker could run on a paused one."""
        workers = self._some(paused)
        tasks = list(islice(self._scheduler.unrunnable, MAX_TASKS))
        could_run = sum(any(self._allowed(ts, ws) for ws in workers) for ts in tasks)
        return round(len(self._scheduler.unrunnable) * could_run / len(tasks))

    def _allowed(self, ts: TaskState, ws: WorkerState) -> bool:
        """True if a task may run on a worker; upstream checks only workers that take tasks."""
        if ts.loose_restrictions:
            return True
        addresses, hosts = ts.worker_restrictions or (), ts.host_restrictions or ()
        here = ws.address in addresses or ws.host in map(self._scheduler.coerce_hostname, hosts)
        return (here or not (addresses or hosts)) and _has(ws, ts.resource_restrictions or {})

    def _must_stay(self, ts: TaskState, open_to: set[WorkerState], answers: dict[Hashable, bool]) -> bool:
        """True if no worker with a free slot may run a task."""
        resources = ts.resource_restrictions or {}
        if ts.loose_restrictions or not (ts.worker_restrictions or ts.host_restrictions or resources):
            return False
        places = frozenset(ts.worker_restrictions or ()), frozenset(ts.host_restrictions or ())
        try:
            question = *places, frozenset(resources.items())
            if question not in answers:
                valid = self._scheduler.valid_workers(ts)
                answers[question] = valid is not None and not any(ws in open_to and _has(ws, resources) for ws in valid)
        except TypeError:  # as in _has
            return False
        return answers[question]


def _busy_ns() -> int:
    """Nanoseconds for which this thread was on a core or, if the kernel counts it, waited for one."""
    try:
        with open("/proc/thread-self/schedstat", "rb", buffering=0) as file:
            on_core, waited, _ = file.read().split()
    except (OSError, ValueError):
        return time.thread_time_ns()
    return int(on_core) + int(waited)


def _has(ws: WorkerState, resources: Mapping[str, float]) -> bool:
    """True if a worker has this much of its resources left."""
    try:
        return all(ws.resources.get(r, 0) - ws.used_resources.get(r, 0) >= n for r, n in resources.items())
    except TypeError:  # a worker, or a task, may name any amount
        return False


def _tasks_with_slots(ws: WorkerState) -> Iterator[TaskState]:
    """Tasks that a worker was sent, except those that left their slots."""
    away: Collection[TaskState] = ws.long_running
    return (ts for ts in ws.processing if ts not in away) if away else iter(ws.processing)


def _quota(workers: Sequence[_T]) -> int:
    """Number of tasks to read of each sampled worker."""
    return max(1, MAX_TASKS // len(workers))
