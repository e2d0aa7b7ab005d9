"""The rows of the overview: a function each, which gives its panels from left to right."""

from __future__ import annotations

from typing import Any

from dashboards.generator.by_worker import MAX_BARS, TO_ONE_WORKER, least_efficient
from dashboards.generator.panels import (
    BAD_COLOUR,
    FAIR_COLOUR,
    GOOD_COLOUR,
    PLAIN,
    About,
    Query,
    bars,
    lines,
    numbers,
    stack,
)
from dashboards.generator.queries import (
    ALL_WORKERS,
    CLUSTERS,
    IN_A_TASK,
    IN_VAIN,
    WITH_WORK,
    WORKER,
    activities_seen,
    gain,
    gain_at_the_end,
    in_vain,
    mean_threads,
    nthreads,
    one_of,
    rate,
    ratio,
    seen,
    select,
    share,
    threads,
    total,
)
from dashboards.generator.thread_time import ACTIVITY_COLOURS
from dask_efficiency.accounts.buckets import GOOD, Bucket
from dask_efficiency.accounts.worker.balance import Outcome
from dask_efficiency.show.drawn_buckets import COLOURS, MEMORY_COLOURS

OUTCOME_COLOURS = {
    str(Outcome.SUCCEEDED): COLOURS[Bucket.THREAD_CPU],
    str(Outcome.FAILED): COLOURS[Bucket.FAILED],
    str(Outcome.CANCELLED): COLOURS[Bucket.CANCELLED],
    str(Outcome.RECOMPUTED): COLOURS[Bucket.RECOMPUTED],
    str(Outcome.RESCHEDULED): COLOURS[Bucket.OVERHEAD],
}


def strip() -> list[Any]:
    """Time, workers and what the numbers are worth, in one row of numbers over the time shown."""
    had_the_plugin = f"last_over_time({select(CLUSTERS.nthreads)}[$__range])"
    down = f"{select('up')} == bool 0 and on (cluster, job, instance) {had_the_plugin}"
    return [
        numbers(
            About(2, "Actual and ideal time", "s", 6, 4),
            "How long there was work outstanding in the time shown, and how long the same work would have taken "
            "with all threads always useful. A graph may not have that much parallelism.",
            Query(f"{threads(CLUSTERS, gain, WITH_WORK)} / {mean_threads(CLUSTERS)}", "actual"),
            Query(f"{threads(CLUSTERS, gain, one_of('activity', GOOD))} / {mean_threads(CLUSTERS)}", "ideal"),
        ),
        numbers(
            About(4, "Thread time in vain", "s", 5, 4),
            "Thread time of tasks that failed, were cancelled, or computed again what was lost, over the time "
            "shown. Booked when the task ends. Its computing is in *Efficiency* as useful.",
            Query(in_vain(CLUSTERS, gain), "in vain"),
        ),
        numbers(
            About(5, "Workers and threads", "short", 5, 4),
            "Workers and their threads at the end of the time shown.",
            Query(total(select("dask_scheduler_workers")), "workers"),
            Query(nthreads(CLUSTERS), "threads"),
        ),
        numbers(
            About(6, "Unmeasured", "percentunit", 4, 4),
            "Share of all thread time that could not be measured, over the time shown. Above 1 % the other numbers "
            "say less than they seem to; the row *The plugin itself* says more.",
            Query(
                ratio(threads(CLUSTERS, gain, f'activity="{Bucket.UNMEASURED}"'), threads(CLUSTERS, gain)), "unmeasured"
            ),
            steps=((None, PLAIN), (0.01, FAIR_COLOUR), (0.05, BAD_COLOUR)),
            decimals=1,
        ),
        numbers(
            About(7, "Targets down", "short", 4, 4, "no target"),
            "Schedulers that Prometheus cannot scrape now, of those that had the plugin in the time shown.",
            Query(total(down), "down"),
            steps=((None, GOOD_COLOUR), (1, BAD_COLOUR)),
        ),
    ]


