"""Workers that joined or were lost during a report, and what each cost."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dask_efficiency.accounts.cluster.losses import MemorySample, TaskInThread, killers
from dask_efficiency.accounts.skew import Skew
from dask_efficiency.show.figures import (
    NAMES_IN_A_LINE,
    format_bytes,
    format_count,
    format_seconds,
    format_thread_time,
    in_unit_of_largest,
    name_of,
    sentence,
)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A worker that joined during the window; times in seconds after its opening, NaN if unknown."""

    worker: str
    #: Request to the cluster's manager.
    asked: float
    joined: float
    #: Assignment of its first task.
    first_task: float


#: Workers that came, as a multiple of those that were there at a time, from which few stayed: one that is started again
#: is two. By judgement.
FEW_STAYED = 2.0


def came_and_went(attendance: Mapping[str, int], *, times: float = 1.0) -> str:
    """Number of workers that came and went; empty if they were not that many times those that were there at a time."""
    workers, most = (attendance.get(name, 0) for name in ("workers", "most_workers"))
    return (
        f"{workers} workers came and went, at most {most} at a time"
        if workers > most and workers >= times * most
        else ""
    )


def first_request(arrivals: Sequence[Arrival]) -> str:
    """Number of workers requested in the window, and the first time; empty if unknown."""
    asked = [arrival.asked for arrival in arrivals if math.isfinite(arrival.asked)]
    if not asked:
        return ""
    return f"{format_count(len(asked), 'worker')} asked for, the first after {format_seconds(max(0.0, min(asked)))}"


def arrival_lines(arrivals: Sequence[Arrival]) -> list[str]:
    """Sentences on the workers that joined."""
    if not arrivals:
        return []
    joined = [arrival.joined for arrival in arrivals if math.isfinite(arrival.joined)]
    first = f", the first after {format_seconds(max(0.0, min(joined)))}" if joined else ""
    found = [f"{len(arrivals)} joined during the window{first}"]
    if request := first_request(arrivals):
        found.append(f"{request}: {_medians(arrivals)}")
    return found


def _medians(arrivals: Sequence[Arrival]) -> str:
    steps = (("from request to joining", "asked", "joined"), ("from there to the first task", "joined", "first_task"))
    found = []
    for what, since, until in steps:
        took = [getattr(arrival, until) - getattr(arrival, since) for arrival in arrivals]
        known = [seconds for seconds in took if math.isfinite(seconds)]
        if known:
            found.append(f"{what} {format_seconds(max(0.0, statistics.median(known)))}")
    return f"{', '.join(found)} (medians)" if found else "none is known to have joined"


#: Share of the growth of a worker's last samples from which a step belongs to it: less is noise. A guess.
LEAST_STEP = 0.02
#: Nanoseconds before a worker's end from which it matters that its last sample is no later. By judgement.
LATE_NS = 500_000_000


@dataclass(frozen=True, slots=True)
class LostWorker:
    """A worker lost during the window, or whose lost results were computed again in it."""

    worker: str
    #: Reason, or how the loss was noticed if no reason is known.
    reason: str
    #: True if it closed in order, announced by itself or the scheduler.
    in_order: bool
    #: Its ``lost-worker`` time, and by prefix the part held by its running tasks.
    ns: int
    prefixes: Mapping[str, int] = field(default_factory=dict)
    #: Time of computing lost results again, and their number, as far as done in the window.
    recomputed_ns: int = 0
    recomputed_tasks: int = 0
    #: Tasks in its threads, and the last samples of its process's memory, oldest first; not all are kept.
    in_threads: tuple[TaskInThread, ...] = ()
    last_memory: tuple[MemorySample, ...] = ()
    memory_limit: int | None = None


def most_costly_first(lost: Sequence[LostWorker]) -> list[LostWorker]:
    """Lost workers by total cost."""
    return sorted(lost, key=lambda one: -(one.ns + one.recomputed_ns))


def growth(samples: Sequence[MemorySample]) -> tuple[MemorySample, MemorySample]:
    """First and last sample of the growth with which samples end; the last one twice where they do not grow."""
    sizes, first = [sample.nbytes for sample in samples], len(samples) - 1
    step = LEAST_STEP * (sizes[-1] - min(sizes))
    while first and sizes[first] - sizes[first - 1] > step:
        first -= 1
    return samples[first], samples[-1]


