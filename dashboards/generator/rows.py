"""The rows of the dashboards: a function each, which gives its panels from left to right."""

from __future__ import annotations

from typing import Any

from dashboards.generator.panels import (
    BAD_COLOUR,
    EFFICIENCY_STEPS,
    FAIR_COLOUR,
    GOOD_COLOUR,
    OTHER,
    PLAIN,
    About,
    Query,
    bars,
    lines,
    numbers,
    pie,
    stack,
)
from dashboards.generator.queries import (
    ALL_WORKERS,
    CHOSEN_WORKERS,
    CLUSTERS,
    IN_A_TASK,
    IN_VAIN,
    LOST,
    WITH_WORK,
    WORKER,
    Subject,
    gain,
    gain_at_the_end,
    in_vain,
    mean_threads,
    nthreads,
    one_of,
    rate,
    ratio,
    select,
    share,
    threads,
    total,
)
from dask_efficiency.buckets import GOOD, Bucket
from dask_efficiency.cluster import ACTIVITIES
from dask_efficiency.ledger import Outcome
from dask_efficiency.report.colours import COLOURS

#: Fixed, so that links keep working.
OVERVIEW_UID, WORKERS_UID = "dask-efficiency-overview", "dask-efficiency-workers"

#: The workers' dashboard for one worker, with the time and the other choices kept.
TO_ONE_WORKER = (
    f"/d/{WORKERS_UID}?var-worker=${{__field.labels.worker:percentencode}}"
    "&${datasource:queryparam}&${cluster:queryparam}&${job:queryparam}&${instance:queryparam}&${__url_time_range}"
)

#: Bars in a panel that has one for each worker.
MAX_BARS = 10

#: Slices of a pie, the folded rest not counted.
MAX_SLICES = 6

ACTIVITY_COLOURS = {activity: COLOURS[Bucket(activity)] for activity in ACTIVITIES}

OUTCOME_COLOURS = {
    str(Outcome.SUCCEEDED): COLOURS[Bucket.THREAD_CPU],
    str(Outcome.FAILED): COLOURS[Bucket.FAILED],
    str(Outcome.CANCELLED): COLOURS[Bucket.CANCELLED],
    str(Outcome.RECOMPUTED): COLOURS[Bucket.RECOMPUTED],
}

#: From the bottom of a stack upwards. Within a layer the names are in alphabetical order.
LAYERS = (
    tuple(map(str, GOOD)),
    tuple(str(bucket) for bucket in IN_A_TASK if bucket not in GOOD),
    tuple(a for a in ACTIVITIES if a not in (*IN_A_TASK, Bucket.NO_WORK, Bucket.LOST_WORKER, Bucket.UNMEASURED)),
    (str(Bucket.LOST_WORKER), str(Bucket.UNMEASURED), str(Bucket.NO_WORK)),
)

NO_WORKERS = "no workers, or so many that their metrics are off"


def overview_strip() -> list[Any]:
    """The overview in one row of numbers, all of them over the time shown."""
    up = f"{select('up')} == bool 0 and on (cluster, job, instance) last_over_time({select(CLUSTERS.nthreads)}[$__range])"
    return [
        numbers(
            About(
                1,
                "Efficiency",
                "Share of the threads' time that did useful work, over the time shown: computing over all time with "
                "work outstanding. 80 % and above is good. Tasks that fail count as what their thread did; see "
                "*Thread-hours in vain*.",
                "percentunit",
                width=4,
                height=4,
            ),
            Query(share(CLUSTERS, gain, GOOD), "efficiency"),
            steps=EFFICIENCY_STEPS,
            decimals=0,
        ),
        numbers(
            About(
                2,
                "Actual and ideal time",
                "How long there was work outstanding in the time shown, and how long the same work would have taken "
                "with all threads always useful. A graph may not have that much parallelism.",
                "s",
                width=5,
                height=4,
            ),
            Query(f"{threads(CLUSTERS, gain, WITH_WORK)} / {mean_threads(CLUSTERS)}", "actual"),
            Query(f"{threads(CLUSTERS, gain, one_of('activity', GOOD))} / {mean_threads(CLUSTERS)}", "ideal"),
        ),
        numbers(
            About(
                3,
                "Lost thread-hours",
                "Thread time, in hours, that was not useful although there was work, over the time shown. One thread "
                "that does nothing for an hour is one.",
                "short",
                width=3,
                height=4,
            ),
            Query(f"{threads(CLUSTERS, gain, LOST)} / 3600", "lost"),
            decimals=1,
        ),
        numbers(
            About(
                4,
                "Thread-hours in vain",
                "Thread time, in hours, of tasks that failed, were cancelled, or computed again what was lost, over the "
                "time shown. Booked when the task ends. Its computing is in *Efficiency* as useful.",
                "short",
                width=3,
                height=4,
            ),
            Query(f"{in_vain(CLUSTERS, gain)} / 3600", "in vain"),
            decimals=1,
        ),
        numbers(
            About(5, "Workers and threads", "Workers and their threads at the end of the time shown.", "short", 4, 4),
            Query(total(select("dask_scheduler_workers")), "workers"),
            Query(nthreads(CLUSTERS), "threads"),
        ),
        numbers(
            About(
                6,
                "Unmeasured",
                "Share of all thread time that could not be measured, over the time shown. Above 1 % the other numbers "
                "say less than they seem to; the row *The plugin itself* says more.",
                "percentunit",
                width=3,
                height=4,
            ),
            Query(
                ratio(threads(CLUSTERS, gain, f'activity="{Bucket.UNMEASURED}"'), threads(CLUSTERS, gain)), "unmeasured"
            ),
            steps=((None, PLAIN), (0.01, FAIR_COLOUR), (0.05, BAD_COLOUR)),
            decimals=1,
        ),
        numbers(
            About(
                7,
                "Targets down",
                "Schedulers that Prometheus cannot scrape now, of those that had the plugin in the time shown.",
                "short",
                width=2,
                height=4,
                no_value="no target",
            ),
            Query(total(up), "down"),
            steps=((None, GOOD_COLOUR), (1, BAD_COLOUR)),
        ),
    ]


