"""Patches of Dask for a simulation: virtual clocks, hashes by the seed, and no bookkeeping that nothing reads.

Nothing is put back: this is for a process that only simulates.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache, partial, singledispatchmethod
from itertools import chain
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import distributed.metrics
from distributed import WorkerPlugin, scheduler, versions, worker_state_machine
from distributed.protocol import pickle
from distributed.worker_state_machine import TaskState

from dask_efficiency.simulation.model.events import EventHeap

_real = distributed.metrics.time

#: Clocks that Dask's modules may have now: the real one, and that of the last simulation.
_clocks: set[Callable[[], float]] = {_real}


def replace_clocks(clock: EventHeap) -> None:
    """Make every module of Dask read this clock."""
    read: Any = partial(attrgetter("seconds"), clock)  # which takes a third of the time of a function
    read.__name__ = "time"
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "distributed" and getattr(module, "time", None) in _clocks:
            module.time = read  # type: ignore[attr-defined]
    _clocks.clear()
    _clocks.update((_real, read))


def replace_hashes(seed: int) -> None:
    """Make the seed decide the order of sets of tasks; it needs a fixed `PYTHONHASHSEED`.

    Workers hash a task by its address in memory, the scheduler by the hash of its key: both differ between processes.
    """
    mixed = random.Random(seed).getrandbits(60) if seed else 0

    def of_worker(task: Any) -> int:
        return hash(task.key) ^ mixed

    def of_scheduler(task: Any) -> int:
        return task._hash ^ mixed  # type: ignore[no-any-return]

    worker_state_machine.TaskState.__hash__ = of_worker  # type: ignore[assignment, method-assign]
    scheduler.TaskState.__hash__ = of_scheduler  # type: ignore[assignment, method-assign]


def replace_what_is_unused() -> None:
    """Skip what Dask does for debugging, and what reads its environment.

    Versions of packages take a tenth of a second for each worker. A third of all time goes to lists of all tasks ever
    made, counts of tasks for a dashboard, copies of events for a log, pickled types of results, and addresses that are
    parsed again and again.
    """
    versions.get_versions = dict  # type: ignore[assignment]
    versions.error_message = lambda *_args, **_kwargs: {}
    for kind in (scheduler.TaskState, worker_state_machine.TaskState):
        kind._instances = _Nothing()  # type: ignore[assignment]
    for event in _events(worker_state_machine.StateMachineEvent):
        event.to_loggable = lambda self, *, handled: self
    for count in ("new_task", "transitions"):
        setattr(worker_state_machine.TaskCounter, count, _nothing)
    worker_state_machine.WorkerState._notify_plugins = _notify  # type: ignore[assignment, method-assign]
    worker_state_machine.pickle = SimpleNamespace(dumps=_remembered(pickle.dumps))  # type: ignore[assignment]
    worker_state_machine.typename = _remembered(worker_state_machine.typename)
    # Dask looks this method up for each event, through a wrapper that is made each time.
    handle = worker_state_machine.WorkerState.__dict__["_handle_event"]
    if isinstance(handle, singledispatchmethod):
        find = _remembered(handle.dispatcher.dispatch)
        worker_state_machine.WorkerState._handle_event = lambda self, event: find(type(event))(self, event)  # type: ignore[assignment, method-assign]
    modules: list[Any] = [scheduler, worker_state_machine]
    for module in modules:
        module.get_address_host = _remembered(module.get_address_host)


def _remembered(function: Callable[..., Any]) -> Callable[..., Any]:
    """Cache a function's results, unless it was replaced before."""
    return function if hasattr(function, "cache_info") else lru_cache(maxsize=None)(function)


def _nothing(*_arguments: Any) -> None:
    """Do nothing."""


def _notify(state: Any, method: str, *arguments: Any) -> None:
    """Call a worker's plugins, which are ours and have all methods."""
    for plugin in state.plugins.values():
        getattr(plugin, method)(*arguments)


class _Nothing:
    """Set that forgets."""

    add = _nothing


def _events(kind: type[Any]) -> list[type[Any]]:
    return [kind, *chain.from_iterable(map(_events, kind.__subclasses__()))]


class _NoTasks(frozenset[Any]):
    """Set of tasks that stays empty: Dask may discard from it, but not add to it."""

    __slots__ = ()
    clear = discard = _nothing


NO_TASKS: Any = _NoTasks()
#: Sets of a worker's task to which Dask adds nothing while its result is in memory.
_SETS = ("dependencies", "waiting_for_data", "waiters")
#: Dictionaries that Dask replaces and never changes; the times change only when the task runs again.
_DICTS = ("annotations", "metadata", "resource_restrictions")
_NO_FACTS: Any = {}
_NO_TIMES: Any = ()


class SmallTasks(WorkerPlugin):
    """Frees the empty collections of tasks whose results are in memory: 150 MB of 100,000 tasks."""

    name = "small-tasks"

    def __init__(self, tasks: Mapping[Any, TaskState]) -> None:
        self._tasks = tasks

    def transition(self, key: Any, start: str, finish: str, **_kwargs: Any) -> None:
        """Free or restore the collections of a task that changed state."""
        if finish == "memory":
            task = self._tasks[key]
            for names, nothing in ((_SETS, NO_TASKS), (_DICTS, _NO_FACTS)):
                for name in names:
                    if not getattr(task, name):
                        setattr(task, name, nothing)
            # The message that reports the result has the times; the definition is sent again if the task runs again.
            task.startstops, task.run_spec = _NO_TIMES, None
        elif start == "memory" and (left := self._tasks.get(key)) is not None:
            for name in _SETS:
                if getattr(left, name) is NO_TASKS:
                    setattr(left, name, set())
            if left.startstops is _NO_TIMES:
                left.startstops = []
