"""Findings of work that stands still, and what threads do, in words."""

from __future__ import annotations

from collections.abc import Iterable

from dask_efficiency.accounts import waits
from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.accounts.lines import Stack, place_of
from dask_efficiency.accounts.stalls import DEADLOCK, LOCK, StalledWork
from dask_efficiency.accounts.stalls import KINDS as REASONS
from dask_efficiency.accounts.thread_looks import AWAITING, COMPUTING
from dask_efficiency.report.conditions import NOTHING_KNOWN
from dask_efficiency.report.kinds import AT_PLACES, BESIDE, KINDS, page_of
from dask_efficiency.show.figures import (
    DETAIL_LENGTH,
    format_count,
    format_seconds,
    harmless,
    name_of,
    shorten,
    workers_named,
)
from dask_efficiency.show.finding import Finding

#: What threads do that do not wait.
_AT_WORK = {COMPUTING: "computing", AWAITING: "a coroutine, on the event loop"}
#: Kinds of findings.
STALLED = tuple(f"stalled/{kind}" for kind in REASONS)


def does(cause: str, stack: Stack) -> str:
    """Doing of a thread in words; empty if unknown."""
    kind = f"{Bucket.THREAD_NONCPU}/{cause}"
    if kind not in KINDS:
        return _AT_WORK.get(cause, "")
    title = AT_PLACES.get(kind, {}).get(waits.place_of_wait(stack), KINDS[kind].title)
    return title[0].lower() + title[1:]


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
    cause = "" if stall.kind in (DEADLOCK, LOCK) else does(stall.cause, stall.line)
    line = [f"`{name_of(frame.function)}`, {name_of(place_of(frame))}" for frame in stall.line]
    more = ", ".join(filter(None, (shorten(harmless(stall.detail), DETAIL_LENGTH), cause, *line)))
    return f"{text}: {more}" if more else text