def thread_time() -> list[Any]:
    """What the threads did: over time, and all in all."""
    return _thread_time(10, CLUSTERS)


def efficiency_and_workers() -> list[Any]:
    """Efficiency over time, and the workers that make least of their threads."""
    return [
        lines(
            About(
                20,
                "Efficiency and occupancy",
                "Efficiency: share of the thread time with work outstanding that was useful. Occupancy: share in which "
                "a task held the thread. The gap between the two is lost inside tasks (I/O, waiting for the GIL, spill), "
                "the gap from occupancy to 100 % outside (no task to run, waiting on data, paused).",
                "percentunit",
                width=12,
                height=8,
            ),
            Query(share(CLUSTERS, rate, GOOD), "efficiency"),
            Query(share(CLUSTERS, rate, IN_A_TASK), "occupancy"),
            colours={"efficiency": COLOURS[Bucket.THREAD_CPU], "occupancy": COLOURS[Bucket.RUNNING]},
            limit=1,
        ),
        _least_efficient(21, ALL_WORKERS, height=8),
    ]


def tasks() -> list[Any]:
    """What became of tasks, and the time that went into those that did not succeed."""
    return [
        stack(
            About(
                30,
                "Tasks a second, by outcome",
                "Tasks that ended, a second. *recomputed* succeeded, but its result had been there before and was lost.",
                "short",
                width=12,
                height=8,
            ),
            Query(total(rate(select("dask_efficiency_tasks_total")), by="outcome"), "{{outcome}}"),
            colours=OUTCOME_COLOURS,
        ),
        stack(
            About(
                31,
                "Threads in vain, by outcome",
                "Threads, on average, whose work came to nothing: tasks that failed, were cancelled, or computed again "
                "what was lost. Booked when the task ends, so that a long task shows as a peak.",
                "short",
                width=12,
                height=8,
            ),
            Query(
                in_vain(CLUSTERS, rate, by="bucket"),
                "{{bucket}}",
            ),
            colours={str(bucket): COLOURS[bucket] for bucket in IN_VAIN},
        ),
    ]


def spill_and_pause() -> list[Any]:
    """What too little memory costs, and on which workers."""
    memory = one_of("activity", (Bucket.SPILL, Bucket.PAUSED))
    return [
        stack(
            About(
                40,
                "Threads lost to memory",
                "Threads, on average, that move data between memory and disk (*spill*), or may not take a task as their "
                "worker's memory is nearly full (*paused*).",
                "short",
                width=12,
                height=8,
            ),
            Query(threads(CLUSTERS, rate, memory, by="activity"), "{{activity}}"),
            colours=ACTIVITY_COLOURS,
        ),
        bars(
            About(
                41,
                f"The {MAX_BARS} workers that lose most to memory",
                "Thread time that spill and pause took, over the time shown. Click a bar for the worker.",
                "s",
                width=12,
                height=8,
                no_value="no spill and no pause, or worker metrics are off",
            ),
            Query(
                f"topk({MAX_BARS}, {threads(ALL_WORKERS, gain, memory, by=WORKER)} > 0)",
                "{{worker}}",
            ),
            colour=COLOURS[Bucket.SPILL],
            link=("Show this worker", TO_ONE_WORKER),
        ),
    ]


