"""Dask's spans in the reply of a window: rows by path, and the part of one client."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

from distributed import Scheduler

from dask_efficiency.accounts.buckets import HELD
from dask_efficiency.accounts.cluster.window_accounts import SEPARATOR, OwnPart, Rows, WindowAccounts, divide, rolled_up
from dask_efficiency.plugin.names import NO_SPAN, OTHER_WORK
from dask_efficiency.plugin.scheduler.outstanding import spans_of
from dask_efficiency.plugin.scheduler.registration import OpenWindow

#: Fields that are known only for all clients of a window together.
_OF_ALL_CLIENTS = frozenset({"timeline", "tasks", "outside", "details", "waited_for", "repeats", "amounts"})


def is_own(scheduler: Scheduler, own: Collection[str], span_id: str) -> bool:
    """True if a span is one of these, or in one of them."""
    span = spans_of(scheduler).get(span_id)
    while span_id not in own and span is not None:
        span = span.parent
        span_id = "" if span is None else span.id
    return span_id in own


def by_path(scheduler: Scheduler, opened: OpenWindow, closed: WindowAccounts) -> tuple[Rows, Rows, OwnPart | None]:
    """Time and causes by path, where a span includes the spans in it; and the client's own part."""
    mine = partial(is_own, scheduler, opened.spans)
    spans, causes, own = divide(closed, opened.window.shares, mine)
    known = spans_of(scheduler)
    paths = {}
    for span_id in spans | causes:
        path = SEPARATOR.join(known[span_id].name) if span_id in known else NO_SPAN
        paths[span_id] = path if path == NO_SPAN or mine(span_id) else SEPARATOR.join((OTHER_WORK, path))
    return rolled_up(spans, paths), rolled_up(causes, paths), own


def notes(scheduler: Scheduler, opened: OpenWindow, by_span: Rows) -> list[str]:
    """Notes on work that is not this client's."""
    found = []
    if row := by_span.get(OTHER_WORK, {}):
        held = sum(row.get(bucket, 0) for bucket in HELD) / 1e9
        free = sum(row.values()) / 1e9 - held
        how = "left out here" if opened.only else "efficiency_report(only=True) leaves it out"
        found.append(
            f"other work ran on the cluster in this window: its tasks held threads for {held:.3g} thread-seconds, and "
            f"{free:.3g} of free threads is its share; {how}"
        )
    known = spans_of(scheduler)
    shared = sorted(SEPARATOR.join(known[span_id].name) for span_id in opened.shared & known.keys())
    if shared:
        more = f" and {len(shared) - 1} more" if shared[1:] else ""
        found.append(
            f"tasks of several clients are in the span {shared[0]!r:.80}{more}, and count as those of the one that "
            "sent some there first: Dask gives all tasks of one name that are there at once one span"
        )
    return found


def only_own(reply: Mapping[str, Any], own: OwnPart, own_time: int | None) -> dict[str, Any]:
    """Reduce the reply of a window to one client's work: ``own``, with work outstanding for ``own_time`` nanoseconds.

    None, if that is unknown: the time of all clients stands for it.
    """
    whole, mine = (sum(sum(row.values()) for row in rows.values()) / 1e9 for rows in (reply["workers"], own.workers))
    note = (
        f"of this client's work only: {mine:.3g} of the cluster's {whole:.3g} thread-seconds, with its share of the "
        "time of free threads; what is known of all clients together is left out: numbers of tasks, bytes, the "
        "timeline, GPUs, and what was sampled of prefixes that others ran, too"
    )
    foreign = (OTHER_WORK, NO_SPAN)
    with_work = reply["outstanding"] if own_time is None else min(own_time, reply["outstanding"])
    return {
        **{name: part for name, part in reply.items() if name not in _OF_ALL_CLIENTS},
        "spans": {path: row for path, row in reply["spans"].items() if path.partition(SEPARATOR)[0] not in foreign},
        "outstanding": with_work,
        "no_workers": min(reply["no_workers"], with_work),
        "workers": {name: own.workers.get(name, {}) for name in reply["workers"]},
        "worker_causes": own.worker_causes,
        "prefixes": own.prefixes,
        "prefix_causes": own.prefix_causes,
        "notes": [*reply["notes"], note],
    }
