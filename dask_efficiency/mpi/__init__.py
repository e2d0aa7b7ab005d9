"""Simulation of recorded MPI programs on other hosts, on the networks of :mod:`dask_efficiency.simulation`."""

from typing import TYPE_CHECKING

from dask_efficiency.plugin.wings import public

if TYPE_CHECKING:
    from dask_efficiency.mpi.calls import place, simulate
    from dask_efficiency.mpi.result import MpiPlacements, MpiPrediction
    from dask_efficiency.mpi.trace_files import load_trace

__all__ = ["MpiPlacements", "MpiPrediction", "load_trace", "place", "simulate"]

__getattr__, __dir__ = public(
    __name__,
    {
        "MpiPlacements": "result",
        "MpiPrediction": "result",
        "load_trace": "trace_files",
        "place": "calls",
        "simulate": "calls",
    },
)
