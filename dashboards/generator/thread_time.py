"""What the threads did: a stack over time, and a pie of all of it."""

from __future__ import annotations

from typing import Any

from dashboards.generator.panels import OTHER, About, Query, pie, stack
from dashboards.generator.queries import CHOSEN_WORKERS, IN_A_TASK, Subject, activities_seen, gain, nthreads, threads
from dask_efficiency.accounts.buckets import GOOD, Bucket
from dask_efficiency.accounts.cluster.account import ACTIVITIES
from dask_efficiency.show.drawn_buckets import COLOURS

#: Slices of a pie, the folded rest not counted.
MAX_SLICES = 6

ACTIVITY_COLOURS = {activity: COLOURS[Bucket(activity)] for activity in ACTIVITIES}

#: From the bottom of a stack upwards. Within a layer the names are in alphabetical order.
LAYERS = (
    tuple(map(str, GOOD)),
    tuple(str(bucket) for bucket in IN_A_TASK if bucket not in GOOD),
    tuple(a for a in ACTIVITIES if a not in (*IN_A_TASK, Bucket.NO_WORK, Bucket.LOST_WORKER, Bucket.UNMEASURED)),
    (str(Bucket.LOST_WORKER), str(Bucket.UNMEASURED)),
    (str(Bucket.NO_WORK),),
)


def thread_time(of: Subject) -> list[Any]:
    """What the threads did: over time, and all in all."""
    whose = "of the chosen workers " if of is CHOSEN_WORKERS else ""
    layers = [Query(activities_seen(of, layer), "{{activity}}") for layer in LAYERS]
    slices = f"({threads(of, gain, by='activity')} > 0)"
    return [
        stack(
            About(10, "What the threads did", "short", 16, 10),
            f"The threads {whose}by what they were doing, running tasks included. They add up to the dotted line, "
            "the number of threads. Green and blue is useful.",
            *layers,
            Query(nthreads(of), "threads"),
            colours=ACTIVITY_COLOURS,
            top="threads",
            legend="right",
        ),
        pie(
            About(11, "Where the thread time went", "s", 8, 10),
            f"All thread time {whose}in the time shown, by what the threads were doing. What does not fit is "
            f"folded into *{OTHER}*.",
            Query(f"topk({MAX_SLICES}, {slices})", "{{activity}}"),
            Query(f"sum({slices} unless topk({MAX_SLICES}, {slices}))", OTHER),
            colours=ACTIVITY_COLOURS,
        ),
    ]
