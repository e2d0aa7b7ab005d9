"""ClusterAccounts: the cluster's ledger and everything else that reports need, updated from heartbeats."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pickle import dumps
from typing import Any

from distributed.core import AsyncTaskGroup
from distributed.scheduler import WorkerState

from dask_efficiency.accounts.checks import RefusedPayload, listed, text
from dask_efficiency.accounts.cluster.cluster import SILENT_NS, ClusterLedger
from dask_efficiency.accounts.cluster.losses import SIGKILLED, Loss
from dask_efficiency.accounts.cluster.memory_timeline import ClusterMemory, MemoryRecorder, MemoryTimeline
from dask_efficiency.accounts.cluster.presence import Presence
from dask_efficiency.accounts.cluster.time_left import TimeLeft
from dask_efficiency.accounts.cluster.timeline import ActivityFeed, Timeline, TimelineRecorder
from dask_efficiency.accounts.intake import fitting
from dask_efficiency.accounts.rows import MAX_NAMED
from dask_efficiency.accounts.slow_worker import SlowWorker
from dask_efficiency.accounts.stalls import StalledWork
from dask_efficiency.accounts.worker.answer import WindowAnswer, decode_answer
from dask_efficiency.plugin.guard import MAX_REASON, DataGuard, decoration
from dask_efficiency.plugin.names import ASK_FINAL_SNAPSHOT, EVERYTHING, FINAL_SNAPSHOT, LEFT_OUT, METRIC, OP, STAYS_OFF
from dask_efficiency.plugin.options import Options
from dask_efficiency.plugin.patches import stays_off
from dask_efficiency.plugin.processors import oom_kills, own_time
from dask_efficiency.plugin.scheduler import departures
from dask_efficiency.plugin.scheduler.endings import FailureWatch
from dask_efficiency.plugin.scheduler.events import LoggedEvents
from dask_efficiency.plugin.scheduler.heartbeats import HeartbeatArrivals, dask_metric
from dask_efficiency.plugin.scheduler.idle_watch import IdleWatch
from dask_efficiency.plugin.scheduler.joining import check_registration
from dask_efficiency.plugin.scheduler.kept import KeptWatch
from dask_efficiency.plugin.scheduler.loop_meter import LoopMeter
from dask_efficiency.plugin.scheduler.outstanding import WorkTracker, prefixes_in
from dask_efficiency.plugin.scheduler.registration import OpenWindow, Registration
from dask_efficiency.plugin.scheduler.stack_questions import StackQuestions
from dask_efficiency.plugin.scheduler.stall_watch import StallWatch
from dask_efficiency.plugin.scheduler.straggler_watch import StragglerReporter
from dask_efficiency.plugin.scheduler.time_left import TimeLeftWatch
from dask_efficiency.plugin.scheduler.workers import WorkerHalves
from dask_efficiency.show.log import logger

#: Heartbeats without a snapshot after which a worker counts as not metered; the first comes up to one after joining.
MIN_SILENT_HEARTBEATS = 3
#: Polls kept for live views: ten minutes.
RECENT_MOMENTS = 1_200
#: Nanoseconds between two of them with totals by prefix: a thousand prefixes take 0.1 ms and half a megabyte.
PREFIXES_NS = 60_000_000_000
#: Seconds for which the prefixes of spans are kept, and parts of names that are asked for in that time.
SPANS_SECONDS, MAX_SPAN_PARTS = 5.0, 100
#: CPU seconds after which a poll lets the event loop go on, and continues later.
MAX_POLL_SECONDS = 0.005
#: CPU seconds likewise for the polls of a report: several may run at once.
MAX_REPORT_POLL_SECONDS = 0.002
#: Losses of workers that are kept (:func:`~dask_efficiency.plugin.patches.stays_off`): more than there are patches.
MAX_STAYS_OFF = 100
#: Answers of workers after which timelines are updated: ten thousand at once would take 0.1 s.
FOLLOWED_ANSWERS = 100
#: Nanoseconds that a closing window waits for the final snapshot of a worker that just left; then its time is lost.
FINAL_SNAPSHOT_NS = 250_000_000
#: Seconds between the last two questions to the nanny of a worker that vanished: a busy machine tells it late.
NANNY_SECONDS = 4.0
#: Nanoseconds between two samples of memory that are of different heartbeats.
SAME_HEARTBEAT_NS = 50_000_000
_OF_NANNY = "an answer of a nanny"
#: Nanoseconds between two requests to a worker to send everything anew: more than two heartbeats of large clusters.
ASK_AGAIN_NS = 10_000_000_000


@dataclass(frozen=True, slots=True)
class Moment:
    """Totals of the cluster at one instant, from the heartbeats that had arrived."""

    at: int
    #: Nanoseconds by :data:`~dask_efficiency.accounts.cluster.account.ACTIVITIES` since the accounts began.
    activity: Mapping[str, int]
    nthreads: int
    #: Likewise by :data:`~dask_efficiency.accounts.buckets.CAUSE_NAMES`, as far as causes are known.
    causes: Mapping[str, int] = field(default_factory=dict)
    #: Finalized time by prefix and :data:`~dask_efficiency.accounts.worker.balance.TASK_BUCKETS`; once a minute.
    prefixes: Mapping[str, Sequence[int]] | None = None


def _sample_memory(loss: Loss, ws: WorkerState, at: int) -> None:
    """Keep the memory of a worker's process by its last heartbeat, which came ``at`` an instant; not twice."""
    nbytes = dask_metric(ws.metrics, "memory")
    if math.isfinite(nbytes) and all(abs(at - known) > SAME_HEARTBEAT_NS for known, _ in loss.memory):
        loss.sample_memory(max(0, round(nbytes)), at=at)


