"""Predictions as plain data, for programs."""

from __future__ import annotations

import math
from typing import Any

from dask_efficiency.simulation.model.accuracy import SelfReplay
from dask_efficiency.simulation.model.ladder import IdealLadder
from dask_efficiency.simulation.model.placements import Placements
from dask_efficiency.simulation.model.result import Prediction
from dask_efficiency.simulation.model.sweeps import Sweep, worker_seconds


def prediction(one: Prediction) -> dict[str, Any]:
    """A prediction's figures, ready for JSON: seconds, and shares in [0, 1]; None where a figure is not known."""
    return _about(one.self_replay, one.notes) | _figures(one) | {"seconds_by_kind": one.breakdown}


def sweep(found: Sweep) -> dict[str, Any]:
    """A sweep's figures, ready for JSON: a row for each cluster, and the numbers of workers that stand out."""
    rows = [_figures(one) | {"money": found.money(one)} for one in found.predictions]
    return _about(found.self_replay, found.notes) | {
        "clusters": rows,
        "best_workers": len(found.best.cluster.workers),
        "fastest_workers": len(found.fastest.cluster.workers),
        "knee_workers": len(found.knee.cluster.workers),
        "price_per_worker_hour": found.price_per_worker_hour,
        "not_simulated": list(found.not_simulated),
    }


def placements(found: Placements) -> dict[str, Any]:
    """Placements, the fastest first, ready for JSON."""
    rows = [
        {
            "placement": one.name,
            **_figures(one.prediction),
            "moving_seconds": one.moving_seconds,
            "moved_bytes": one.moved_bytes,
            "fullest_link": _link(one.fullest_link),
            "clearly_slower": found.is_clearly_slower(one),
        }
        for one in found.ranked
    ]
    return _about(found.best.prediction.self_replay, found.notes) | {
        "placements": rows,
        "saved_seconds": found.saved_seconds,
        "is_clear": found.is_clear,
        "not_simulated": list(found.not_simulated),
    }


def _link(fullest: tuple[str, float] | None) -> dict[str, Any] | None:
    return None if fullest is None else {"name": fullest[0], "share": fullest[1]}


def ladder(found: IdealLadder) -> dict[str, Any]:
    """The steps of a ladder, ready for JSON; what the first one saves is not known."""
    rows = [
        {
            "step": rung.name,
            "seconds": rung.seconds,
            "saved_seconds": found.worth.get(rung.name),
            "simulated_seconds": rung.simulated_seconds,
        }
        for rung in found.rungs
    ]
    said = {"headline": found.headline, "findings": [one.to_dict() for one in found.findings]}
    return said | _about(found.self_replay, found.notes) | {"steps": rows}


def _about(judged: SelfReplay, notes: tuple[str, ...]) -> dict[str, Any]:
    recorded = judged.recorded
    return {
        "name": recorded.name,
        "recorded": {
            "makespan_seconds": recorded.makespan_seconds,
            "workers": recorded.workers,
            "threads": recorded.nthreads,
            "efficiency": recorded.efficiency,
            "busy": recorded.busy,
            "seconds_by_kind": dict(recorded.kinds),
        },
        "self_replay_error": judged.error,
        "notes": list(notes),
    }


def _figures(one: Prediction) -> dict[str, Any]:
    low, high = one.interval
    return {
        "workers": len(one.cluster.workers),
        "threads": one.cluster.nthreads,
        "without": sorted(one.job.without),
        "prefixes": dict(one.job.prefixes or {}),
        "config": dict(one.cluster.config),
        "makespan_seconds": one.makespan_seconds,
        "interval": None if math.isnan(low) else [low, high],
        "makespans": {str(seed): seconds for seed, seconds in one.makespans.items()},
        "speedup": one.speedup,
        "efficiency": one.efficiency,
        "busy": one.busy,
        "worker_seconds": worker_seconds(one),
    }
