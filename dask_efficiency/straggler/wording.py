"""Findings of slow workers and long tasks: what, where and the cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from dask_efficiency.accounts.slow_worker import SlowWorker
from dask_efficiency.show.figures import format_count, format_number, format_seconds, format_times, name_of
from dask_efficiency.show.finding import Basis, Finding
from dask_efficiency.straggler.causes import MEANINGS
from dask_efficiency.straggler.observations import SIZES_DIFFER
from dask_efficiency.straggler.peers import LITTLE

#: Title and advice of a long task.
LONG_TASK = (
    "One task takes far longer than its like",
    "Split it, or split or salt its key where its input is larger than the others'.",
)


def as_finding(slow: SlowWorker) -> Finding:
    """Finding of a slow worker, or of a host all of whose workers are slow."""
    meaning = MEANINGS[slow.cause]
    what = "worker" if slow.worker else "host"
    times = "" if slow.effect is None else f", {format_times(slow.effect)} as long for the same work"
    line = f", in {name_of(slow.line)}" if slow.line else ""
    return Finding(
        kind=f"slow-{what}",
        title=f"Slow {what}, {meaning.words}",
        where=f"{what.capitalize()} {name_of(slow.subject)}{times}{line}",
        saves_seconds=slow.seconds_lost or None,
        basis=Basis.REPLAYED if slow.seconds_lost else Basis.UNKNOWN,
        advice=meaning.look,
        page="docs/buckets.md#slow-worker",
        evidence=_finite({"score": slow.score, **{item.signal: item.value for item in slow.evidence}}),
        confidence=slow.confidence,
    )


def _finite(evidence: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in evidence.items() if math.isfinite(value)}


def long_task(
    who: str, seconds: float, times_longer: float, *, times_larger: float = math.nan, alone_seconds: float = 0.0
) -> Finding:
    """Finding of a task, named harmlessly, that took far longer than the others of its prefix, by their medians."""
    title, todo = LONG_TASK
    size = f", its input is {format_number(times_larger)} times as large" if times_larger >= SIZES_DIFFER else ""
    alone = f"; for {format_seconds(alone_seconds)} nothing else ran" if alone_seconds > LITTLE * seconds else ""
    return Finding(
        kind="long-task",
        title=title,
        where=f"{who} took {format_seconds(seconds)}, {format_number(times_longer)} times the median{size}{alone}",
        saves_seconds=seconds,
        basis=Basis.BOUNDED,
        advice=todo,
        page="docs/stragglers.md",
        evidence=_finite({"seconds": seconds, "times_longer": times_longer, "times_larger": times_larger}),
    )


def how_many(slow: Sequence[SlowWorker], workers: int) -> str:
    """Number of slow workers for a headline: ``"2 of 8 workers are slow"``."""
    of = f"of {format_count(workers, 'worker')}"
    hosts = sum(not finding.worker for finding in slow)
    counts = [format_count(hosts, "host")] if hosts else []
    counts += [str(len(slow) - hosts)] if len(slow) > hosts else []
    return f"{' and '.join(counts) or 'None'} {of} {'are' if len(slow) > 1 else 'is'} slow"