def _age(ws: WorkerState) -> int:
    """Nanoseconds since the last heartbeat of a worker."""
    return max(0, round((time.time() - ws.last_seen) * 1e9))


class Timelines:
    """Activity of the slots, and memory, since the accounts began at ``at`` and in open windows, until a failure."""

    def __init__(self, windows: Mapping[str, OpenWindow], *, at: int) -> None:
        self._windows = windows
        self._feed = ActivityFeed()
        self._life, self._memory = TimelineRecorder(at=at), MemoryRecorder(at=at)
        #: Of the activity, and of the memory: neither takes the other down.
        self._failure, self._memory_failure = list[str](), list[str]()
        #: Memory of the workers at the last call of :meth:`follow`; None before, and once following it failed.
        self.reading: ClusterMemory | None = None

    def follow(self, present: Collection[Presence], *, at: int) -> None:
        """Add what the workers did since the last call, until now."""
        if not self._failure:
            with decoration("timeline", self._failure):
                stretches = self._feed.read(present, at=at)
                for recorder in (self._life, *(opened.timeline for opened in self._windows.values())):
                    recorder.add(stretches)
        if not self._memory_failure:
            with decoration("memory over time", self._memory_failure):
                reading, self.reading = ClusterMemory.of(present), None
                for memory in (self._memory, *(opened.memory for opened in self._windows.values())):
                    memory.follow(reading, at=at)
                self.reading = reading

    def timeline(self, recorder: TimelineRecorder | None = None, *, at: int) -> Timeline:
        """Timeline of a recorder, or since the accounts began; raises RuntimeError if following the workers failed."""
        if self._failure:
            raise RuntimeError(self._failure[0])
        return (recorder or self._life).timeline(at=at, uncovered=self._feed.uncovered(at=at))

    def memory(self, recorder: MemoryRecorder | None = None, *, at: int, start: int | None = None) -> MemoryTimeline:
        """Memory over time by a recorder, or since the accounts began or ``start``; raises RuntimeError likewise."""
        if self._memory_failure:
            raise RuntimeError(self._memory_failure[0])
        return (recorder or self._memory).timeline(at=at, start=start)


