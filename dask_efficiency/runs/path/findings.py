"""Findings of a critical path: the parts of the wall clock, and what the run could save at most without each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dask_efficiency.runs.path.kinds import COMPUTE, Kind
from dask_efficiency.runs.path.parts import SHARE, PathPart, finding
from dask_efficiency.show.figures import format_seconds, format_share, lower_first, name_of, shorten
from dask_efficiency.show.finding import MOST

if TYPE_CHECKING:
    from dask_efficiency.runs.path.path import CriticalPath

SPILL, SCHEDULER, EVENT_LOOPS, UNKNOWN = "path/spill", "path/scheduler", "path/event-loop", "path/unattributed"

#: By kind of finding: the kinds of a path's time that one measure reduces.
MEMBERS: dict[str, tuple[Kind, ...]] = {
    "path/no-workers": (Kind.NO_WORKERS,),
    "path/transfer": (Kind.TRANSFER, Kind.TRANSFER_QUEUE),
    SCHEDULER: (
        *(Kind.GRAPH_UPDATE, Kind.SCHEDULER_TRANSITION, Kind.SCHEDULER_QUEUE),
        *(Kind.SCHEDULER_TO_WORKER, Kind.REPORT),
    ),
    SPILL: (Kind.SPILL, Kind.UNSPILL),
    EVENT_LOOPS: (Kind.WORKER_LOOP, Kind.EXECUTOR_HANDOFF),
    "path/client": (Kind.CLIENT_SUBMIT,),
    "path/result-gather": (Kind.RESULT_GATHER,),
    "path/ready-wait": (Kind.READY_WAIT,),
    "path/lost-worker": (Kind.LOST_WORKER,),
    UNKNOWN: (Kind.UNATTRIBUTED,),
}

#: Findings that name the worker, not the prefix.
ON_WORKERS = (SPILL, EVENT_LOOPS, "path/ready-wait", "path/lost-worker")
MAKE_FASTER = "Make these tasks faster."
SPLIT = "Make several smaller tasks of it, if one thread does all its work."

#: By kind of finding: its title, which also ends a sentence that begins with a share of the path, and the advice.
TITLES = {
    "path/no-workers": ("Waiting until there was any worker", "Start workers sooner, or keep some by adapt(minimum=)."),
    "path/transfer": (
        "Moving results between workers",
        "Return smaller results, use fewer and larger workers, or run tasks where their inputs are.",
    ),
    SCHEDULER: ("The scheduler and its messages", "Run fewer and longer tasks."),
    SPILL: ("Moving results between memory and disk", "Use more memory, or smaller partitions."),
    EVENT_LOOPS: ("The workers' event loops", "Run longer tasks, and less that keeps these loops busy."),
    # By cause of a blocked event loop, named as in a trace.
    f"{EVENT_LOOPS}-computing": (
        "The workers' event loops, which computed",
        "Shorten coroutines and callbacks, return smaller results, and run longer tasks.",
    ),
    f"{EVENT_LOOPS}-core": ("The workers' event loops, which waited for a core", "Use more cores or fewer threads."),
    f"{EVENT_LOOPS}-gil": (
        "The workers' event loops, while other threads kept the GIL",
        "Let tasks release the GIL, or spread threads over more processes.",
    ),
    f"{EVENT_LOOPS}-call": ("The workers' event loops, in calls that block", "Await in coroutines instead."),
    "path/client": (
        "The client, which prepares graphs or runs your own code",
        "Ask for several results in one compute(), do less between calls, and build smaller graphs.",
    ),
    "path/result-gather": ("Fetching results to the client", "Fetch smaller results, or leave them on the workers."),
    "path/ready-wait": ("Free slots that no task was given", "Use more threads, or workers that are not paused."),
    "path/lost-worker": ("Work that was lost with a worker", "See why it died."),
    UNKNOWN: ("Time that nothing recorded explains", ""),
    # Tasks, by the limit of the run.
    "path/task-noncpu": (
        "Tasks, mostly off the CPU",
        "See what they wait for: I/O, a lock, the GIL, a core, or a library's threads.",
    ),
    "path/long-task": ("Tasks, one of them most of the run", SPLIT),
    "path/uneven-task": ("Tasks, one far longer than its like", SPLIT),
    "path/task-per-worker": ("Tasks, one on each worker", MAKE_FASTER),
    "path/chain": ("Tasks, one after the other", "Make these tasks faster: more workers do not help."),
    "path/full-slots": ("Tasks, on slots that were nearly all busy", "Use more threads, or make tasks faster."),
    "path/task": ("Tasks that compute", MAKE_FASTER),
}

#: Share of the makespan from which a bound is taken for the limit of the run: a guess.
CLOSE = 0.8
#: Share of the makespan from which a task that takes several times the median of its prefix is taken for the limit of
#: the run: a guess.
UNEVEN_TASK = 0.25
#: Share of the tasks' time on the path from which the headline names a single prefix: a guess.
NEARLY_ALL = 0.9


def parts(path: CriticalPath) -> list[PathPart]:
    """List the parts of the makespan, the largest share first; they add up to it."""
    kinds = path.seconds("kind")
    spent = {name: sum(kinds.get(kind, 0.0) for kind in members) for name, members in MEMBERS.items()}
    parts = [_cause(path, name, spent) for name, seconds in spent.items() if seconds]
    running = sum(kinds.get(kind, 0.0) for kind in COMPUTE)
    if running:
        parts.append(_tasks(path, running, kinds.get(Kind.COMPUTE_NONCPU, 0.0)))
    return sorted(parts, key=lambda part: -part[0].evidence[SHARE])


def _cause(path: CriticalPath, name: str, spent: Mapping[str, float]) -> PathPart:
    seconds, whole = spent[name], path.makespan_seconds
    busy, most = next(iter(path.loop_causes.items()), ("", 0.0))
    kind = f"{name}-{busy}" if name == EVENT_LOOPS and most > seconds / 2 else name
    kind = kind if kind in TITLES else name
    title, advice = TITLES[kind]
    if name in (EVENT_LOOPS, SCHEDULER) and spent[SPILL] > seconds:
        advice = TITLES[SPILL][1]  # event loops that write to disk are late for all else
    saves = None if name == UNKNOWN else max(0.0, min(seconds, whole - path.floor_seconds))
    where = f"{format_share(seconds / whole)} of the critical path" if saves is None else _most(path, name, seconds)
    return finding(kind, (title, advice), saves, seconds / whole, where), lower_first(title)


def _most(path: CriticalPath, name: str, seconds: float) -> str:
    """Name the prefix or worker that has more than half of a cause; empty if none has, or there is only one."""
    on_worker = name in ON_WORKERS
    known = [worker.name for worker in path.trace.workers] if on_worker else path.trace.prefixes
    first, most = next(iter(path.seconds_of(MEMBERS[name], "worker" if on_worker else "prefix").items()), ("", 0.0))
    if len(known) < 2 or first not in known or most <= seconds / 2:
        return ""
    return f"mostly {'on worker' if on_worker else 'for tasks of'} {name_of(first)}"


def _tasks(path: CriticalPath, running: float, waiting: float) -> PathPart:
    """Make the part of the tasks on the path. Nothing is saved where they were off the CPU: the cause is unknown."""
    whole, longest, kind = path.makespan_seconds, path.longest_task_seconds, _limit(path)
    prefix, most = next(iter(path.seconds_computing().items()))
    where, saves = f"`{name_of(prefix)}`, {format_share(most / whole)} of the critical path", None
    also = f", the longest {format_seconds(longest)}" if longest >= UNEVEN_TASK * whole else ""
    if waiting > running / 2:
        where, kind = f"{where}, {format_share(1.0 - waiting / running)} of it on the CPU", "path/task-noncpu"
    elif TITLES[kind][1] == SPLIT and path.slots > 1:
        saves = max(0.0, min(longest * (1.0 - 1.0 / path.slots), whole - path.slot_bound_seconds))
    of = f"tasks of {shorten(name_of(prefix), 22)}" if most >= NEARLY_ALL * running else "tasks"
    return finding(kind, TITLES[kind], saves, running / whole, where + also), TITLES[kind][0].replace("Tasks", of)


def _limit(path: CriticalPath) -> str:
    longest = path.longest_task_seconds
    present = path.makespan_seconds - path.seconds("kind").get(Kind.NO_WORKERS, 0.0)
    if longest >= MOST * present:  # one task that is most of a chain is no chain
        return "path/task-per-worker" if path.is_one_a_worker else "path/long-task"
    if longest >= UNEVEN_TASK * present and path.is_uneven:
        return "path/uneven-task"
    if path.floor_seconds >= CLOSE * present:
        return "path/chain"
    return "path/full-slots" if path.slot_bound_seconds >= CLOSE * present else "path/task"
