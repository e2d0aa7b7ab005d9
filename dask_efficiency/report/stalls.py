"""Findings of work that stands still, and what threads do, in words."""

from __future__ import annotations

from collections.abc import Iterable

from dask_efficiency.accounts import waits
from dask_efficiency.accounts.lines import Stack, place_of
from dask_efficiency.accounts.stalls import DEADLOCK, KINDS, LOCK, StalledWork
from dask_efficiency.accounts.thread_looks import AWAITING, COMPUTING
from dask_efficiency.report.conditions import NOTHING_KNOWN
from dask_efficiency.report.kinds import BESIDE, page_of
from dask_efficiency.show.figures import format_count, format_seconds, harmless, name_of, shorten, workers_named
from dask_efficiency.show.finding import Finding

#: Characters of what tasks ask for. By eye.
MAX_DETAIL = 100
#: What threads do, by cause.
WORDS = {
    COMPUTING: "computing",
    AWAITING: "a coroutine, on the event loop",
    "gil": "waiting for the GIL",
    "core": "waiting for a core",
    "throttled": "waiting for the CPU limit of the container",
    "stopped": "its process stands still",
    "lock": "waiting for a lock",
    "sleep": "asleep",
    "file": "waiting for files",
    "network": "waiting for the network",
    "child-process": "waiting for a process",
    "cluster": "waiting for the cluster",
}
_OF_CLUSTER = {
    waits.TASKS: "waiting for other tasks",
    waits.DASK_LOCK: "waiting for a lock or semaphore of Dask",
    waits.MESSAGES: "waiting for a queue, variable or event of Dask",
    waits.SHUFFLE: "waiting for a shuffle",
}


#: Kinds of findings.
STALLED = tuple(f"stalled/{kind}" for kind in KINDS)


def does(cause: str, stack: Stack) -> str:
    """Doing of a thread in words; empty if unknown."""
    if cause == waits.CLUSTER:
        return _OF_CLUSTER.get(waits.place_of_wait(stack), WORDS[waits.CLUSTER])
    return WORDS.get(cause, "")


def kind_of(stall: StalledWork) -> str:
    """Kind of the finding of a stall, ``"stalled/deadlock"``."""
    return f"stalled/{stall.kind}"


def findings_of(stalls: Iterable[StalledWork]) -> list[Finding]:
    """Findings of what stands still, in that order; no saving is known of any."""
    kinds = ((kind_of(stall), stall) for stall in stalls)
    return [
        Finding(
            kind,
            BESIDE[kind].title,
            where=_where(stall),
            advice=BESIDE[kind].advised(NOTHING_KNOWN),
            page=page_of(kind),
        )
        for kind, stall in kinds
        if kind in BESIDE
    ]


def _where(stall: StalledWork) -> str:
    text = format_count(stall.tasks, "task") + (f" of {name_of(stall.prefix)}" if stall.prefix else "")
    if stall.workers:
        text += f" on {workers_named(stall.workers)}"
    text += f", for {format_seconds(stall.seconds)}"
    if stall.usual_seconds:
        text += f", usually {format_seconds(stall.usual_seconds)}"
    cause = "" if stall.kind in (DEADLOCK, LOCK) else WORDS.get(stall.cause, "")
    line = [f"`{name_of(frame.function)}`, {name_of(place_of(frame))}" for frame in stall.line]
    more = ", ".join(filter(None, (shorten(harmless(stall.detail), MAX_DETAIL), cause, *line)))
    return f"{text}: {more}" if more else text
