"""What is replaced in Dask so that a run depends on nothing but its seed: clocks, hashes, and what is slow and unused.

Nothing is put back: this is for a process that does nothing but simulate.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
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
    mixed = random.Random(seed).getrandbits(60)

    def of_worker(task: Any) -> int:
        return hash(task.key) ^ mixed

    def of_scheduler(task: Any) -> int:
        return int(task._hash) ^ mixed

    worker_state_machine.TaskState.__hash__ = of_worker  # type: ignore[assignment, method-assign]
    scheduler.TaskState.__hash__ = of_scheduler  # type: ignore[assignment, method-assign]


def replace_versions() -> None:
    """Nobody compares versions of packages: reading them takes a tenth of a second for each worker."""
    versions.get_versions = dict  # type: ignore[assignment]
    versions.error_message = lambda *_args, **_kwargs: {}
