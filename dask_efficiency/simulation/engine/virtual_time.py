"""What is replaced in Dask so that a run depends on nothing but its seed: clocks, hashes, and what is slow and unused.

Nothing is put back: this is for a process that does nothing but simulate.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from functools import lru_cache, partial, singledispatchmethod
from itertools import chain
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import distributed.metrics
from distributed import scheduler, versions, worker_state_machine
from distributed.protocol import pickle

from dask_efficiency.simulation.model.events import EventHeap

_real = distributed.metrics.time


#: The clocks that Dask's modules may have: the real one, and that of the simulation before.
_clocks: set[Callable[[], float]] = {_real}


def replace_clocks(clock: EventHeap) -> None:
    """Let every module of Dask read this clock."""
    read: Any = partial(attrgetter("seconds"), clock)  # which takes a third of the time of a function
    read.__name__ = "time"
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "distributed" and getattr(module, "time", None) in _clocks:
            module.time = read  # type: ignore[attr-defined]
    _clocks.clear()
    _clocks.update((_real, read))


def replace_hashes(seed: int) -> None:
    """Let sets of tasks be in an order that the seed decides.

    Workers hash a task by where it is in memory, the scheduler by the hash of its key: both differ from one process to
    the next. `PYTHONHASHSEED` must be fixed, so that the hash of a text is the same everywhere.
    """
    mixed = random.Random(seed).getrandbits(60) if seed else 0

    def of_worker(task: Any) -> int:
        return hash(task.key) ^ mixed

    def of_scheduler(task: Any) -> int:
        return task._hash ^ mixed  # type: ignore[no-any-return]

    worker_state_machine.TaskState.__hash__ = of_worker  # type: ignore[assignment, method-assign]
    scheduler.TaskState.__hash__ = of_scheduler  # type: ignore[assignment, method-assign]


def replace_what_is_unused() -> None:
    """Leave out what Dask does for people who debug it, and what reads its environment.

    Versions of packages take a tenth of a second for each worker; the lists of all tasks ever made, counts of tasks for
    a dashboard, copies of events for a log, results' types that are pickled, and addresses that are taken apart again
    and again, a third of all time.
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
    # A method that is looked up for each event anew, by way of a wrapper that is made for it.
    handle = worker_state_machine.WorkerState.__dict__["_handle_event"]
    if isinstance(handle, singledispatchmethod):
        find = _remembered(handle.dispatcher.dispatch)
        worker_state_machine.WorkerState._handle_event = lambda self, event: find(type(event))(self, event)  # type: ignore[assignment, method-assign]
    modules: list[Any] = [scheduler, worker_state_machine]
    for module in modules:
        module.get_address_host = _remembered(module.get_address_host)


def _remembered(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is called once for each argument, also where it was replaced before."""
    return function if hasattr(function, "cache_info") else lru_cache(maxsize=None)(function)


def _nothing(*_arguments: Any) -> None:
    """Nothing is counted."""


def _notify(state: Any, method: str, *arguments: Any) -> None:
    """Tell a worker's plugins, which are ours and have all methods."""
    for plugin in state.plugins.values():
        getattr(plugin, method)(*arguments)


class _Nothing:
    """A set that forgets."""

    def add(self, _member: Any) -> None:
        """Nothing is kept."""


def _events(kind: type[Any]) -> list[type[Any]]:
    return [kind, *chain.from_iterable(map(_events, kind.__subclasses__()))]
