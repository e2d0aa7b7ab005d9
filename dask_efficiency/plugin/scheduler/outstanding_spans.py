"""OutstandingSpans: which spans have work outstanding, at a cost that grows with their number and not their tasks'."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import chain, islice
from typing import TYPE_CHECKING

from dask_efficiency.accounts.cluster.span_shares import MAX_DEPTH, NOBODY, Path
from dask_efficiency.plugin.scheduler.spans import spans_of

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.scheduler import TaskGroup, TaskState

#: Long-running tasks that are told from others; beyond, they count as outstanding.
MAX_LONG_RUNNING = 1_000


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
