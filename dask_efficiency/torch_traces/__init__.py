"""Traces of torch.profiler: their critical path, alone and inside Dask's tasks."""

from typing import TYPE_CHECKING

from dask_efficiency.plugin.wings import public

if TYPE_CHECKING:
    from dask_efficiency.torch_traces.kineto.load import load_kineto
    from dask_efficiency.torch_traces.results import TorchCriticalPath, critical_path, load_critical_path

__all__ = [
    "TorchCriticalPath",
    "critical_path",
    "load_critical_path",
    "load_kineto",
]

__getattr__, __dir__ = public(
    __name__,
    {
        "TorchCriticalPath": "results",
        "critical_path": "results",
        "load_critical_path": "results",
        "load_kineto": "kineto.load",
    },
)
