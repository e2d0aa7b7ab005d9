"""PromQL over the plugin's metrics, for the schedulers and workers that are chosen on the dashboard."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dask_efficiency.accounts.buckets import GOOD, HELD, Bucket
from dask_efficiency.accounts.cluster.account import ACTIVITIES

#: What is chosen on every dashboard. A ``cluster`` label is there only if the scrape configuration sets it:
#: its "All" is ``.*``, which an absent label matches too.
CHOSEN = ('cluster=~"$cluster"', 'job=~"$job"', 'instance=~"$instance"')


@dataclass(frozen=True, slots=True)
class Subject:
    """Whose thread time is asked for: the metrics that hold it, and what is chosen of them."""

    activity: str
    finalized: str
    nthreads: str
    chosen: tuple[str, ...]


def _of(prefix: str, chosen: tuple[str, ...]) -> Subject:
    activity, finalized = f"{prefix}_thread_activity_seconds_total", f"{prefix}_thread_seconds_total"
    return Subject(activity, finalized, f"{prefix}_nthreads", chosen)


CLUSTERS = _of("dask_efficiency", CHOSEN)
ALL_WORKERS = _of("dask_efficiency_worker", CHOSEN)
CHOSEN_WORKERS = _of("dask_efficiency_worker", (*CHOSEN, 'worker=~"$worker"'))

#: How a counter's increase is taken.
Growth = Callable[[str], str]

#: Labels that tell one worker from any other: names repeat from cluster to cluster.
WORKER = "cluster, job, instance, worker"

#: Where threads are when a task holds them.
IN_A_TASK = tuple(bucket for bucket in HELD if bucket in ACTIVITIES)
#: What a task did in vain, whatever its thread was doing meanwhile.
IN_VAIN = (Bucket.FAILED, Bucket.CANCELLED, Bucket.RECOMPUTED)

#: Time that counts: without it nobody could have done anything.
WITH_WORK = f'activity!="{Bucket.NO_WORK}"'
#: Threads with work, in the mean, that are none: when work ends, threads of some workers seem idle for a moment.
LEAST_THREADS = 0.01
#: Of that, the time that was not useful.
LOST = f'activity!~"{"|".join((*GOOD, Bucket.NO_WORK))}"'


def select(metric: str, *matchers: str, chosen: Iterable[str] = CHOSEN) -> str:
    """The series of a metric that are chosen on the dashboard."""
    return f"{metric}{{{', '.join((*matchers, *chosen))}}}"


def one_of(label: str, values: Iterable[str]) -> str:
    """Matches series whose label has one of these values."""
    return f'{label}=~"{"|".join(values)}"'


def rate(series: str) -> str:
    """Increase a second, point by point."""
    return f"rate({series}[$__rate_interval])"


def gain(series: str) -> str:
    """Increase over the whole time that the dashboard shows."""
    return f"increase({series}[$__range])"


def gain_at_the_end(series: str) -> str:
    """:func:`gain`, the same at every point of a graph: with it a series is shown all along or not at all."""
    return f"increase({series}[$__range] @ end())"


def total(expression: str, *, by: str = "") -> str:
    """Sum over everything, or by labels."""
    return f"sum by ({by}) ({expression})" if by else f"sum({expression})"


def ratio(part: str, whole: str, *, above: float = 0) -> str:
    """A quotient; no series, rather than NaN or chance, where the whole is no larger than this."""
    return f"{part} / ({whole} > {above})"


def seen(now: str, in_all: str, *, by: str) -> str:
    """Series of a graph, without those that have nothing in all of it."""
    return f"{now} and on ({by}) ({in_all} > 0)"


def threads(of: Subject, grow: Growth, *matchers: str, by: str = "") -> str:
    """Thread time of the activity view, in threads (:func:`rate`) or thread-seconds (:func:`gain`)."""
    return total(grow(select(of.activity, *matchers, chosen=of.chosen)), by=by)


def share(of: Subject, grow: Growth, activities: Iterable[str], *, by: str = "") -> str:
    """Share of the thread time with work outstanding that went to some activities, in [0, 1]."""
    part, whole = threads(of, grow, one_of("activity", activities), by=by), threads(of, grow, WITH_WORK, by=by)
    return ratio(part, whole, above=LEAST_THREADS if grow is rate else 0)


def activities_seen(of: Subject, activities: Iterable[str]) -> str:
    """Threads by what they were doing, without what none of them ever did in the graph."""
    which = one_of("activity", activities)
    return seen(
        threads(of, rate, which, by="activity"), threads(of, gain_at_the_end, which, by="activity"), by="activity"
    )


def in_vain(of: Subject, grow: Growth, *, by: str = "") -> str:
    """Thread time of tasks that failed, were cancelled, or computed what was there before."""
    return total(grow(select(of.finalized, one_of("bucket", IN_VAIN), chosen=of.chosen)), by=by)


def nthreads(of: Subject) -> str:
    """Threads that are there."""
    return total(select(of.nthreads, chosen=of.chosen))


def mean_threads(of: Subject) -> str:
    """Threads while there were any: a cluster that comes and goes is not spread over the time without it."""
    return f"avg_over_time(({nthreads(of)} > 0)[$__range:$__interval])"


def metrics(expression: str) -> list[str]:
    """Names of the metrics in an expression, in order."""
    return list(dict.fromkeys(re.findall(r"\b(?:dask_\w+|up|ALERTS)(?=\{)", expression)))
