"""The rows about causes: what threads waited for, and why they had nothing to do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dashboards.generator.by_worker import MAX_BARS, NO_WORKERS, TO_ONE_WORKER
from dashboards.generator.panels import About, Query, bars, stack
from dashboards.generator.queries import (
    CHOSEN,
    CHOSEN_WORKERS,
    WORKER,
    gain,
    gain_at_the_end,
    one_of,
    rate,
    seen,
    select,
    total,
)
from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.show.drawn_buckets import CAUSE_COLOURS

WAITING = "dask_efficiency_thread_waiting_seconds_total"
WORKER_WAITING = "dask_efficiency_worker_thread_waiting_seconds_total"
IDLE = "dask_efficiency_idle_seconds_total"
OVERHEAD = "dask_efficiency_overhead_seconds_total"

#: Those for which the cure is more cores, a higher limit, or fewer threads.
FOR_A_CORE = ("core", "throttled")

_WAITING_TEXT = (
    "Threads, on average, that a task held and that were not on the CPU, by what they waited for. *gil*: another "
    "thread of the worker had Python's lock. *core*: all cores were busy. *throttled*: the container's CPU limit was "
    "used up. *unknown*: no sample showed why."
)


def of_clusters() -> list[Any]:
    """Why threads of the clusters did nothing useful."""
    return [
        stack(
            About(12, "What tasks wait for", "short", 10, 8, "no task waited"),
            _WAITING_TEXT,
            _by_cause(WAITING),
            colours=CAUSE_COLOURS[Bucket.THREAD_NONCPU],
        ),
        stack(
            About(13, "Why threads are idle", "short", 8, 8, "no thread was idle"),
            "Threads, on average, without a task while there was work, by why. *parallelism*: nothing was ready "
            "anywhere. *scheduler*: tasks were ready and not sent yet. *round-trips*: they were held back until "
            "results came (`worker-saturation`). *imbalance*: they waited at other workers. *graph*: the scheduler "
            "was taking in a graph. *restricted*: they may not run here.",
            _by_cause(IDLE),
            colours=CAUSE_COLOURS[Bucket.IDLE],
        ),
        stack(
            About(14, "What overhead is", "short", 6, 8, "not known"),
            "Threads, on average, that were held for a task before or after it ran. *hand-over*: until its first "
            "instruction. *event-loop*: until the worker's event loop heard that it was done.",
            _by_cause(OVERHEAD),
            colours=CAUSE_COLOURS[Bucket.OVERHEAD],
        ),
    ]


def of_workers() -> list[Any]:
    """What tasks of the chosen workers waited for, and the workers that lack cores."""
    chosen = CHOSEN_WORKERS.chosen
    for_a_core = total(gain(select(WORKER_WAITING, one_of("cause", FOR_A_CORE), chosen=chosen)), by=WORKER)
    return [
        stack(
            About(12, "What tasks wait for", "short", 12, 8, "no task waited"),
            _WAITING_TEXT,
            _by_cause(WORKER_WAITING, chosen),
            colours=CAUSE_COLOURS[Bucket.THREAD_NONCPU],
        ),
        bars(
            About(13, f"The {MAX_BARS} workers that wait most for a core", "s", 12, 8, NO_WORKERS),
            "Thread time in which tasks were ready to run and had no core, or had used up their container's CPU "
            "limit, over the time shown. Click a bar for the worker.",
            Query(f"topk({MAX_BARS}, {for_a_core})", "{{worker}}"),
            colour=CAUSE_COLOURS[Bucket.THREAD_NONCPU]["core"],
            link=("Show this worker", TO_ONE_WORKER),
        ),
    ]


def _by_cause(metric: str, chosen: Iterable[str] = CHOSEN) -> Query:
    """Threads by cause, without the causes that took no time in all of the graph."""
    series = select(metric, chosen=chosen)
    in_all = total(gain_at_the_end(series), by="cause")
    return Query(seen(total(rate(series), by="cause"), in_all, by="cause"), "{{cause}}")
