"""ClusterMeter: the scheduler's side of a registration: polls, windows, leases, answers to clients."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import cloudpickle
from distributed.core import rpc
from tornado.ioloop import PeriodicCallback

import dask_efficiency
from dask_efficiency.cluster import GRACE_NS, ClusterLedger, Presence
from dask_efficiency.ledger import WindowBalance
from dask_efficiency.plugins import bootstrap
from dask_efficiency.plugins.decorations import decoration
from dask_efficiency.plugins.options import Options
from dask_efficiency.plugins.scheduler import replies
from dask_efficiency.plugins.scheduler.exports import Exports
from dask_efficiency.plugins.scheduler.outstanding import WorkTracker
from dask_efficiency.plugins.scheduler.recording import Recording
from dask_efficiency.plugins.scheduler.repeats import RepeatCounter
from dask_efficiency.plugins.scheduler.straggler_watch import Stragglers
from dask_efficiency.plugins.worker.meter import LAST_WORDS, NAME
from dask_efficiency.report.files import save
from dask_efficiency.timeline import ActivityFeed, Timeline, TimelineRecorder
from dask_efficiency.windows import ClusterWindow
from dask_efficiency.wire import RefusedSnapshot, decode_window

if TYPE_CHECKING:
    from distributed import Scheduler

    from dask_efficiency.plugins.scheduler.plugin import EfficiencyPlugin
    from dask_efficiency.straggler.finding import Finding

logger = logging.getLogger("dask_efficiency")

#: How often the heartbeats that have arrived are booked: no hook fires when one does.
POLL_MS = 500

#: A window waits this long for the last words of a worker that just left, then books it as lost.
LAST_WORDS_NS = 250_000_000

#: Windows that a cluster keeps open at once; a client that never closes its own costs no more.
MAX_WINDOWS = 64


#: Polls remembered for live views: ten minutes.
RECENT_MOMENTS = 1_200


@dataclass(frozen=True, slots=True)
class Moment:
    """What the cluster had done by one instant, as far as heartbeats had come."""

    at: int
    #: Nanoseconds by :data:`~dask_efficiency.cluster.ACTIVITIES` since the accounts began.
    activity: Mapping[str, int]
    nthreads: int


#: Registrations and removals wait for the workers in between: one at a time on each scheduler.
_TURNS: WeakKeyDictionary[Scheduler, asyncio.Lock] = WeakKeyDictionary()


def turn(scheduler: Scheduler) -> asyncio.Lock:
    """The lock under which a scheduler's meter comes and goes."""
    return _TURNS.setdefault(scheduler, asyncio.Lock())


class _OpenWindow:
    """A window and whose it is."""

    def __init__(self, window: ClusterWindow, client: str, span: str, missing: list[str]) -> None:
        self.window = window
        self.client = client
        #: Ids of the spans of this client's work.
        self.spans = {span}
        #: What its report cannot have, as notes.
        self.missing = missing


