"""The rows of the workers' dashboard: a function each, which gives its panels from left to right."""

from __future__ import annotations

from typing import Any

from dashboards.generator.by_worker import MAX_BARS, NO_WORKERS, TO_ONE_WORKER, least_efficient
from dashboards.generator.panels import EFFICIENCY_STEPS, FAIR_COLOUR, GOOD_COLOUR, About, Query, bars, lines, numbers
from dashboards.generator.queries import (
    CHOSEN_WORKERS,
    LOST,
    WORKER,
    gain,
    gain_at_the_end,
    in_vain,
    nthreads,
    rate,
    select,
    share,
    threads,
    total,
)
from dask_efficiency.accounts.buckets import GOOD, Bucket
from dask_efficiency.show.drawn_buckets import COLOURS


def strip() -> list[Any]:
    """The chosen workers in one row of numbers."""
    return [
        numbers(
            About(1, "Efficiency", "percentunit", 5, 4),
            "Share of the chosen workers' thread time with work outstanding that was useful, over the time shown.",
            Query(share(CHOSEN_WORKERS, gain, GOOD), "efficiency"),
            steps=EFFICIENCY_STEPS,
            decimals=0,
        ),
        numbers(
            About(2, "Lost thread time", "s", 4, 4),
            "Thread time of the chosen workers that was not useful although there was work, over the time shown.",
            Query(threads(CHOSEN_WORKERS, gain, LOST), "lost"),
        ),
        numbers(
            About(3, "Thread time in vain", "s", 4, 4),
            "Thread time of the chosen workers of tasks that failed, were cancelled, or computed again what was "
            "lost, over the time shown.",
            Query(in_vain(CHOSEN_WORKERS, gain), "in vain"),
        ),
        numbers(
            About(4, "Workers and threads", "short", 5, 4),
            "The chosen workers that are there now, and their threads.",
            Query(f"count({select(CHOSEN_WORKERS.nthreads, chosen=CHOSEN_WORKERS.chosen)})", "workers"),
            Query(nthreads(CHOSEN_WORKERS), "threads"),
        ),
        numbers(
            About(5, "Worker metrics limited", "short", 6, 4),
            "Schedulers with so many workers that not all are exported one by one. Of these this dashboard has "
            "those that make most and least of their threads: the middle is missing. The overview has the totals.",
            Query(total(select("dask_efficiency_worker_metrics_limited")), "limited"),
            steps=((None, GOOD_COLOUR), (1, FAIR_COLOUR)),
        ),
    ]


def comparison() -> list[Any]:
    """How far the chosen workers are apart, and which are behind."""
    each = share(CHOSEN_WORKERS, rate, GOOD, by=WORKER)
    return [
        lines(
            About(20, "Efficiency of the workers", "percentunit", 12, 9),
            "The lowest, the median and the highest efficiency of the chosen workers. Far apart: the work is "
            "shared unevenly, or some workers are slower.",
            Query(f"min({each})", "lowest"),
            Query(f"quantile(0.5, {each})", "median"),
            Query(f"max({each})", "highest"),
            colours={"lowest": "dark-blue", "median": "blue", "highest": "super-light-blue"},
            limit=1,
        ),
        least_efficient(21, CHOSEN_WORKERS, height=9),
    ]


def tasks() -> list[Any]:
    """Tasks of the chosen workers that have not ended, and those that came to nothing."""
    running = total(select("dask_efficiency_worker_running_thread_seconds", chosen=CHOSEN_WORKERS.chosen), by=WORKER)
    return [
        bars(
            About(30, "Held by tasks that have not ended", "s", 12, 8, NO_WORKERS),
            "Thread time that the tasks a worker is running now have taken so far. A worker far ahead of the "
            "others has long tasks, or one that hangs.",
            Query(f"topk({MAX_BARS}, {running})", "{{worker}}"),
            colour=COLOURS[Bucket.RUNNING],
            link=("Show this worker", TO_ONE_WORKER),
        ),
        bars(
            About(31, "In vain, by worker", "s", 12, 8, "nothing in vain"),
            "Thread time of tasks that failed, were cancelled, or computed again what was lost, over the time shown.",
            Query(f"topk({MAX_BARS}, {in_vain(CHOSEN_WORKERS, gain, by=WORKER)} > 0)", "{{worker}}"),
            colour=COLOURS[Bucket.FAILED],
            link=("Show this worker", TO_ONE_WORKER),
        ),
    ]


def spill_and_pause() -> list[Any]:
    """What too little memory costs each of the chosen workers."""
    return [
        lines(
            About(identity, title, "short", 12, 8, none),
            text + " The workers with most of it over the time shown.",
            Query(_busiest(f'activity="{activity}"'), "{{worker}}"),
        )
        for identity, activity, title, none, text in (
            (
                40,
                Bucket.SPILL,
                "Threads that spill, by worker",
                "no worker spilled",
                "Threads, on average, that move data between memory and disk.",
            ),
            (
                41,
                Bucket.PAUSED,
                "Threads paused, by worker",
                "no worker was paused",
                "Threads, on average, that may not take a task, as their worker's memory is nearly full.",
            ),
        )
    ]


def _busiest(matcher: str) -> str:
    now = threads(CHOSEN_WORKERS, rate, matcher, by=WORKER)
    all_in_all = threads(CHOSEN_WORKERS, gain_at_the_end, matcher, by=WORKER)
    return f"{now} and on ({WORKER}) topk({MAX_BARS}, {all_in_all} > 0)"