def efficiency_and_workers() -> list[Any]:
    """Efficiency over time, and the workers that make least of their threads."""
    return [
        lines(
            About(20, "Efficiency and occupancy", "percentunit", 12, 8),
            "Efficiency: share of the thread time with work outstanding that was useful. Occupancy: share in which "
            "a task held the thread. The gap between the two is lost inside tasks (I/O, waiting for the GIL, "
            "spill), the gap from occupancy to 100 % outside (no task to run, waiting on data, paused).",
            Query(share(CLUSTERS, rate, GOOD), "efficiency"),
            Query(share(CLUSTERS, rate, IN_A_TASK), "occupancy"),
            colours={"efficiency": COLOURS[Bucket.THREAD_CPU], "occupancy": COLOURS[Bucket.RUNNING]},
            limit=1,
        ),
        least_efficient(21, ALL_WORKERS, height=8),
    ]


def outcomes() -> list[Any]:
    """What became of tasks, the time that went into those that did not succeed, and whose tasks took most."""
    tasks = select("dask_efficiency_tasks_total")
    by_prefix = gain(select("dask_efficiency_prefix_thread_seconds_total"))
    return [
        stack(
            About(30, "Tasks a second, by outcome", "short", 8, 8),
            "Tasks that ended, a second. *recomputed* succeeded, but its result had been there before and was lost.",
            Query(
                seen(total(rate(tasks), by="outcome"), total(gain_at_the_end(tasks), by="outcome"), by="outcome"),
                "{{outcome}}",
            ),
            colours=OUTCOME_COLOURS,
        ),
        stack(
            About(31, "Threads in vain, by outcome", "short", 8, 8, "nothing in vain"),
            "Threads, on average, whose work came to nothing: tasks that failed, were cancelled, or computed again "
            "what was lost. Booked when the task ends, so that a long task shows as a peak.",
            Query(
                seen(
                    in_vain(CLUSTERS, rate, by="bucket"), in_vain(CLUSTERS, gain_at_the_end, by="bucket"), by="bucket"
                ),
                "{{bucket}}",
            ),
            colours={str(bucket): COLOURS[bucket] for bucket in IN_VAIN},
        ),
        bars(
            About(32, f"The {MAX_BARS} task prefixes that take most", "s", 8, 8, "no task ended"),
            "Thread time of the tasks that ended in the time shown, whatever became of them, by prefix of their "
            "keys. *(other)*: the prefixes that are not exported one by one.",
            Query(f"topk({MAX_BARS}, {total(by_prefix, by='prefix')} > 0)", "{{prefix}}"),
        ),
    ]


def memory_and_data() -> list[Any]:
    """What takes memory, what too little of it costs, and on which workers; what went to disk and over the network."""
    to_memory = (Bucket.SPILL, Bucket.PAUSED)
    moved, memory = select("dask_efficiency_data_bytes_total"), select("dask_efficiency_memory_bytes")
    by_prefix = select("dask_efficiency_prefix_memory_bytes")
    return [
        stack(
            About(43, "Memory of all workers", "bytes", 12, 8, "not measured"),
            "Memory of the workers' processes: results that Dask manages (*managed*), and the rest (*unmanaged*); and "
            "results that are on disk (*spilled*), by their size in memory. The dotted line is the sum of the workers' "
            "limits, from a part of which on each worker spills, pauses, and is killed.",
            Query(total(memory, by="type"), "{{type}}"),
            Query(total(select("dask_efficiency_memory_limit_bytes")), "limit"),
            colours=MEMORY_COLOURS,
            top="limit",
        ),
        stack(
            About(44, "Results in memory, by task prefix", "bytes", 12, 8, "no results"),
            "Results in memory by prefix of their tasks, without those on disk. *(other)*: the prefixes that are not "
            "exported one by one.",
            Query(
                seen(
                    total(by_prefix, by="prefix"),
                    total(f"max_over_time({by_prefix}[$__range] @ end())", by="prefix"),
                    by="prefix",
                ),
                "{{prefix}}",
            ),
            colours={},
        ),
        stack(
            About(40, "Threads lost to memory", "short", 12, 8, "no spill and no pause"),
            "Threads, on average, that move data between memory and disk (*spill*), or may not take a task as "
            "their worker's memory is nearly full (*paused*).",
            Query(activities_seen(CLUSTERS, to_memory), "{{activity}}"),
            colours=ACTIVITY_COLOURS,
        ),
        bars(
            About(41, f"The {MAX_BARS} workers that lose most to memory", "s", 12, 8, "no spill and no pause"),
            "Thread time that spill and pause took, over the time shown, of the workers that are exported one by "
            "one. Click a bar for the worker.",
            Query(
                f"topk({MAX_BARS}, {threads(ALL_WORKERS, gain, one_of('activity', to_memory), by=WORKER)} > 0)",
                "{{worker}}",
            ),
            colour=COLOURS[Bucket.SPILL],
            link=("Show this worker", TO_ONE_WORKER),
        ),
        lines(
            About(42, "Data moved, by way", "binBps", 24, 8, "no data moved"),
            "Bytes a second of results that were *made*, went to disk (*spilled*) and came back (*read-back*), were "
            "inputs *found-in-memory*, were *received* from other workers, and *sent* to workers and clients; and of "
            "messages of P2P shuffles (*shuffled*).",
            Query(seen(total(rate(moved), by="way"), total(gain_at_the_end(moved), by="way"), by="way"), "{{way}}"),
        ),
    ]