def the_plugin_itself() -> list[Any]:
    """Whether the numbers can be trusted, and what they cost."""
    return [
        lines(
            About(
                50,
                "CPU time of the plugin",
                "CPU seconds a second that the plugin itself takes, on the scheduler and on all workers together.",
                "percentunit",
                width=8,
                height=7,
            ),
            Query(total(rate(select("dask_efficiency_plugin_cpu_seconds_total")), by="process"), "{{process}}"),
        ),
        lines(
            About(
                51,
                "Refused, stale and failed a second",
                "In a healthy cluster all are 0, but for a few stale ones when workers come and go. *refused*: snapshots "
                "of workers that were invalid and not booked. *stale*: snapshots that came twice or late. *export "
                "failures*: metrics that could not be made.",
                "short",
                width=8,
                height=7,
            ),
            Query(total(rate(select("dask_efficiency_snapshots_refused_total"))), "refused"),
            Query(total(rate(select("dask_efficiency_snapshots_stale_total"))), "stale"),
            Query(total(rate(select("dask_efficiency_export_failures_total"))), "export failures"),
        ),
        lines(
            About(
                52,
                "Not measured",
                "*workers unmeasured*: workers that are there and not measured, as the package is missing, of another "
                "version, or failed. *schedulers off*: the plugin failed on the scheduler and switched itself off. "
                "*worker metrics off*: schedulers with too many workers to export them one by one.",
                "short",
                width=8,
                height=7,
            ),
            Query(total(select("dask_efficiency_unmeasured_workers")), "workers unmeasured"),
            Query(total(select("dask_efficiency_meter_off")), "schedulers off"),
            Query(total(select("dask_efficiency_worker_metrics_off")), "worker metrics off"),
        ),
    ]


def worker_strip() -> list[Any]:
    """The chosen workers in one row of numbers."""
    return [
        numbers(
            About(
                1,
                "Efficiency",
                "Share of the chosen workers' thread time with work outstanding that was useful, over the time shown.",
                "percentunit",
                width=5,
                height=4,
            ),
            Query(share(CHOSEN_WORKERS, gain, GOOD), "efficiency"),
            steps=EFFICIENCY_STEPS,
            decimals=0,
        ),
        numbers(
            About(
                2,
                "Lost thread-hours",
                "Thread time of the chosen workers, in hours, that was not useful although there was work, over the time "
                "shown.",
                "short",
                width=4,
                height=4,
            ),
            Query(f"{threads(CHOSEN_WORKERS, gain, LOST)} / 3600", "lost"),
            decimals=1,
        ),
        numbers(
            About(
                3,
                "Thread-hours in vain",
                "Thread time of the chosen workers, in hours, of tasks that failed, were cancelled, or computed again "
                "what was lost, over the time shown.",
                "short",
                width=4,
                height=4,
            ),
            Query(f"{in_vain(CHOSEN_WORKERS, gain)} / 3600", "in vain"),
            decimals=1,
        ),
        numbers(
            About(4, "Workers and threads", "The chosen workers that are there now, and their threads.", "short", 5, 4),
            Query(f"count({select(CHOSEN_WORKERS.nthreads, chosen=CHOSEN_WORKERS.chosen)})", "workers"),
            Query(nthreads(CHOSEN_WORKERS), "threads"),
        ),
        numbers(
            About(
                5,
                "Worker metrics off",
                "Schedulers with so many workers that they are not exported one by one. Then this dashboard says nothing "
                "about their workers; the overview has their totals.",
                "short",
                width=6,
                height=4,
            ),
            Query(total(select("dask_efficiency_worker_metrics_off")), "off"),
            steps=((None, GOOD_COLOUR), (1, FAIR_COLOUR)),
        ),
    ]


def worker_thread_time() -> list[Any]:
    """What the threads of the chosen workers did."""
    return _thread_time(10, CHOSEN_WORKERS)


def worker_comparison() -> list[Any]:
    """How far the chosen workers are apart, and which are behind."""
    each = share(CHOSEN_WORKERS, rate, GOOD, by=WORKER)
    return [
        lines(
            About(
                20,
                "Efficiency of the workers",
                "The lowest, the median and the highest efficiency of the chosen workers. Far apart: the work is shared "
                "unevenly, or some workers are slower.",
                "percentunit",
                width=12,
                height=9,
            ),
            Query(f"min({each})", "lowest"),
            Query(f"quantile(0.5, {each})", "median"),
            Query(f"max({each})", "highest"),
            colours={"lowest": BAD_COLOUR, "median": PLAIN, "highest": GOOD_COLOUR},
            limit=1,
        ),
        _least_efficient(21, CHOSEN_WORKERS, height=9),
    ]


