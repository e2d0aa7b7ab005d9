"""Summaries and critical paths of traces of torch.profiler, alone and inside Dask's tasks."""

from typing import TYPE_CHECKING

from dask_efficiency.plugin.wings import public

if TYPE_CHECKING:
    from dask_efficiency.torch_traces.kineto.load import load_kineto
    from dask_efficiency.torch_traces.path.files import load_critical_path
    from dask_efficiency.torch_traces.path.path import TorchCriticalPath, critical_path
    from dask_efficiency.torch_traces.summaries.comparison import TorchComparison, compare
    from dask_efficiency.torch_traces.summaries.summary import TorchSummary, summary

__all__ = [
    "TorchComparison",
    "TorchCriticalPath",
    "TorchSummary",
    "compare",
    "critical_path",
    "load_critical_path",
    "load_kineto",
    "summary",
]

__getattr__, __dir__ = public(
    __name__,
    {
        "TorchCriticalPath": "path.path",
        "critical_path": "path.path",
        "load_critical_path": "path.files",
        "load_kineto": "kineto.load",
        "TorchComparison": "summaries.comparison",
        "TorchSummary": "summaries.summary",
        "compare": "summaries.comparison",
        "summary": "summaries.summary",
    },
)
