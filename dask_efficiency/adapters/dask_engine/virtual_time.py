"""What is replaced in Dask so that a run depends on nothing but its seed: clocks, hashes, and what is slow and unused.

Nothing is put back: this is for a process that does nothing but simulate.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from functools import lru_cache, singledispatchmethod
from itertools import chain
from typing import Any

import distributed.metrics
from distributed import scheduler, versions, worker_state_machine

_real = distributed.metrics.time


class _Clock:
    """The clock that Dask's modules read; simulations follow each other in a process."""

    read: Callable[[], float] = staticmethod(_real)

    @staticmethod
    def now() -> float:
        return _Clock.read()


def replace_clocks(time: Callable[[], float]) -> None:
    """Let every module of Dask read this clock."""
    _Clock.read = staticmethod(time)
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "distributed" and getattr(module, "time", None) is _real:
            module.time = _Clock.now  # type: ignore[attr-defined]


def replace_hashes(seed: int) -> None:
    """Let sets of tasks be in an order that the seed decides.

    Workers hash a task by where it is in memory, the scheduler by the hash of its key: both differ from one process to
    the next. `PYTHONHASHSEED` must be fixed, so that the hash of a text is the same everywhere.
    """
    mixed = random.Random(seed).getrandbits(60) if seed else 0

    def of_worker(task: Any) -> int:
        return hash(task.key) ^ mixed

    def of_scheduler(task: Any) -> int:
        return int(task._hash) ^ mixed

    worker_state_machine.TaskState.__hash__ = of_worker  # type: ignore[assignment, method-assign]
    scheduler.TaskState.__hash__ = of_scheduler  # type: ignore[assignment, method-assign]


def replace_what_is_unused() -> None:
    """Leave out what Dask does for people who debug it, and what reads its environment.

    Versions of packages take a tenth of a second for each worker; the lists of all tasks ever made, copies of events
    for a log, and addresses that are taken apart again and again, a fifth of all time.
    """
    versions.get_versions = dict  # type: ignore[assignment]
    versions.error_message = lambda *_args, **_kwargs: {}
    for kind in (scheduler.TaskState, worker_state_machine.TaskState):
        kind._instances = _Nothing()  # type: ignore[assignment]
    for event in _events(worker_state_machine.StateMachineEvent):
        event.to_loggable = lambda self, *, handled: self
    # A method that is looked up for each event anew, by way of a wrapper that is made for it.
    handle = worker_state_machine.WorkerState.__dict__["_handle_event"]
    if isinstance(handle, singledispatchmethod):
        find = handle.dispatcher.dispatch
        worker_state_machine.WorkerState._handle_event = lambda self, event: find(type(event))(self, event)  # type: ignore[assignment, method-assign]
    if not hasattr(scheduler.get_address_host, "cache_info"):
        scheduler.get_address_host = lru_cache(maxsize=None)(scheduler.get_address_host)


class _Nothing:
    """A set that forgets."""

    def add(self, _member: Any) -> None:
        """Nothing is kept."""


def _events(kind: type[Any]) -> list[type[Any]]:
    return [kind, *chain.from_iterable(map(_events, kind.__subclasses__()))]