def stragglers() -> list[Any]:
    """Who takes longer than others for the same work, and why."""
    found = select("dask_efficiency_stragglers")
    return [
        stack(
            About(45, "Stragglers by cause", "short", 12, 8, "no stragglers"),
            "Workers that take longer than their peers for the same work, by what slows them; a host of which "
            "all workers do counts once.",
            Query(
                seen(
                    total(found, by="cause"), total(f"max_over_time({found}[$__range] @ end())", by="cause"), by="cause"
                ),
                "{{cause}}",
            ),
            colours={},
            up_to=1,
        ),
        lines(
            About(46, "How many times as long stragglers take", "short", 12, 8, "no stragglers"),
            "Times as long as their peers for the same work, of the most certain stragglers; without a name, all "
            "workers of that host.",
            Query(
                f"max by ({WORKER}, host, cause) ({select('dask_efficiency_straggler_effect')})",
                "{{worker}} on {{host}}: {{cause}}",
            ),
        ),
    ]


def the_plugin_itself() -> list[Any]:
    """Whether the numbers can be trusted, and what they cost."""
    return [
        lines(
            About(50, "CPU time of the plugin", "percentunit", 8, 7),
            "CPU seconds a second that the plugin itself takes, on the scheduler and on all workers together.",
            Query(total(rate(select("dask_efficiency_plugin_cpu_seconds_total")), by="process"), "{{process}}"),
        ),
        lines(
            About(51, "Refused, stale and failed a second", "short", 8, 7),
            "In a healthy cluster all are 0, but for a few stale ones when workers come and go. *refused*: "
            "snapshots of workers that were invalid and not booked. *stale*: snapshots that came twice or late. "
            "*export failures*: metrics that could not be made.",
            Query(total(rate(select("dask_efficiency_snapshots_refused_total"))), "refused"),
            Query(total(rate(select("dask_efficiency_snapshots_stale_total"))), "stale"),
            Query(total(rate(select("dask_efficiency_export_failures_total"))), "export failures"),
            up_to=1,
        ),
        lines(
            About(52, "Not measured", "short", 8, 7),
            "*workers unmeasured*: workers that are there and not measured, as the package is missing, of another "
            "version, or failed. *schedulers off*: the plugin failed on the scheduler and switched itself off. "
            "*worker metrics limited*: schedulers with too many workers to export all one by one; then only those "
            "that make most and least of their threads are.",
            Query(total(select("dask_efficiency_unmeasured_workers")), "workers unmeasured"),
            Query(total(select("dask_efficiency_meter_off")), "schedulers off"),
            Query(total(select("dask_efficiency_worker_metrics_limited")), "worker metrics limited"),
            up_to=1,
        ),
    ]
