"""Dask's spans in the reply of a window: rows by path, and the part of one client."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from distributed import Scheduler

from dask_efficiency.accounts.buckets import HELD
from dask_efficiency.accounts.cluster.span_shares import NOBODY
from dask_efficiency.accounts.facts import SEPARATOR, Facts
from dask_efficiency.plugin.names import NO_SPAN, OTHER_WORK
from dask_efficiency.plugin.scheduler.outstanding import span_name, spans_of
from dask_efficiency.plugin.scheduler.registration import OpenWindow
from dask_efficiency.show.figures import format_number

_LINE = re.compile(r".{1,200}:\d{1,9}")
#: Fields that are known only for all clients of a window together.
_OF_ALL_CLIENTS = frozenset({"timeline", "memory_timeline", "tasks", "waited_for", "repeats", "kept"})


def is_own(scheduler: Scheduler, own: Collection[str], span_id: str) -> bool:
    """True if a span is one of these, or in one of them."""
    span = spans_of(scheduler).get(span_id)
    while span_id not in own and span is not None:
        span = span.parent
        span_id = "" if span is None else span.id
    return span_id in own


def lines_before(scheduler: Scheduler, opened: OpenWindow, by_prefix: Mapping[str, Collection[str]]) -> dict[str, str]:
    """Lines that sent a graph's tasks in an earlier window, by prefix of which all are of then.

    The span of that window has the line in its name.
    """
    known, found = spans_of(scheduler), {}
    for prefix, ids in by_prefix.items():
        spans = [known[span_id] for span_id in ids if span_id in known]
        earlier = (span_name(span).rpartition(SEPARATOR)[2] for span in spans if span.enqueued < opened.at)
        lines = [line for line in earlier if _LINE.fullmatch(line)]
        if len(lines) == len(ids):
            found[prefix] = lines[0]
    return found


def paths(scheduler: Scheduler, opened: OpenWindow, span_ids: Iterable[str]) -> dict[str, str]:
    """Paths of spans by their ids, ``(no span)`` that of what is in none."""
    known, found = spans_of(scheduler), {NOBODY: NO_SPAN}
    for span_id in span_ids:
        path = (span_name(known[span_id]) if span_id in known else "") or NO_SPAN
        own = path == NO_SPAN or is_own(scheduler, opened.spans, span_id)
        found[span_id] = path if own else SEPARATOR.join((OTHER_WORK, path))
    return found


def shared_note(scheduler: Scheduler, opened: OpenWindow) -> list[str]:
    """Note on a span that has tasks of several clients."""
    known = spans_of(scheduler)
    shared = sorted(span_name(known[span_id]) for span_id in opened.shared & known.keys())
    if not shared:
        return []
    more = f" and {len(shared) - 1} more" if shared[1:] else ""
    which = f"tasks of several clients are in the span {shared[0]!r:.80}{more}, and count as those of the one that sent"
    return [f"{which} some there first: Dask gives all tasks of one name that are there at once one span"]


def other_work_note(facts: Facts, *, only: bool) -> list[str]:
    """Note on work that is not this client's, by the facts of all."""
    row = facts.by_span.get(OTHER_WORK)
    if row is None:
        return []
    held = row.ns(*HELD) / 1e9
    how = "left out here" if only else "efficiency_report(only=True) leaves it out"
    times = format_number(held), format_number(row.total_ns / 1e9 - held)
    which = "other work ran on the cluster in this window: its tasks held threads for {} thread-seconds, and {} of free"
    return [f"{which.format(*times)} threads is its share; {how}"]


def only_own(reply: Mapping[str, Any], own_time: int | None) -> dict[str, Any]:
    """Reduce the reply of a window to one client's work, with work outstanding for ``own_time`` nanoseconds.

    None, if that is unknown: the time of all clients stands for it.
    """
    with_work = reply["outstanding"] if own_time is None else min(own_time, reply["outstanding"])
    return {
        **{name: part for name, part in reply.items() if name not in _OF_ALL_CLIENTS},
        "outstanding": with_work,
        "no_workers": min(reply["no_workers"], with_work),
    }


def only_own_note(own: Facts, whole: Facts) -> str:
    """Note on what a report of one client's work has, and what not."""
    return (
        f"of this client's work only: {format_number(own.whole.total)} of the cluster's "
        f"{format_number(whole.whole.total)} thread-seconds, "
        "with its share of the time of free threads; what is known of all clients together is left out: numbers of "
        "tasks, bytes, timelines, GPUs, and what was sampled of prefixes that others ran, too"
    )
