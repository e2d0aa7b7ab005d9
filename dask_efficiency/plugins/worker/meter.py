"""WorkerMeter: feeds a worker's ledger from Dask's hooks, and ships it with the heartbeat."""

from __future__ import annotations

import logging
import time
import uuid
from time import monotonic_ns, thread_time_ns
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

from distributed.core import Status
from distributed.worker_state_machine import PauseEvent, UnpauseEvent

from dask_efficiency.ledger import Availability, Hold, Ledger, Outcome, Used
from dask_efficiency.plugins.worker.cost import HookCost
from dask_efficiency.plugins.worker.fine_metrics import BY_MEMORY_MANAGER, MAX_PREFIX_LENGTH, Digests
from dask_efficiency.plugins.worker.gpu import WorkerGpu
from dask_efficiency.plugins.worker.loop_spills import LoopSpills
from dask_efficiency.plugins.worker.pending import Settling
from dask_efficiency.plugins.worker.process_metrics import Vitals, input_bytes
from dask_efficiency.plugins.worker.process_threads import ProcessThreads
from dask_efficiency.plugins.worker.processors import own_processors
from dask_efficiency.plugins.worker.recorder import WorkerRecorder
from dask_efficiency.plugins.worker.threads import TaskThreads
from dask_efficiency.processors import encode_processors
from dask_efficiency.wire import OWN_WORK, Snapshot, encode, encode_not_measured, encode_window

if TYPE_CHECKING:
    from collections.abc import Callable

    from distributed import Worker
    from distributed.worker_state_machine import TaskState

logger = logging.getLogger("dask_efficiency")

#: Annotation by which the scheduler marks a task that had been in memory once before.
RECOMPUTED = "dask-efficiency-recomputed"

#: Topic of the event that carries a closing worker's last snapshot.
LAST_WORDS = "dask-efficiency-last-words"

#: Name of the metric in the heartbeat, and of the op in the worker's and scheduler's handlers.
NAME = "efficiency"

#: Between two of these states nothing moves that the ledger looks at.
_QUIET = frozenset({"memory", "released", "forgotten", "fetch", "flight", "missing", "error"})

#: Looked up for every task: the attributes of an enum's class are slow.
_RUNNING = Status.running
_SUCCEEDED = Outcome.SUCCEEDED
_TAKES_TASKS = Availability.RUNNING

#: States of a task whose thread is at work.
_WORKING = frozenset({"executing", "cancelled", "resumed", "long-running"})

#: Without a hook for this long, the log of stimuli is searched for pauses that came and went.
_LOOK_BACK_NS = 50_000_000

_METERS: WeakKeyDictionary[Worker, WorkerMeter] = WeakKeyDictionary()


class WorkerHalf(Protocol):
    """What a meter reads of the plugin that the scheduler sent to its worker, and the hook that it puts there."""

    session: str
    max_prefixes: int
    windows: list[str]
    recording: str | None
    gpu: str

    def transition(self, key: Any, start: Any, finish: Any, **kwargs: Any) -> None:
        """Dask's hook."""


class _Seceded:
    """A task that left its slot: what it held, (CPU, wall) that it used until then, and since when."""

    __slots__ = ("at", "hold", "used")

    def __init__(self, hold: Hold | None, used: tuple[int, int] | None, at: int) -> None:
        self.hold = hold
        self.used = used
        self.at = at


def attach(worker: Worker, plugin: WorkerHalf) -> WorkerMeter:
    """Meter a worker; one that this session metered a moment ago goes on with the same accounts."""
    meter = _METERS.get(worker)
    if meter is None or meter.session != plugin.session or meter.off is not None:
        meter = WorkerMeter(worker, plugin)
        _METERS[worker] = meter
    meter.attach(plugin)
    return meter


