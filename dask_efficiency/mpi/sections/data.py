"""Simulated MPI programs as plain data, for programs."""

from __future__ import annotations

from typing import Any

from dask_efficiency.mpi.compare import MpiPlacements
from dask_efficiency.mpi.result import MpiPrediction
from dask_efficiency.mpi.timeline import Spent


def mpi_run(run: MpiPrediction) -> dict[str, Any]:
    """A run's figures, ready for JSON: seconds, bytes, and shares in [0, 1]."""
    return _figures(run) | {
        "name": run.program.name,
        "ranks": [
            {"rank": rank, "host": run.hosts[rank], **_named(run.seconds(rank))} for rank in range(run.program.size)
        ],
        "critical_path": [
            {
                "start_seconds": stretch.start / 1e9,
                "seconds": (stretch.end - stretch.start) / 1e9,
                "kind": stretch.kind.name.lower(),
                "rank": stretch.rank,
                "other": None if stretch.other < 0 else stretch.other,
                "call": run.call_of(stretch.rank, stretch.action),
                "nbytes": stretch.nbytes,
            }
            for stretch in run.path
        ],
        "algorithms": {call: dict(used) for call, used in run.algorithms.items()},
        "notes": list(run.notes),
    }


def comparison(compared: MpiPlacements) -> dict[str, Any]:
    """Placements, the fastest first, ready for JSON."""
    return {
        "name": compared.best.program.name,
        "placements": [_figures(run) for run in compared.ranked],
        "saved_seconds": compared.saved_seconds,
        "not_simulated": list(compared.not_simulated),
        "notes": list(compared.notes),
    }


def _figures(run: MpiPrediction) -> dict[str, Any]:
    return {
        "placement": run.name,
        "hosts": len(set(run.hosts)),
        "mpich": run.settings.version,
        "makespan_seconds": run.makespan_seconds,
        "efficiency": run.efficiency,
        "seconds_by_kind": _named(run.breakdown),
        "path_seconds_by_kind": _named(run.path_seconds),
        "messages": run.messages,
        "moved_bytes": run.moved_bytes,
        "links": [
            {"name": one.name, "nbytes": one.nbytes, "share": one.seconds / run.makespan_seconds} for one in run.links
        ],
    }


def _named(seconds: dict[Spent, float]) -> dict[str, float]:
    return {kind.name.lower(): value for kind, value in seconds.items()}
