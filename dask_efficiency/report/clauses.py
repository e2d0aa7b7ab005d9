"""A loss, or what is not known of it, as a clause of a sentence."""

from __future__ import annotations

from collections import Counter

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.report.lost_time import WORTH_A_ROW
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.show.figures import format_count, named, sentence

#: What happened to the threads, by bucket and cause.
PHRASES: dict[tuple[str, str], str] = {
    (Bucket.THREAD_NONCPU, "gil"): "waiting for the GIL",
    (Bucket.THREAD_NONCPU, "core"): "waiting for a core",
    (Bucket.THREAD_NONCPU, "throttled"): "waiting for the container's CPU limit",
    (Bucket.THREAD_NONCPU, "stopped"): "processes that stood still",
    (Bucket.THREAD_NONCPU, "lock"): "waiting for a lock",
    (Bucket.THREAD_NONCPU, "sleep"): "sleeping",
    (Bucket.THREAD_NONCPU, "file"): "waiting for files",
    (Bucket.THREAD_NONCPU, "network"): "waiting for the network",
    (Bucket.THREAD_NONCPU, "child-process"): "waiting for child processes",
    (Bucket.OVERHEAD, "hand-over"): "handing tasks over to threads",
    (Bucket.OVERHEAD, "event-loop"): "waiting for the workers' event loops",
    (Bucket.IDLE, "scheduler"): "idle threads waiting for the scheduler",
    (Bucket.IDLE, "imbalance"): "idle threads while tasks queue at other workers",
    (Bucket.IDLE, "restricted"): "idle threads that may not run the tasks there are",
    (Bucket.IDLE, "graph"): "idle threads while the scheduler takes in graphs",
    (Bucket.IDLE, "parallelism"): "idle threads for lack of parallelism",
}


def loss_name(bucket: str, cause: str, *, in_libraries: bool = False) -> str:
    """A loss as one names it in a sentence; of a whole bucket its own name.

    Parameters
    ----------
    in_libraries
        Whether it is threads of libraries that tasks wait for at locks.
    """
    if in_libraries and (bucket, cause) == (Bucket.THREAD_NONCPU, "lock"):
        return "waiting for threads of a library"
    return PHRASES.get((bucket, cause), str(bucket))


def why_not_known(report: EfficiencyReport) -> str:
    """For what reason nobody knows why threads waited, and on which workers; empty where all is known, or is little."""
    waited = {loss.bucket: loss.share for loss in report.losses}.get(Bucket.THREAD_NONCPU, 0.0)
    if waited < WORTH_A_ROW or (report.waiting and not report.not_sampled):
        return ""
    if not report.not_sampled:
        return "why threads waited is not known here: nobody looked"
    (reason, _), *others = Counter(report.not_sampled.values()).most_common()
    workers = [worker for worker, why in report.not_sampled.items() if why == reason]
    whose = "" if len(workers) == len(report.by_worker) else f" of {named(workers)}"
    more = f", and {format_count(len(others), 'more reason')} on other workers" if others else ""
    return f"why threads{whose} waited is not known here: {sentence(reason)}{more}"
