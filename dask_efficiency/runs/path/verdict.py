"""The headline on a critical path: what bounds the run, and what would help most, in one sentence."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from dask_efficiency.runs.path.kinds import COMPUTE, Kind

EVENT_LOOPS = "the workers' event loops"

#: What keeps an event loop busy, by its name in a trace: how a sentence says it, and what helps.
LOOPS = {
    "computing": (", which computed", "shorter coroutines and callbacks, smaller results, and fewer and longer tasks"),
    "core": (", which waited for a core", "more cores, or fewer threads on them"),
    "gil": (", while other threads kept the GIL", "tasks that let go of the GIL, or processes instead of threads"),
    "call": (", which stood in calls that block", "coroutines that await instead of blocking"),
}

#: By what a sentence calls it: the kinds that one measure helps against, and that measure.
CAUSES: dict[str, tuple[tuple[Kind, ...], str]] = {
    "waiting until there was any worker": (
        (Kind.NO_WORKERS,),
        "workers that are there sooner, started before the work or kept by a minimum in adapt()",
    ),
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
    EVENT_LOOPS: (
        (Kind.WORKER_LOOP, Kind.EXECUTOR_HANDOFF),
        "longer tasks, and less that keeps these loops busy, such as a GIL that is held",
    ),
    "the client, which prepares graphs or runs your own code": (
        (Kind.CLIENT_SUBMIT,),
        "one compute() for several results, less code between them, and smaller graphs",
    ),
    "fetching results to the client": ((Kind.RESULT_GATHER,), "results that are smaller, or that stay on the workers"),
    "free slots that no task was given": ((Kind.READY_WAIT,), "more threads, or workers that are not paused"),
    "work that was lost with a worker": ((Kind.LOST_WORKER,), "workers that live: see why it died"),
}

#: From this share of the makespan on, a bound is what limits the run.
CLOSE = 0.8

#: From this share of the makespan on, a single task is what limits the run; or one that is unlike those of its prefix.
ONE_TASK, UNEVEN_TASK = 0.5, 0.25

#: From this share of the tasks' time on, it is said that they wait.
WORTH_SAYING = 0.1


def headline(
    *,
    makespan: float,
    kinds: Mapping[str, float],
    compute: Mapping[str, float],
    floor: float,
    slot_bound: float,
    longest_task: float = 0.0,
    one_a_worker: bool = False,
    uneven: bool = False,
    own_threads: Collection[str] = (),
    loops: Mapping[str, float] | None = None,
) -> str:
    """What bounds a run, and what would help most.

    Parameters
    ----------
    makespan, floor, slot_bound, longest_task
        Seconds of the whole run, of its longest chain of tasks, of its work divided by its slots, and of the longest
        task on that chain.
    kinds
        Seconds of the makespan by kind.
    compute
        Seconds of the makespan in which tasks ran, by prefix, largest first.
    one_a_worker
        Whether that task is one of those that each worker has one of.
    uneven
        Whether it took several times as long as the others of its prefix.
    own_threads
        Prefixes whose tasks compute in threads of their own, too.
    loops
        Seconds of ``worker-loop`` by what kept the event loop busy, as far as that was recorded, largest first.

    Returns
    -------
    str
        One sentence, without a full stop.
    """
    if not makespan:
        return "Nothing took any time"
    named = {name: sum(kinds.get(kind, 0.0) for kind in members) for name, (members, _) in CAUSES.items()}
    running = sum(kinds.get(kind, 0.0) for kind in COMPUTE)
    unknown = kinds.get(Kind.UNATTRIBUTED, 0.0)
    cause, seconds = max(named.items(), key=lambda item: item[1])
    took = f"The makespan is {makespan:.3g} s: "
    if unknown >= max(seconds, running):
        return f"{took}{_share(unknown, makespan)} of the critical path cannot be explained from what was recorded"
    if seconds > running:
        reason, advice = "", CAUSES[cause][1]
        busy, most = next(iter((loops or {}).items()), ("", 0.0))
        if cause == EVENT_LOOPS and busy in LOOPS and most > seconds / 2:
            reason, advice = LOOPS[busy]
        return f"{took}{_share(seconds, makespan)} of the critical path is {cause}{reason}: what helps most is {advice}"
    waiting = kinds.get(Kind.COMPUTE_NONCPU, 0.0)
    where = f"{took}{_share(running, makespan)} of the critical path is tasks"
    prefix, most = next(iter(compute.items()), ("-", 0.0))
    name = prefix if len(prefix) <= 60 else prefix[:57] + "..."
    longest = f"{name!r}, {_share(most, makespan)} of it"
    with_workers = makespan - kinds.get(Kind.NO_WORKERS, 0.0)
    bound = _bound(with_workers, floor, slot_bound, longest_task, uneven=uneven)
    if bound == "task" and (one_a_worker or prefix in own_threads):
        bound = "each" if one_a_worker else "own"
    order = _ORDERS[bound].format(longest=longest_task, share=_share(longest_task, with_workers))
    if waiting > running / 2:
        return where + _waits(waiting / running, longest, order)
    return where + _computes(waiting / running, order) + _HELPS[bound].format(name=repr(name), longest=longest)


#: By what limits the run, as of :func:`_bound`, or a task that is one a worker or has its own threads: how it is said.
_ORDERS = {
    "task": ", one of which takes {longest:.3g} s, {share}",
    "uneven": ", one of which takes {longest:.3g} s, {share}",
    "each": ", one on each worker, of which the longest takes {longest:.3g} s, {share}",
    "own": ", one of which takes {longest:.3g} s, {share}, in threads of its own",
    "chain": ", one after the other",
    "slots": ", on slots that were nearly always busy",
    "": "",
}

#: By the same: what helps tasks that compute; the longest prefix on the path is filled in, alone or with its share.
_HELPS = {
    "task": "to split that task of {name}; more workers do not help",
    "uneven": "to split that task of {name}",
    "each": "a faster {longest}",
    "own": "a faster {longest}",
    "chain": "a faster {longest}; more workers do not help",
    "slots": "more threads, or a faster {longest}",
    "": "a faster {longest}",
}


def _bound(makespan: float, floor: float, slot_bound: float, longest_task: float, *, uneven: bool) -> str:
    if longest_task >= ONE_TASK * makespan:  # one task that is most of a chain is no chain
        return "task"
    if uneven and longest_task >= UNEVEN_TASK * makespan:
        return "uneven"
    if floor >= CLOSE * makespan:
        return "chain"
    return "slots" if slot_bound >= CLOSE * makespan else ""


def _computes(waiting: float, order: str) -> str:
    """What is said of tasks that mostly compute, up to what helps."""
    said = f" that mostly compute ({_share(waiting, 1.0)} waiting)" if waiting >= WORTH_SAYING else " that compute"
    return f"{said}{order}: what helps most is "


def _waits(waiting: float, longest: str, order: str) -> str:
    """What is said of tasks that are mostly off the CPU. The reason is not known, so nothing is promised to help."""
    said = f" that are mostly off the CPU ({_share(1.0 - waiting, 1.0)} on it){order}"
    return f"{said}: see what {longest}, waits for: I/O, a lock, the GIL, a core, or threads of a library"


def _share(seconds: float, makespan: float) -> str:
    return f"{100 * seconds / makespan:.0f} %"
