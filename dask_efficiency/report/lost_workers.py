"""Lost workers: what each worker that went has cost, and why it went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dask_efficiency.show.figures import format_count, format_thread_time, name_of, sentence

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


def line(one: LostWorker) -> str:
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
    return f"{who(one)}: {', '.join(costs) or 'nothing was lost with it'}"


def who(one: LostWorker) -> str:
    """Which worker, and why it went."""
    if not one.worker:
        return "with a worker that is not known"
    return f"worker {name_of(one.worker)} {'left' if one.in_order else 'was lost'} ({sentence(one.reason)})"
