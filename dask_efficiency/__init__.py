"""Where a Dask cluster wastes time, to the last thread-second.

The names below are resolved on first use, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from dask_efficiency.accounts.buckets import Breakdown, Bucket
    from dask_efficiency.accounts.finding import Finding
    from dask_efficiency.fleet.minder.detector import load_minder
    from dask_efficiency.fleet.minder.train import train_minder
    from dask_efficiency.fleet.outliers.outliers import find_outliers
    from dask_efficiency.mpi.calls import place_mpi, simulate_mpi
    from dask_efficiency.mpi.compare import MpiPlacements
    from dask_efficiency.mpi.result import MpiPrediction
    from dask_efficiency.mpi.trace_files import from_mpi_trace
    from dask_efficiency.plugin.client.calls import get_trace, snapshot, stragglers, unregister, worker_series
    from dask_efficiency.plugin.client.questions import NotRegisteredError
    from dask_efficiency.plugin.preload import dask_setup
    from dask_efficiency.plugin.scheduler.plugin import EfficiencyPlugin
    from dask_efficiency.preflights.client import preflight
    from dask_efficiency.preflights.judge.result import PreflightResult
    from dask_efficiency.report.compare import compare
    from dask_efficiency.report.efficiency_report import efficiency_report
    from dask_efficiency.report.files import load_report
    from dask_efficiency.report.model import EfficiencyReport
    from dask_efficiency.runs.path.compare import compare_paths
    from dask_efficiency.runs.path.path import CriticalPath, critical_path
    from dask_efficiency.runs.stragglers.offline import find_stragglers
    from dask_efficiency.runs.trace.files import load_trace
    from dask_efficiency.runs.trace.run_trace import RunTrace
    from dask_efficiency.simulation.calls import ideal_ladder, place, simulate, sweep
    from dask_efficiency.simulation.model.accuracy import SimulationRefusedError, SimulationWarning
    from dask_efficiency.simulation.model.cluster import ClusterSpec
    from dask_efficiency.simulation.model.result import Prediction
    from dask_efficiency.torch_traces.kineto.load import load_kineto
    from dask_efficiency.torch_traces.path.files import load_path
    from dask_efficiency.torch_traces.path.path import TorchCriticalPath, torch_critical_path

_HOMES = {
    "Breakdown": "dask_efficiency.accounts.buckets",
    "Bucket": "dask_efficiency.accounts.buckets",
    "ClusterSpec": "dask_efficiency.simulation.model.cluster",
    "CriticalPath": "dask_efficiency.runs.path.path",
    "EfficiencyPlugin": "dask_efficiency.plugin.scheduler.plugin",
    "EfficiencyReport": "dask_efficiency.report.model",
    "Finding": "dask_efficiency.accounts.finding",
    "MpiPlacements": "dask_efficiency.mpi.compare",
    "MpiPrediction": "dask_efficiency.mpi.result",
    "NotRegisteredError": "dask_efficiency.plugin.client.questions",
    "PreflightResult": "dask_efficiency.preflights.judge.result",
    "Prediction": "dask_efficiency.simulation.model.result",
    "RunTrace": "dask_efficiency.runs.trace.run_trace",
    "SimulationRefusedError": "dask_efficiency.simulation.model.accuracy",
    "SimulationWarning": "dask_efficiency.simulation.model.accuracy",
    "TorchCriticalPath": "dask_efficiency.torch_traces.path.path",
    "compare": "dask_efficiency.report.compare",
    "compare_paths": "dask_efficiency.runs.path.compare",
    "critical_path": "dask_efficiency.runs.path.path",
    "dask_setup": "dask_efficiency.plugin.preload",
    "efficiency_report": "dask_efficiency.report.efficiency_report",
    "find_outliers": "dask_efficiency.fleet.outliers.outliers",
    "find_stragglers": "dask_efficiency.runs.stragglers.offline",
    "from_mpi_trace": "dask_efficiency.mpi.trace_files",
    "get_trace": "dask_efficiency.plugin.client.calls",
    "ideal_ladder": "dask_efficiency.simulation.calls",
    "load_kineto": "dask_efficiency.torch_traces.kineto.load",
    "load_minder": "dask_efficiency.fleet.minder.detector",
    "load_path": "dask_efficiency.torch_traces.path.files",
    "load_report": "dask_efficiency.report.files",
    "load_trace": "dask_efficiency.runs.trace.files",
    "place": "dask_efficiency.simulation.calls",
    "place_mpi": "dask_efficiency.mpi.calls",
    "preflight": "dask_efficiency.preflights.client",
    "simulate": "dask_efficiency.simulation.calls",
    "simulate_mpi": "dask_efficiency.mpi.calls",
    "snapshot": "dask_efficiency.plugin.client.calls",
    "stragglers": "dask_efficiency.plugin.client.calls",
    "sweep": "dask_efficiency.simulation.calls",
    "torch_critical_path": "dask_efficiency.torch_traces.path.path",
    "train_minder": "dask_efficiency.fleet.minder.train",
    "unregister": "dask_efficiency.plugin.client.calls",
    "worker_series": "dask_efficiency.plugin.client.calls",
}

__all__ = [
    "Breakdown",
    "Bucket",
    "ClusterSpec",
    "CriticalPath",
    "EfficiencyPlugin",
    "EfficiencyReport",
    "Finding",
    "MpiPlacements",
    "MpiPrediction",
    "NotRegisteredError",
    "Prediction",
    "PreflightResult",
    "RunTrace",
    "SimulationRefusedError",
    "SimulationWarning",
    "TorchCriticalPath",
    "__version__",
    "compare",
    "compare_paths",
    "critical_path",
    "dask_setup",
    "efficiency_report",
    "find_outliers",
    "find_stragglers",
    "from_mpi_trace",
    "get_trace",
    "ideal_ladder",
    "load_kineto",
    "load_minder",
    "load_path",
    "load_report",
    "load_trace",
    "place",
    "place_mpi",
    "preflight",
    "simulate",
    "simulate_mpi",
    "snapshot",
    "stragglers",
    "sweep",
    "torch_critical_path",
    "train_minder",
    "unregister",
    "worker_series",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'dask_efficiency' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
