"""WorkerHooks: writes the log of a worker's slots from Dask's hooks, and has it read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import cache
from itertools import islice, product
from time import monotonic_ns, thread_time_ns
from typing import Any, Protocol
from weakref import ref

from distributed import Worker
from distributed.core import Status
from distributed.worker_state_machine import ComputeTaskEvent, PauseEvent, UnpauseEvent

from dask_efficiency.accounts.checks import MAX_NANOSECONDS
from dask_efficiency.accounts.intake import fitting, whole_number
from dask_efficiency.accounts.worker.balance import Availability
from dask_efficiency.accounts.worker.log import (
    BY_SHUFFLE,
    MAX_PREFIX_LENGTH,
    Done,
    Entry,
    Moved,
    Noted,
    Observed,
    Taken,
    TaskSet,
    Turned,
    in_order,
    prefix_of,
    span_of,
)
from dask_efficiency.accounts.worker.results import WorkerResults
from dask_efficiency.accounts.worker.slots import AT_WORK, Slots
from dask_efficiency.plugin.names import RECOMPUTED
from dask_efficiency.plugin.worker.pending import MIN_RATED_NS, PendingTasks
from dask_efficiency.plugin.worker.process_metrics import input_bytes
from dask_efficiency.plugin.worker.spill_watch import SpillWatch
from dask_efficiency.plugin.worker.threads import TaskThreads

#: Tasks whose hooks are timed after each heartbeat; timing takes as long as the hook itself, so only some are.
SAMPLE = 4


class HookCost:
    """CPU time of hooks, from those of the first few tasks of each interval; upstream counts the tasks."""

    def __init__(self) -> None:
        self._tasks = 0
        self._timed = self._timed_ns = 0
        self._mean_ns = 0.0
        #: Estimated nanoseconds of all calls so far; only grows.
        self.spent = 0

    def time(self, plugin: Any, hook: Callable[..., object]) -> None:
        """Have a plugin's hook timed, less reading the clock, until the sample of this interval is complete."""
        reference = ref(plugin)

        def timed(key: Any, start: str, finish: str, **_: Any) -> None:
            before = thread_time_ns()
            began = thread_time_ns()
            hook(key, start, finish)
            self._timed_ns += thread_time_ns() - began - (began - before)
            self._timed += start == "executing"
            plugin = reference()
            if self._timed >= SAMPLE and plugin is not None and "transition" in vars(plugin):
                plugin.transition = hook

        plugin.transition = timed

    def next_interval(self, tasks: int) -> None:
        """Add the interval that ends; ``tasks`` is the number that the worker has executed since its start."""
        if self._timed:
            self._mean_ns = max(0.0, self._timed_ns / self._timed)
        self.spent += round((tasks - self._tasks) * self._mean_ns)
        self._tasks = tasks
        self._timed = self._timed_ns = 0


#: States between which a transition does not matter to slots.
_QUIET = frozenset({"memory", "released", "forgotten", "fetch", "flight", "missing", "error"})
#: States of a task that was received and has no slot.
WITHOUT_SLOT = frozenset({"waiting", "ready", "constrained"})
#: States besides ``flight`` in which a task may be in flight.
MAYBE_IN_FLIGHT = frozenset({"cancelled", "resumed"})


def matters(start: str, finish: str) -> bool:
    """True if a transition may change who holds a slot, or why a slot is free.

    A task that becomes ready does not, unless the worker is paused: it runs in the same stimulus, or no slot is free.
    """
    return finish != "ready" and (finish == "waiting" or start not in _QUIET or finish not in _QUIET)


#: Transitions of upstream that do not matter.
QUIET = frozenset(
    (start, finish)
    for start, finish in product(_QUIET | WITHOUT_SLOT | MAYBE_IN_FLIGHT | AT_WORK, repeat=2)
    if not matters(start, finish)
)


@cache
def noted(start: str, finish: str) -> bool:
    """True if a transition may matter to a trace, besides its effect on slots."""
    return (
        finish in ("ready", "waiting", "fetch", "flight")
        or start == "flight"
        or start in MAYBE_IN_FLIGHT
        or (start in WITHOUT_SLOT and finish not in ("executing", "constrained"))
        or (start in ("fetch", "missing") and finish == "released")
    )


