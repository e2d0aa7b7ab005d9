"""GpuAccounts: whose the work on the devices was, added up exactly, flush by flush."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from dask_efficiency.gpu.meter import Device
from dask_efficiency.gpu.records import Batch, TaskId, TaskWindow
from dask_efficiency.gpu.totals import GpuTotals, GpuUse


class GpuAccounts:
    """One process's GPU accounts since its meter was armed. Not thread-safe: one thread feeds it.

    Parameters
    ----------
    at
        When the meter was armed, monotonic nanoseconds. Nothing before counts.
    """

    def __init__(self, at: int) -> None:
        raise NotImplementedError

    def add(
        self,
        batch: Batch,
        windows: Iterable[TaskWindow] = (),
        *,
        devices: Mapping[int, Device],
        not_tasks: Collection[int] = (),
        lost: bool = False,
        final: bool = False,
    ) -> None:
        """Take in what a flush brought.

        Parameters
        ----------
        batch
            From :meth:`~dask_efficiency.gpu.meter.GpuMeter.flush`.
        windows
            Of all tasks that ended since the last call, and of those that run (``stop`` is -1), read *after* the
            flush: first those that run, then those that ended, so that none slips through between the two.
        devices
            The meter's devices.
        not_tasks
            :func:`threading.get_ident` of threads whose calls are never a task's.
        lost
            The meter lost records since the last call, or gave way to a profiler: what has not come may never come.
        final
            Nothing more comes.
        """
        raise NotImplementedError

    def name(self, task: TaskId, prefix: str) -> None:
        """Say which prefix a task has: as it begins, while it runs or after it. Its work waits for it until then."""
        raise NotImplementedError

    def use(self, task: TaskId) -> GpuUse | None:
        """What an ended task's thread did in calls that wait for the GPU.

        Returns
        -------
        GpuUse or None
            None until everything up to its end is known, and for tasks nobody has heard of, or not for a minute.
        """
        raise NotImplementedError

    def totals(self) -> GpuTotals:
        """Devices, kernels, hidden seconds, coverage and bounds; what is the meter's own is left at its default."""
        raise NotImplementedError
