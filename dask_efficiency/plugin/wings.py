"""Table of what the wings offer the core, by name, as entry points: imported when they are looked up.

The core imports no wing. If the folder of a wing is missing, its names offer nothing, and the caller says so.
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
        "scheduler/metrics": "dask_efficiency.fleet.scheduler.worker_series:WorkerSeries",
        "scheduler/preflights": "dask_efficiency.preflights.scheduler.preflights:Preflights",
        "scheduler/save-to": "dask_efficiency.report.scheduler_parts:SaveTo",
        # Parts of a worker's meter.
        "worker/recorder": "dask_efficiency.runs.recording.worker.part:RecorderPart",
        "worker/exports": "dask_efficiency.live.worker_exports:WorkerExports",
        "worker/preflight": "dask_efficiency.preflights.worker:WorkerPreflight",
        # Profiles of a worker's tasks, in a recording.
        "profiles/torch": "dask_efficiency.torch_traces.worker_profiles:TaskProfiles",
        # Finds outliers by metrics alone.
        "outliers/fleet": "dask_efficiency.fleet.outliers.outliers:find_outliers",
        # Leads a run's critical path into the tasks with profiles.
        "expander/torch": "dask_efficiency.torch_traces.path.join:expand",
        # Reads the GPU's time of profiled tasks from their profiles.
        "gpu-times/torch": "dask_efficiency.torch_traces.path.join:with_gpu_times",
        # Names the operators of profiled tasks.
        "operators/torch": "dask_efficiency.torch_traces.path.join:operators",
        # Summarises the profiles of tasks.
        "summary/torch": "dask_efficiency.torch_traces.summaries.summary:summary_of_tasks",
        # Estimates the savings of cures for a reported run.
        "savings/simulation": "dask_efficiency.simulation.saving:savings",
    }
)
#: Part that answers each action of the handlers, on a worker and on the scheduler.
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
    """Look up a name of :data:`OFFERED`; None if its wing is not installed."""
    module, _, attribute = OFFERED[name].partition(":")
    try:
        return getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        if not str(error.name).startswith("dask_efficiency."):
            raise
        return None


def public(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make ``__getattr__`` and ``__dir__`` of a folder whose names are imported on first use, by their modules."""

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    return get, lambda: sorted(homes)