class ClusterMeter:
    """One registration on one scheduler, from the first plugin to the last.

    Plugins that replace one another share it, so that no counter goes backwards.
    """

    def __init__(self, scheduler: Scheduler, opts: Options) -> None:
        self.scheduler = scheduler
        self.options = opts
        self.plugin: EfficiencyPlugin | None = None
        self.closed = False
        #: Why it measures nothing any more; None while it works.
        self.off: str | None = None
        #: Seconds since the epoch at which the accounts began.
        self.since = time.time()
        self.cluster = ClusterLedger(at=time.monotonic_ns())
        #: Which accounts these are.
        self.session = uuid.uuid4().hex
        self._thread = threading.get_ident()
        self._permanent = False
        self._leases: dict[str, int] = {}
        self._open: dict[str, _OpenWindow] = {}
        self._windows: dict[str, ClusterWindow] = {}
        self._feed = ActivityFeed()
        self._life = TimelineRecorder(at=self.cluster.started)
        #: Why no timeline is kept any more; empty while one is.
        self._no_timeline: list[str] = []
        self._timelines: dict[str, TimelineRecorder] = {}
        self._work = WorkTracker(scheduler, self.cluster, self._windows)
        self._servers: dict[str, str] = {}
        self._last_payload: dict[str, Any] = {}
        self._logged_refusals: set[str] = set()
        self._polled = self._remembered = 0
        #: What the cluster was doing at each of the last polls, for live views.
        self.recent: deque[Moment] = deque(maxlen=RECENT_MOMENTS)
        #: CPU seconds of polls on the scheduler's thread.
        self.cost_seconds = 0.0
        self._exports = Exports(self)
        self._recording = Recording(self)
        self.stragglers = Stragglers(self)
        self._poller = PeriodicCallback(lambda: self.guard(self.poll), POLL_MS)

    # -- coming and going --------------------------------------------------------------------

    async def start(self) -> None:
        """Send the workers their half, and listen."""
        self.scheduler.handlers[NAME] = self.handle
        # What a former registration's meters sent last is still there, and is not of these replies.
        self._last_payload = {address: ws.metrics.get(NAME) for address, ws in self.scheduler.workers.items()}
        # The accounts of workers that are there begin when they are metered, not when that is asked for.
        await self._send_worker_half()
        self.reconcile()
        self.guard(self.poll)
        self._poller.start()
        self._exports.start()
        await self._recording.always(self.options.trace)

    async def reconfigure(self, opts: Options) -> None:
        """Take other options; the accounts go on."""
        if opts == self.options:
            return
        resend = (opts.max_prefixes, opts.gpu) != (self.options.max_prefixes, self.options.gpu)
        self.options = opts
        if resend:
            await self._send_worker_half()
        await self._recording.always(opts.trace)

    async def stop(self) -> None:
        """Take everything away again, in turn; safe to call twice."""
        async with turn(self.scheduler):
            await self.take_away()

    async def _stop_if_unused(self) -> None:
        async with turn(self.scheduler):
            if not self._permanent and not self._leases:
                await self.take_away()

    async def take_away(self, *, workers: bool = True) -> None:
        """Take everything away again, by the one whose turn it is."""
        if self.closed:
            return
        self.closed = True
        self._poller.stop()
        self._exports.stop()
        self._recording.stop()
        self._work.close()
        if self.scheduler.handlers.get(NAME) == self.handle:
            del self.scheduler.handlers[NAME]
        for name, plugin in list(self.scheduler.plugins.items()):
            if plugin is self.plugin:
                del self.scheduler.plugins[name]
        name = bootstrap.EfficiencyWorkerPlugin.name
        self.scheduler.worker_plugins.pop(name, None)
        if workers:
            await self.ask_all({"op": "plugin-remove", "name": name})

    def stay_as_long_as(self, former: ClusterMeter) -> None:
        """Take over why a former meter was there."""
        self._permanent = former._permanent
        self._leases.update(former._leases)

    def lease(self, client: str | None) -> None:
        """Keep the meter for good (None), or for one more report of a client."""
        if client is None:
            self._permanent = True
        else:
            self._leases[client] = self._leases.get(client, 0) + 1

    async def _release(self, client: str) -> None:
        left = self._leases.get(client, 0) - 1
        if left > 0:
            self._leases[client] = left
        else:
            self._leases.pop(client, None)
        await self._stop_if_unused()

    def client_left(self, client: str) -> None:
        """A lost client closes no windows and releases no leases: do it in its place."""
        for window_id, held in list(self._open.items()):
            if held.client == client:
                self._forget_window(window_id)
        if self._leases.pop(client, None):
            self.scheduler._ongoing_background_tasks.call_soon(self._stop_if_unused)

    def guard(self, function: Callable[..., object], *args: Any) -> None:
        """Call our own code; if it fails, log once and measure nothing more."""
        if self.off is not None or self.closed:
            return
        try:
            function(*args)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self.off = f"the meter on the scheduler failed: {type(error).__name__}: {error}"[:500]
        logger.error("dask_efficiency switched itself off on the scheduler", exc_info=error)
        self._poller.stop()
        self._recording.stop()
        self._work.close()
        if self.plugin is not None:
            self.plugin.__dict__.pop("transition", None)

    # -- hooks -------------------------------------------------------------------------------

    def transition(
        self, key: Any, start: str, finish: str, stimulus_id: str = "", worker: str = "", **kwargs: Any
    ) -> None:
        """A task changed state."""
        try:
            self._work.transition(key, start, finish, stimulus_id)
            if finish == "memory" and start == "processing" and worker in self.cluster.present:
                self.cluster.present[worker].finished += 1
        except Exception as error:
            if self.off is None:
                self._fail(error)

    @property
    def hook(self) -> Callable[..., None]:
        """What the scheduler is to call for every transition of every task."""
        recorder = self._recording.recorder
        return self.transition if recorder is None else recorder.transition

    def rebind(self) -> None:
        """A recording began or ended."""
        if self.plugin is not None and "transition" in self.plugin.__dict__:
            self.plugin.transition = self.hook  # type: ignore[method-assign]

    def reconcile(self) -> None:
        """Compare with the scheduler's workers: one may join while a hook is not in place yet."""
        at = time.monotonic_ns()
        workers = self.scheduler.workers
        for address in [a for a, server in self._servers.items() if _server(workers.get(a)) != server]:
            self.worker_left(address, at)
        for address, ws in workers.items():
            if address not in self._servers:
                self._servers[address] = ws.server_id
                presence = self.cluster.worker_joined(address, str(ws.name), ws.nthreads, at=at)
                self._work.worker_joined(presence)
                for window in self._windows.values():
                    window.worker_joined(presence)
                self._recording.worker_joined(address)
                self.stragglers.joined(address, ws)

    def worker_left(self, address: str, at: int, stimulus_id: str | None = None) -> None:
        """A worker was removed."""
        if self._recording.recorder is not None:
            self._recording.recorder.worker_left(address, stimulus_id)
        self._servers.pop(address, None)
        self._work.worker_left(address)
        self._last_payload.pop(address, None)
        presence = self.cluster.present.get(address)
        self.cluster.worker_left(address, at=at)
        if presence in self.cluster.closing:
            later = LAST_WORDS_NS / 2e9
            self.scheduler._ongoing_background_tasks.call_later(later, self._ask_last_words, presence)
        self.stragglers.left(address)

    def restarted(self) -> None:
        """The scheduler forgot all its tasks."""
        self._work.reset()

    def graph_taken_in(self, client: str, tasks: list[Any], keys: Any, stimulus_id: str) -> None:
        """Note what was asked for, and which spans are whose, for the windows that are open."""
        self._work.asked(stimulus_id)
        if self._recording.recorder is not None:
            self._recording.recorder.graph_taken_in(client, tasks, keys, stimulus_id)
        mine = [held for held in self._open.values() if held.client == client]
        if not mine:
            return
        known = self.scheduler.tasks
        spans = {known[key].group.span_id for key in tasks if key in known}
        for held in mine:
            held.spans.update(span for span in spans if span)

    def event(self, topic: str, message: Any) -> None:
        """Book a closing worker's last words, and what workers record."""
        if self._recording.recorder is not None:
            self._recording.recorder.event(topic, message)
        if isinstance(message, Mapping):
            # Upstream's own words: a worker's as it begins to close, and the scheduler's just before a removal.
            action = message.get("action")
            if action == "closing-worker" or (action == "remove-worker" and message.get("expected")):
                self.cluster.worker_closing(topic)
        if topic != LAST_WORDS or not isinstance(message, Mapping) or message.get("session") != self.session:
            return
        address = str(message.get("worker"))
        presence = self.cluster.find(address, message.get("snapshot"))
        self._receive(address, message.get("snapshot"), time.monotonic_ns())
        self._take_processors(address, presence, message)
        windows = message.get("windows")
        if presence is None or not isinstance(windows, Mapping):
            return
        for window_id, payload in windows.items():
            window = self._windows.get(window_id)
            if window is not None:
                try:
                    window.worker_closed(presence, decode_window(payload))
                except RefusedSnapshot as refusal:
                    self._refused(address, refusal)

    # -- booking -----------------------------------------------------------------------------

    def poll(self) -> None:
        """Book the heartbeats that have arrived since the last poll."""
        began = time.thread_time()
        at = time.monotonic_ns()
        if self.plugin is not None and self.plugin not in self.scheduler.plugins.values():
            # Unregistered behind our back; the workers' half goes as well.
            self.scheduler._ongoing_background_tasks.call_soon(self.stop)
            return
        self.reconcile()
        now = time.time()
        for address, ws in self.scheduler.workers.items():
            payload = ws.metrics.get(NAME)
            if payload is None or payload is self._last_payload.get(address):
                continue
            self._last_payload[address] = payload
            # It came after the last poll: a wall clock that was set in between cannot make it older.
            age = min(max(0, round((now - ws.last_seen) * 1e9)), at - self._polled)
            self._receive(address, payload, at - age)
            self.stragglers.receive(address, ws, payload, at - age)
        self.stragglers.poll(at)
        self._polled = at
        self.cluster.accrue(at=at)
        self.cluster.close_departed(at=at)
        self._follow()
        if self._recording.recorder is not None:
            self._recording.recorder.heartbeats(self.cluster.activity_by_worker())
        if at - self._remembered >= self.options.history_interval * 1e9:
            self.cluster.remember(at=at)
            self._remembered = at
        self.recent.append(Moment(at, self.cluster.activity(), self.cluster.nthreads))
        self.cost_seconds += time.thread_time() - began

    def _follow(self) -> None:
        """Note in every timeline what the workers did since the last time; once that has failed, in none any more."""
        if self._no_timeline:
            return
        with decoration("timeline", self._no_timeline):
            stretches = self._feed.read(self.cluster.present.values())
            for recorder in (self._life, *self._timelines.values()):
                recorder.add(stretches)

    def timeline(self, recorder: TimelineRecorder | None = None, *, at: int) -> Timeline:
        """What the slots were doing until ``at``; since the accounts began where no recorder is given.

        Raises
        ------
        RuntimeError
            If following the workers has failed.
        """
        if self._no_timeline:
            raise RuntimeError(self._no_timeline[0])
        return (recorder or self._life).timeline(at=at, uncovered=self._feed.uncovered(at=at))

    def repeats(self, window_id: str | None = None) -> dict[str, tuple[int, int]]:
        """What was computed again in a window; since the accounts began where none is given."""
        return self._work.repeats[window_id].by_prefix()

    @property
    def repeats_missed(self) -> bool:
        """Whether so many tasks were computed that some may have been computed again without being counted."""
        return self._work.full

    def refresh(self) -> None:
        """Bring the accounts up to now, as far as heartbeats have come.

        From another thread than the scheduler's, such as that of an exporter of the user's own, no-op.
        """
        if threading.get_ident() == self._thread:
            self.guard(self.poll)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The stragglers of now, the most certain first."""
        return self.stragglers.findings

    def now(self) -> int:
        """Nanoseconds by the accounts' clock."""
        return time.monotonic_ns()

    def _receive(self, address: str, payload: Any, at: int) -> None:
        try:
            self.cluster.receive(address, payload, at=at)
        except RefusedSnapshot as refusal:
            self._refused(address, refusal)

    def _take_processors(self, address: str, presence: Presence | None, message: Mapping[str, Any]) -> None:
        try:
            self.cluster.take_processors(presence, message.get("processors"))
        except RefusedSnapshot as refusal:
            self._refused(address, refusal)

    def _refused(self, address: str, refusal: RefusedSnapshot) -> None:
        if address not in self._logged_refusals:
            self._logged_refusals.add(address)
            logger.warning("dask_efficiency refused a snapshot of %s: %s", address, refusal)

    # -- workers -----------------------------------------------------------------------------

    async def _send_worker_half(self) -> None:
        """Meter the workers that are there; those that join are sent it by the scheduler."""
        payload = self.set_worker_half()
        name = bootstrap.EfficiencyWorkerPlugin.name
        await self.ask_all({"op": "plugin-add", "plugin": payload, "name": name})

    def set_worker_half(self) -> bytes:
        """Have the workers that join sent their half as it must be now."""
        plugin = bootstrap.EfficiencyWorkerPlugin(  # type: ignore[no-untyped-call]
            dask_efficiency.__version__,
            self.session,
            self.options.max_prefixes,
            list(self._windows),
            self._recording.id,
            self.options.gpu,
        )
        cloudpickle.register_pickle_by_value(bootstrap)
        try:
            payload: bytes = cloudpickle.dumps(plugin)
        finally:
            cloudpickle.unregister_pickle_by_value(bootstrap)
        self.scheduler.worker_plugins[bootstrap.EfficiencyWorkerPlugin.name] = payload
        return payload

    async def ask_all(
        self, message: dict[str, Any], addresses: Iterable[str] | None = None
    ) -> dict[str, tuple[Any, int]]:
        """Every worker's answer, or the exception that came instead, and when; silent ones cost the timeout."""

        async def ask(address: str) -> tuple[Any, int]:
            answer: Any
            try:
                answers = await asyncio.wait_for(
                    self.scheduler.broadcast(msg=dict(message), workers=[address], on_error="return"),
                    self.options.report_timeout,
                )
                answer = answers[address]
            except TimeoutError:
                answer = TimeoutError(f"no answer in {self.options.report_timeout:g} s")
            except Exception as error:
                answer = error
            return answer, time.monotonic_ns()

        addresses = list(self.scheduler.workers if addresses is None else addresses)
        return dict(zip(addresses, await asyncio.gather(*map(ask, addresses)), strict=True))

    async def _ask_meters(self, action: str, window: str = "") -> dict[str, WindowBalance | str]:
        """Force snapshots; and open or close a window. Gives the windows, or why there is none."""
        replies = await self.ask_all({"op": NAME, "action": action, "window": window})
        answers: dict[str, WindowBalance | str] = {}
        for address, (reply, at) in replies.items():
            if not isinstance(reply, dict) or "snapshot" not in reply:
                answers[address] = str(reply) if isinstance(reply, Exception) else "it is not metered"
                continue
            self._receive(address, reply["snapshot"], at)
            self._take_processors(address, self.cluster.present.get(address), reply)
            try:
                answers[address] = decode_window(reply["window"]) if "window" in reply else "it has no such window"
            except RefusedSnapshot as refusal:
                answers[address] = f"its window was refused: {refusal}"
        return answers

    async def _ask_last_words(self, presence: Presence) -> None:
        """Ask a worker that left in order for the last words that have not come.

        Upstream's ``Worker.close`` ends before it takes plugins away where the worker's nanny closes first, as it
        does when a cluster scales down; the worker then answers until it is killed.
        """
        if presence not in self.cluster.closing:
            return
        timeout = min(self.options.report_timeout, GRACE_NS / 1e9)
        connection = self.scheduler.connection_args
        try:
            async with rpc(presence.address, timeout=timeout, connection_args=connection) as worker:
                answer = await asyncio.wait_for(getattr(worker, NAME)(action="last-words"), timeout)
        except Exception:  # whatever it is, the worker is gone, and its books close without
            logger.debug("dask_efficiency could not ask %s for its last words", presence.address, exc_info=True)
            return
        self.guard(self.event, LAST_WORDS, answer)

    # -- windows -----------------------------------------------------------------------------

    async def _open_window(self, window_id: str, client: str, span: str, trace: bool) -> dict[str, Any]:
        self.poll()
        missing: list[str] = []
        if trace:
            with decoration("trace", missing):
                await self._recording.begin(window_id)
        while len(self._open) >= MAX_WINDOWS:
            self._forget_window(next(iter(self._open)))
        at = time.monotonic_ns()
        # A poll may come while the workers answer.
        self._timelines[window_id] = TimelineRecorder(at=at)
        try:
            await self._ask_meters("open", window_id)
        except BaseException:
            del self._timelines[window_id]
            raise
        window = ClusterWindow(self.cluster, at=at, graphs=self._work.graphs, running=self._work.running)
        self._open[window_id] = _OpenWindow(window, client, span, missing)
        self._work.repeats[window_id] = RepeatCounter()
        self._windows[window_id] = window
        self.set_worker_half()
        return {"leased": not self._permanent}

    async def _close_window(self, window_id: str) -> dict[str, Any]:
        held = self._open.get(window_id)
        if held is None:
            raise RuntimeError(f"no window {window_id!r} is open: it expired, or the scheduler restarted")
        at = time.monotonic_ns()  # waiting for a worker that does not answer is no part of the window
        recorder = self._timelines[window_id]
        recorder.stop(at=at)
        answers = await self._ask_meters("close", window_id)
        self.poll()
        if self.cluster.leaving:
            await asyncio.sleep(LAST_WORDS_NS / 1e9)
            await asyncio.gather(*map(self._ask_last_words, self.cluster.closing))
            self.cluster.close_departed(at=time.monotonic_ns(), grace=LAST_WORDS_NS)
            self._follow()
        closed = held.window.close(self.cluster, answers, at=at)
        account = replies.of_window(self, held.window, closed, held.spans, recorder, self.repeats(window_id), at)
        account["notes"] += held.missing
        if self._recording.wanted(window_id) and not held.missing:
            with decoration("trace", account["notes"]):
                account["trace"] = {**await self._recording.collect(), "start": held.window.opened}
        self._forget_window(window_id)
        return account

    def _forget_window(self, window_id: str) -> None:
        self._open.pop(window_id, None)
        self._windows.pop(window_id, None)
        self._timelines.pop(window_id, None)
        self._work.repeats.pop(window_id, None)
        self._recording.forget(window_id)
        if not self.closed:
            self.set_worker_half()

    # -- clients -----------------------------------------------------------------------------

    async def handle(self, action: str, **kwargs: Any) -> dict[str, Any]:
        """Answer a client.

        Raises
        ------
        RuntimeError
            If the meter failed, with the reason.
        ValueError
            On an unknown action.
        """
        if action == "clock":
            return {"at": time.monotonic_ns()}
        if action == "unregister":
            await self.stop()
            return {}
        if action == "release":
            await self._release(kwargs["client"])
            return {}
        if self.off is not None:
            raise RuntimeError(self.off)
        if action == "open":
            return await self._open_window(
                kwargs["window"], kwargs["client"], kwargs["span"], kwargs.get("trace", False)
            )
        if action == "close":
            return await self._close_window(kwargs["window"])
        if action == "trace":
            return await self._recording.collect()
        if action == "life":
            await self._ask_meters("snapshot")
            self.poll()
            return replies.of_life(self)
        if action == "stragglers":
            self.poll()
            findings = [finding.to_dict() for finding in self.stragglers.findings]
            return {
                "stragglers": findings,
                "workers": len(self.scheduler.workers),
                "records": self._recording.recorder is not None,
            }
        if action == "live":
            self.poll()
            return replies.of_live(self)
        if action == "history":
            await self._ask_meters("snapshot")
            self.poll()
            return replies.of_history(self, kwargs.get("last"))
        raise ValueError(f"unknown action {action!r}")

    async def save_life(self) -> None:
        """Write the report of the cluster's whole life, where ``save-to`` asks for it."""
        path = self.options.save_to
        if path is None or self.closed or self.off is not None:
            return
        try:
            if self.scheduler.workers:
                await self._ask_meters("snapshot")
            self.poll()
            self.cluster.close_departed(at=time.monotonic_ns(), grace=0)
            self._follow()
            report = replies.life_report(replies.of_life(self))
            await asyncio.to_thread(save, report, path)
            logger.info("dask_efficiency wrote the cluster's report to %s", path)
        except Exception:
            logger.exception("dask_efficiency could not write the cluster's report to %s", path)


def _server(ws: Any) -> str | None:
    return None if ws is None else ws.server_id
