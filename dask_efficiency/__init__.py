"""Accounts of where a Dask cluster wastes time, to the last thread-second.

The names below are resolved on first use, so that importing the package costs nothing. The rest of a feature is
imported from its folder: `dask_efficiency.fleet`, `torch_traces`, `mpi`, `simulation`, `preflights` and `runs`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dask_efficiency.accounts.buckets import Bucket
    from dask_efficiency.histories.history import history
    from dask_efficiency.plugin.client import NotRegisteredError, unregister
    from dask_efficiency.plugin.scheduler.plugin import EfficiencyPlugin, dask_setup
    from dask_efficiency.plugin.version import __version__
    from dask_efficiency.preflights.client import preflight
    from dask_efficiency.report.compare import compare
    from dask_efficiency.report.efficiency_report import efficiency_report
    from dask_efficiency.report.files import load_report
    from dask_efficiency.report.model import EfficiencyReport
    from dask_efficiency.report.replies import snapshot
    from dask_efficiency.runs.path.path import CriticalPath, critical_path
    from dask_efficiency.runs.questions import get_trace, stragglers
    from dask_efficiency.runs.trace.files import load_trace
    from dask_efficiency.runs.trace.run_trace import RunTrace
    from dask_efficiency.show.finding import Finding
    from dask_efficiency.simulation.advise import advise
    from dask_efficiency.simulation.calls import ideal_ladder, place, simulate, sweep
    from dask_efficiency.simulation.model.cluster import ClusterSpec

_HOMES = {
    "Bucket": "dask_efficiency.accounts.buckets",
    "ClusterSpec": "dask_efficiency.simulation.model.cluster",
    "CriticalPath": "dask_efficiency.runs.path.path",
    "EfficiencyPlugin": "dask_efficiency.plugin.scheduler.plugin",
    "EfficiencyReport": "dask_efficiency.report.model",
    "Finding": "dask_efficiency.show.finding",
    "NotRegisteredError": "dask_efficiency.plugin.client",
    "RunTrace": "dask_efficiency.runs.trace.run_trace",
    "__version__": "dask_efficiency.plugin.version",
    "advise": "dask_efficiency.simulation.advise",
    "compare": "dask_efficiency.report.compare",
    "critical_path": "dask_efficiency.runs.path.path",
    "dask_setup": "dask_efficiency.plugin.scheduler.plugin",
    "efficiency_report": "dask_efficiency.report.efficiency_report",
    "get_trace": "dask_efficiency.runs.questions",
    "history": "dask_efficiency.histories.history",
    "ideal_ladder": "dask_efficiency.simulation.calls",
    "load_ipython_extension": "dask_efficiency.report.notebook",
    "load_report": "dask_efficiency.report.files",
    "load_trace": "dask_efficiency.runs.trace.files",
    "place": "dask_efficiency.simulation.calls",
    "preflight": "dask_efficiency.preflights.client",
    "simulate": "dask_efficiency.simulation.calls",
    "snapshot": "dask_efficiency.report.replies",
    "stragglers": "dask_efficiency.runs.questions",
    "sweep": "dask_efficiency.simulation.calls",
    "unload_ipython_extension": "dask_efficiency.report.notebook",
    "unregister": "dask_efficiency.plugin.client",
}

__all__ = [
    "Bucket",
    "ClusterSpec",
    "CriticalPath",
    "EfficiencyPlugin",
    "EfficiencyReport",
    "Finding",
    "NotRegisteredError",
    "RunTrace",
    "__version__",
    "advise",
    "compare",
    "critical_path",
    "dask_setup",
    "efficiency_report",
    "get_trace",
    "history",
    "ideal_ladder",
    "load_report",
    "load_trace",
    "place",
    "preflight",
    "simulate",
    "snapshot",
    "stragglers",
    "sweep",
    "unregister",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'dask_efficiency' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
