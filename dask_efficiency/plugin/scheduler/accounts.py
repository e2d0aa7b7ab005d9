"""ClusterAccounts: the cluster's ledger and what reports need beside it, brought up to date from heartbeats."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dask_efficiency.accounts.checks import RefusedPayload, listed, text
from dask_efficiency.accounts.cluster.cluster import SILENT_NS, ClusterLedger
from dask_efficiency.accounts.cluster.idle import Alone
from dask_efficiency.accounts.cluster.presence import Presence
from dask_efficiency.accounts.cluster.scheduler_loop import LoopTotals
from dask_efficiency.accounts.cluster.timeline import ActivityFeed, Timeline, TimelineRecorder
from dask_efficiency.accounts.cluster.windows import ClusterWindow
from dask_efficiency.accounts.senders import SentGraphs
from dask_efficiency.accounts.slow_worker import SlowWorker
from dask_efficiency.accounts.wire.wire import decode_window
from dask_efficiency.accounts.worker.balance import WindowBalance
from dask_efficiency.accounts.worker.log import MAX_PREFIX_LENGTH
from dask_efficiency.plugin.guard import Guard, decoration
from dask_efficiency.plugin.names import FINAL_SNAPSHOT, METRIC, STAYS_OFF
from dask_efficiency.plugin.options import Options
from dask_efficiency.plugin.parts import Parts, SchedulerPart
from dask_efficiency.plugin.patches import stays_off
from dask_efficiency.plugin.scheduler import departures
from dask_efficiency.plugin.scheduler.heartbeats import HeartbeatArrivals
from dask_efficiency.plugin.scheduler.idle_watch import IdleWatch
from dask_efficiency.plugin.scheduler.loop_meter import LoopMeter
from dask_efficiency.plugin.scheduler.outstanding import RepeatCounter, WorkTracker
from dask_efficiency.plugin.scheduler.straggler_watch import StragglerReporter
from dask_efficiency.show.log import logger

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.scheduler import WorkerState

#: A worker that sends no snapshot in so many heartbeats is not measured; the first comes up to one after joining.
MIN_SILENT_HEARTBEATS = 3

#: Polls remembered for live views: ten minutes.
RECENT_MOMENTS = 1_200

#: Nanoseconds between two of them that know what tasks of each prefix had settled: of a thousand prefixes that takes
#: a tenth of a millisecond and half a megabyte.
PREFIXES_NS = 60_000_000_000


#: CPU seconds after which a poll leaves the event loop to others, and goes on afterwards.
MAX_POLL_SECONDS = 0.005

#: The same of the polls for a report, beside which others may come.
MAX_REPORT_POLL_SECONDS = 0.002

#: What is remembered of what workers do not measure: more than there are replacements.
MAX_STAYS_OFF = 100

#: After so many answers of workers the timelines follow: ten thousand at once would take a tenth of a second.
FOLLOWED_ANSWERS = 100

#: A worker is asked for everything once in so many nanoseconds.
ASK_AGAIN_NS = 10_000_000_000


@dataclass(frozen=True, slots=True)
class Moment:
    """What the cluster had done by one instant, as far as heartbeats had come."""

    at: int
    #: Nanoseconds by :data:`~dask_efficiency.accounts.cluster.presence.ACTIVITIES` since the accounts began.
    activity: Mapping[str, int]
    nthreads: int
    #: The same by :data:`~dask_efficiency.accounts.causes.NAMES`, as far as causes are known.
    causes: Mapping[str, int] = field(default_factory=dict)
    #: What tasks of each prefix had settled, by :data:`~dask_efficiency.accounts.worker.balance.TASK_BUCKETS`; known
    #: once a minute.
    prefixes: Mapping[str, Sequence[int]] | None = None


class Timelines:
    """Follows the workers in every timeline; once that has failed, in none any more.

    Parameters
    ----------
    at
        When the accounts began, monotonic nanoseconds.
    """

    def __init__(self, *, at: int) -> None:
        self._feed = ActivityFeed()
        self._life = TimelineRecorder(at=at)
        self._of_windows: list[TimelineRecorder] = []
        #: Why there is no timeline any more; empty while there is.
        self._failure: list[str] = []

    def begin(self, *, at: int) -> TimelineRecorder:
        """One more timeline, of a window."""
        recorder = TimelineRecorder(at=at)
        self._of_windows.append(recorder)
        return recorder

    def end(self, recorder: TimelineRecorder) -> None:
        """A window is over."""
        if recorder in self._of_windows:
            self._of_windows.remove(recorder)

    def follow(self, present: Iterable[Presence], *, at: int) -> None:
        """Note what the workers did since the last call, until ``at``, which is now."""
        if self._failure:
            return
        with decoration("timeline", self._failure):
            stretches = self._feed.read(present, at=at)
            for recorder in (self._life, *self._of_windows):
                recorder.add(stretches)

    def timeline(self, recorder: TimelineRecorder | None = None, *, at: int) -> Timeline:
        """What the slots were doing until ``at``; since the accounts began where no recorder is given.

        Raises
        ------
        RuntimeError
            If following the workers has failed.
        """
        if self._failure:
            raise RuntimeError(self._failure[0])
        return (recorder or self._life).timeline(at=at, uncovered=self._feed.uncovered(at=at))


@dataclass(slots=True, eq=False)
class OpenWindow:
    """A window that a client opened, and what is kept for its report."""

    window: ClusterWindow
    timeline: TimelineRecorder
    client: str
    #: Ids of the spans of this client's work.
    spans: set[str]
    #: Ids of those that others sent tasks to first.
    foreign: set[str]
    #: Whether only this client's work is wanted.
    only: bool
    #: How long free slots had waited for tasks of each prefix, and tasks had run alone, by then; see IdleWeights.
    waited_for: Mapping[str, int]
    alone: Mapping[Hashable, Alone]
    #: What the scheduler's event loop had done by then; None where that is not known.
    loop: LoopTotals | None
    loop_at_stop: LoopTotals | None = None
    #: What was computed again in it.
    repeats: RepeatCounter = field(default_factory=RepeatCounter)
    #: Ids of spans, of either, that the other sent tasks to as well.
    shared: set[str] = field(default_factory=set)
    #: The graphs of this client.
    sent: SentGraphs = field(default_factory=SentGraphs)


class ClusterAccounts:
    """The accounts of one registration, from its first worker to its end.

    Parameters
    ----------
    scheduler
        The scheduler.
    session
        Which accounts these are.
    options
        Gives the options in force.
    windows
        The windows that are open, by id.
    parts
        Hear which workers come and go, and of their heartbeats.
    left_in_order
        Called with a worker that said that it closes, and is gone before its final snapshot came.
    lost
        Called with a worker that vanished and of which nothing says why, and with what the scheduler knew of it.
    ask_everything
        Called with the addresses of workers whose heartbeats must tell everything, as too many were lost.
    guard
        What the accounts' failures go no further than.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        session: str,
        options: Callable[[], Options],
        windows: dict[str, ClusterWindow],
        parts: Parts[SchedulerPart],
        left_in_order: Callable[[Presence], object],
        lost: Callable[[Presence, WorkerState], object],
        ask_everything: Callable[[list[str]], object],
        guard: Guard,
    ) -> None:
        self.scheduler = scheduler
        self.session = session
        self.windows = windows
        self.guard = guard
        self._options = options
        self._parts = parts
        self._left_in_order = left_in_order
        self._lost = lost
        self._ask_everything = ask_everything
        #: When each worker may be asked for everything again, by address.
        self._ask_again: dict[str, int] = {}
        #: Seconds since the epoch at which the accounts began.
        self.since = time.time()
        self.cluster = ClusterLedger(at=time.monotonic_ns())
        self.work = WorkTracker(scheduler, self.cluster, windows)
        self.loop = LoopMeter(scheduler, lambda: self.cluster.work.outstanding)
        self.idle = IdleWatch(scheduler, self.work, self.cluster, self.cluster.idle, lambda: self.loop.waited)
        self.timelines = Timelines(at=self.cluster.started)
        self.stragglers = StragglerReporter(scheduler, self.cluster, lambda: options().on_straggler)
        #: What the cluster was doing at each of the last polls, for live views.
        self.recent: deque[Moment] = deque(maxlen=RECENT_MOMENTS)
        #: CPU seconds of polls on the scheduler's thread.
        self.cost_seconds = 0.0
        self._thread = threading.get_ident()
        #: What the scheduler knows of the workers that are there, by address.
        self._servers: dict[str, WorkerState] = {}
        self._arrivals = HeartbeatArrivals(scheduler, lambda address: self.cluster.present.get(address))
        self._logged_refusals: set[str] = set()
        #: What workers do not measure, as their distributed is another.
        self._stays_off: dict[str, None] = {}
        self._remembered = self._answers = self._prefixes_due = 0
        #: Whose heartbeats are still to be read in this round.
        self._rest: deque[str] = deque()

    @property
    def options(self) -> Options:
        """The options in force."""
        return self._options()

    @property
    def off(self) -> str | None:
        """Why nothing is measured any more; None while it is."""
        return self.guard.off

    @property
    def findings(self) -> tuple[SlowWorker, ...]:
        """The stragglers of now, the most certain first."""
        return self.stragglers.findings

    @property
    def read_interval_seconds(self) -> float:
        """Time between two heartbeats of a worker that are read."""
        return self._arrivals.read_interval_seconds

    def now(self) -> int:
        """Nanoseconds by the accounts' clock."""
        return time.monotonic_ns()

    def refresh(self) -> None:
        """Bring the accounts up to now, as far as heartbeats are due and are read within :data:`MAX_POLL_SECONDS`.

        From another thread than the scheduler's, such as that of an exporter of the user's own, no-op.
        """
        if threading.get_ident() == self._thread:
            self.guard(self.poll, at_most=MAX_POLL_SECONDS)

    # -- workers that come and go --------------------------------------------------------------

    def reconcile(self, asked: int | None = None) -> None:
        """Compare with the scheduler's workers: one may join while a hook is not in place yet.

        ``asked`` is when those that were there first were asked to meter.
        """
        at = time.monotonic_ns()
        workers = self.scheduler.workers
        for address in [a for a in self._servers if a not in workers or not self._is_there(a, workers[a])]:
            self.worker_left(address, at)
        if len(workers) != len(self._servers):
            for address in [address for address in workers if address not in self._servers]:
                self.worker_joined(address, at, asked)

    def worker_joined(self, address: str, at: int, asked: int | None = None) -> None:
        """A worker is there, which may be known already."""
        ws = self.scheduler.workers.get(address)
        if ws is None or self._is_there(address, ws):
            return
        if address in self._servers:
            self.worker_left(address, at)
        self._servers[address] = ws
        presence = self.cluster.worker_joined(address, str(ws.name), ws.nthreads, at=at, asked=asked)
        presence.loss.mark = ws.server_id
        self.work.worker_joined(presence)
        for window in self.windows.values():
            window.worker_joined(presence)
        self.stragglers.worker_joined(address, ws)
        self._parts.each("worker_joined", address, ws)

    def worker_left(self, address: str, at: int, stimulus_id: str | None = None) -> None:
        """A worker was removed."""
        ws = self._servers.pop(address, None)
        for left in self._arrivals.worker_left(address, ws, at):
            self._take_snapshot(address, left.payload, left.at)
        self.work.worker_left(address)
        self._ask_again.pop(address, None)
        presence = self.cluster.present.get(address)
        self.cluster.worker_left(address, at=at)
        if presence is not None and presence in self.cluster.closing:
            self._left_in_order(presence)
        elif presence is not None and ws is not None and not presence.closing and not presence.loss.reason:
            self._lost(presence, ws)
        self.stragglers.worker_left(address)
        self._parts.each("worker_left", address, stimulus_id)

    def _is_there(self, address: str, ws: WorkerState) -> bool:
        """Whether the accounts know the server at an address."""
        known = self._servers.get(address)
        return known is not None and known.server_id == ws.server_id

    # -- what workers report -------------------------------------------------------------------

    def poll(self, *, at_most: float = math.inf) -> bool:
        """Take the heartbeats that have arrived since the last poll, or as many as its share of a core is enough for.

        Parameters
        ----------
        at_most
            CPU seconds for it; one heartbeat is always taken. What is left then is taken by the next poll, which is to
            follow soon. One without a limit also takes what has arrived since the one before it was cut off.

        Returns
        -------
        bool
            Whether all were taken.
        """
        began = time.thread_time()
        at = time.monotonic_ns()
        arrived = 0
        if not self._rest or at_most == math.inf:
            if at_most < math.inf and self._arrivals.pauses(at):
                self.stragglers.poll(at, self.read_interval_seconds)
                self._spent(at, time.thread_time() - began)
                return True
            self.reconcile()
            due, left_out = self._arrivals.next_round(at)
            arrived = len(due) + len(left_out)
            if self.options.outliers:  # found worse in fewer samples; what sensors say needs no reading
                for address, left in left_out.items():
                    self._parts.each("take_heartbeat", address, self.scheduler.workers[address], left.at)
            self._rest = deque(due)
        return self._read(began, at, at_most, arrived)

    async def poll_all(self) -> None:
        """Take all heartbeats that have arrived, for a report: also those that polls have left out.

        They may be thousands: others have their turn every :data:`MAX_REPORT_POLL_SECONDS`.
        """
        began = time.thread_time()
        at = time.monotonic_ns()
        self.reconcile()
        unread, arrived = self._arrivals.everything(at)
        self._rest = deque(unread)
        while not self._read(began, at, MAX_REPORT_POLL_SECONDS, arrived):
            self.follow()
            await asyncio.sleep(0)
            began, at, arrived = time.thread_time(), time.monotonic_ns(), 0

    def _read(self, began: float, at: int, at_most: float, arrived: int) -> bool:
        """Read what this round has left to read, see :meth:`poll`."""
        self.idle.catch_up(at=at)
        missed = []
        read = len(self._rest)
        reading = now = time.thread_time()
        while self._rest:
            address = self._rest.popleft()
            ws = self.scheduler.workers.get(address)
            payload = None if ws is None else ws.metrics.get(METRIC)
            if ws is not None and payload is not None and self._is_there(address, ws):
                self._take_heartbeat(address, ws, payload, at)
                presence = self.cluster.present.get(address)
                if presence is not None and presence.missed and at >= self._ask_again.get(address, at):
                    self._ask_again[address] = at + ASK_AGAIN_NS
                    missed.append(address)
            now = time.thread_time()
            if now - began > at_most:
                break
        if missed:
            self._ask_everything(missed)
        if not self._rest:
            self._arrivals.round_over()
            self._follow_up(at)
        took = now - reading
        others = time.thread_time() - began - took
        self._spent(at, others, arrived=arrived, read=read - len(self._rest), seconds=took)
        return not self._rest

    def _spent(self, at: int, others: float, *, arrived: int = 0, read: int = 0, seconds: float = 0.0) -> None:
        self.cost_seconds += seconds + others
        self._arrivals.spent(at, others, arrived=arrived, read=read, seconds=seconds)

    def _take_heartbeat(self, address: str, ws: WorkerState, payload: Any, at: int) -> None:
        """Read a worker's last heartbeat."""
        came = self._arrivals.take(address, ws, payload, at)
        self._take_snapshot(address, payload, came)
        self.stragglers.take_heartbeat(address, ws, payload, came)
        self._parts.each("take_heartbeat", address, ws, came)

    def _follow_up(self, at: int) -> None:
        """Do all that follows when the heartbeats of a round are read."""
        self.stragglers.poll(at, self.read_interval_seconds)
        silent = round(MIN_SILENT_HEARTBEATS * self._arrivals.heartbeat_seconds * 1e9)
        self.cluster.accrue(at=at, silent=max(SILENT_NS, silent))
        self.cluster.close_departed(at=at)
        self.follow()
        self._parts.each("round_over", self._arrivals.unread)
        if at - self._remembered >= self.options.history_interval * 1e9:
            self.cluster.remember(at=at)
            self._remembered = at
        prefixes = None
        if at >= self._prefixes_due:
            prefixes = self.cluster.finalized_by_prefix()
            self._prefixes_due = at + PREFIXES_NS
        activity, causes = self.cluster.activity(), self.cluster.cause_activity()
        for window in self.windows.values():
            window.shares.report(activity, causes)
        self.recent.append(Moment(at, activity, self.cluster.nthreads, causes, prefixes))

    def follow(self) -> None:
        """Note in the timelines what is known of the workers by now."""
        self.timelines.follow(self.cluster.present.values(), at=self.now())

    def take_answer(self, address: str, reply: Any, at: int) -> WindowBalance | str:
        """Take the snapshot that a worker was asked for; gives its window, or why there is none."""
        self.idle.catch_up()
        if not isinstance(reply, dict) or "snapshot" not in reply:
            return str(reply) if isinstance(reply, Exception) else "it is not metered"
        self._take_snapshot(address, reply["snapshot"], at)
        self._answers += 1
        if not self._answers % FOLLOWED_ANSWERS:
            self.follow()
        self._take_about_process(address, self.cluster.present.get(address), reply)
        try:
            return decode_window(reply["window"]) if "window" in reply else "it has no such window"
        except RefusedPayload as refusal:
            return f"its window was refused: {refusal}"

    def event(self, topic: str, message: Any) -> None:
        """Note that a worker begins to close, and why one goes, and take its final snapshot."""
        if not isinstance(message, Mapping):
            return
        # Upstream's own words: a worker's as it begins to close, and the scheduler's just before a removal.
        action = message.get("action")
        if action == "closing-worker" or (action == "remove-worker" and message.get("expected")):
            self.cluster.worker_closing(topic)
        if action == "closing-worker":
            self._explain(topic, departures.on_closing(message.get("reason")))
        elif action == "remove-worker" and topic in self._servers:
            self._removed(topic, message)
        elif action == departures.SILENT and topic == departures.SCHEDULER:
            for address in message.get("workers", ()):
                self._explain(address, departures.silent(message))
        elif topic == departures.NANNY_KILLS:
            address = str(message.get("worker"))
            ws = self._servers.get(address)
            # It is why, whatever the nanny's signal made the worker, or its log, say first.
            self._explain(address, departures.for_memory(message, None if ws is None else ws.memory_limit), first=True)
        if topic == FINAL_SNAPSHOT and message.get("session") == self.session:
            self._take_final_snapshot(message)

    def _explain(self, address: str, reason: str, *, first: bool = False) -> None:
        """Note why a worker goes, or has just gone."""
        presence = self.cluster.last_at(address)
        if presence is not None and (first or not presence.loss.reason):
            presence.loss.reason = reason

    def _removed(self, address: str, message: Mapping[str, Any]) -> None:
        """Note how a worker is removed, before its tasks move on."""
        ws, presence = self._servers[address], self.cluster.present.get(address)
        stimulus_id = str(message.get("stimulus_id"))
        self.work.results_lost(ws.server_id, stimulus_id)
        if presence is None:
            return
        loss, tasks = presence.loss, self.scheduler.tasks
        expected = bool(message.get("expected"))
        reason, loss.noticed = departures.on_removal(stimulus_id, expected=expected, nanny=bool(ws.nanny))
        loss.reason = loss.reason or reason
        prefixes = (tasks[key].prefix.name for key in message.get("processing-tasks", ()) if key in tasks)
        loss.had_to_do = Counter(prefix[:MAX_PREFIX_LENGTH] for prefix in prefixes)

    def _take_final_snapshot(self, message: Mapping[str, Any]) -> None:
        address = str(message.get("worker"))
        presence = self.cluster.find(address, message.get("snapshot"))
        self._take_snapshot(address, message.get("snapshot"), time.monotonic_ns())
        self._take_about_process(address, presence, message)
        windows = message.get("windows")
        if presence is None or not isinstance(windows, Mapping):
            return
        for window_id, payload in windows.items():
            window = self.windows.get(window_id)
            if window is not None:
                try:
                    window.worker_closed(presence, decode_window(payload))
                except RefusedPayload as refusal:
                    self._refused(address, refusal)

    def _take_snapshot(self, address: str, payload: Any, at: int) -> None:
        try:
            self.cluster.receive(address, payload, at=at)
        except RefusedPayload as refusal:
            self._refused(address, refusal)

    def _take_about_process(self, address: str, presence: Presence | None, message: Mapping[str, Any]) -> None:
        try:
            self.cluster.take_processors(presence, message.get("processors"))
            for what in listed(STAYS_OFF, message.get(STAYS_OFF, ())):
                if len(self._stays_off) < MAX_STAYS_OFF:
                    self._stays_off[text(STAYS_OFF, what)] = None
        except RefusedPayload as refusal:
            self._refused(address, refusal)

    def stays_off(self) -> list[str]:
        """What is not measured, on the scheduler or on workers, as distributed is not what the package knows."""
        return [*dict.fromkeys([*stays_off(), *self._stays_off])]

    def _refused(self, address: str, refusal: RefusedPayload) -> None:
        if address not in self._logged_refusals:
            self._logged_refusals.add(address)
            logger.warning("dask_efficiency refused a snapshot of %s: %s", address, refusal)
