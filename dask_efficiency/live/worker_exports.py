"""WorkerExports: a worker's own accounts on its own ``/metrics``, as of its last heartbeat.

The names differ from those that the scheduler exports by worker, so both can be scraped and no sum counts a
thread-second twice. They bypass the process's registry, which all workers and a scheduler may share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Self
from weakref import ref

from prometheus_client.core import Metric

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.accounts.worker.balance import ACTIVE_BUCKETS, FREE_BUCKETS, TASK_BUCKETS, Balance
from dask_efficiency.live.exposition import gauge, seconds, text, with_ours
from dask_efficiency.plugin.guard import Guard
from dask_efficiency.plugin.parts import WorkerPart
from dask_efficiency.plugin.patches import METRICS, Replacements

if TYPE_CHECKING:
    from dask_efficiency.plugin.worker.meter import WorkerMeter

#: Only the scheduler knows whether work was outstanding.
IDLE_OR_NO_WORK = "idle-or-no-work"


class WorkerExports(WorkerPart):
    """Part of a worker's meter that adds its accounts of the last snapshot to ``/metrics``."""

    def __init__(self, application: Any, reported: Callable[[], Balance | None], guard: Guard) -> None:
        self._application = application
        self._reported = reported
        self._guard = guard
        self._replacements = Replacements()

    @classmethod
    def of(cls, meter: WorkerMeter) -> Self:  # noqa: D102
        worker = meter.worker
        guard = Guard("the export", f"dask_efficiency exports no more Prometheus metrics on {worker.address}")
        of = ref(meter)
        return cls(worker.http_application, lambda: None if (there := of()) is None else there.reported, guard)

    def start(self) -> None:
        """Append the accounts to Dask's metrics; does nothing if Dask has no such page."""
        self._replacements.put(METRICS, self._application, lambda handler: with_ours(handler, self._ours))

    def stop(self) -> None:
        """Restore Dask's own handler."""
        self._replacements.put_back()

    async def _ours(self) -> bytes | None:
        reported = self._reported()
        return None if reported is None else self._guard(lambda: text(metrics(reported)))


def metrics(balance: Balance) -> Iterator[Metric]:
    """Metrics of a worker's accounts; by activity, or by bucket and ``running``, they add up to nthreads x elapsed."""
    yield seconds(
        "local_thread_activity_seconds",
        "Thread time of this worker by what each slot was doing, running tasks included; the rates add up to nthreads",
        "activity",
        [*map(_name, (*ACTIVE_BUCKETS, *FREE_BUCKETS))],
        # For free slots activity and bucket are equal; spilling is among the active buckets in both.
        {"": {_name(bucket): ns for bucket, ns in {**balance.finalized, **balance.active}.items()}},
    )
    yield seconds(
        "local_thread_seconds",
        "Settled thread time of this worker by bucket, booked when a task ends",
        "bucket",
        [*map(_name, (*TASK_BUCKETS, *FREE_BUCKETS))],
        {"": {_name(bucket): ns for bucket, ns in balance.finalized.items()}},
    )
    yield gauge(
        "local_running_thread_seconds",
        "Thread time held so far by tasks of this worker that have not ended",
        balance.running / 1e9,
    )
    yield gauge("local_nthreads", "Threads of this worker", balance.nthreads)


def _name(bucket: str) -> str:
    return IDLE_OR_NO_WORK if bucket == Bucket.IDLE else str(bucket)
