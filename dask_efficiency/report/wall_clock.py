"""Wall clock of a report: its parts in words, and the bounds of its ideal time."""

from __future__ import annotations

import math
from dataclasses import replace

from dask_efficiency.accounts.slow_worker import SlowWorker
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.show.figures import format_seconds

#: Share of the window, or of the cluster's time, from which a part is mentioned. By judgement.
WORTH_SAYING = 0.05
#: Share of the window from which a client that is not busy with Dask runs its user's own code. By judgement.
OWN_CODE = 0.2

ON_CLUSTER = "of work on the cluster"
NO_WORKERS = "without any worker"
#: Client phases that are work for Dask; the rest of the client's time is the user's own code.
_FOR_DASK = ("optimize", "upload", "gather")


def wall_clock_known(report: EfficiencyReport) -> bool:
    """True if the report knows how long anything took."""
    return 0 < report.cluster_seconds < math.inf and math.isfinite(report.window_seconds)


def wall_clock_parts(report: EfficiencyReport) -> dict[str, float]:
    """Seconds of the window by part, the largest first; small parts are left out."""
    found = {
        ON_CLUSTER: report.cluster_seconds,
        NO_WORKERS: report.no_workers_seconds,
        client_time_text(report): report.client_seconds,
    }
    worth = {what: seconds for what, seconds in found.items() if seconds >= WORTH_SAYING * report.wall_clock_seconds}
    return dict(sorted(worth.items(), key=lambda item: -item[1]))


def client_time_text(report: EfficiencyReport) -> str:
    """Description of the time without outstanding work."""
    if not report.phases:
        return "without work"
    for_dask = {name: report.phases.get(name, 0.0) for name in _FOR_DASK}
    if sum(for_dask.values()) <= report.client_seconds / 2:
        return "in your own code" if report.client_seconds >= OWN_CODE * report.wall_clock_seconds else "on the client"
    most = max(for_dask, key=lambda name: for_dask[name])
    return f"on the client, mostly its {most}"


def largest_is_elsewhere(report: EfficiencyReport) -> bool:
    """True if most of the window was not work on the cluster; the headline then begins with that."""
    return wall_clock_known(report) and next(iter(wall_clock_parts(report))) != ON_CLUSTER


def ideal_time_lines(report: EfficiencyReport) -> list[str]:
    """Lower bounds of the ideal runtime, and those that are unknown."""
    bounds = report.ideal_bounds
    if not report.useful_seconds or not wall_clock_known(report):
        return []
    names = {
        "slots": f"{report.threads:.3g} threads",
        "cores": f"{report.cores or math.nan:.3g} cores",
        "chain": "the longest chain of tasks",
    }
    known = ", ".join(f"{format_seconds(seconds)} by {names[name]}" for name, seconds in bounds.items())
    unknown = {"cores": "how many cores the workers share", "chain": "the longest chain of tasks (trace=True tells)"}
    missing = " and ".join(what for name, what in unknown.items() if name not in bounds)
    return [f"useful work takes at least {known}" + (f"; not known: {missing}" if missing else "")]


def kept_in_bounds(report: EfficiencyReport) -> tuple[SlowWorker, ...]:
    """Stragglers with costs limited by the ideal runtime, which bounds the run without them, too."""
    if not wall_clock_known(report):
        return report.stragglers
    most = max(report.cluster_seconds - report.ideal_seconds, 0.0)
    return tuple(
        one if one.seconds_lost is None else replace(one, seconds_lost=min(one.seconds_lost, most))
        for one in report.stragglers
    )
