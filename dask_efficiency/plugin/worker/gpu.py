"""WorkerGpu: GPU accounts of one worker, behind a guard and over all watches that it has."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from dask_efficiency.accounts.gpu import GpuTotals, GpuUse, add_totals
from dask_efficiency.gpu.meter import TaskId
from dask_efficiency.plugin.guard import Guard
from dask_efficiency.plugin.worker.threads import TaskThreads

if TYPE_CHECKING:
    from distributed import Worker

    from dask_efficiency.plugin.worker.gpu_watch import GpuWatch

#: Prefixes of the names of Dask's own threads: their GPU work belongs to no task.
_NOT_TASKS = ("Dask-Offload", "IO loop", "Profile", "AsyncProcess")


class WorkerGpu:
    """GPU accounts of one worker, over all attachments of its meter; after a failure they stay as they were."""

    def __init__(self, worker: Worker, threads: TaskThreads) -> None:
        self._worker, self._threads = worker, threads
        off = f"dask_efficiency no longer reports the GPUs of {worker.address}"
        self._guard = Guard("the GPU accounts", off, threads.unwatch)
        self._watch: GpuWatch | None = None
        self._closed = True
        #: Totals of ended watches, and totals that were reported last.
        self._before: GpuTotals | None = None
        self._reported: GpuTotals | None = None

    def start(self, option: str) -> None:
        """Watch from now on, unless the option is ``off``."""
        if option != "off" and self._closed:
            self._watch = self._guard(new_watch, option, self._threads, self._worker)
            self._closed = self._watch is None

    def stop(self) -> None:
        """Read what is known, and stop watching."""
        if self._watch is not None and not self._closed:
            self._closed = True
            self._guard(self._watch.close)
            self._before = self._guard(self._sum)
            self._threads.unwatch()

    def use(self, task: TaskId, stop: int) -> GpuUse | None:
        """GPU use of a task that ended at ``stop``, given once; None while unknown."""
        used: GpuUse | None = None if self._watch is None else self._guard(self._watch.use, task, stop)
        return used

    async def catch_up(self) -> None:
        """Wait, a second at most, for all that is known by now; not at all if nothing is watched."""
        if self._watch is not None and self._threads.ended is not None and self._guard.off is None:
            try:
                await self._watch.catch_up()
            except Exception as error:
                self._guard.fail(error)

    def totals(self, *, unknown_tasks: int) -> GpuTotals | None:
        """Accounts so far; None if nothing has used a GPU. Windows end if the watch reads them no longer."""
        found: GpuTotals | None = self._before if self._closed else self._guard(self._sum)
        if self._guard.off is None:
            self._reported = found
        else:  # the last report stays
            found = replace(self._reported or GpuTotals(), meter="none", description=self._guard.off)
        return None if found is None else replace(found, unknown_tasks=unknown_tasks)

    def _sum(self) -> GpuTotals | None:
        """Totals of the present and the former watches."""
        now = None if self._watch is None else self._watch.totals()
        if now is None or (now.meter == "none" and not now.description):  # it is about to begin
            return self._before
        if now.meter == "none":
            self._threads.unwatch()
        return now if self._before is None else add_totals(self._before, now)


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