def last_memory_text(one: LostWorker) -> str:
    """Memory of a lost worker in its last seconds: ``"1.2 -> 3.9 of 4.0 GiB in 1.4 s"``."""
    if not one.last_memory:
        return "its memory was not measured"
    first, last = growth(one.last_memory)
    sizes = [first.nbytes, last.nbytes, *([one.memory_limit] if one.memory_limit else [])]
    (before, then, *limit), unit = in_unit_of_largest(sizes)
    grew, took = before != then, format_seconds((first.ns_before - last.ns_before) / 1e9)
    ago = f", {format_seconds(last.ns_before / 1e9)} before" if last.ns_before > LATE_NS else ""
    return f"{f'{before} -> ' if grew else ''}{' of '.join([then, *limit])} {unit}{f' in {took}' if grew else ''}{ago}"


def in_threads_text(one: LostWorker) -> str:
    """Tasks in the threads of a lost worker, by prefix: ``"2 tasks of merge ran"``; empty if none is known."""
    running = Counter(task.prefix for task in one.in_threads if task.ran_seconds is not None)
    begun = Counter(task.prefix for task in one.in_threads if task.ran_seconds is None)
    parts = [f"{_tasks(tasks)} {what}" for what, tasks in (("ran", running), ("ran or was about to", begun)) if tasks]
    return " and ".join(parts)


def _tasks(by_prefix: Counter[str]) -> str:
    ranked = by_prefix.most_common()
    more = len(ranked) - NAMES_IN_A_LINE
    texts = [
        f"{format_count(n, 'task')} of {name_of(prefix) or '(no prefix)'}" for prefix, n in ranked[:NAMES_IN_A_LINE]
    ]
    return ", ".join(texts) + (f" and {more} more" if more > 0 else "")


def how_lost(one: LostWorker, skew: Mapping[str, Skew]) -> str:
    """Worker, reason, memory, tasks, and what these usually take by ``skew``: how it was lost, in a sentence."""
    if not _vanished(one):
        return lost_worker_name(one)
    tasks = in_threads_text(one)
    usual = {task.prefix: skew[task.prefix] for task in one.in_threads if task.prefix in skew}
    takes = [format_bytes(found.median_working) for found in usual.values() if found.working_count]
    usually = f", which usually take {' and '.join(takes[:NAMES_IN_A_LINE])} each" if tasks and takes else ""
    return f"{lost_worker_name(one)}: {last_memory_text(one)}" + (f" while {tasks}{usually}" if tasks else "")


def _vanished(one: LostWorker) -> bool:
    return bool(one.worker) and not one.in_order


def killer_texts(lost: Sequence[LostWorker]) -> list[str]:
    """Keys that were in a thread of the largest number of workers as these were lost, if of several."""
    found = killers(one.in_threads for one in lost if not one.in_order)
    most = [key for key in found if found[key] == max(found.values())]
    return [killer_text(key, found[key]) for key in most[:NAMES_IN_A_LINE]]


def killer_text(key: str, workers: int) -> str:
    """Sentence on a key that was in a thread of several workers as these were lost."""
    return f"task {name_of(key)} was in a thread of {workers} workers as they were lost"


def lost_worker_line(one: LostWorker, skew: Mapping[str, Skew]) -> str:
    """Cost and reason of a lost worker, without a full stop."""
    costs = []
    running = sum(one.prefixes.values())
    if running:
        ranked = sorted(one.prefixes, key=lambda prefix: -one.prefixes[prefix])
        more = f" and {len(ranked) - NAMES_IN_A_LINE} more" if len(ranked) > NAMES_IN_A_LINE else ""
        tasks = ", ".join(name_of(prefix) or "(no prefix)" for prefix in ranked[:NAMES_IN_A_LINE])
        costs.append(f"{format_thread_time(running)} of running tasks ({tasks}{more})")
    if one.ns > running:
        costs.append(f"{format_thread_time(one.ns - running)} of threads since its last heartbeat")
    if one.recomputed_ns or one.recomputed_tasks:
        results = format_count(one.recomputed_tasks, "result")
        costs.append(f"{format_thread_time(one.recomputed_ns)} recomputed ({results})")
    cost = ", ".join(costs) or "nothing was lost with it"
    return f"{how_lost(one, skew)}{'; ' if _vanished(one) else ': '}{cost}"


def lost_worker_name(one: LostWorker) -> str:
    """Worker and the reason of its loss."""
    if not one.worker:
        return "with a worker that is not known"
    return f"worker {name_of(one.worker)} {'left' if one.in_order else 'was lost'} ({sentence(one.reason)})"
