"""IdleWeights: what slots were free for while work was outstanding, fit to what their workers report."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import add, itemgetter
from typing import NamedTuple

from dask_efficiency.accounts.buckets import Bucket, scale_down
from dask_efficiency.accounts.causes import CAUSES, UNKNOWN
from dask_efficiency.accounts.cluster.span_shares import Path, SpanShares

#: What a free slot can be free for, in the order of precedence; ``unknown`` is where nobody looked.
SEEN = tuple(cause for cause in CAUSES[Bucket.IDLE] if cause != UNKNOWN)

_SCHEDULER, _ROUND_TRIPS, _IMBALANCE, _RESTRICTED, _GRAPH, _PARALLELISM = map(
    SEEN.index, ("scheduler", "round-trips", "imbalance", "restricted", "graph", "parallelism")
)

#: What a free slot of a paused worker can be free for: the tasks that it could run, and else what others are.
_OF_PAUSED = (*SEEN, str(Bucket.PAUSED))
_PAUSED = len(SEEN)

#: What is known of an instant: how long by then a slot that was always free was so for each cause, and how long
#: somebody looked; the same of a slot of a paused worker; and how long the scheduler had ready tasks and was at rest.
_RUNNING = slice(0, len(SEEN))
_LOOKED, _AT_REST = len(SEEN), len(SEEN) + 1
_HELD_UP = slice(_AT_REST + 1, _AT_REST + 1 + len(_OF_PAUSED))
_NOTHING = (0,) * _HELD_UP.stop

#: Stand-ins for a prefix: for time in which nothing ran, and for prefixes beyond :data:`MAX_PREFIXES`.
NOTHING_RAN = "(nothing ran)"
OTHER = "(other)"

#: Prefixes kept apart, as many as by default in a ledger.
MAX_PREFIXES = 1_000

#: Keys of tasks that ran alone; of more, those that did for the shortest are forgotten, half of all at a time.
MAX_ALONE = 1_000

#: Changes of a worker's free slots that are kept apart until its next split. At 20 looks a second they are those of
#: 13 s, and heartbeats of the few workers that are looked at so often are a second apart.
MAX_CHANGES = 256

#: Instants at which another state began, and until which it is known what was seen. A worker's report is looked at less
#: than a second after it was made, as a rule; of instants that are forgotten, time is taken in proportion.
MAX_INSTANTS = 256

_AT = itemgetter(0)


class Slots(NamedTuple):
    """A worker's slots as the scheduler sees them."""

    free: int
    all: int
    #: Whether their worker is paused: it is sent nothing.
    paused: bool = False


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The scheduler's view of the cluster at one instant, while work is outstanding."""

    #: Every worker that is there; slots of one that retires are not free.
    workers: Mapping[Hashable, Slots]
    #: Free slots of those that are not paused.
    free: int
    #: Ready tasks that the scheduler has not sent.
    queued: int = 0
    #: Tasks that wait on workers beyond their threads, and could run on a free slot.
    waiting: int = 0
    #: Tasks that wait on workers beyond their threads or on the scheduler, and may not run on any free slot.
    restricted: int = 0
    #: Free slots of paused workers; and tasks that have no worker, and could run on one of these.
    paused: int = 0
    held_up: int = 0
    #: Whether a graph is being taken in.
    graphs: bool = False
    #: How many of the tasks that run have each prefix; where there are many, of some of them.
    running: Mapping[str, int] = field(default_factory=dict)
    #: (key, prefix) of the one task that runs, if it is one.
    only: tuple[Hashable, str] | None = None
    #: The spans that have work outstanding, where anybody asks.
    spans: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Alone:
    """A task that was the only one to run while slots were free for lack of others."""

    prefix: str
    #: Nanoseconds of the wall clock.
    ns: int


