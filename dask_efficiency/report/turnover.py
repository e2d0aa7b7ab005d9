"""Workers that joined or were lost during a report, and what each cost."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dask_efficiency.show.figures import format_count, format_seconds, format_thread_time, name_of, sentence


@dataclass(frozen=True, slots=True)
class Arrival:
    """A worker that came during the window; all in seconds after its opening, NaN where that is not known."""

    worker: str
    #: When the cluster's manager was asked for it.
    asked: float
    joined: float
    #: When it was given its first task.
    first_task: float


def first_request(arrivals: Sequence[Arrival]) -> str:
    """How many workers were asked for during the window, and when first; empty where none is known to be."""
    asked = [arrival.asked for arrival in arrivals if math.isfinite(arrival.asked)]
    if not asked:
        return ""
    workers = "1 worker" if len(asked) == 1 else f"{len(asked)} workers"
    return f"{workers} asked for, the first after {format_seconds(max(0.0, min(asked)))}"


def arrival_lines(arrivals: Sequence[Arrival]) -> list[str]:
    """What is known of the workers that came, a sentence each."""
    if not arrivals:
        return []
    joined = [arrival.joined for arrival in arrivals if math.isfinite(arrival.joined)]
    found = [f"{len(arrivals)} came during the window"]
    if joined:
        found[0] += f", the first after {format_seconds(max(0.0, min(joined)))}"
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
    return f"{', '.join(found)} (medians)" if found else "none of them is known to have come"


#: Prefixes of running tasks that are named for each.
MAX_NAMED = 3


@dataclass(frozen=True, slots=True)
class LostWorker:
    """A worker that vanished during the window, or with which results were lost that were computed again."""

    #: Empty where it is not known with which one results were lost.
    worker: str
    #: Why it went, or how that was noticed where nothing says why.
    reason: str
    #: Whether it closed in order, by its own word or the scheduler's.
    in_order: bool
    #: Its ``lost-worker`` time, and the part of it that its running tasks had held, by prefix.
    ns: int
    prefixes: Mapping[str, int] = field(default_factory=dict)
    #: What computing the results once more held, and how many they were, as far as they were done in the window.
    recomputed_ns: int = 0
    recomputed_tasks: int = 0


def most_costly_first(lost: Sequence[LostWorker]) -> list[LostWorker]:
    """By all time that each cost."""
    return sorted(lost, key=lambda one: -(one.ns + one.recomputed_ns))


def lost_worker_line(one: LostWorker) -> str:
    """What a worker cost, and why it went, in a sentence without its full stop."""
    costs = []
    running = sum(one.prefixes.values())
    if running:
        ranked = sorted(one.prefixes, key=lambda prefix: -one.prefixes[prefix])
        more = f" and {len(ranked) - MAX_NAMED} more" if len(ranked) > MAX_NAMED else ""
        tasks = ", ".join(name_of(prefix) or "(no prefix)" for prefix in ranked[:MAX_NAMED])
        costs.append(f"{format_thread_time(running)} of running tasks ({tasks}{more})")
    if one.ns > running:
        costs.append(f"{format_thread_time(one.ns - running)} of threads since it was last heard of")
    if one.recomputed_ns or one.recomputed_tasks:
        results = format_count(one.recomputed_tasks, "result")
        costs.append(f"{format_thread_time(one.recomputed_ns)} recomputed ({results})")
    return f"{lost_worker_name(one)}: {', '.join(costs) or 'nothing was lost with it'}"


def lost_worker_name(one: LostWorker) -> str:
    """Which worker, and why it went."""
    if not one.worker:
        return "with a worker that is not known"
    return f"worker {name_of(one.worker)} {'left' if one.in_order else 'was lost'} ({sentence(one.reason)})"
