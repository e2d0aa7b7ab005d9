"""What the wings offer the core, by name, in the shape of entry points: looked up when asked for, and imported then.

The core imports no wing. Where a wing's folder is not there, nothing is offered under its names, and who asks says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

OFFERED: Mapping[str, str] = MappingProxyType(
    {
        # Parts of the scheduler's meter.
        "scheduler/recording": "dask_efficiency.runs.recording.scheduler.recording:RecordingPart",
        "scheduler/exports": "dask_efficiency.live.exports:Exports",
        "scheduler/metrics": "dask_efficiency.fleet.scheduler.worker_series:Metrics",
        "scheduler/preflights": "dask_efficiency.preflights.scheduler.preflights:Preflights",
        "scheduler/held-results": "dask_efficiency.report.scheduler_parts:HeldResults",
        "scheduler/save-to": "dask_efficiency.report.scheduler_parts:SaveTo",
        # Parts of a worker's meter.
        "worker/recorder": "dask_efficiency.runs.recording.worker.part:RecorderPart",
        "worker/exports": "dask_efficiency.live.worker_exports:WorkerExports",
        "worker/preflight": "dask_efficiency.preflights.worker:WorkerPreflight",
        # Profiles of a worker's tasks, in a recording.
        "profiles/torch": "dask_efficiency.torch_traces.worker_profiles:TaskProfiles",
        # Finds who is slow by metrics alone.
        "outliers/fleet": "dask_efficiency.fleet.outliers.outliers:find_outliers",
        # Leads a run's critical path into the tasks of which the trace has profiles.
        "expander/torch": "dask_efficiency.torch_traces.path.join:expand",
        # Reads the GPU's time of profiled tasks from their profiles.
        "gpu-times/torch": "dask_efficiency.torch_traces.path.join:with_gpu_times",
        # Says what cures save of a reported run.
        "savings/simulation": "dask_efficiency.simulation.saving:savings",
    }
)

#: Which part answers which action of the handlers, on a worker and on the scheduler.
ANSWERED_BY: Mapping[str, str] = MappingProxyType(
    {
        "scheduler/trace": "scheduler/recording",
        "scheduler/profile": "scheduler/recording",
        "scheduler/series": "scheduler/metrics",
        "scheduler/preflight": "scheduler/preflights",
        "worker/record": "worker/recorder",
        "worker/flush": "worker/recorder",
        "worker/preflight": "worker/preflight",
    }
)


def offered(name: str) -> Any:
    """What is offered under a name of :data:`OFFERED`; None where its wing is not installed."""
    module, _, attribute = OFFERED[name].partition(":")
    try:
        return getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        if not str(error.name).startswith("dask_efficiency."):
            raise
        return None


def public(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a folder whose public names are imported on first use.

    Parameters
    ----------
    package
        The folder's own name.
    homes
        By public name, the module of it that has the name.
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    return get, lambda: sorted(homes)