class ClusterAccounts:
    """Accounts of one registration, from its first worker to its end, whose parts hear of workers and heartbeats."""

    def __init__(self, meter: Registration, workers: WorkerHalves) -> None:
        self._meter, self._workers = meter, workers
        self.scheduler = scheduler = meter.scheduler
        self.session = meter.session
        self._windows = windows = meter.windows
        self._parts = meter.parts
        #: By address: earliest instant of the next request to send everything.
        self._ask_again: dict[str, int] = {}
        self.since = time.time()
        self.cluster = cluster = ClusterLedger(at=time.monotonic_ns())
        self.work = WorkTracker(scheduler, cluster, windows)
        self._odd = DataGuard()
        watch = FailureWatch(scheduler, cluster.failures, windows)
        self.work.erred = partial(self._odd, "a report of a failed task", watch.erred)
        self.loop = LoopMeter(scheduler, lambda: cluster.work.outstanding)
        self.idle = IdleWatch(scheduler, self.work, cluster, self.loop)
        self.kept = KeptWatch(scheduler, cluster, windows)
        self.timelines = Timelines(windows, at=cluster.started)
        self.stacks = StackQuestions(meter, workers)
        self.time_left = TimeLeftWatch(scheduler, cluster)
        self.stragglers = StragglerReporter(scheduler, cluster, lambda: meter.options.on_straggler)
        self.stalls = StallWatch(scheduler, cluster, self.stacks, self.stragglers.call)
        #: Totals at each of the last polls, for live views.
        self.recent: deque[Moment] = deque(maxlen=RECENT_MOMENTS)
        #: By a part of spans' names: when their prefixes were looked up last, and these.
        self._of_spans: dict[str, tuple[float, set[str]]] = {}
        self.cost_seconds, self._thread = 0.0, threading.get_ident()
        self._servers: dict[str, WorkerState] = {}
        self._arrivals = HeartbeatArrivals(scheduler, cluster)
        self.events = LoggedEvents(meter, self, self._odd)
        self._stays_off, self._logged_refusals = dict[str, None](), set[str]()
        #: What labels counted that is left out: the worker that said so first, and True if others did, too.
        self._left_out: dict[str, tuple[str, bool]] = {}
        self._remembered = self._answers = self._prefixes_due = 0
        #: Addresses whose heartbeats are still to be read in this round, and reports that read all now.
        self._rest, self._reports_reading = deque[str](), 0

    @property
    def options(self) -> Options:
        """Options in force."""
        return self._meter.options

    @property
    def off(self) -> str | None:
        """Reason why nothing is metered any more; None while it works."""
        return self._meter.guard.off

    @property
    def findings(self) -> tuple[SlowWorker, ...]:
        """Present stragglers, the most certain first."""
        return self.stragglers.findings

    @property
    def stalled(self) -> tuple[StalledWork, ...]:
        """Work that stands still now, the most certain kinds first."""
        return self.stalls.found

    @property
    def left(self) -> TimeLeft | None:
        """Time until all that is outstanding is done; None where it cannot be said."""
        return self.time_left.left

    @property
    def memory(self) -> ClusterMemory:
        """Memory of the present workers, as of the last poll."""
        return self.timelines.reading or ClusterMemory.of(self.cluster.present.values())

    def prefixes_in(self, span: str) -> set[str]:
        """Prefixes of tasks in the newest spans that have this in their names, of some seconds ago at most."""
        now = time.monotonic()
        at, found = self._of_spans.get(span, (-math.inf, set()))
        if now - at > SPANS_SECONDS:
            if len(self._of_spans) >= MAX_SPAN_PARTS:
                self._of_spans.clear()
            found = prefixes_in(self.scheduler, span)
            self._of_spans[span] = now, found
        return found

    @property
    def read_interval_seconds(self) -> float:
        """Time between two heartbeats of a worker that are read."""
        return self._arrivals.read_interval_seconds

    def now(self) -> int:
        """Present instant of the accounts' clock, nanoseconds."""
        return time.monotonic_ns()

    def refresh(self) -> None:
        """Read the heartbeats that are due, within :data:`MAX_POLL_SECONDS`; no-op in another thread."""
        if threading.get_ident() == self._thread:
            self._meter.guard(self.poll, at_most=MAX_POLL_SECONDS)

    def reconcile(self, asked: int | None = None) -> None:
        """Compare with the scheduler's workers, some of which were there before the hook and ``asked`` to meter."""
        at = time.monotonic_ns()
        workers = self.scheduler.workers
        for address in [a for a in self._servers if a not in workers or not self._is_there(a, workers[a])]:
            self.worker_left(address, at)
        if len(workers) != len(self._servers):
            for address in [address for address in workers if address not in self._servers]:
                self.worker_joined(address, asked)

    def worker_joined(self, address: str, asked: int | None = None) -> None:
        """Add a worker that joined; no-op if it is known already."""
        at, ws = time.monotonic_ns(), self.scheduler.workers.get(address)
        if ws is None or self._is_there(address, ws):
            return
        if address in self._servers:
            self.worker_left(address, at)
        self._servers[address] = ws
        try:
            check_registration(ws)
        except RefusedPayload as refusal:
            self.cluster.turn_away(address, fitting(ws.name), f"it registered oddly: {refusal}")
            logger.warning("dask_efficiency does not measure %s: %s", fitting(ws.name), refusal)
            return
        presence = self.cluster.worker_joined(address, fitting(ws.name), ws.nthreads, at=at, asked=asked)
        loss = presence.loss
        loss.mark, loss.address, loss.memory_limit = ws.server_id, address, ws.memory_limit
        _sample_memory(loss, ws, at - _age(ws))
        self.work.worker_joined(presence)
        for opened in self._windows.values():
            opened.window.worker_joined(presence)
        self.stragglers.worker_joined(address, ws)
        self._parts.each("worker_joined", address, ws)

    def worker_left(self, address: str, at: int, stimulus_id: str | None = None) -> None:
        """Close the accounts of a worker that was removed."""
        ws = self._servers.pop(address, None)
        for left in self._arrivals.worker_left(address, ws, at):
            self.take_snapshot(address, left.payload, left.at)
        self.work.worker_left(address)
        self._ask_again.pop(address, None)
        self._logged_refusals.discard(address)
        presence = self.cluster.present.get(address)
        if presence is not None and ws is not None:
            presence.loss.oom_kills = departures.oom_kills(ws.host, ws.metrics.get(METRIC))
            _sample_memory(presence.loss, ws, at - _age(ws))
        self.cluster.worker_left(address, at=at)
        if presence is not None and presence in self.cluster.closing:
            self._background.call_later(FINAL_SNAPSHOT_NS / 2e9, self.ask_leaving, presence)
        elif presence is not None and ws is not None and ws.nanny and not (presence.closing or presence.loss.reason):
            after = FINAL_SNAPSHOT_NS / 2e9
            self._background.call_later(after, self._ask_nanny, presence.loss, ws.nanny, ws.pid, after)
        self.stragglers.worker_left(address)
        self._parts.each("worker_left", address, stimulus_id)

    @property
    def _background(self) -> AsyncTaskGroup:
        return self.scheduler._ongoing_background_tasks

    async def ask_leaving(self, presence: Presence) -> None:
        """Ask a worker that left in order for its final snapshot, unless it came by itself."""
        if presence in self.cluster.closing:
            answer = await self._workers.ask_directly(presence.address, OP, action=ASK_FINAL_SNAPSHOT)
            self._meter.guard(self.events, FINAL_SNAPSHOT, answer)

    async def settle_departed(self) -> None:
        """Close the accounts of the workers that left, for a report: a last snapshot has a moment to come."""
        if self.cluster.leaving:
            await asyncio.sleep(FINAL_SNAPSHOT_NS / 1e9)
            await asyncio.gather(*map(self.ask_leaving, self.cluster.closing))
            self.cluster.close_departed(at=time.monotonic_ns(), grace=FINAL_SNAPSHOT_NS)
            self.follow()

    async def _ask_nanny(self, loss: Loss, nanny: str, pid: int, after: float) -> None:
        """Ask the nanny of a worker that vanished for the reason, and again later, until it has noticed."""
        ask, again = partial(self._workers.ask_directly, nanny), after < NANNY_SECONDS
        lines = await ask("get_logs", n=departures.LOG_LINES)
        if lines is None and not again:
            loss.noticed += f", and its nanny does not answer{departures.NANNY_GONE}"
            return
        reason = None if lines is None else self._odd(_OF_NANNY, departures.in_log, lines, pid)
        if reason == SIGKILLED and loss.oom_kills is not None:
            given = {"function": dumps(oom_kills), "args": dumps((loss.oom_kills[1],))}
            answer = await ask("run", **given, serializers=("msgpack",))  # of which the answer is plain
            if answer is None and again:
                reason = None
            else:
                reason = self._odd(_OF_NANNY, departures.by_kernel, loss, answer, self.cluster.losses)
        loss.reason = loss.reason or reason or ""
        if not loss.reason and again:
            self._background.call_later(2 * after, self._ask_nanny, loss, nanny, pid, 2 * after)

    def server_at(self, address: str) -> WorkerState | None:
        """State of a worker until :meth:`worker_left`; upstream forgets it before it says that it removed it."""
        return self._servers.get(address)

    def _is_there(self, address: str, ws: WorkerState) -> bool:
        """True if the accounts know the server at an address."""
        known = self._servers.get(address)
        return known is not None and known.server_id == ws.server_id

    def poll(self, *, at_most: float = math.inf) -> bool:
        """Read the heartbeats that arrived since the last poll, or as many as the share of a core allows.

        With a limit of CPU seconds, of which one heartbeat is always read, the next poll, which should follow soon,
        reads the rest; without one it also reads what arrived since the last was cut off. True if all were read.
        """
        if self._reports_reading and at_most < math.inf:
            return True  # they read what there is, in shorter steps
        began, at, arrived = time.thread_time(), time.monotonic_ns(), 0
        if self._reports_reading:
            arrived = self._all_unread(at)  # a round would leave some of theirs out
        elif not self._rest or at_most == math.inf:
            if at_most < math.inf and self._arrivals.pauses(at):
                self.stragglers.poll(at, self.read_interval_seconds)
                self._spent(at, time.thread_time() - began)
                return True
            self.reconcile()
            due, left_out = self._arrivals.next_round(at)
            arrived = len(due) + len(left_out)
            # Sensors need no reading of the accounts, and fewer samples would find outliers later.
            for address, left in left_out.items() if self.options.outliers else ():
                self._parts.each("take_heartbeat", address, self.scheduler.workers[address], left.at)
            self._rest = deque(due)
        return self._read(began, at, at_most, arrived)

    async def poll_all(self) -> None:
        """Read all heartbeats that have arrived, skipped ones too, for a report; the event loop goes on in between."""
        began, at = time.thread_time(), time.monotonic_ns()
        arrived = self._all_unread(at)
        self._reports_reading += 1
        try:
            while not self._read(began, at, MAX_REPORT_POLL_SECONDS, arrived):
                self.follow()
                await asyncio.sleep(0)
                began, at, arrived = time.thread_time(), time.monotonic_ns(), 0
        finally:
            self._reports_reading -= 1

    def _all_unread(self, at: int) -> int:
        self.reconcile()
        unread, arrived = self._arrivals.everything(at)
        self._rest = deque(unread)
        return arrived

    def _read(self, began: float, at: int, at_most: float, arrived: int) -> bool:
        """Read the rest of this round, see :meth:`poll`."""
        self.idle.catch_up(at=at)
        missed, read = list[str](), len(self._rest)
        reading = now = time.thread_time()
        while self._rest:
            address = self._rest.popleft()
            ws = self.scheduler.workers.get(address)
            payload = None if ws is None else ws.metrics.get(METRIC)
            if ws is not None and payload is not None and self._is_there(address, ws):
                came = self._arrivals.take(address, ws, payload, at)
                if (presence := self.cluster.present.get(address)) is not None:
                    _sample_memory(presence.loss, ws, came)
                    self.take_snapshot(address, payload, came)
                    self.stragglers.take_heartbeat(address, ws, payload, came)
                    self._parts.each("take_heartbeat", address, ws, came)
                    if presence.missed and at >= self._ask_again.get(address, at):
                        self._ask_again[address] = at + ASK_AGAIN_NS
                        missed.append(address)
            now = time.thread_time()
            if now - began > at_most:
                break
        if missed:
            ask: Any = self._workers.ask  # whose answers are not needed; a worker that misses this is asked again
            self._background.call_soon(ask, EVERYTHING, addresses=missed)
        if not self._rest:
            self._arrivals.round_over()
            self._follow_up(at)
        took = now - reading
        self._spent(at, time.thread_time() - began - took, arrived=arrived, read=read - len(self._rest), seconds=took)
        return not self._rest

    def _spent(self, at: int, others: float, *, arrived: int = 0, read: int = 0, seconds: float = 0.0) -> None:
        self.cost_seconds += seconds + others
        self._arrivals.share.spent(at, others, arrived=arrived, read=read, reading_seconds=seconds)

    def _follow_up(self, at: int) -> None:
        """Update everything else after the heartbeats of a round."""
        self.stragglers.poll(at, self.read_interval_seconds)
        silent = round(MIN_SILENT_HEARTBEATS * self._arrivals.heartbeat_seconds * 1e9)
        self.cluster.accrue(at=at, silent=max(SILENT_NS, silent))
        self.cluster.close_departed(at=at)
        self.kept.guard(self.kept.look, at)
        self.follow()
        self._parts.each("round_over", self._arrivals.unread)
        prefixes = None
        if at >= self._prefixes_due:
            prefixes, self._prefixes_due = self.cluster.finalized_by_prefix(), at + PREFIXES_NS
        activity, causes = self.cluster.part("activity"), self.cluster.part("cause_activity")
        for opened in self._windows.values():
            opened.window.shares.report(activity, causes)
        self.recent.append(Moment(at, activity, self.cluster.nthreads, causes, prefixes))

    def remember(self) -> None:
        """Add a point to the history if one is due."""
        at = self.now()
        if at - self._remembered >= self.options.history_interval * 1e9:
            self.cluster.remember(at=at, scheduler=own_time(), loop=self.loop.totals_if_known())
            self._remembered = at

    def follow(self) -> None:
        """Update the timelines."""
        self.timelines.follow(self.cluster.present.values(), at=self.now())

    def take_answer(self, address: str, reply: Any, at: int) -> WindowAnswer | str:
        """Read a snapshot that a worker was asked for; returns its window, or the reason why there is none."""
        self.idle.catch_up()
        if not isinstance(reply, dict) or "snapshot" not in reply:
            return fitting(reply, MAX_REASON) if isinstance(reply, Exception) else "it is not metered"
        self.take_snapshot(address, reply["snapshot"], at)
        self._answers += 1
        if not self._answers % FOLLOWED_ANSWERS:
            self.follow()
        self.take_about_process(address, self.cluster.present.get(address), reply)
        try:
            return decode_answer(reply["window"]) if "window" in reply else "it has no such window"
        except RefusedPayload as refusal:
            return f"its window was refused: {refusal}"

    def take_snapshot(self, address: str, payload: Any, at: int) -> None:
        """Read a worker's snapshot, which arrived at ``at``; a refused one is logged."""
        try:
            self.cluster.receive(address, payload, at=at)
        except RefusedPayload as refusal:
            self._refused(address, refusal)

    def take_about_process(self, address: str, presence: Presence | None, message: Mapping[str, Any]) -> None:
        """Read what came with a snapshot: the processors of a worker, and what it does not measure."""
        if presence is None:
            return
        try:
            self.cluster.take_processors(presence, message.get("processors"))
            for what in listed(STAYS_OFF, message.get(STAYS_OFF, ())):
                if len(self._stays_off) < MAX_STAYS_OFF:
                    self._stays_off[text(STAYS_OFF, what)] = None
            for what in listed(LEFT_OUT, message.get(LEFT_OUT, ())):
                first, more = self._left_out.get(text(LEFT_OUT, what), (address, False))
                if what in self._left_out or len(self._left_out) < MAX_NAMED:
                    self._left_out[what] = first, more or first != address
        except RefusedPayload as refusal:
            self._refused(address, refusal)

    def stays_off(self) -> list[str]:
        """Losses on the scheduler and on workers: where distributed differs, and of labels that count no numbers."""
        labels = (
            f"{what} (on {worker}{' and others' if more else ''})" for what, (worker, more) in self._left_out.items()
        )
        return [*dict.fromkeys([*stays_off(), *self._stays_off]), *labels]

    def _refused(self, address: str, refusal: RefusedPayload) -> None:
        if address not in self._logged_refusals:
            self._logged_refusals.add(address)
            logger.warning("dask_efficiency refused a snapshot of %s: %s", address, refusal)
