"""The verdict on a critical path: what bounds the run, and what would help most, in one sentence."""

from __future__ import annotations

from collections.abc import Mapping

from dask_efficiency.paths.kinds import COMPUTE, Kind

#: Kinds that one measure helps against, by what they are called in a sentence, and that measure.
CAUSES: dict[str, tuple[tuple[Kind, ...], str]] = {
    "moving results between workers": (
        (Kind.TRANSFER, Kind.TRANSFER_QUEUE),
        "smaller results, fewer and larger workers, or tasks that run where their inputs are",
    ),
    "the scheduler and its messages": (
        (
            Kind.GRAPH_UPDATE,
            Kind.SCHEDULER_TRANSITION,
            Kind.SCHEDULER_QUEUE,
            Kind.SCHEDULER_TO_WORKER,
            Kind.REPORT,
        ),
        "fewer and longer tasks",
    ),
    "moving results between memory and disk": ((Kind.SPILL, Kind.UNSPILL), "more memory, or smaller partitions"),
    "the workers' event loops": (
        (Kind.WORKER_LOOP, Kind.EXECUTOR_HANDOFF),
        "longer tasks, and tasks that let go of the GIL",
    ),
    "the client, which prepares graphs, fetches results or does other things": (
        (Kind.CLIENT_SUBMIT, Kind.RESULT_GATHER),
        "fewer compute() calls, smaller graphs and smaller results",
    ),
    "free slots that no task was given": ((Kind.READY_WAIT,), "more threads, or workers that are not paused"),
    "work that was lost with a worker": ((Kind.LOST_WORKER,), "workers that live: see why it died"),
}

#: A bound is what the run is up against when it makes up this share of the makespan.
CLOSE = 0.8


def verdict(
    *,
    makespan: float,
    kinds: Mapping[str, float],
    compute: Mapping[str, float],
    floor: float,
    slot_bound: float,
) -> str:
    """What bounds a run, and what would help most.

    Parameters
    ----------
    makespan, floor, slot_bound
        Seconds.
    kinds
        Seconds of the makespan by kind.
    compute
        Seconds of the makespan in which tasks computed, by prefix, largest first.
    """
    if not makespan:
        return "Nothing took any time."
    named = {name: sum(kinds.get(kind, 0.0) for kind in members) for name, (members, _) in CAUSES.items()}
    computing = sum(kinds.get(kind, 0.0) for kind in COMPUTE)
    unknown = kinds.get(Kind.UNATTRIBUTED, 0.0)
    cause, seconds = max(named.items(), key=lambda item: item[1])
    took = f"The run took {makespan:.3g} s"
    if unknown >= max(seconds, computing):
        return f"{took}, {_share(unknown, makespan)} of it cannot be explained from what was recorded."
    if seconds > computing:
        return f"{took}, {_share(seconds, makespan)} of it for {cause}: what helps most is {CAUSES[cause][1]}."
    prefix, most = next(iter(compute.items()), ("-", 0.0))
    name = repr(prefix if len(prefix) <= 60 else prefix[:57] + "...")
    share = f"{_share(computing, makespan)} of it for tasks that compute"
    faster = f"a faster {name}, {_share(most, makespan)} of the path"
    if floor >= CLOSE * makespan:
        return f"{took}, {share} one after the other: what helps most is {faster}; more workers do not help."
    if slot_bound >= CLOSE * makespan:
        return f"{took}, {share}, on slots that were nearly always busy: what helps most is more threads, or {faster}."
    return f"{took}, {share}: what helps most is {faster}."


def _share(seconds: float, makespan: float) -> str:
    return f"{100 * seconds / makespan:.0f} %"
