"""WorkerHooks: tells a worker's ledger what Dask's transitions mean for its slots, and why free ones are free."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Protocol

from distributed.core import Status
from distributed.worker_state_machine import PauseEvent, UnpauseEvent

from dask_efficiency.accounts.worker.balance import Availability
from dask_efficiency.accounts.worker.ledger import Ledger
from dask_efficiency.accounts.worker.slots import RECOMPUTED, PlainTask, Run, SlotRecorder, SlotTracker
from dask_efficiency.plugin.worker.cost import HookCost, TimedHooks
from dask_efficiency.plugin.worker.loop_spills import LoopSpills
from dask_efficiency.plugin.worker.pending import BATCH, MIN_RATED_NS, PendingTasks, size_of
from dask_efficiency.plugin.worker.transitions import Transitions, matters

if TYPE_CHECKING:
    from distributed import Worker

    from dask_efficiency.plugin.worker.threads import TaskThreads

#: Events of upstream's that the ledger is told of without a hook.
_PAUSES = frozenset({PauseEvent, UnpauseEvent})

#: Looked up for every task: the attributes of an enum's class are slow.
_RUNNING = Status.running

#: Without a hook for this long, the log of stimuli is searched for pauses that came and went.
_LOOK_BACK_NS = 50_000_000

#: So many tasks whose threads are done are told of at once; all are before each report of the accounts.
MAX_KEPT = 100


class Recorder(SlotRecorder, Protocol):
    """Who records a worker's tasks for a trace. Its methods never raise."""

    def transition(self, key: Any, start: str, finish: str) -> None:
        """A task changed its state."""

    def ended(self, key: Any, ts: Any, at: int, *, left: bool = False, run: Run | None = None) -> None:
        """A task's thread is done: whether it had left its slot before, and its run if that is known."""

    def at_disk(self, start: int, stop: int, reading: bool) -> None:
        """The event loop wrote results to disk, or read them back."""


