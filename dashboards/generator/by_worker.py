"""Bars of the workers, which lead to the dashboard of one of them."""

from __future__ import annotations

from typing import Any

from dashboards.generator.panels import EFFICIENCY_STEPS, About, Query, bars
from dashboards.generator.queries import WORKER, Subject, gain, share
from dask_efficiency.accounts.buckets import GOOD

#: Fixed, so that links keep working.
OVERVIEW_UID, WORKERS_UID = "dask-efficiency-overview", "dask-efficiency-workers"

#: The workers' dashboard for one worker, with the time and the other choices kept.
TO_ONE_WORKER = (
    f"/d/{WORKERS_UID}?var-worker=${{__field.labels.worker:percentencode}}"
    "&${datasource:queryparam}&${cluster:queryparam}&${job:queryparam}&${instance:queryparam}&${__url_time_range}"
)

#: Bars in a panel that has one for each worker.
MAX_BARS = 10

NO_WORKERS = "no workers"


def least_efficient(identity: int, of: Subject, *, height: int) -> Any:
    """The workers that make least of their threads."""
    return bars(
        About(identity, f"The {MAX_BARS} least efficient workers", "percentunit", 12, height, NO_WORKERS),
        "Efficiency of each worker over the time shown, the lowest first. Click a bar for the worker.",
        Query(f"bottomk({MAX_BARS}, {share(of, gain, GOOD, by=WORKER)})", "{{worker}}"),
        steps=EFFICIENCY_STEPS,
        limit=1,
        link=("Show this worker", TO_ONE_WORKER),
    )
