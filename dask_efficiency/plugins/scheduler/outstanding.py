"""WorkTracker: whether the scheduler has work outstanding, and why tasks are computed once more."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dask_efficiency.plugins.patches import LONG_RUNNING, UPDATE_GRAPH, Replacements
from dask_efficiency.plugins.scheduler.repeats import RepeatCounter
from dask_efficiency.slots import RECOMPUTED

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.scheduler import TaskState

    from dask_efficiency.cluster import ClusterLedger
    from dask_efficiency.presence import Presence
    from dask_efficiency.windows import ClusterWindow

#: Keys that are remembered, as hashes of 64 bits, to see that they are computed again: about 35 MB when full.
MAX_KEYS = 500_000

#: States of a task that is still to be done.
_OUTSTANDING = frozenset({"waiting", "queued", "no-worker", "processing"})


class WorkTracker:
    """Keeps the cluster's work clock and the open windows' intervals, from the scheduler's hooks.

    Work is outstanding while a graph is being taken in, or any task is waiting, queued, without a
    worker, or processing and not long-running. No hook says when a graph begins to be taken in and
    when a task becomes long-running: these two stream handlers are replaced until :meth:`close`.
    """

    def __init__(self, scheduler: Scheduler, cluster: ClusterLedger, windows: dict[str, ClusterWindow]) -> None:
        self._scheduler = scheduler
        self._cluster = cluster
        self._windows = windows
        #: What is computed again: in the accounts' whole life (None), and in each open window by its id.
        self.repeats: dict[str | None, RepeatCounter] = {None: RepeatCounter()}
        #: Hashes of the keys that were computed: they may be forgotten in between.
        self._computed: set[int] = set()
        self._tasks = scheduler.tasks
        self._graphs = 0
        #: The last stimulus by which a client asked for results.
        self._asked = ""
        #: Tasks whose run was cut short and that begin again by the same stimulus: no other cause than before.
        self._cut_short: set[Any] = set()
        self._long_running: set[Any] = set()
        #: Workers that were not given a task yet, by address.
        self._new: dict[str, Presence] = {}
        #: Only with so few tasks can a transition change what the clock and the windows follow.
        self._near = 1
        self._outstanding = 0
        self._processing = 0
        #: Called when work or the taking in of a graph has begun or ended.
        self.turned: Callable[[], object] = lambda: None
        self.reset()
        self._replacements = Replacements()
        self._replacements.put(UPDATE_GRAPH, scheduler, self._taking_in)
        self._replacements.put(LONG_RUNNING, scheduler, self._noting_long_running)

    @property
    def graphs(self) -> bool:
        """Whether a graph is being taken in."""
        return self._graphs > 0

    @property
    def running(self) -> bool:
        """Whether a task that holds a slot is on a worker."""
        return self._processing > len(self._long_running)

    @property
    def full(self) -> bool:
        """Whether no more keys can be remembered: those that come now may be repeated without being counted."""
        return len(self._computed) >= MAX_KEYS

    def reset(self) -> None:
        """Count anew: at the start, and after the scheduler forgot all its tasks."""
        self._cut_short.clear()
        self._long_running = {ts.key for ws in self._scheduler.workers.values() for ts in ws.long_running}
        self._near = len(self._long_running) + 1
        states: Counter[str] = Counter()
        for prefix in self._scheduler.task_prefixes.values():
            states.update(prefix.states)
        self._outstanding = sum(states[state] for state in _OUTSTANDING)
        self._processing = states["processing"]
        self._changed()

    def worker_joined(self, presence: Presence) -> None:
        """Note when this worker is given its first task."""
        self._new[presence.address] = presence

    def worker_left(self, address: str) -> None:
        """It was given none."""
        self._new.pop(address, None)

    def close(self) -> None:
        """Put the stream handlers back."""
        self._replacements.put_back()

    def asked(self, stimulus_id: str) -> None:
        """A client's graph was taken in; what it asks for begins to wait by this stimulus."""
        self._asked = stimulus_id

    def transition(self, key: Any, start: str, finish: str, stimulus_id: str) -> None:
        """A task changed state on the scheduler."""
        if start == "memory" or finish == "forgotten":  # it was not outstanding, and is not now
            if self._cut_short:
                self._cut_short.discard(key)
            return
        if start == "processing":
            self._processing -= 1
            if self._long_running:
                self._long_running.discard(key)
                self._near = len(self._long_running) + 1
            if finish not in _OUTSTANDING:
                self._outstanding -= 1
            if finish == "memory":
                number = hash(key)
                if number in self._computed:
                    self._computed_again(self._tasks[key], number)
                elif len(self._computed) < MAX_KEYS:
                    self._computed.add(number)
            elif finish == "released":
                self._released(self._tasks[key], start, stimulus_id)
        elif finish == "processing":
            self._processing += 1
            if start not in _OUTSTANDING:
                self._outstanding += 1
            if self._new:
                self._note_first_task(key)
        elif start in _OUTSTANDING:
            if finish in _OUTSTANDING:  # it waits for something else
                return
            self._outstanding -= 1
            if finish == "released":
                self._released(self._tasks[key], start, stimulus_id)
        else:
            if finish in _OUTSTANDING:
                self._outstanding += 1
            if finish == "released":
                self._released(self._tasks[key], start, stimulus_id)
            elif finish == "waiting" and start == "released" and self._tasks[key].nbytes >= 0:
                # It knows its size: it had been in memory.
                self._waits_again(self._tasks[key], stimulus_id)
        if self._processing <= self._near or self._outstanding <= self._near:
            self._changed()

    def _note_first_task(self, key: Any) -> None:
        worker = self._scheduler.tasks[key].processing_on
        presence = None if worker is None else self._new.pop(worker.address, None)
        if presence is not None:
            presence.first_task = time.monotonic_ns()

    def _released(self, ts: TaskState, start: str, stimulus_id: str) -> None:
        """A task that has no result is not to be run, or begins again at once."""
        if start == "erred":  # it is only for a client's retry that one leaves this state and runs
            self._asked = stimulus_id
            self._cut_short.discard(ts.key)
        elif ts.nbytes >= 0 and (ts.waiters or ts.who_wants):
            self._cut_short.add(ts.key)

    def _waits_again(self, ts: TaskState, stimulus_id: str) -> None:
        """A task that had been in memory is to be run once more: note why."""
        if ts.key in self._cut_short:
            self._cut_short.discard(ts.key)
            return
        if not self.full:  # it may have been computed before the accounts began
            self._computed.add(hash(ts.key))
        annotations = dict(ts.annotations or {})
        annotations.pop(RECOMPUTED, None)
        if stimulus_id != self._asked:
            annotations[RECOMPUTED] = True
        # Not changed in place: other tasks may share it.
        ts.annotations = annotations or None

    def _computed_again(self, ts: TaskState, number: int) -> None:
        """A result that had been in memory is there again."""
        if ts.annotations and RECOMPUTED in ts.annotations:
            return
        for counter in self.repeats.values():
            counter.add(number, ts.prefix.name)

    def _changed(self) -> None:
        """Tell the clock and the windows about a change that they follow."""
        running = self._processing > len(self._long_running)
        outstanding = running or self._graphs > 0 or self._outstanding > len(self._long_running)
        if outstanding is not self._cluster.work.outstanding:
            self._cluster.work.set(outstanding, at=time.monotonic_ns())
            self.turned()
        if self._windows:
            at = time.monotonic_ns()
            for window in self._windows.values():
                window.running.set(running, at=at)
                window.graphs.set(self._graphs > 0, at=at)

    def _taking_in(self, update_graph: Any) -> Any:
        async def taking_in(*args: Any, **kwargs: Any) -> Any:
            self._graphs += 1
            self._changed()
            self.turned()
            try:
                return await update_graph(*args, **kwargs)
            finally:
                self._graphs -= 1
                self._changed()
                self.turned()

        return taking_in

    def _noting_long_running(self, handle_long_running: Any) -> Any:
        def noting(*args: Any, **kwargs: Any) -> Any:
            result = handle_long_running(*args, **kwargs)
            ts = self._scheduler.tasks.get(kwargs.get("key"))  # type: ignore[arg-type]
            if ts is not None and ts.processing_on is not None and ts in ts.processing_on.long_running:
                self._long_running.add(ts.key)
                self._near = len(self._long_running) + 1
                self._changed()
            return result

        return noting
