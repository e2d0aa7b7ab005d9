"""WorkerGpu: GPU accounts of one worker, behind a guard and over all watches that it has."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from dask_efficiency.accounts.gpu import GpuTotals, GpuUse, add_totals
from dask_efficiency.gpu.meter import TaskId
from dask_efficiency.plugin.worker.threads import TaskThreads
from dask_efficiency.show.log import logger

if TYPE_CHECKING:
    from distributed import Worker

    from dask_efficiency.plugin.worker.gpu_watch import GpuWatch

#: Prefixes of the names of Dask's own threads: their GPU work belongs to no task.
_NOT_TASKS = ("Dask-Offload", "IO loop", "Profile", "AsyncProcess")


class WorkerGpu:
    """GPU accounts of one worker, over all attachments of its meter.

    After a failure, which is logged once, the GPU accounts stay as they were; the accounts of threads go on.
    """

    def __init__(self, worker: Worker, threads: TaskThreads) -> None:
        self._worker, self._threads = worker, threads
        self._watch: GpuWatch | None = None
        self._closed = True
        #: Totals of ended watches, and totals that were reported last.
        self._before: GpuTotals | None = None
        self._reported: GpuTotals | None = None
        self._failed: str | None = None

    def start(self, option: str) -> None:
        """Watch from now on, unless the option is ``off``."""
        if option == "off" or not self._closed or self._failed is not None:
            return
        with self._failing():
            self._watch = new_watch(option, self._threads, self._worker)
            self._closed = False

    def stop(self) -> None:
        """Read what is known, and stop watching."""
        if self._watch is None or self._closed:
            return
        self._closed = True
        with self._failing():
            self._watch.close()
            self._before = self._sum()
        self._threads.unwatch()

    def use(self, task: TaskId, stop: int) -> GpuUse | None:
        """GPU use of a task that ended at ``stop``, given once; None while unknown."""
        if self._watch is None:
            return None
        try:
            return self._watch.use(task, stop)
        except Exception as error:
            self._fail(error)
            return None

    async def catch_up(self) -> None:
        """Wait, a second at most, for all that is known by now; not at all if nothing is watched."""
        if self._watch is not None and self._threads.ended is not None:
            with self._failing():
                await self._watch.catch_up()

    def totals(self, *, unknown_tasks: int) -> GpuTotals | None:
        """Accounts so far; None if nothing has used a GPU. Windows end if the watch reads them no longer."""
        with self._failing():
            self._reported = self._before if self._closed else self._sum()
        found = self._reported
        if self._failed is not None:  # the last report stays
            found = replace(found or GpuTotals(), meter="none", description=self._failed)
        return None if found is None else replace(found, unknown_tasks=unknown_tasks)

    def _sum(self) -> GpuTotals | None:
        """Totals of the present and the former watches."""
        now = None if self._watch is None else self._watch.totals()
        if now is None or (now.meter == "none" and not now.description):  # it is about to begin
            return self._before
        if now.meter == "none":
            self._threads.unwatch()
        return now if self._before is None else add_totals(self._before, now)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """A failure of the block ends the accounts, and goes no further."""
        try:
            yield
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if self._failed is None:
            self._before = self._reported
            self._failed = f"the GPU accounts failed: {type(error).__name__}: {error}"[:500]
            logger.error("dask_efficiency no longer reports the GPUs of %s", self._worker.address, exc_info=error)
        self._watch = None
        self._closed = True
        self._threads.unwatch()


def new_watch(option: str, threads: TaskThreads, worker: Worker) -> GpuWatch:
    """Make the watch of this process; called in the event loop's thread."""
    from dask_efficiency.plugin.worker.gpu_watch import GpuWatch

    own = worker.executors.keys() - {"default", "offload", "actor"}
    return GpuWatch(
        option,
        threads,
        not_tasks=partial(threads_of_no_task, threading.get_ident()),
        task_threads=worker.state.nthreads + len(own),
    )


def threads_of_no_task(event_loop: int) -> set[int]:
    """Idents of the event loop's thread and of other threads of Dask."""
    own = {thread.ident for thread in threading.enumerate() if thread.name.startswith(_NOT_TASKS)}
    return {event_loop, *(ident for ident in own if ident is not None)}
