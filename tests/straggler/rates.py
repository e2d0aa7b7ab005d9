"""What the scheduler has of a worker's task rates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dask_efficiency.straggler.task_rates import (
    ReceivedRates,
    RunningTask,
    TaskRateCounter,
    TaskRates,
    TaskRateWriter,
    read_task_rates,
)


def arrived(counter: TaskRateCounter, process: Sequence[float], running: Iterable[RunningTask] = ()) -> TaskRates:
    """A counter's rates after they have travelled."""
    found = read_task_rates(TaskRateWriter().heartbeat(counter, process, running))
    assert isinstance(found, ReceivedRates)
    return found.rates
