"""Workers that joined or were lost during a report, and what each cost."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dask_efficiency.show.figures import format_count, format_seconds, format_thread_time, name_of, sentence


@dataclass(frozen=True, slots=True)
class Arrival:
    """A worker that joined during the window; times in seconds after its opening, NaN if unknown."""

    worker: str
    #: Request to the cluster's manager.
    asked: float
    joined: float
    #: Assignment of its first task.
    first_task: float


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


#: Prefixes of running tasks named per worker. By eye.
MAX_NAMED = 3


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


def most_costly_first(lost: Sequence[LostWorker]) -> list[LostWorker]:
    """Lost workers by total cost."""
    return sorted(lost, key=lambda one: -(one.ns + one.recomputed_ns))


def lost_worker_line(one: LostWorker) -> str:
    """Cost and reason of a lost worker, without a full stop."""
    costs = []
    running = sum(one.prefixes.values())
    if running:
        ranked = sorted(one.prefixes, key=lambda prefix: -one.prefixes[prefix])
        more = f" and {len(ranked) - MAX_NAMED} more" if len(ranked) > MAX_NAMED else ""
        tasks = ", ".join(name_of(prefix) or "(no prefix)" for prefix in ranked[:MAX_NAMED])
        costs.append(f"{format_thread_time(running)} of running tasks ({tasks}{more})")
    if one.ns > running:
        costs.append(f"{format_thread_time(one.ns - running)} of threads since its last heartbeat")
    if one.recomputed_ns or one.recomputed_tasks:
        results = format_count(one.recomputed_tasks, "result")
        costs.append(f"{format_thread_time(one.recomputed_ns)} recomputed ({results})")
    return f"{lost_worker_name(one)}: {', '.join(costs) or 'nothing was lost with it'}"


def lost_worker_name(one: LostWorker) -> str:
    """Worker and the reason of its loss."""
    if not one.worker:
        return "with a worker that is not known"
    return f"worker {name_of(one.worker)} {'left' if one.in_order else 'was lost'} ({sentence(one.reason)})"
