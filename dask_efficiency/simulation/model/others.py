"""Cores that other processes took while a run was recorded: its own simulation has them, a prediction has not."""

from __future__ import annotations

from math import inf

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Float64
from dask_efficiency.runs.replay.durations import prefix_of_runs
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.show.figures import format_share
from dask_efficiency.simulation.model.units import few_names

#: Share of a host's cores from which others are taken into account: below, it is within the error of its measurement,
#: as heartbeats are half a second apart.
MIN_OTHERS = 0.1


def shares_of_others(trace: RunTrace) -> dict[str, float]:
    """By host with known cores: share of these that others took, if it is large enough to matter."""
    known = {worker.host: worker.others for worker in trace.workers if 0 < worker.cores < inf}
    return {host: share for host, share in known.items() if share >= MIN_OTHERS}


def waits_for_others(trace: RunTrace) -> Float64:
    """By run: nanoseconds between start and stop in which it waited for a core, where others took some; else 0.

    A report's samples tell the share of the time off the CPU. Without these: threads that are ready share a core
    evenly, so that with ``n`` for each core, one that computes for ``t`` waits for ``(n - 1) t``.
    """
    runs, series, waits = trace.runs, trace.series, np.zeros(len(trace.runs))
    hosts = np.array([worker.host for worker in trace.workers] + [""])
    ran = (runs.start != MISSING) & (runs.stop > runs.start) & (runs.worker >= 0)
    sampled = np.array([trace.core_waits.get(prefix, np.nan) for prefix in trace.prefixes] + [np.nan])
    for host in shares_of_others(trace):
        ready = series.run_queue[(hosts[series.worker] == host) & ~np.isnan(series.run_queue)]
        rows = np.flatnonzero(ran & (hosts[runs.worker] == host))
        took = (runs.stop[rows] - runs.start[rows]).astype(np.float64)
        cpu = np.clip(runs.cpu_ns[rows], 0, took)
        more = max(float(ready.mean()) - 1.0, 0.0) if len(ready) else 0.0
        share = sampled[prefix_of_runs(trace)[rows]]
        waits[rows] = np.where(np.isnan(share), np.minimum(took - cpu, cpu * more), share * (took - cpu))
    return waits


def note_on_others(trace: RunTrace) -> tuple[str, ...]:
    """Sentence on cores that others took; empty if they took few."""
    others = shares_of_others(trace)
    if not others:
        return ()
    most, where = format_share(max(others.values())), few_names(sorted(others))
    taken = f"Other processes took {most} of the cores of {where} while the run was recorded"
    return (f"{taken}: predictions are without them, and less sure.",)
