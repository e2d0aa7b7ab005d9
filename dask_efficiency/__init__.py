"""Where a Dask cluster wastes time, to the last thread-second.

The names below are resolved on first use, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from dask_efficiency.buckets import Breakdown, Bucket
    from dask_efficiency.kineto.load import load_kineto
    from dask_efficiency.mpi_predictions import MpiPlacements, MpiPrediction, place_mpi, simulate_mpi
    from dask_efficiency.plugins.client.calls import get_trace, snapshot, stragglers, unregister, worker_series
    from dask_efficiency.plugins.client.efficiency_report import efficiency_report
    from dask_efficiency.plugins.client.preflight import preflight
    from dask_efficiency.plugins.client.questions import NotRegisteredError
    from dask_efficiency.plugins.preload import dask_setup
    from dask_efficiency.plugins.scheduler.plugin import EfficiencyPlugin
    from dask_efficiency.predictions import Prediction, ideal_ladder, place, simulate, sweep
    from dask_efficiency.results import (
        CriticalPath,
        EfficiencyReport,
        PreflightResult,
        RunTrace,
        compare,
        compare_paths,
        critical_path,
        load_report,
        load_trace,
    )
    from dask_efficiency.simulation.accuracy import SimulationRefusedError, SimulationWarning
    from dask_efficiency.simulation.cluster import ClusterSpec
    from dask_efficiency.simulation.mpi.trace_files import from_mpi_trace
    from dask_efficiency.straggler.finding import Finding
    from dask_efficiency.straggler.minder.detector import load_minder
    from dask_efficiency.straggler.minder.train import train_minder
    from dask_efficiency.straggler.offline import find_stragglers
    from dask_efficiency.straggler.outliers import find_outliers
    from dask_efficiency.torch_results import TorchCriticalPath, load_path, torch_critical_path

_HOMES = {
    "Breakdown": "dask_efficiency.buckets",
    "Bucket": "dask_efficiency.buckets",
    "ClusterSpec": "dask_efficiency.simulation.cluster",
    "CriticalPath": "dask_efficiency.results",
    "EfficiencyPlugin": "dask_efficiency.plugins.scheduler.plugin",
    "EfficiencyReport": "dask_efficiency.results",
    "Finding": "dask_efficiency.straggler.finding",
    "MpiPlacements": "dask_efficiency.mpi_predictions",
    "MpiPrediction": "dask_efficiency.mpi_predictions",
    "NotRegisteredError": "dask_efficiency.plugins.client.questions",
    "PreflightResult": "dask_efficiency.results",
    "Prediction": "dask_efficiency.predictions",
    "RunTrace": "dask_efficiency.results",
    "SimulationRefusedError": "dask_efficiency.simulation.accuracy",
    "SimulationWarning": "dask_efficiency.simulation.accuracy",
    "TorchCriticalPath": "dask_efficiency.torch_results",
    "compare": "dask_efficiency.results",
    "compare_paths": "dask_efficiency.results",
    "critical_path": "dask_efficiency.results",
    "dask_setup": "dask_efficiency.plugins.preload",
    "efficiency_report": "dask_efficiency.plugins.client.efficiency_report",
    "find_outliers": "dask_efficiency.straggler.outliers",
    "find_stragglers": "dask_efficiency.straggler.offline",
    "from_mpi_trace": "dask_efficiency.simulation.mpi.trace_files",
    "get_trace": "dask_efficiency.plugins.client.calls",
    "ideal_ladder": "dask_efficiency.predictions",
    "load_kineto": "dask_efficiency.kineto.load",
    "load_minder": "dask_efficiency.straggler.minder.detector",
    "load_path": "dask_efficiency.torch_results",
    "load_report": "dask_efficiency.results",
    "load_trace": "dask_efficiency.results",
    "place": "dask_efficiency.predictions",
    "place_mpi": "dask_efficiency.mpi_predictions",
    "preflight": "dask_efficiency.plugins.client.preflight",
    "simulate": "dask_efficiency.predictions",
    "simulate_mpi": "dask_efficiency.mpi_predictions",
    "snapshot": "dask_efficiency.plugins.client.calls",
    "stragglers": "dask_efficiency.plugins.client.calls",
    "sweep": "dask_efficiency.predictions",
    "torch_critical_path": "dask_efficiency.torch_results",
    "train_minder": "dask_efficiency.straggler.minder.train",
    "unregister": "dask_efficiency.plugins.client.calls",
    "worker_series": "dask_efficiency.plugins.client.calls",
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