def slots_by_cause(state: ClusterState) -> tuple[int, ...]:
    """Count a cluster's free slots by cause.

    Ready tasks that the scheduler holds account for one slot each, then tasks that wait elsewhere and could move, then
    those that may not. The rest is free because a graph is being taken in or, if none is, for lack of parallelism.

    Returns
    -------
    tuple
        By :data:`SEEN`; sums to ``state.free``.
    """
    found = [0] * len(SEEN)
    left = state.free
    for cause, tasks in ((_SCHEDULER, state.queued), (_IMBALANCE, state.waiting), (_RESTRICTED, state.restricted)):
        found[cause] = min(left, tasks)
        left -= found[cause]
    found[_GRAPH if state.graphs else _PARALLELISM] = left
    return tuple(found)


def paused_slots_by_cause(state: ClusterState) -> tuple[int, ...]:
    """Count the free slots of paused workers by cause.

    Of the tasks that wait on the scheduler or elsewhere and could move, those that would not find a free slot on
    another worker could run there: each makes one slot ``paused``. The rest is free as others are.

    Returns
    -------
    tuple
        By :data:`SEEN`, and then ``paused``; sums to ``state.paused``.
    """
    found = [0] * len(_OF_PAUSED)
    beyond = max(0, state.queued + state.waiting - state.free)
    others = max(0, state.free - state.queued - state.waiting)
    found[_PAUSED] = min(state.paused, beyond + state.held_up)
    left = state.paused - found[_PAUSED]
    found[_RESTRICTED] = min(left, max(0, state.restricted - state.held_up - others))
    found[_GRAPH if state.graphs else _PARALLELISM] = left - found[_RESTRICTED]
    return tuple(found)


class _Instant(NamedTuple):
    """Sums up to an instant, as :data:`_NOTHING` begins them."""

    at: int
    seen: tuple[int, ...]


class _Change(NamedTuple):
    """A worker's slots from an instant on."""

    since: _Instant
    slots: Slots


