"""A GPU that is not there, reported by a real worker."""

from __future__ import annotations

import time

from distributed import Worker

from dask_efficiency.accounts.gpu import DeviceTotals, GpuTotals
from dask_efficiency.accounts.sensors import READINGS
from dask_efficiency.plugin.bootstrap import EfficiencyWorkerPlugin


def pretend_gpu(dask_worker: Worker) -> None:
    """From now on the worker tells of a GPU that is not there, in kernels for two fifths of the time."""
    began = time.monotonic_ns()
    uuid = f"GPU-{dask_worker.name}"

    def totals(*, unknown_tasks: int) -> GpuTotals:
        tenth = (time.monotonic_ns() - began) // 10
        device = DeviceTotals(uuid, "", 10 * tenth, 4 * tenth, tenth, 5 * tenth, {"spin": 5 * tenth})
        return GpuTotals(
            "cupti",
            devices=(device,),
            kernel_ns=4 * tenth,
            attributed_ns=4 * tenth,
            unknown_tasks=unknown_tasks,
            readings={uuid: dict.fromkeys(READINGS, 1.0)},
        )

    dask_worker.plugins[EfficiencyWorkerPlugin.name].meter._gpu.totals = totals
