"""Dask's spans: which have work outstanding, and their part in a window's reply."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from dask_efficiency.accounts.buckets import HELD
from dask_efficiency.accounts.cluster.by_span import SEPARATOR, Rows, divide, rolled_up
from dask_efficiency.accounts.cluster.span_shares import MAX_DEPTH, NOBODY, Path
from dask_efficiency.accounts.cluster.windows import OwnPart, WindowAccounts
from dask_efficiency.plugin.names import NO_SPAN, OTHER_WORK

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.scheduler import TaskGroup, TaskState

    from dask_efficiency.plugin.scheduler.open_windows import OpenWindow


#: Long-running tasks that are told from others; beyond, they count as outstanding.
MAX_LONG_RUNNING = 1_000


def spans_of(scheduler: Scheduler) -> Mapping[str, Any]:
    """Dask's spans by id; none where upstream keeps them elsewhere."""
    spans: Mapping[str, Any] = getattr(scheduler.extensions.get("spans"), "spans", {})
    return spans


class OutstandingSpans:
    """Follows the groups of tasks that may have any outstanding, from :meth:`follow` to :meth:`stop`.

    Parameters
    ----------
    scheduler
        Knows the spans that they are of.

    Notes
    -----
    A group is added when something may begin in it: a client's graph, a retry, a result that was lost. At each look a
    span's groups are looked at until one has a task outstanding, as one will do, and those that have none are dropped:
    so each is looked at once for each time that it was added, and of a span that goes on, one.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.followed = False
        self._scheduler = scheduler
        #: By span, its groups that may have tasks outstanding, in the order in which they came.
        self._groups: dict[Path, dict[TaskGroup, None]] = {}
        #: Spans of the graphs that were taken in since :meth:`take_newest`.
        self._newest: dict[Path, None] = {}

    def follow(self, groups: Iterable[TaskGroup]) -> None:
        """Begin with all groups that there are."""
        self.followed = True
        self.add(groups)

    def stop(self) -> None:
        """Follow nothing any more."""
        self.followed = False
        self.forget()

    def forget(self) -> None:
        """All groups are gone."""
        self._groups.clear()
        self._newest.clear()

    def add(self, groups: Iterable[TaskGroup]) -> tuple[Path, ...]:
        """Tasks of these groups may be outstanding from now on; gives the spans that they are of."""
        paths: dict[str | None, Path] = {}
        for group in groups if self.followed else ():
            span_id = group.span_id
            if span_id not in paths:
                paths[span_id] = self._path(span_id)
            self._groups.setdefault(paths[span_id], {})[group] = None
        return tuple(paths.values())

    def taken_in(self, groups: Iterable[TaskGroup]) -> None:
        """A graph with tasks of these groups was taken in."""
        self._newest.update(dict.fromkeys(self.add(groups)))

    def take_newest(self) -> tuple[Path, ...]:
        """The spans of the graphs that were taken in since the last call."""
        newest = tuple(self._newest)
        self._newest.clear()
        return newest

    def outstanding(self, long_running: Iterable[Iterable[TaskState]] = ()) -> tuple[Path, ...]:
        """The spans that have work outstanding; of ``long_running`` tasks, by worker, none is."""
        away = Counter(ts.group for ts in islice(chain.from_iterable(long_running), MAX_LONG_RUNNING))
        found = []
        for span, groups in list(self._groups.items()):
            while groups:
                group = next(reversed(groups))
                if _is_outstanding(group, away[group]):
                    found.append(span)
                    break
                groups.popitem()
            else:
                del self._groups[span]
        return tuple(found)

    def _path(self, span_id: str | None) -> Path:
        """A span's id, behind those of the spans that it is in; none of which is known if upstream keeps no spans."""
        span = spans_of(self._scheduler).get(span_id or NOBODY)
        ids = [span_id or NOBODY]
        while span is not None and span.parent is not None:
            span = span.parent
            ids.append(span.id)
        return (*reversed(ids[-MAX_DEPTH + 1 :]), ids[0]) if len(ids) > MAX_DEPTH else tuple(reversed(ids))


def _is_outstanding(group: TaskGroup, long_running: int) -> bool:
    states = group.states
    return (
        states["processing"] > long_running or states["waiting"] > 0 or states["queued"] > 0 or states["no-worker"] > 0
    )


#: What is known of the clients of a window together only.
_OF_ALL = frozenset({"timeline", "tasks", "outside", "details", "waited_for", "repeats", "amounts"})


def is_own(scheduler: Scheduler, own: Collection[str], span_id: str) -> bool:
    """Whether a span is one of these, or in one of them."""
    span = spans_of(scheduler).get(span_id)
    while span_id not in own and span is not None:
        span = span.parent
        span_id = "" if span is None else span.id
    return span_id in own


def by_path(scheduler: Scheduler, opened: OpenWindow, closed: WindowAccounts) -> tuple[Rows, Rows, OwnPart | None]:
    """All time and its causes by the path of its span, where a span has what those in it have; and the own part."""
    mine = partial(is_own, scheduler, opened.spans)
    found = divide(closed, opened.window.shares, mine)
    known = spans_of(scheduler)
    paths = {}
    for span_id in found.spans | found.causes:
        path = SEPARATOR.join(known[span_id].name) if span_id in known else NO_SPAN
        paths[span_id] = path if path == NO_SPAN or mine(span_id) else SEPARATOR.join((OTHER_WORK, path))
    return rolled_up(found.spans, paths), rolled_up(found.causes, paths), found.own


def notes(scheduler: Scheduler, opened: OpenWindow, by_span: Rows) -> list[str]:
    """What a reader must know of work that is not this client's."""
    found = []
    row = by_span.get(OTHER_WORK, {})
    held = sum(row.get(bucket, 0) for bucket in HELD) / 1e9
    free = sum(row.values()) / 1e9 - held
    if row:
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
    """The reply of a window, of one client's work only.

    Parameters
    ----------
    reply
        Of all clients.
    own
        The time of its spans.
    own_time
        Nanoseconds in which it had work outstanding; None where nobody looked, and the time of all stands for it.
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
        **{name: part for name, part in reply.items() if name not in _OF_ALL},
        "spans": {path: row for path, row in reply["spans"].items() if path.partition(SEPARATOR)[0] not in foreign},
        "outstanding": with_work,
        "no_workers": min(reply["no_workers"], with_work),
        "workers": {name: own.workers.get(name, {}) for name in reply["workers"]},
        "worker_causes": own.worker_causes,
        "prefixes": own.prefixes,
        "prefix_causes": own.prefix_causes,
        "notes": [*reply["notes"], note],
    }