class _Account:
    """A worker's slots since its last split."""

    def __init__(self, change: _Change) -> None:
        self.changes = [change]
        #: Thread-nanoseconds of earlier changes, by :data:`SEEN` and ``paused``; and those of slots that were believed
        #: to be in use, all and while ready tasks were held back by a scheduler that was not busy.
        self.weights = [0] * len(_OF_PAUSED)
        self.in_use = self.held_back = 0

    def change(self, change: _Change) -> None:
        if change.since.at == self.changes[-1].since.at:
            self.changes.pop()
        self.changes.append(change)
        if len(self.changes) > MAX_CHANGES:
            self._sum_up(self.changes[: MAX_CHANGES // 2 + 1])
            del self.changes[: MAX_CHANGES // 2]

    def take(self, at: int, history: Sequence[_Instant]) -> tuple[list[int], int, int]:
        """The weights until an instant, and the times in use; the account goes on from there."""
        last = history[-1]
        at = min(max(at, self.changes[0].since.at), last.at)
        over = sum(change.since.at <= at for change in self.changes)
        before, slots = self.changes[over - 1]
        after = self.changes[over].since if over < len(self.changes) else last
        i = bisect_right(history, at, key=_AT)
        if i:
            before = max(before, history[i - 1], key=_AT)
        if i < len(history):
            after = min(after, history[i], key=_AT)
        cut = _Change(_between(before, after, at), slots)
        self._sum_up([*self.changes[:over], cut])
        self.changes = [cut, *self.changes[over:]]
        taken = self.weights, self.in_use, self.held_back
        self.weights, self.in_use, self.held_back = [0] * len(_OF_PAUSED), 0, 0
        return taken

    def _sum_up(self, changes: list[_Change]) -> None:
        for (start, slots), (stop, _) in pairwise(changes):
            before, after = start.seen, stop.seen
            if before is after or not slots.all:
                continue
            free = 0
            if slots.free:
                which = _HELD_UP if slots.paused else _RUNNING
                for cause, (then, now) in enumerate(zip(before[which], after[which], strict=True)):
                    ns = slots.free * (now - then)
                    self.weights[cause] += ns
                    free += ns
            looked, at_rest = after[_LOOKED] - before[_LOOKED], after[_AT_REST] - before[_AT_REST]
            in_use = max(0, slots.all * looked - free)
            self.in_use += in_use
            if at_rest:
                self.held_back += in_use * at_rest // looked


def _between(before: _Instant, after: _Instant, at: int) -> _Instant:
    """Interpolate the sums of an instant between two others."""
    if at == before.at:
        return before
    part, whole = at - before.at, after.at - before.at
    return _Instant(at, tuple(b + (a - b) * part // whole for b, a in zip(before.seen, after.seen, strict=True)))


class IdleWeights:
    """Weights by which each worker's idle time is divided among causes, when it reports that.

    All free slots of a cluster are alike at any instant, but for those of paused workers, which are so among
    themselves: each is free for the causes of all in proportion. A worker's weights are their sums over the time for
    which its slots were free. Where no work was outstanding, or nobody looked, there are none.

    Parameters
    ----------
    at
        Monotonic nanoseconds, by the clock that all methods' ``at`` is read from.
    """

    def __init__(self, *, at: int) -> None:
        #: Slot-nanoseconds that were free for lack of parallelism, by the prefixes that ran then, in proportion to
        #: their tasks.
        self.parallelism: dict[str, int] = {}
        #: By key, the tasks that ran alone.
        self.alone: dict[Hashable, Alone] = {}
        #: By the id of a window, whose the time of free slots is in it.
        self.shares: dict[str, SpanShares] = {}
        #: What was known after each of the last calls.
        self._history = deque([_Instant(at, _NOTHING)], maxlen=MAX_INSTANTS)
        self._accounts: dict[Hashable, _Account] = {}
        #: The workers of the last state; and those that left since and may be in the next one yet.
        self._workers: Mapping[Hashable, Slots] = {}
        self._left: set[Hashable] = set()
        self._state: ClusterState | None = None
        #: What held until the last of the instants.
        self._accrued: ClusterState | None = None
        self._causes: tuple[int, ...] = ()
        self._causes_of_paused: tuple[int, ...] = ()

    @property
    def at(self) -> int:
        """Instant up to which the weights are known."""
        return self._history[-1].at

    def accrue(self, state: ClusterState | None, *, at: int, at_rest: int = 0) -> None:
        """Count what held since the last call.

        Parameters
        ----------
        state
            The scheduler's state; None where no work was outstanding, or nobody knows. Not changed afterwards.
        at
            Until when. What is not later than the last call is not counted.
        at_rest
            Nanoseconds of that time in which the scheduler's event loop had nothing to do; the time, at most.
        """
        elapsed = at - self.at
        if elapsed <= 0:
            return
        seen = self._history[-1].seen
        if state is not None:
            self._follow(state)
            gained = self._count(state, elapsed, min(at_rest, elapsed) if state.queued else 0)
            seen = tuple(map(add, seen, gained))
        if state is self._accrued and len(self._history) > 1:
            self._history.pop()  # redundant between two others at which the same state held
        self._history.append(_Instant(at, seen))
        self._accrued = state

    def split(self, worker: Hashable, idle: int, *, at: int | None = None) -> dict[str, int]:
        """Split a worker's idle time by cause and ``paused``; its weights until then are used up.

        Parameters
        ----------
        worker
            As it is called in the states.
        idle
            Nanoseconds that its slots were idle since the last split while work was outstanding, not negative; those in
            which it was paused, and had no task that could run, are among them. With 0 its weights are used up all the
            same.
        at
            The instant to which it reports; as far as the weights are known, if not given.

        Returns
        -------
        dict
            Nanoseconds by cause, of :data:`~dask_efficiency.accounts.causes.CAUSES`, and under ``paused``; sums to
            ``idle``. Where the scheduler believed in more free slots, each cause is scaled down. Where in fewer, a
            message was on its way or the scheduler had not looked at it: as far as it believed slots to be in use that
            is ``round-trips``, in proportion to the time in which it held ready tasks and was at rest, and
            ``scheduler``; else it is ``unknown``.
        """
        if idle < 0:
            raise ValueError(f"{worker!r} reports {idle} ns of idle time; expected 0 or more")
        weights, in_use, held_back = [0] * len(_OF_PAUSED), 0, 0
        account = self._accounts.get(worker)
        if account is not None:
            weights, in_use, held_back = account.take(self.at if at is None else at, self._history)
        if sum(weights) > idle:
            weights = scale_down(weights, idle)
        rest = idle - sum(weights)
        waited = min(rest, in_use)
        round_trips = waited * held_back // in_use if in_use else 0
        weights[_SCHEDULER] += waited - round_trips
        weights[_ROUND_TRIPS] += round_trips
        found = {cause: ns for cause, ns in zip(_OF_PAUSED, weights, strict=True) if ns}
        if rest > in_use:
            found[UNKNOWN] = rest - in_use
        return found

    def worker_left(self, worker: Hashable) -> None:
        """Forget a worker, which reports nothing any more."""
        self._accounts.pop(worker, None)
        self._left.add(worker)

    def _follow(self, state: ClusterState) -> None:
        """Note which workers' slots have changed."""
        workers = state.workers
        if workers is self._workers:
            return
        now, accounts = self._history[-1], self._accounts
        for worker, slots in workers.items():
            account = accounts.get(worker)
            if account is None:
                if worker not in self._left:
                    accounts[worker] = _Account(_Change(now, slots))
            elif account.changes[-1].slots != slots:
                account.change(_Change(now, slots))
        for worker in self._workers.keys() - workers.keys():
            if worker in accounts:
                accounts[worker].change(_Change(now, Slots(0, 0)))
        self._workers = workers
        self._left.intersection_update(workers)

    def _count(self, state: ClusterState, elapsed: int, at_rest: int) -> list[int]:
        """Compute what a state that held for so long adds to an instant."""
        if state is not self._state:
            self._state, self._causes = state, slots_by_cause(state)
            self._causes_of_paused = paused_slots_by_cause(state)
        causes = self._causes
        of_all = tuple(map(add, causes, self._causes_of_paused))
        for shares in self.shares.values():
            shares.accrue(state.spans, of_all, elapsed, graphs=state.graphs)
        lacking = of_all[_PARALLELISM]
        if lacking:
            running = state.running or {NOTHING_RAN: 1}
            parts = scale_down([tasks * lacking * elapsed for tasks in running.values()], lacking * elapsed)
            for prefix, ns in zip(running, parts, strict=True):
                if prefix not in self.parallelism and len(self.parallelism) >= MAX_PREFIXES:
                    prefix = OTHER
                self.parallelism[prefix] = self.parallelism.get(prefix, 0) + ns
            if state.only is not None:
                self._add_alone(*state.only, elapsed)
        of_free = scale_down([slots * elapsed for slots in causes], elapsed if state.free else 0)
        if at_rest:
            of_free[_ROUND_TRIPS] = of_free[_SCHEDULER] * at_rest // elapsed
            of_free[_SCHEDULER] -= of_free[_ROUND_TRIPS]
        return [
            *of_free,
            elapsed,
            at_rest,
            *scale_down([slots * elapsed for slots in self._causes_of_paused], elapsed if state.paused else 0),
        ]

    def _add_alone(self, key: Hashable, prefix: str, elapsed: int) -> None:
        known = self.alone.get(key)
        self.alone[key] = Alone(prefix, elapsed + (known.ns if known else 0))
        if len(self.alone) > MAX_ALONE:
            rows = sorted(((alone.ns, other) for other, alone in self.alone.items()), key=_AT)
            for _, other in rows[: MAX_ALONE // 2]:
                if other != key:
                    del self.alone[other]