def worker_tasks() -> list[Any]:
    """Tasks of the chosen workers that have not ended, and those that came to nothing."""
    running = total(select("dask_efficiency_worker_running_thread_seconds", chosen=CHOSEN_WORKERS.chosen), by=WORKER)
    return [
        bars(
            About(
                30,
                "Held by tasks that have not ended",
                "Thread time that the tasks a worker is running now have taken so far. A worker far ahead of the others "
                "has long tasks, or one that hangs.",
                "s",
                width=12,
                height=8,
                no_value=NO_WORKERS,
            ),
            Query(f"topk({MAX_BARS}, {running})", "{{worker}}"),
            colour=COLOURS[Bucket.RUNNING],
            link=("Show this worker", TO_ONE_WORKER),
        ),
        bars(
            About(
                31,
                "In vain, by worker",
                "Thread time of tasks that failed, were cancelled, or computed again what was lost, over the time shown.",
                "s",
                width=12,
                height=8,
                no_value="nothing in vain, or worker metrics are off",
            ),
            Query(f"topk({MAX_BARS}, {in_vain(CHOSEN_WORKERS, gain, by=WORKER)} > 0)", "{{worker}}"),
            colour=COLOURS[Bucket.FAILED],
            link=("Show this worker", TO_ONE_WORKER),
        ),
    ]


def worker_spill_and_pause() -> list[Any]:
    """What too little memory costs each of the chosen workers."""
    return [
        lines(
            About(
                identity,
                title,
                text + " The workers with most of it over the time shown.",
                "short",
                width=12,
                height=8,
                no_value=f"no {activity}",
            ),
            Query(_busiest(f'activity="{activity}"'), "{{worker}}"),
        )
        for identity, activity, title, text in (
            (
                40,
                Bucket.SPILL,
                "Threads that spill, by worker",
                "Threads, on average, that move data between memory and disk.",
            ),
            (
                41,
                Bucket.PAUSED,
                "Threads paused, by worker",
                "Threads, on average, that may not take a task, as their worker's memory is nearly full.",
            ),
        )
    ]


def _thread_time(first_id: int, of: Subject) -> list[Any]:
    whose = "of the chosen workers " if of is CHOSEN_WORKERS else ""
    seen = f"{threads(of, gain_at_the_end, by='activity')} > 0"
    layers = [
        Query(
            f"{threads(of, rate, one_of('activity', layer), by='activity')} and on (activity) ({seen})",
            "{{activity}}",
        )
        for layer in LAYERS
    ]
    slices = f"({threads(of, gain, by='activity')} > 0)"
    return [
        stack(
            About(
                first_id,
                "What the threads did",
                f"The threads {whose}by what they were doing, running tasks included. They add up to the dotted line, "
                "the number of threads. Green and blue is useful.",
                "short",
                width=16,
                height=11,
            ),
            *layers,
            Query(nthreads(of), "threads"),
            colours=ACTIVITY_COLOURS,
            top="threads",
            legend="right",
        ),
        pie(
            About(
                first_id + 1,
                "Where the thread time went",
                f"All thread time {whose}in the time shown, by what the threads were doing. What does not fit is folded "
                f"into *{OTHER}*.",
                "s",
                width=8,
                height=11,
            ),
            Query(f"topk({MAX_SLICES}, {slices})", "{{activity}}"),
            Query(f"sum({slices} unless topk({MAX_SLICES}, {slices}))", OTHER),
            colours=ACTIVITY_COLOURS,
        ),
    ]


def _least_efficient(identity: int, of: Subject, *, height: int) -> Any:
    return bars(
        About(
            identity,
            f"The {MAX_BARS} least efficient workers",
            "Efficiency of each worker over the time shown, the lowest first. Click a bar for the worker.",
            "percentunit",
            width=12,
            height=height,
            no_value=NO_WORKERS,
        ),
        Query(f"bottomk({MAX_BARS}, {share(of, gain, GOOD, by=WORKER)})", "{{worker}}"),
        steps=EFFICIENCY_STEPS,
        limit=1,
        link=("Show this worker", TO_ONE_WORKER),
    )


def _busiest(matcher: str) -> str:
    now = threads(CHOSEN_WORKERS, rate, matcher, by=WORKER)
    all_in_all = threads(CHOSEN_WORKERS, gain_at_the_end, matcher, by=WORKER)
    return f"{now} and on ({WORKER}) topk({MAX_BARS}, {all_in_all} > 0)"