#: Events of upstream without a hook.
_PAUSES = frozenset({PauseEvent, UnpauseEvent})
#: Used for every task: attributes of an enum's class are slow.
_RUNNING = Status.running
#: Availability while a worker of this status takes no tasks; with any other it retires.
_STOPPED = {Status.running: Availability.PAUSED, Status.paused: Availability.PAUSED}
_EXECUTING, _LONG_RUNNING, _NEITHER = TaskSet.EXECUTING, TaskSet.LONG_RUNNING, TaskSet.NEITHER
#: Nanoseconds without a hook, after which the log of stimuli is searched for pauses.
_LOOK_BACK_NS = 50_000_000
#: Entries at which the log is read; it is also read before each report of the accounts.
MAX_ENTRIES = 200


class LogReader(Protocol):
    """Reader of the log that records a worker's tasks for a trace. Never raises."""

    @property
    def spills(self) -> bool:
        """True if only upstream's digests between two stimuli tell which task spilled."""

    def read(self, entries: Iterable[Entry], *, whole: bool) -> None:
        """Read entries in order; ``whole`` if the last stimulus in them is over."""


#: Makes an entry without the Python call of its class.
_new = tuple.__new__


class WorkerHooks:
    """Follows one worker's tasks and writes the log; all its methods are called on the event loop."""

    def __init__(
        self,
        worker: Worker,
        slots: Slots,
        pending: PendingTasks,
        spills: SpillWatch,
        threads: TaskThreads,
        log: list[Entry],
        results: WorkerResults,
        *,
        results_failed: Callable[[Exception], object],
        failed: Callable[[Exception], object],
        at: int,
    ) -> None:
        self.cost = HookCost()
        #: None after a failure.
        self._results: WorkerResults | None = results
        self._results_failed = results_failed
        self.slots, self._worker = slots, worker
        self._state, self._tasks, self._executing = worker.state, worker.state.tasks, worker.state.executing
        self._pending, self._spills, self._threads = pending, spills, threads
        self._done, self._log = threads.done, log
        #: Entries up to which nothing checks whether to read the log.
        self._room = 0
        self._failed = failed
        self._recorder: LogReader | None = None
        self._plugin: Callable[[], Any] = lambda: None
        #: Tasks that left their slots and are in their threads.
        self._left = {ts.key for ts in worker.state.long_running}
        #: Stimulus of the last entry, if that tells which task spilled; and, for a recorder, with its number.
        self._stimulus: Any = None
        self._numbered: Any = None
        self._stimuli = 0
        #: Instant of the last report: causes of free slots until then are final.
        self._read_at = self._looked_at = at
        #: Last note on free slots, and True if their cause is anything but a lack of work.
        self._observed: Observed | None = None
        self._waits = True
        self.cost.next_interval(worker.state.executed_count)
        for ts in worker.state.executing:
            self._take(ts, at)
        self.observe(at)

    def attach(self, plugin: Any) -> None:
        """Have upstream call the hook, after the worker's data is watched."""
        self._plugin = ref(plugin)
        plugin.transition = self.transition

    def detach(self) -> None:
        """Have upstream call the hook no more."""
        try:
            self.catch_up()
        except Exception as error:
            self._failed(error)
        plugin, self._plugin = self._plugin(), lambda: None
        if plugin is not None:
            vars(plugin).pop("transition", None)

    def record(self, recorder: LogReader | None) -> None:
        """Log the details for a trace, and have a recorder read the log from here on; None ends that."""
        self.catch_up()
        self._recorder = recorder

    def sample(self) -> None:
        """Time the hooks of the next tasks; called at each heartbeat."""
        self.cost.next_interval(self._state.executed_count)
        plugin = self._plugin()
        if plugin is not None:
            self.cost.time(plugin, self.transition)

    def transition(self, key: Any, start: str, finish: str, **_: Any) -> None:
        """Log a transition; Dask calls this hook in the middle of a stimulus."""
        try:
            if self._recorder is not None and noted(start, finish):
                self._note(key, start, finish)
            state = self._state
            if (start, finish) in QUIET and (finish != "ready" or state.running):
                if start == "memory" or finish == "memory":
                    self._hold(key, finish)
                return
            ts = self._tasks.get(key)
            if start == "released" and ts is not None and not ts.waiting_for_data:
                return  # it will be ready in the same stimulus
            at = monotonic_ns()
            if at - self._looked_at > _LOOK_BACK_NS:
                # One that a resource holds back is said to become ready too.
                self.look_back(at, became_ready=int(finish == "ready" == getattr(ts, "state", "")))
            self._looked_at = at
            if len(self._log) >= self._room:
                self._make_room()
            if finish == "executing":
                self._take(ts, at)
            elif start in AT_WORK:
                self._move(key, ts, start, finish, at)
            if self._waits or state.waiting or state.constrained or not state.running:
                self._look(at)
        except Exception as error:
            self._failed(error)

    def _hold(self, key: Any, finish: str) -> None:
        """Count a result of another worker or of a client that is there, or any that is there no more."""
        results = self._results
        if results is None:
            return
        try:
            if finish != "memory":
                results.release(monotonic_ns(), key)
            elif (ts := self._tasks.get(key)) is not None:
                results.store(monotonic_ns(), key, ts.prefix, ts.span_id, whole_number(ts.nbytes))
        except Exception as error:
            self._count_no_results(error)

    def _count_no_results(self, error: Exception) -> None:
        self._results = None
        self._results_failed(error)

    def _make_room(self) -> None:
        """Read the log if it is long, or at a new stimulus if only digests tell which task spilled."""
        if self._spills.watching:
            self._room = MAX_ENTRIES
            if len(self._log) >= self._room:
                self._read(all_of_them=False, whole=False)
            return
        self._room = 0
        stimuli = self._state.stimulus_log
        stimulus = stimuli[-1] if stimuli else None
        if stimulus is not self._stimulus:
            self._stimulus = stimulus
            self.catch_up()

    def _note(self, key: Any, start: str, finish: str) -> None:
        """Log details that only a trace needs."""
        self._number()
        at, ts = monotonic_ns(), self._tasks.get(key)
        if ts is None:
            self._log.append(Noted(at, key, start, finish, ""))
            return
        sender, in_flight, nbytes = "", False, 0
        if start not in WITHOUT_SLOT:
            sender, in_flight, nbytes = ts.coming_from or "", ts in self._state.in_flight_tasks, whole_number(ts.nbytes)
        self._log.append(_new(Noted, (at, key, start, finish, ts.state, ts.run_id, sender, in_flight, nbytes)))

    def _number(self) -> int:
        """Number of the stimulus, for a recorder; reads the log before it if only digests tell who spilled."""
        stimuli = self._state.stimulus_log
        event = stimuli[-1] if stimuli else None
        if event is None or event is not self._numbered:
            self._numbered = event
            self._stimuli += 1
            if self._recorder is not None and self._recorder.spills:
                self._read(all_of_them=event is not None, whole=True)
        return self._stimuli

    def _done_by(self, key: Any, ts: Any) -> Done:
        """Details for a trace of a task that moved."""
        number, event, outside = self._number(), self._numbered, None
        if ts is None:
            return Done(number)
        if key not in self._done and getattr(event, "key", None) == key:
            began, stopped = getattr(event, "start", None), getattr(event, "stop", None)
            if began is not None and stopped is not None:
                outside = began, stopped, self._worker.scheduler_delay
        done: Done = _new(Done, (number, ts.start_time or 0.0, outside, stored_ns(ts)))
        return done

    def _take(self, ts: Any, at: int) -> None:
        annotations = ts.annotations
        recomputed = fitting(annotations.get(RECOMPUTED, ""), MAX_PREFIX_LENGTH) if annotations else ""
        since = self._sent(at) if self._spills.last > self._read_at else None
        prefix, span = ts.prefix, ts.span_id
        # Without calls for most tasks.
        if type(span) is not str or len(both := prefix + span) > MAX_PREFIX_LENGTH or not both.isascii():
            prefix, span = prefix_of(prefix), span_of(span)
        begun = None if self._recorder is None else (self._number(), ts.run_id)
        self._log.append(_new(Taken, (at, ts.key, prefix, span, recomputed, since, begun)))

    def _sent(self, at: int) -> int | None:
        """Sending of the message of this stimulus: it may have waited while the event loop spilled."""
        log = self._state.stimulus_log
        event = log[-1] if log else None
        sent = sent_at(event) if isinstance(event, ComputeTaskEvent) else None
        return None if sent is None else at - round((time.time() - sent) * 1e9)

    def _move(self, key: Any, ts: Any, start: str, finish: str, at: int) -> None:
        place = _NEITHER if finish == "memory" else self._place(ts)
        run, used, elsewhere, nbytes, made, watched = None, None, 0, -1.0, -1, False
        done = None if self._recorder is None else self._done_by(key, ts)
        left = self._left
        if place is _LONG_RUNNING:
            if key not in left:
                left.add(key)
                used = self._threads.live_used().get(key)
        elif place is _NEITHER or key in left:
            run = self._done.pop(key, None)
            left.discard(key)
            if run is None:
                elsewhere = self._threads.measured_upstream(key)
            worked = self._threads.worked.pop(key, None) if self._threads.worked else None
            watched = self._threads.ended is not None
            if finish == "memory" and ts is not None:
                if (elsewhere if run is None else run[1] - run[0]) >= MIN_RATED_NS:
                    # Of its input or, if it has none, of its output.
                    nbytes = (input_bytes(ts) if ts.dependencies else 0.0) or float(whole_number(ts.nbytes))
                size = ts.nbytes
                if size is not None:
                    made = size if type(size) is int and 0 <= size < MAX_NANOSECONDS else whole_number(size)
                    if ts.state == "memory":  # else it was cancelled
                        if (results := self._results) is not None:
                            try:
                                results.store(at, key, ts.prefix, ts.span_id, made)
                            except Exception as error:
                                self._count_no_results(error)
                        if worked is not None:
                            self._pending.sizes.worked(prefix_of(ts.prefix), key, worked, made)
            elif finish == "rescheduled" and key in self._threads.stopped_by_shuffle:
                self._threads.stopped_by_shuffle.remove(key)
                finish = BY_SHUFFLE
        entry = at, key, start, finish, place, run, elsewhere, used, nbytes, made, watched, done
        self._log.append(_new(Moved, entry))

    def _place(self, ts: Any) -> TaskSet:
        if ts is None:
            return _NEITHER
        if ts in self._executing:
            return _EXECUTING
        return _LONG_RUNNING if ts in self._state.long_running else _NEITHER

    def catch_up(self, *, report: bool = False) -> None:
        """Finalize all ended tasks, between stimuli; in a ``report``, causes of free slots become final."""
        self._read(all_of_them=True, whole=True)
        if report:
            self._read_at = monotonic_ns()

    def _read(self, *, all_of_them: bool, whole: bool) -> None:
        entries = self._log.copy()
        self._log.clear()
        self.slots.read(entries)
        if self._recorder is not None:
            self._recorder.read(entries, whole=whole)
        self._pending.finalize(self.slots.take(all_of_them=all_of_them), at=monotonic_ns())

    def _look(self, at: int) -> None:
        """Note the cause of free slots if it has changed."""
        state, known = self._state, self._observed
        if (
            known is None
            or len(state.waiting) != known.waiting
            or len(state.constrained) != known.constrained
            or not (state.running and known.availability is Availability.RUNNING)
        ):
            self.observe(at)

    def observe(self, at: int) -> None:
        """Note the cause of free slots."""
        state, status = self._state, self._worker.status
        self._looked_at = at
        availability = Availability.RUNNING if status is _RUNNING else _STOPPED.get(status, Availability.RETIRING)
        waiting, constrained = len(state.waiting), len(state.constrained)
        self._observed = Observed(at, availability, waiting, constrained, len(state.ready))
        self._waits = waiting > 0 or constrained > 0 or availability is not Availability.RUNNING
        self._log.append(self._observed)

    def look_back(self, at: int, *, became_ready: int = 0) -> None:
        """Note pauses and their ends since the last look, which fire no hook, at their exact time.

        Of the tasks that are ready, those that became so just now were not when it paused.
        """
        now_ns, wall = monotonic_ns(), time.time()
        looked_at, self._looked_at = self._looked_at, at
        log = self._state.stimulus_log
        # Number of events that may be new, of which there may be many, before any of them is read.
        new = 1
        while new < len(log) and (log[-new].handled or wall) > wall - (now_ns - looked_at) / 1e9:
            new *= 2
        if _PAUSES.isdisjoint(map(type, islice(reversed(log), new))):
            return
        changes: list[Turned] = []
        stopped = _STOPPED.get(self._worker.status, Availability.RETIRING)
        for event in islice(reversed(log), new):
            if event.handled is None:
                continue
            handled = now_ns - round((wall - event.handled) * 1e9)
            if handled <= looked_at:
                break
            if isinstance(event, PauseEvent):
                changes.append(Turned(min(handled, at), stopped, len(self._state.ready) - became_ready))
            elif isinstance(event, UnpauseEvent):
                changes.append(Turned(min(handled, at), Availability.RUNNING))
                stopped = Availability.PAUSED  # going back in time: before an unpause comes its pause
        if changes:
            self._log[:] = in_order([*self._log, *reversed(changes)])
            self._observed, self._waits = None, True


def stored_ns(ts: Any) -> int:
    """Nanoseconds of storing a task's result; upstream notes them above 5 ms."""
    last = ts.startstops[-1] if ts.startstops else None
    return round((last["stop"] - last["start"]) * 1e9) if last is not None and last["action"] == "disk-write" else 0


def sent_at(event: ComputeTaskEvent) -> float | None:
    """Time at which the scheduler sent a task, by its wall clock; from the stimulus id, private to upstream."""
    try:
        return float(event.stimulus_id.rpartition("-")[2])
    except ValueError:
        return None