class WorkerHooks:
    """Follows one worker's tasks; all its methods are called on the event loop.

    Parameters
    ----------
    worker
        The worker.
    ledger
        The accounts of its slots.
    pending
        Who finalizes the tasks that ended.
    spills
        In which times the event loop spilled.
    threads
        What tasks used in their threads.
    failed
        Called where something of this fails.
    at
        Now, in monotonic nanoseconds.
    """

    def __init__(
        self,
        worker: Worker,
        ledger: Ledger,
        pending: PendingTasks,
        spills: LoopSpills,
        threads: TaskThreads,
        *,
        failed: Callable[[Exception], object],
        at: int,
    ) -> None:
        self.cost = HookCost()
        self.slots = SlotTracker(worker.state, ledger, pending, at=at)
        self._worker = worker
        self._state = worker.state
        self._ledger = ledger
        self._pending = pending
        self._spills = spills
        self._failed = failed
        self._recorder: Recorder | None = None
        self._transitions = Transitions(worker)
        self._plugin: Any = None
        #: Whether the ledger is told later of what happens; and of what: tasks that ended and, by key, those that took
        #: slots since and run, with when they did.
        self._waits = False
        self._kept: list[PlainTask] = []
        self._running: dict[Any, tuple[Any, int]] = {}
        #: Meanwhile, slots free; what :attr:`PendingTasks.max_noncpu` was before; whether anybody wants to know the
        #: sizes of results; whether the GPU is watched.
        self._free = self._max_noncpu = 0
        self._sized = self._watched = False
        self._held = ledger.held
        self._meter = threads.meter
        self._done = threads.meter.done
        #: Tasks whose slots are free and which are not finalized, and of how many the former ones are.
        self._ended = pending.tasks
        self._batch = 1
        self._looked_at = at
        #: Status, tasks waiting and tasks constrained as the ledger knows them.
        self._status: Status | None = None
        self._waiting = self._constrained = 0
        self.cost.next_interval(worker.state.executed_count)
        self.observe(at)

    # -- coming and going --------------------------------------------------------------------

    def attach(self, plugin: Any) -> None:
        """Have upstream call the hooks; the worker's data is watched by now."""
        self._plugin = plugin
        self._batch = BATCH if self._spills.watch.watching else 1
        self._place()

    def detach(self) -> None:
        """Have it call them no more."""
        try:
            self.catch_up()
        except Exception as error:
            self._failed(error)
        self._plugin = None
        self._transitions.detach()

    def record(self, recorder: Recorder | None) -> None:
        """Tell a recorder of every transition, or nobody."""
        try:
            self.catch_up()
        except Exception as error:  # whoever is told of a failure calls this, too
            self._failed(error)
        self._recorder = self.slots.recorder = recorder
        self._place()

    def sample(self) -> None:
        """Time the hooks of the tasks that come next; called at each heartbeat."""
        self.cost.next_interval(self._state.executed_count)
        self._place(timed=True)

    def _place(self, *, timed: bool = False) -> None:
        if self._plugin is not None:
            hooks = TimedHooks(self, self.cost, self._place) if timed else self
            note = None if self._recorder is None else self._recorder.transition
            self._transitions.attach(self._plugin, hooks, note=note)

    # -- hooks -------------------------------------------------------------------------------

    def taken(self, ts: Any) -> None:
        """A task became ``executing``."""
        try:
            at = monotonic_ns()
            if at - self._looked_at > _LOOK_BACK_NS:
                self.look_back(at)
            key, running = ts.key, self._running
            if (self._waits or self._may_wait(at)) and self._free and key not in self._held and key not in running:
                self._free -= 1
                running[key] = ts, at
                if self._recorder is not None:
                    self._recorder.taken(ts, at)
                if self._free:
                    self._look(at)
                return
            self.catch_up()
            ledger = self._ledger
            if ledger.undecided:
                self._spills.delayed(at)
            self.slots.taken(ts, at)
            if ledger.slots_free:
                self._look(at)
        except Exception as error:
            self._failed(error)

    def succeeded(self, ts: Any) -> None:
        """A task went from ``executing`` to ``memory``."""
        try:
            at = monotonic_ns()
            if self._waits:
                if self._keep(ts, at):
                    return
                self.catch_up()
            if len(self._ended) >= self._batch:
                self._pending.former()
            ledger = self._ledger
            if ledger.slots_free and at - self._looked_at > _LOOK_BACK_NS:
                self.look_back(at)
            self.slots.succeeded(ts.key, ts, at)
            if ledger.slots_free:
                self._look(at)
        except Exception as error:
            self._failed(error)

    def transition(self, key: Any, start: str, finish: str) -> None:
        """A task changed its state in any other way that matters to slots."""
        try:
            at = monotonic_ns()
            self.catch_up()
            if len(self._ended) >= self._batch:
                self._pending.former()
            ledger = self._ledger
            if ledger.slots_free:
                if at - self._looked_at > _LOOK_BACK_NS:
                    self.look_back(at)
                if ledger.undecided and finish == "executing":
                    self._spills.delayed(at)
            self.slots.transition(key, start, finish, at)
            if ledger.slots_free:
                self._look(at)
        except Exception as error:
            self._failed(error)

    def every_transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:
        """Dask's hook for plugins, where there is no other."""
        if self._recorder is not None:
            self._recorder.transition(key, start, finish)
        if matters(start, finish):
            self.transition(key, start, finish)

    # -- tasks that may wait --------------------------------------------------------------------

    def _may_wait(self, at: int) -> bool:
        """Whether the ledger may be told later of what happens from now on."""
        ledger = self._ledger
        if not self.slots.simple or self._batch == 1 or ledger.undecided or at < ledger.at:
            return False
        self._waits = True
        self._free = ledger.slots_free
        self._max_noncpu = self._pending.max_noncpu
        self._sized = self._pending.sizes.open
        self._watched = self._meter.windows is not None
        return True

    def _keep(self, ts: Any, at: int) -> bool:
        """Keep a task that succeeded, took its slot since the ledger was told last, and did nothing else.

        Not if the event loop spilled since it took its slot, or if its thread was not on the CPU for so long that what
        it waited for may be known.
        """
        if self._free and at - self._looked_at > _LOOK_BACK_NS:
            self.look_back(at)
        key = ts.key
        taken, run, annotations = self._running.get(key), self._done.get(key), ts.annotations
        if taken is None or run is None or (annotations and RECOMPUTED in annotations):
            return False
        start = taken[1]
        began, stopped, cpu, _, _ = run
        wall = stopped - began
        if (
            not self._spills.watch.last <= start <= began
            or stopped > at
            or not wall - self._max_noncpu < cpu <= wall
            or (self._meter.windows is not None) is not self._watched
        ):
            return False
        del self._running[key], self._done[key]
        self._free += 1
        nbytes = size_of(ts) if wall >= MIN_RATED_NS else -1.0
        made = ts.nbytes if self._sized else -1
        self._kept.append((ts, start, at, run, nbytes, -1 if made is None else made))
        if self._recorder is not None:
            self._recorder.ended(key, ts, at, run=run)
        if len(self._kept) >= MAX_KEPT:
            self.catch_up()
        self._look(at)
        return True

    def catch_up(self) -> None:
        """Tell the ledger of what has happened."""
        if not self._waits:
            return
        self._waits = False
        kept, running = self._kept, self._running
        if not (kept or running):
            return
        self._kept, self._running = [], {}
        at = next(reversed(running.values()))[1] if running else 0
        last = None
        if kept and kept[-1][2] >= at:
            at = kept[-1][2]
            if kept[-1][0].key not in running:
                # The present stimulus may add that the result of the last one could not be stored.
                last = kept.pop()
                running[last[0].key] = last[:2]
        self._pending.follow(kept, running, self.slots, at=at, watched=self._watched)
        if last is not None:
            ts, _, _, run, nbytes, made = last
            key = ts.key
            later = self._done.get(key)
            self._done[key] = run
            self.slots.succeeded(key, ts, at, recorded=True)
            if later is not None:  # it has run once more since
                self._done[key] = later
            self._pending.sized(key, nbytes, made)

    # -- why slots are free --------------------------------------------------------------------

    def _look(self, at: int) -> None:
        """Tell the ledger if free slots are free for another reason than before."""
        self._looked_at = at
        state = self._state
        if (
            len(state.waiting) != self._waiting
            or not (state.running and self._status is _RUNNING)
            or (state.total_resources and len(state.constrained) != self._constrained)
        ):
            self.observe(at)

    def observe(self, at: int) -> None:
        """Tell the ledger why its free slots are free."""
        self.catch_up()
        state = self._state
        waiting, constrained = len(state.waiting), len(state.constrained)
        status = self._worker.status
        self._looked_at = at
        self._waiting, self._constrained, self._status = waiting, constrained, status
        if status is _RUNNING:
            availability = Availability.RUNNING
        elif status is Status.paused:
            availability = Availability.PAUSED
        else:
            availability = Availability.RETIRING
        self._ledger.observe(availability, waiting, constrained, at=at)

    def look_back(self, at: int) -> None:
        """Pause and unpause fire no hook: record those since the last look at their exact time."""
        now_ns, wall = monotonic_ns(), time.time()
        looked_at, self._looked_at = self._looked_at, at
        log = self._state.stimulus_log
        # How many events may be new, and whether any of them is looked for: there may be many since the last look.
        new = 1
        while new < len(log) and (log[-new].handled or wall) > wall - (now_ns - looked_at) / 1e9:
            new *= 2
        if _PAUSES.isdisjoint(map(type, islice(reversed(log), new))):
            return
        changes: list[tuple[int, Availability]] = []
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
                changes.append((handled, stopped))
            elif isinstance(event, UnpauseEvent):
                changes.append((handled, Availability.RUNNING))
                stopped = Availability.PAUSED  # going back in time: whatever ended in this was a pause
        if changes:
            self.catch_up()
            self._status = None
        for handled, availability in reversed(changes):
            self._ledger.turn(availability, at=min(handled, at))
