"""SpanShares: divides the time of free slots among the spans with work outstanding.

**The rule.** At any instant, the time of all free slots is shared equally by the spans at the top that have work
outstanding then; and what one of them has, by the spans in it that have, its own tasks counting as one more; and so
on. Work is outstanding while any task is waiting, queued, without a worker, or processing and not long-running. A
graph that is being taken in counts as one span at the top until its spans are known. Time at which there was none is
nobody's.

So a span that has a cluster to itself has all its free time, as the user who pays for it does; two that run at once
have half each; and who cuts his work into more spans gets no more for it. Not in proportion to tasks: how many small
tasks a graph is cut into does not say for how many slots it lacked work, nor would ten thousand tasks that wait for
one be more to blame than that one.

**How exact.** What is shared is exact, and so are the sums: the shares only divide, in whole nanoseconds, what
workers reported. ``idle`` is divided cause by cause by what the scheduler saw at each of its looks (twenty a second,
up to a hundred workers). Of what only workers see (``waiting-on-data``, ``constrained``, ``paused``, ``retiring``,
``spill``, and slots that were idle while the scheduler believed them to be in use), each report is divided by the time
since the one before: to about a heartbeat.

**What was rejected.** Dask's own ``Span`` has ``idle or other spans``: threads x the time from a span's beginning to
its end, less what its tasks did (dask/distributed pull request 7938). Of two spans that overlap each is charged with
all the threads, so spans do not add up; the time between two of a span's graphs is its, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dask_efficiency.accounts.buckets import CAUSES, UNKNOWN, Bucket, cause_name
from dask_efficiency.accounts.rows import MAX_APART, add, divide
from dask_efficiency.accounts.worker.balance import UNHELD_BUCKETS

#: Stands for no span, and for spans beyond :data:`~dask_efficiency.accounts.rows.MAX_APART`.
NOBODY = ""
#: Stands for the spans of a graph that is being taken in.
_TAKEN_IN = "(graph)"
#: Names that are weighed at the scheduler's looks, in the order of ``idle.SEEN``, and by workers' reports.
_IDLE = tuple(cause_name(Bucket.IDLE, cause) for cause in CAUSES[Bucket.IDLE] if cause != UNKNOWN)
_REPORTED = tuple(str(bucket) for bucket in UNHELD_BUCKETS if bucket is not Bucket.IDLE)
#: A cause that the scheduler sees some of, and workers report more: slots that it believed to be in use. Which of these
#: waited for a round trip is known once they are reported; both are divided alike.
_UNSEEN = cause_name(Bucket.IDLE, "scheduler")
_ROUND_TRIPS = cause_name(Bucket.IDLE, "round-trips")
#: Buckets of free slots, which are shared.
SHARED = frozenset(UNHELD_BUCKETS)
#: A span with those that it is in: ids, the outermost first.
Path = tuple[str, ...]
#: Unit of shares: all of an instant's time, in fixed point.
WHOLE = 1 << 40
#: Levels of nested spans that are kept apart; a deeper span counts at this level. A guess.
MAX_DEPTH = 20


def equal_shares(paths: Sequence[Path], whole: int = WHOLE) -> dict[str, int]:
    """Share a whole among spans with work outstanding, by the last span of each path; sums to ``whole``."""
    levels: dict[str, list[Path]] = {}
    for path in paths:
        levels.setdefault(path[0], []).append(path[1:])
    found: dict[str, int] = {}
    parts = divide(dict.fromkeys(levels, 1), whole)
    for span, below in levels.items():
        inner = [path for path in below if path]
        if len(inner) < len(below):
            inner.append((span,))  # its own tasks
        if len(inner) > 1 or inner[0] != (span,):
            found |= equal_shares(inner, parts[span])
        else:
            found[span] = parts[span]
    return found


class SpanShares:
    """Weights by which a window's free time is divided among spans, by their ids; ``is_own`` selects :attr:`own_ns`."""

    def __init__(self, is_own: Callable[[str], bool] = lambda span: False) -> None:
        #: Time in which any own span had work outstanding.
        self.own_ns = 0
        self._is_own = is_own
        #: Time in which graphs were taken in and no own span had work outstanding.
        self._taking_in = 0
        #: Spans that share, the part of :data:`WHOLE` of each, and true if an own span is among them.
        self._sharing: tuple[tuple[Path, ...], bool] | None = None
        self._parts: dict[str, int] = {}
        self._own_works = False
        self._weights: dict[str, dict[str, int]] = {}
        #: Each span's share of the time, of all and since the last report.
        self._time: dict[str, int] = {}
        self._since: dict[str, int] = {}
        #: The last of these that was not empty, and the last report.
        self._last: dict[str, int] = {}
        self._reported: Mapping[str, int] | None = None
        #: Slot-nanoseconds of :data:`_UNSEEN` that were weighed, and what was reported of it when the window began.
        self._weighed = self._unseen_before = 0

    def accrue(self, spans: tuple[Path, ...], free: Sequence[int], elapsed: int, *, graphs: bool) -> None:
        """Count a time with these spans outstanding, free slots by ``idle.SEEN``, maybe a graph being taken in."""
        if (spans, graphs) != self._sharing:
            self._sharing = spans, graphs
            self._parts = equal_shares((*spans, (_TAKEN_IN,)) if graphs else spans or ((NOBODY,),))
            self._own_works = any(self._is_own(path[-1]) for path in spans)
        if self._own_works:
            self.own_ns += elapsed
        elif graphs:
            self._taking_in += elapsed
        weighed = [(name, slots) for name, slots in zip(_IDLE, free, strict=True) if slots]
        self._weighed += sum(slots * elapsed for name, slots in weighed if name == _UNSEEN)
        for span, part in self._parts.items():
            span, share = self._known(span), elapsed * part // WHOLE
            add(self._time, {span: share})
            add(self._since, {span: share})
            for name, slots in weighed:
                add(self._weights.setdefault(name, {}), {span: slots * share})

    def taken_in(self, spans: Sequence[Path]) -> None:
        """Give the time of graphs that were being taken in to their spans, now that these are known."""
        for row in (self._time, self._since, self._last, *self._weights.values()):
            for span, part in equal_shares(spans, row.pop(_TAKEN_IN, 0)).items():
                add(row, {self._known(span): part})
        if any(self._is_own(path[-1]) for path in spans):
            self.own_ns += self._taking_in
        self._taking_in = 0

    def report(self, activity: Mapping[str, int], causes: Mapping[str, int]) -> None:
        """Weigh the workers' reports of their slots and causes: cumulative nanoseconds by name."""
        self._last = self._since or self._last
        self._since = {}
        before, self._reported = self._reported, activity
        if before is None:
            self._unseen_before = _unseen(causes) - self._weighed
            return
        if not any(self._last.values()):
            return
        grown = {bucket: activity.get(bucket, 0) - before.get(bucket, 0) for bucket in _REPORTED}
        grown[_UNSEEN] = _unseen(causes) - self._unseen_before - self._weighed
        self._weighed += max(0, grown[_UNSEEN])
        for name, ns in grown.items():
            if ns > 0:
                add(self._weights.setdefault(name, {}), divide(self._last, ns))

    def divide(self, name: str, ns: int) -> dict[str, int]:
        """Divide time of one of :data:`SHARED`, or of a cause of ``idle``, exactly among spans; unseen as that seen."""
        weights = self._weights.get(_UNSEEN if name == _ROUND_TRIPS else name, {})
        if not any(weights.values()) and name.startswith(Bucket.IDLE):
            weights = {}
            for cause in _IDLE:
                add(weights, self._weights.get(cause, {}))
        if not any(weights.values()):
            weights = self._time
        if not any(weights.values()):
            return {NOBODY: ns} if ns else {}
        found = divide(weights, ns)
        if _TAKEN_IN in found:
            add(found, {NOBODY: found.pop(_TAKEN_IN)})
        return {span: part for span, part in found.items() if part}

    def _known(self, span: str) -> str:
        return span if span in self._time or len(self._time) < MAX_APART else NOBODY


def _unseen(causes: Mapping[str, int]) -> int:
    return causes.get(_UNSEEN, 0) + causes.get(_ROUND_TRIPS, 0)
