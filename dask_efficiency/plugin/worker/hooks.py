"""WorkerHooks: writes the log of a worker's slots from Dask's hooks, and has it read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import cache
from itertools import islice, product
from time import monotonic_ns, thread_time_ns
from typing import TYPE_CHECKING, Any, Protocol
from weakref import ReferenceType, ref

from distributed.core import Status
from distributed.worker_state_machine import ComputeTaskEvent, PauseEvent, UnpauseEvent

from dask_efficiency.accounts.worker.balance import Availability
from dask_efficiency.accounts.worker.log import (
    BY_SHUFFLE,
    MAX_PREFIX_LENGTH,
    Done,
    Entry,
    Moved,
    Noted,
    Observed,
    Place,
    Taken,
    Turned,
    in_order,
)
from dask_efficiency.accounts.worker.slots import AT_WORK, Slots
from dask_efficiency.plugin.names import RECOMPUTED
from dask_efficiency.plugin.worker.pending import MIN_RATED_NS, PendingTasks
from dask_efficiency.plugin.worker.process_metrics import input_bytes

if TYPE_CHECKING:
    from distributed import Worker

    from dask_efficiency.plugin.worker.spill_watch import SpillWatch
    from dask_efficiency.plugin.worker.threads import TaskThreads


#: Tasks whose hooks are timed after each heartbeat. Timing one takes as long as the hook itself does, so all of them
#: are not.
SAMPLE = 4


class HookCost:
    """Times the hooks of the first few tasks of each interval; of how many tasks there were, upstream keeps count."""

    def __init__(self) -> None:
        self._tasks = 0
        self._timed = 0
        self._timed_ns = 0
        self._mean_ns = 0.0
        #: Nanoseconds of all calls so far, an estimate that only grows.
        self.spent = 0

    @property
    def enough(self) -> bool:
        """Whether this interval's sample is complete."""
        return self._timed >= SAMPLE

    def timed(self, hook: Callable[..., object], *args: Any, ends: bool) -> None:
        """Call a hook and time it, less what reading the clock takes; ``ends`` where it is the last of a task."""
        before = thread_time_ns()
        began = thread_time_ns()
        hook(*args)
        self._timed_ns += thread_time_ns() - began - (began - before)
        self._timed += ends

    def next_interval(self, tasks: int) -> None:
        """Add the interval that ends; ``tasks`` is how many the worker has executed since it began."""
        if self._timed:
            self._mean_ns = max(0.0, self._timed_ns / self._timed)
        self.spent += round((tasks - self._tasks) * self._mean_ns)
        self._tasks = tasks
        self._timed = self._timed_ns = 0