class WorkerMeter:
    """One worker's meter: the hooks, the executors' measurements, and the answers to the scheduler."""

    def __init__(self, worker: Worker, plugin: WorkerHalf) -> None:
        self.worker = worker
        self.session = plugin.session
        #: Why it measures nothing any more; None while it works.
        self.off: str | None = None
        self._state = worker.state
        self._plugin = plugin
        self._incarnation = uuid.uuid4().hex
        self._seq = 0
        at = monotonic_ns()
        self._ledger = Ledger(worker.state.nthreads, at=at, max_prefixes=plugin.max_prefixes)
        self._digests = Digests(worker.digests_total)
        #: What its pace is compared by with that of other workers; None where reading it failed.
        self._vitals: Vitals | None = Vitals(worker)
        self._threads = TaskThreads(worker, self._failed_in_thread)
        #: What its process did beside the tasks; None where reading it failed.
        self._process: ProcessThreads | None = ProcessThreads(self._threads)
        self._gpu = WorkerGpu(worker, self._threads)
        self._spills = LoopSpills(worker, self._ledger, self._threads, self._look_back, self._fail)
        self._settling = Settling(self._ledger, self._digests, worker.state.stimulus_log, self._gpu.use)
        #: Tasks whose slots are free and whose digests have not arrived yet.
        self._ended = self._settling.ended
        self._seceded: dict[Any, _Seceded] = {}
        #: Tasks cancelled and wanted again while their thread was at work: the scheduler will not
        #: take the result of that run, and has the task run once more.
        self._discarded: set[Any] = set()
        self._seceded_ns = 0
        #: What Dask's hook is now, with a recorder or without.
        self._hook: Callable[..., None] = self.transition
        self._recorder: WorkerRecorder | None = None
        #: Its last words, once they are made.
        self._ended_with: dict[str, Any] | None = None
        #: Why the last recording ended early.
        self._recorder_off: str | None = None
        self._hooks = HookCost(lambda *args, **kwargs: self._hook(*args, **kwargs))
        self._hooks.next_interval(worker.state.transition_counter)
        #: CPU time of making heartbeats.
        self._heartbeats_ns = 0
        #: What the last heartbeat carried.
        self._last_heartbeat: dict[str, Any] | None = None
        self._looked_at = at
        #: (status, tasks waiting, tasks constrained) as the ledger knows them.
        self._observed: tuple[Status, int, int] | None = None
        for ts in worker.state.executing:
            self._hold(ts, at)
        for ts in worker.state.long_running:
            self._seceded[ts.key] = _Seceded(None, None, at)
        for window in plugin.windows:
            self._ledger.open_window(window, at=at)
        self._observe(at)

    # -- coming and going --------------------------------------------------------------------

    def attach(self, plugin: WorkerHalf) -> None:
        """Put the hooks in place."""
        self._plugin = plugin
        # Bound to the instance: upstream looks it up by name at each transition.
        plugin.transition = self._hook  # type: ignore[method-assign]
        self.worker.metrics[NAME] = self.heartbeat
        self.worker.handlers[NAME] = self.handle
        self._threads.attach()
        self._spills.start()
        self._gpu.start(plugin.gpu)
        self._record(plugin.recording)

    def detach(self) -> None:
        """Take the hooks away, and send the last words of a worker that closes."""
        try:
            if self.off is None and self._closes():
                self.worker.log_event(LAST_WORDS, self._last_words())
        except Exception as error:
            self._fail(error)
        self._remove()

    def _remove(self) -> None:
        worker = self.worker
        self._record(None)
        self._plugin.__dict__.pop("transition", None)
        if worker.metrics.get(NAME) == self.heartbeat:
            del worker.metrics[NAME]
        if worker.handlers.get(NAME) == self.handle:
            del worker.handlers[NAME]
        self._gpu.stop()
        self._spills.stop()
        self._threads.restore()

    def _closes(self) -> bool:
        return self.worker.status not in (Status.running, Status.paused, Status.closing_gracefully)

    def _last_words(self) -> dict[str, Any]:
        """The end of the accounts; the same again where they have ended already."""
        if self._ended_with is not None:
            return self._ended_with
        if self._recorder is not None:
            self._recorder.flush(closing=True)
        self._gpu.stop()
        at = monotonic_ns()
        self._catch_up(at)
        self._settling.rest(at=at)
        self._ledger.settle_all(Outcome.CANCELLED, at=at)
        windows = {}
        for window in self._ledger.windows:
            balance = self._ledger.close_window(window, at=at)
            if balance is not None:
                windows[window] = encode_window(balance)
        self._ended_with = {
            "worker": self.worker.address,
            "session": self.session,
            "snapshot": encode(self._snapshot(at, final=True)),
            "windows": windows,
            **self._processors(),
        }
        return self._ended_with

    def _fail(self, error: Exception) -> None:
        """Log once and measure nothing more; the worker goes on as if we were not there."""
        if self.off is not None:
            return
        self.off = f"the meter failed: {type(error).__name__}: {error}"[:500]
        logger.error("dask_efficiency switched its meter on %s off", self.worker.address, exc_info=error)
        self._record(None)
        self._plugin.__dict__.pop("transition", None)
        self._gpu.stop()
        self._spills.stop()
        self._threads.restore()

    def _vitals_failed(self, error: Exception) -> None:
        """Its pace is told no more, and the accounts go on."""
        self._vitals = None
        logger.error("dask_efficiency tells no more how fast %s is", self.worker.address, exc_info=error)

    def _failed_in_thread(self, error: Exception) -> None:
        self.worker.loop.add_callback(self._fail, error)

    # -- recording ---------------------------------------------------------------------------

    def _record(self, recording: str | None) -> None:
        """Begin a recording, or end the one that goes on."""
        former = self._recorder
        if (former.recording if former is not None else None) == recording:
            return
        self._recorder = None
        self._hook = self.transition
        if former is not None:
            former.stop()
        try:
            self._recorder_off = None
            if recording is not None:
                self._recorder = WorkerRecorder(self.worker, recording)
                self._hook = self._recorded_transition
        except Exception as error:
            self._recorder_failed(error)
        self._spills.watch.on_stretch = None if self._recorder is None else self._recorder.at_disk
        self._threads.record(self._recorder is not None)
        if "transition" in self._plugin.__dict__:
            self._plugin.transition = self._hook  # type: ignore[method-assign]

    def _recorder_failed(self, error: Exception) -> None:
        """Log once and record nothing more; metering goes on."""
        reason = f"the recorder failed: {type(error).__name__}: {error}"[:500]
        logger.error("dask_efficiency switched its recorder on %s off", self.worker.address, exc_info=error)
        self._record(None)
        self._recorder_off = reason

    def _recorded_transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:
        """Dask's hook while a recording goes on."""
        if self._recorder is not None:
            try:
                self._recorder.transition(key, start, finish)
            except Exception as error:
                self._recorder_failed(error)
        self.transition(key, start, finish)

    def _flush(self) -> dict[str, Any]:
        """Send what is recorded; gives the number of the last batch, or why there is none."""
        if self._recorder is not None:
            try:
                return {"seq": self._recorder.flush(running=True)}
            except Exception as error:
                self._recorder_failed(error)
        return {"recorder_off": self._recorder_off or "it does not record"}

    # -- hooks -------------------------------------------------------------------------------

    def transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:
        """Dask's hook: a task changed state. Called in the middle of a stimulus."""
        try:
            state = self._state
            if start in _QUIET:
                if finish in _QUIET:
                    return
                if finish == "waiting" and not state.tasks[key].waiting_for_data:
                    return  # will be ready in this very stimulus
            elif finish == "ready":
                return  # runs in this very stimulus, or no slot is free
            at = monotonic_ns()
            ledger = self._ledger
            if self._ended and self._ended[0][-1] is not state.stimulus_log[-1]:
                self._settling.former()
            if at - self._looked_at > _LOOK_BACK_NS and ledger.slots_free:
                self._look_back(at)
            if finish == "executing":
                if ledger.undecided:
                    self._spills.delayed(at)
                self._hold(state.tasks[key], at)
            elif start in _WORKING:
                if start == "executing" and finish == "memory":  # nearly all of them: no questions
                    hold = ledger.release(key, at=at)
                    if hold is not None:
                        self._end(key, hold, self._outcome_of_discarded(key) if self._discarded else _SUCCEEDED)
                else:
                    self._maybe_ended(key, start, finish, at)
            if ledger.slots_free:
                self._observe(at)
        except Exception as error:
            self._fail(error)

    def _sample_hooks(self) -> None:
        """Time the hooks that come next; called at each heartbeat."""
        self._hooks.next_interval(self._state.transition_counter)
        if "transition" in self._plugin.__dict__:
            self._plugin.transition = self._timed_transition  # type: ignore[method-assign]

    def _timed_transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:
        self._hooks.timed(key, start, finish, **kwargs)
        if self._hooks.enough and "transition" in self._plugin.__dict__:
            self._plugin.transition = self._hook  # type: ignore[method-assign]

    def _hold(self, ts: TaskState, at: int) -> None:
        annotations = ts.annotations
        prefix = ts.prefix
        self._ledger.hold(
            ts.key,
            prefix if len(prefix) <= MAX_PREFIX_LENGTH else prefix[:MAX_PREFIX_LENGTH],
            ts.span_id or "",
            recomputed=RECOMPUTED in annotations if annotations else False,
            at=at,
        )

    def _maybe_ended(self, key: Any, start: str, finish: str, at: int) -> None:
        """A working task moved; its slot is free if its thread is done or it seceded."""
        state = self._state
        ts = state.tasks.get(key)
        if key in self._seceded:
            if ts is None or ts not in state.long_running:
                self._seceded_ended(key, start, finish, at)
            return
        if ts is not None and ts in state.executing:
            if start == "cancelled":
                self._discarded.add(key)
            return
        self._discarded.discard(key)
        hold = self._ledger.release(key, at=at)
        if hold is None:
            # The same stimulus again: a result that could not be stored becomes an error.
            if finish == "error" and self._ended and self._ended[-1][0] == key:
                self._ended[-1] = (*self._ended[-1][:2], Outcome.FAILED, *self._ended[-1][3:])
            return
        if ts is not None and ts in state.long_running:
            self._seceded[key] = _Seceded(hold, self._threads.live().get(key), at)
            return
        self._end(key, hold, _outcome(start, finish))

    def _outcome_of_discarded(self, key: Any) -> Outcome:
        if key not in self._discarded:
            return _SUCCEEDED
        self._discarded.remove(key)
        return Outcome.CANCELLED

    def _seceded_ended(self, key: Any, start: str, finish: str, at: int) -> None:
        seceded = self._seceded.pop(key)
        self._seceded_ns += at - seceded.at
        if seceded.hold is not None:
            self._end(key, seceded.hold, _outcome(start, finish), seceded.used)

    def _end(self, key: Any, hold: Hold, outcome: Outcome, used: tuple[int, int] | None = None) -> None:
        """A task's thread is done: settle it when its digests have arrived."""
        spill = self._spills.beside(key, hold)
        cpu, wall, task = self._threads.used(key, hold)
        if used is not None:  # it seceded: measured up to then, on the GPU not at all
            cpu, wall = used
        if task is not None:
            self._gpu.ended(task, hold.prefix)
            task = None if used is not None else task
        self._ended.append((key, hold, outcome, cpu, wall, spill, task, self._state.stimulus_log[-1]))
        if outcome is _SUCCEEDED:
            ts = self._state.tasks.get(key)
            if ts is not None and self._vitals is not None:
                try:
                    self._vitals.counter.task(hold.prefix, wall=wall, cpu=cpu, nbytes=input_bytes(ts) or ts.nbytes or 0)
                except Exception as error:
                    self._vitals_failed(error)

    def _observe(self, at: int) -> None:
        """Tell the ledger why its free slots are free."""
        state = self._state
        waiting, constrained = len(state.waiting), len(state.constrained)
        status = self.worker.status
        self._looked_at = at
        observed = status, waiting, constrained
        if observed == self._observed:
            return
        self._observed = observed
        if status is _RUNNING:
            availability = _TAKES_TASKS
        elif status is Status.paused:
            availability = Availability.PAUSED
        else:
            availability = Availability.RETIRING
        self._ledger.observe(availability, waiting, constrained, at=at)

    def _look_back(self, at: int) -> None:
        """Pause and unpause fire no hook: book those since the last look at their exact time."""
        now_ns, wall = monotonic_ns(), time.time()
        changes: list[tuple[int, Availability]] = []
        stopped = Availability.PAUSED
        if self.worker.status not in (Status.running, Status.paused):
            stopped = Availability.RETIRING
        for event in reversed(self._state.stimulus_log):
            if event.handled is None:
                continue
            handled = now_ns - round((wall - event.handled) * 1e9)
            if handled <= self._looked_at:
                break
            if isinstance(event, PauseEvent):
                changes.append((handled, stopped))
            elif isinstance(event, UnpauseEvent):
                changes.append((handled, Availability.RUNNING))
                stopped = Availability.PAUSED  # going back in time: whatever ended in this was a pause
        if changes:
            self._observed = None
        for handled, availability in reversed(changes):
            self._ledger.turn(availability, at=min(handled, at))
        self._looked_at = at

    # -- answers -----------------------------------------------------------------------------

    def heartbeat(self, worker: Worker) -> dict[str, Any]:
        """What travels with a heartbeat: totals, so that a lost one costs nothing.

        Not a coroutine, though upstream would await it: two heartbeats at once would then mix up its
        own digests, and that closes the worker.
        """
        if self.off is None:
            try:
                if self._last_heartbeat is not None and self._spills.keep_back():
                    return dict(self._last_heartbeat)
                began = thread_time_ns()
                at = monotonic_ns()
                self._gpu.name_running()
                self._catch_up(at)
                payload = encode(self._snapshot(at))
                if self._vitals is not None:
                    try:
                        core_wait = None if self._process is None else self._process.core_wait.all
                        payload["pace"] = self._vitals.encode(self._threads.live(), core_wait)
                    except Exception as error:
                        self._vitals_failed(error)
                self._sample_hooks()
                if self._recorder is not None:
                    try:
                        self._recorder.flush()
                    except Exception as error:
                        self._recorder_failed(error)
                self._heartbeats_ns += thread_time_ns() - began
                self._last_heartbeat = payload
                return dict(payload)
            except Exception as error:
                self._fail(error)
        return encode_not_measured(str(self.off))

    async def handle(self, action: str, window: str = "") -> dict[str, Any]:
        """Answer the scheduler.

        ``snapshot``, or ``open`` or ``close`` a window at this instant; ``clock``; ``record``, where the
        window is the recording or nothing, and ``flush`` what was recorded; ``last-words`` of a worker that closes.
        """
        if action == "clock":
            return {"at": monotonic_ns(), "wall": time.time_ns() - monotonic_ns()}
        if action == "record":
            if self.off is None:
                self._record(window or None)
            return {}
        if action == "flush":
            return self._flush()
        if self.off is None:
            try:
                if action == "last-words":
                    return self._last_words() if self._closes() else {}
                await self._gpu.catch_up()
                at = monotonic_ns()
                self._catch_up(at)
                answer: dict[str, Any] = {"snapshot": encode(self._snapshot(at)), **self._processors()}
                if action == "open":
                    self._ledger.open_window(window, at=at)
                elif action == "close":
                    balance = self._ledger.close_window(window, at=at)
                    if balance is not None:
                        answer["window"] = encode_window(balance)
                return answer
            except Exception as error:
                self._fail(error)
        return {"snapshot": encode_not_measured(str(self.off))}

    def _processors(self) -> dict[str, Any]:
        """What this worker may use of its host, under its name in an answer; nothing where it cannot be told."""
        try:
            return {"processors": encode_processors(own_processors())}
        except Exception:  # a bound of the ideal runtime is missing then, and no figure is wrong
            logger.exception("dask_efficiency cannot tell which processors %s may use", self.worker.address)
            return {}

    def _catch_up(self, at: int) -> None:
        """Bring the ledger up to now; called between stimuli, so that all digests have arrived."""
        self._settling.all(at=at)
        self._look_back(at)
        self._observe(at)

    def _snapshot(self, at: int, *, final: bool = False) -> Snapshot:
        self._seq += 1
        outside = self._digests.outside()
        seceded = self._seceded_ns + sum(at - task.at for task in self._seceded.values())
        if self._spills.unnoticed is not None:
            outside[BY_MEMORY_MANAGER] = self._spills.unnoticed
        if seceded:
            outside["seceded tasks"] = seceded
        if self._threads.actors:
            outside["actor methods"] = self._threads.actors
        if self._heartbeats_ns:
            outside[OWN_WORK] = self._heartbeats_ns + self._hooks.spent
        details = self._digests.details() | self._settling.details
        if self._process is not None:
            try:
                self._process.read()
                details.update(self._process.details)
                outside.update(self._process.outside)
            except Exception as error:
                self._process = None
                logger.error("dask_efficiency tells no more what %s waits for", self.worker.address, exc_info=error)
        if self._threads.not_measured:
            details["thread-noncpu: CPU not measured"] = self._threads.not_measured
        used = self._threads.so_far(self._ledger.held, self._spills.watch.between) | self._settling.so_far()
        used.update((task.hold, Used(*task.used)) for task in self._seceded.values() if task.hold and task.used)
        balance = self._ledger.balance(at=at, used=used)
        gpu = self._gpu.totals(unknown_tasks=self._settling.unknown)
        return Snapshot(self._incarnation, self._seq, balance, outside, details, final, gpu)


def _outcome(start: str, finish: str) -> Outcome:
    """What became of a task, from the hook that shows the end of its thread's work."""
    if finish == "memory" and start != "cancelled":
        return _SUCCEEDED
    return Outcome.FAILED if finish == "error" and start != "cancelled" else Outcome.CANCELLED