class TimedHook:
    """Stands in for a plugin's hook and times it, until there are enough.

    Parameters
    ----------
    hook
        What is timed.
    cost
        Where that is counted.
    plugin
        Whose hook it is, and who has this.
    """

    def __init__(self, hook: Callable[..., object], cost: HookCost, plugin: ReferenceType[Any]) -> None:
        self._hook = hook
        self._cost = cost
        self._plugin = plugin

    def __call__(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:
        """As of the hook."""
        self._cost.timed(self._hook, key, start, finish, ends=start == "executing")
        plugin = self._plugin()
        if self._cost.enough and plugin is not None and plugin.transition is self:
            plugin.transition = self._hook


#: Between two of these states nothing moves that matters to slots.
_QUIET = frozenset({"memory", "released", "forgotten", "fetch", "flight", "missing", "error"})

#: States of a task that was received and has no slot.
WITHOUT_SLOT = frozenset({"waiting", "ready", "constrained"})

#: States in which a task may be in flight, beside ``flight`` itself.
MAYBE_IN_FLIGHT = frozenset({"cancelled", "resumed"})


def matters(start: str, finish: str) -> bool:
    """Whether a transition may change who holds a slot, or why a slot is free.

    A task that becomes ready does not, unless the worker is paused: it runs in this very stimulus, or no slot is free.
    """
    return finish != "ready" and (finish == "waiting" or start not in _QUIET or finish not in _QUIET)


#: Of all that upstream may do, what does not.
QUIET = frozenset(
    (start, finish)
    for start, finish in product(_QUIET | WITHOUT_SLOT | MAYBE_IN_FLIGHT | AT_WORK, repeat=2)
    if not matters(start, finish)
)


@cache
def noted(start: str, finish: str) -> bool:
    """Whether a transition may mean something for a trace, beside what it does to slots."""
    return (
        finish in ("ready", "waiting", "fetch", "flight")
        or start == "flight"
        or start in MAYBE_IN_FLIGHT
        or (start in WITHOUT_SLOT and finish not in ("executing", "constrained"))
        or (start in ("fetch", "missing") and finish == "released")
    )


#: Events of upstream's that the log is told of without a hook.
_PAUSES = frozenset({PauseEvent, UnpauseEvent})

#: Looked up for every task: the attributes of an enum's class are slow.
_RUNNING = Status.running
_EXECUTING, _LONG_RUNNING, _NEITHER = Place.EXECUTING, Place.LONG_RUNNING, Place.NEITHER

#: Without a hook for this long, the log of stimuli is searched for pauses that came and went.
_LOOK_BACK_NS = 50_000_000

#: The log is read once it has so many entries, and before each report of the accounts.
MAX_ENTRIES = 200


class LogReader(Protocol):
    """Who records a worker's tasks for a trace: reads the log as the slots do, while it records. Never raises."""

    @property
    def spills(self) -> bool:
        """Whether only what upstream says between two stimuli tells which task spilled."""

    def read(self, entries: Iterable[Entry], *, whole: bool) -> None:
        """Follow what happened, in order; ``whole`` where the last stimulus of it is over."""


#: Makes an entry of what every task has; to call its class takes one more call of a Python function.
_new = tuple.__new__


class WorkerHooks:
    """Follows one worker's tasks; all its methods are called on the event loop.

    Parameters
    ----------
    worker
        The worker.
    slots
        Who reads the log.
    pending
        Who finalizes the tasks that ended.
    spills
        In which times the event loop spilled; writes to the log.
    threads
        What tasks used in their threads.
    log
        The log.
    failed
        Called where something of this fails.
    at
        Now, in monotonic nanoseconds.
    """

    def __init__(
        self,
        worker: Worker,
        slots: Slots,
        pending: PendingTasks,
        spills: SpillWatch,
        threads: TaskThreads,
        log: list[Entry],
        *,
        failed: Callable[[Exception], object],
        at: int,
    ) -> None:
        self.cost = HookCost()
        self.slots = slots
        self._worker = worker
        self._state = worker.state
        self._tasks = worker.state.tasks
        self._executing = worker.state.executing
        self._pending = pending
        self._spills = spills
        self._threads = threads
        self._meter = threads.meter
        self._done = threads.meter.done
        self._log = log
        #: So many entries it may have before it is looked at whether to read it.
        self._room = 0
        self._failed = failed
        self._recorder: LogReader | None = None
        #: The worker's half, which has this hook.
        self._plugin: ReferenceType[Any] | None = None
        #: Tasks that left their slots and are in their threads.
        self._left = {ts.key for ts in worker.state.long_running}
        #: The stimulus of the last entry, where that tells which task spilled; and for a recorder, with its number.
        self._stimulus: Any = None
        self._numbered: Any = None
        self._stimuli = 0
        #: The accounts were read last at this instant: what was free until then stays what it was.
        self._read_at = self._looked_at = at
        #: What was noted last of why slots are free, and whether that is anything but that nothing is to be done.
        self._observed: Observed | None = None
        self._waits = True
        self.cost.next_interval(worker.state.executed_count)
        for ts in worker.state.executing:
            self._take(ts, at)
        self.observe(at)

    # -- coming and going --------------------------------------------------------------------

    def attach(self, plugin: Any) -> None:
        """Have upstream call the hook; the worker's data is watched by now."""
        self._plugin = ref(plugin)
        plugin.transition = self.transition

    def detach(self) -> None:
        """Have it call it no more."""
        try:
            self.catch_up()
        except Exception as error:
            self._failed(error)
        plugin = None if self._plugin is None else self._plugin()
        if plugin is not None:
            vars(plugin).pop("transition", None)
        self._plugin = None

    def record(self, recorder: LogReader | None) -> None:
        """Write down what a trace wants to know, and have a recorder read the log from here on; or nobody."""
        self.catch_up()
        self._recorder = recorder

    def sample(self) -> None:
        """Time the hooks of the tasks that come next; called at each heartbeat."""
        self.cost.next_interval(self._state.executed_count)
        plugin = None if self._plugin is None else self._plugin()
        if plugin is not None:
            plugin.transition = TimedHook(self.transition, self.cost, ref(plugin))

    # -- the hook ----------------------------------------------------------------------------

    def transition(self, key: Any, start: str, finish: str, **_: Any) -> None:
        """A task changed its state: as Dask calls a plugin's hook, in the middle of a stimulus."""
        try:
            if self._recorder is not None and noted(start, finish):
                self._note(key, start, finish)
            if (start, finish) in QUIET and (finish != "ready" or self._state.running):
                return
            ts = self._tasks.get(key)
            if start == "released" and ts is not None and not ts.waiting_for_data:
                return  # it will be ready in this very stimulus
            at = monotonic_ns()
            if at - self._looked_at > _LOOK_BACK_NS:
                self.look_back(at)
            self._looked_at = at
            if len(self._log) >= self._room:
                self._make_room()
            if finish == "executing":
                self._take(ts, at)
            elif start in AT_WORK:
                self._move(key, ts, start, finish, at)
            state = self._state
            if self._waits or state.waiting or state.constrained or not state.running:
                self._look(at)
        except Exception as error:
            self._failed(error)

    def _make_room(self) -> None:
        """Have the log read: it is long, or a new stimulus begins where only digests tell which task spilled."""
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
        """Write down what only a trace wants to know."""
        self._number()
        at, ts = monotonic_ns(), self._tasks.get(key)
        if ts is None:
            self._log.append(Noted(at, key, start, finish, ""))
            return
        sender, in_flight, nbytes = "", False, 0
        if start not in WITHOUT_SLOT:
            sender, in_flight, nbytes = ts.coming_from or "", ts in self._state.in_flight_tasks, ts.nbytes or 0
        self._log.append(_new(Noted, (at, key, start, finish, ts.state, ts.run_id, sender, in_flight, nbytes)))

    def _number(self) -> int:
        """The number of the stimulus, for a recorder; it has read what was before, if only that tells who spilled."""
        stimuli = self._state.stimulus_log
        event = stimuli[-1] if stimuli else None
        if event is None or event is not self._numbered:
            self._numbered = event
            self._stimuli += 1
            if self._recorder is not None and self._recorder.spills:
                self._read(all_of_them=event is not None, whole=True)
        return self._stimuli

    def _done_by(self, key: Any, ts: Any) -> Done:
        """What a trace wants to know of a task that moved."""
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
        recomputed = str(annotations.get(RECOMPUTED, ""))[:MAX_PREFIX_LENGTH] if annotations else ""
        since = self._sent(at) if self._spills.last > self._read_at else None
        prefix = ts.prefix
        if len(prefix) > MAX_PREFIX_LENGTH:
            prefix = prefix[:MAX_PREFIX_LENGTH]
        begun = None if self._recorder is None else (self._number(), ts.run_id)
        self._log.append(_new(Taken, (at, ts.key, prefix, ts.span_id or "", recomputed, since, begun)))

    def _sent(self, at: int) -> int | None:
        """When the message that this stimulus is was sent: it may have lain there while the event loop spilled."""
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
                used = self._threads.live().get(key)
        elif place is _NEITHER or key in left:
            run = self._done.pop(key, None)
            left.discard(key)
            if run is None:
                elsewhere = self._threads.told_elsewhere(key)
            watched = self._meter.windows is not None
            if finish == "memory" and ts is not None:
                if (elsewhere if run is None else run[1] - run[0]) >= MIN_RATED_NS:
                    nbytes = size_of(ts)
                if ts.nbytes is not None:
                    made = ts.nbytes
            elif finish == "rescheduled" and key in self._meter.stopped_by_shuffle:
                self._meter.stopped_by_shuffle.remove(key)
                finish = BY_SHUFFLE
        entry = at, key, start, finish, place, run, elsewhere, used, nbytes, made, watched, done
        self._log.append(_new(Moved, entry))

    def _place(self, ts: Any) -> Place:
        if ts is None:
            return _NEITHER
        if ts in self._executing:
            return _EXECUTING
        return _LONG_RUNNING if ts in self._state.long_running else _NEITHER

    # -- reading -----------------------------------------------------------------------------

    def catch_up(self, *, report: bool = False) -> None:
        """Have the log read, and all tasks finalized that have ended; called between stimuli.

        ``report`` says that what free slots were free for is told now, and stays.
        """
        self._read(all_of_them=True, whole=True)
        if report:
            self._read_at = monotonic_ns()

    def _read(self, *, all_of_them: bool, whole: bool) -> None:
        entries = in_order(self._log)
        self._log.clear()
        self.slots.read(entries)
        if self._recorder is not None:
            self._recorder.read(entries, whole=whole)
        self._pending.finalize(self.slots.take(all_of_them=all_of_them), at=monotonic_ns())

    # -- why slots are free --------------------------------------------------------------------

    def _look(self, at: int) -> None:
        """Note if free slots are free for another reason than before."""
        state, known = self._state, self._observed
        if (
            known is None
            or len(state.waiting) != known.waiting
            or len(state.constrained) != known.constrained
            or not (state.running and known.availability is Availability.RUNNING)
        ):
            self.observe(at)

    def observe(self, at: int) -> None:
        """Note why free slots are free."""
        state, status = self._state, self._worker.status
        self._looked_at = at
        if status is _RUNNING:
            availability = Availability.RUNNING
        elif status is Status.paused:
            availability = Availability.PAUSED
        else:
            availability = Availability.RETIRING
        waiting, constrained = len(state.waiting), len(state.constrained)
        self._observed = Observed(at, availability, waiting, constrained, len(state.ready))
        self._waits = waiting > 0 or constrained > 0 or availability is not Availability.RUNNING
        self._log.append(self._observed)

    def look_back(self, at: int) -> None:
        """Pause and unpause fire no hook: note those since the last look at their exact time."""
        now_ns, wall = monotonic_ns(), time.time()
        looked_at, self._looked_at = self._looked_at, at
        log = self._state.stimulus_log
        # How many events may be new, and whether any of them is looked for: there may be many since the last look.
        new = 1
        while new < len(log) and (log[-new].handled or wall) > wall - (now_ns - looked_at) / 1e9:
            new *= 2
        if _PAUSES.isdisjoint(map(type, islice(reversed(log), new))):
            return
        changes: list[Turned] = []
        stopped = Availability.PAUSED
        if self._worker.status not in (Status.running, Status.paused):
            stopped = Availability.RETIRING
        for event in islice(reversed(log), new):
            if event.handled is None:
                continue
            handled = now_ns - round((wall - event.handled) * 1e9)
            if handled <= looked_at:
                break
            if isinstance(event, PauseEvent):
                changes.append(Turned(min(handled, at), stopped, len(self._state.ready)))
            elif isinstance(event, UnpauseEvent):
                changes.append(Turned(min(handled, at), Availability.RUNNING))
                stopped = Availability.PAUSED  # going back in time: whatever ended in this was a pause
        if changes:
            self._log += reversed(changes)
            self._observed, self._waits = None, True


def size_of(ts: Any) -> float:
    """Bytes of a task's input or, where it has none, of its output."""
    return (input_bytes(ts) if ts.dependencies else 0.0) or ts.nbytes or 0.0


def stored_ns(ts: Any) -> int:
    """Nanoseconds that storing a task's result took, as upstream notes it above 5 ms."""
    last = ts.startstops[-1] if ts.startstops else None
    return round((last["stop"] - last["start"]) * 1e9) if last is not None and last["action"] == "disk-write" else 0


def sent_at(event: ComputeTaskEvent) -> float | None:
    """When the scheduler sent a task, by its clock of the day; upstream's private matter, in the stimulus's name."""
    try:
        return float(event.stimulus_id.rpartition("-")[2])
    except ValueError:
        return None
