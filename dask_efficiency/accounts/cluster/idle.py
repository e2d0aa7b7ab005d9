"""Idle time: whether work was outstanding, and what slots were free for while it was."""

from __future__ import annotations

import operator
from bisect import bisect_right
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

from dask_efficiency.accounts.buckets import CAUSES, UNKNOWN, Bucket
from dask_efficiency.accounts.cluster.span_shares import Path, SpanShares
from dask_efficiency.accounts.rows import MAX_APART, add, divide, in_proportion, kept_apart, scale_down

#: Turns of a state, such as work or none, that are remembered. A guess: snapshots are recorded seconds after they are
#: taken, and few programs compute as often within a window.
MAX_TURNS = 8_192


class _Turn(NamedTuple):
    """State of the clock from an instant on, and the nanoseconds of each kind up to it."""

    at: int
    outstanding: bool
    workers: bool
    without_work: int
    without_workers: int

    def until(self, at: int) -> tuple[int, int]:
        """Nanoseconds of each kind up to a later instant."""
        since = max(0, at - self.at)
        if not self.outstanding:
            return self.without_work + since, self.without_workers
        return self.without_work, self.without_workers + since * (not self.workers)


class WorkClock:
    """Clock of the time without outstanding work, and of that with work and no worker; knows recent instants, too."""

    def __init__(self, *, at: int) -> None:
        self._turns: deque[_Turn] = deque([_Turn(at, False, False, 0, 0)], maxlen=MAX_TURNS)

    @property
    def outstanding(self) -> bool:
        """True while there is work."""
        return self._turns[-1].outstanding

    def set(self, outstanding: bool, *, at: int) -> None:
        """Set whether there is work from now on."""
        self._turn(outstanding, self._turns[-1].workers, at)

    def set_workers(self, workers: bool, *, at: int) -> None:
        """Set whether there is any worker from now on."""
        if workers is not self._turns[-1].workers:
            self._turn(self._turns[-1].outstanding, workers, at)

    def _turn(self, outstanding: bool, workers: bool, at: int) -> None:
        at = max(at, self._turns[-1].at)
        self._turns.append(_Turn(at, outstanding, workers, *self._turns[-1].until(at)))

    def without_work(self, *, at: int) -> int:
        """Nanoseconds without outstanding work until ``at``."""
        return self._before(at).until(at)[0]

    def without_workers(self, *, at: int) -> int:
        """Nanoseconds until ``at`` in which work was outstanding and there was no worker at all."""
        return self._before(at).until(at)[1]

    def _before(self, at: int) -> _Turn:
        """Find the last turn before an instant, or the first that is remembered."""
        return next((turn for turn in reversed(self._turns) if turn.at <= at), self._turns[0])


#: Causes of a free slot that the scheduler sees, in order of precedence.
SEEN = tuple(cause for cause in CAUSES[Bucket.IDLE] if cause != UNKNOWN)

_SCHEDULER, _ROUND_TRIPS, _IMBALANCE, _RESTRICTED, _GRAPH, _PARALLELISM = map(
    SEEN.index, ("scheduler", "round-trips", "imbalance", "restricted", "graph", "parallelism")
)

#: Causes of a free slot of a paused worker: those of other slots, and ``paused`` if it could run a task.
_OF_PAUSED = (*SEEN, str(Bucket.PAUSED))
_PAUSED = len(SEEN)
#: Running sums at an instant: time by cause of a slot that was always free; time observed; time in which the scheduler
#: had ready tasks and was at rest; and time by cause of such a slot of a paused worker.
_RUNNING = slice(0, len(SEEN))
_LOOKED, _AT_REST = len(SEEN), len(SEEN) + 1
_HELD_UP = slice(_AT_REST + 1, _AT_REST + 1 + len(_OF_PAUSED))
_NOTHING = (0,) * _HELD_UP.stop
#: Stands for a prefix: time in which nothing ran.
NOTHING_RAN = "(nothing ran)"
#: Changes of a worker's free slots kept until its next split: those of 6 s at 20 looks a second, while heartbeats of
#: the few workers that are looked at so often are a second apart.
MAX_CHANGES = 128
#: Instants of new states that are kept: those of 13 s at 20 looks a second. A report is mostly read within a second;
#: between forgotten instants, time is interpolated.
MAX_INSTANTS = 256
_AT = itemgetter(0)


class WorkerSlots(NamedTuple):
    """A worker's slots as the scheduler sees them."""

    free: int
    all: int
    paused: bool = False


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The scheduler's view of the cluster at one instant, while work is outstanding."""

    #: Slots of all present workers; those of a retiring worker are not free.
    workers: Mapping[Hashable, WorkerSlots]
    #: Free slots of workers that are not paused.
    free: int
    #: Ready tasks that the scheduler has not sent.
    queued: int = 0
    #: Tasks that wait on workers beyond their threads, and could run on a free slot.
    waiting: int = 0
    #: Tasks that wait on workers beyond their threads or on the scheduler, and may not run on any free slot.
    restricted: int = 0
    #: Free slots of paused workers; and tasks without a worker that could run on one of these.
    paused: int = 0
    held_up: int = 0
    graphs: bool = False
    #: Running tasks by prefix; of many, a sample.
    running: Mapping[str, int] = field(default_factory=dict)
    #: (key, prefix) of the only running task, if there is one.
    only: tuple[Hashable, str] | None = None
    spans: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Alone:
    """A task that was the only one to run while slots were free for lack of others."""

    prefix: str
    ns: int


def slots_by_cause(state: ClusterState) -> tuple[int, ...]:
    """Count a cluster's free slots by :data:`SEEN`: one for each ready or waiting task; the sum is ``state.free``."""
    found = [0] * len(SEEN)
    left = state.free
    for cause, tasks in ((_SCHEDULER, state.queued), (_IMBALANCE, state.waiting), (_RESTRICTED, state.restricted)):
        found[cause] = min(left, tasks)
        left -= found[cause]
    found[_GRAPH if state.graphs else _PARALLELISM] = left
    return tuple(found)


def paused_slots_by_cause(state: ClusterState) -> tuple[int, ...]:
    """Count the free slots of paused workers by :data:`SEEN` and ``paused``; the counts sum to ``state.paused``.

    Each task that could run, and would not find a free slot on another worker, makes one slot ``paused``.
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
    slots: WorkerSlots


class _Account:
    """A worker's slots since its last split."""

    def __init__(self, change: _Change) -> None:
        self.changes = [change]
        #: Thread-nanoseconds of earlier changes by :data:`SEEN` and ``paused``; and those of slots believed to be in
        #: use, in all and while a scheduler at rest held ready tasks back.
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
        """Take the weights until an instant, and the times in use."""
        last = history[-1]
        at = min(max(at, self.changes[0].since.at), last.at)
        over = bisect_right(self.changes, at, key=lambda change: change.since.at)
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
    """Weights by which a worker's reported idle time is divided among causes.

    At any instant all free slots of a cluster are alike, and so are those of paused workers: each is free for the
    causes of all, in proportion. There are no weights for time without outstanding work, or without a look.
    """

    def __init__(self, *, at: int) -> None:
        #: Slot-nanoseconds free for lack of parallelism, by the prefixes that ran then, in proportion to their tasks.
        self.parallelism: dict[str, int] = {}
        self.alone: dict[Hashable, Alone] = {}
        self.shares: dict[str, SpanShares] = {}
        self._history = deque([_Instant(at, _NOTHING)], maxlen=MAX_INSTANTS)
        self._accounts: dict[Hashable, _Account] = {}
        #: Workers of the last state; and those that left since, which the next state may still hold.
        self._workers: Mapping[Hashable, WorkerSlots] = {}
        self._left: set[Hashable] = set()
        self._accrued: ClusterState | None = None

    @property
    def at(self) -> int:
        """Instant up to which the weights are known."""
        return self._history[-1].at

    def accrue(self, state: ClusterState | None, *, at: int, at_rest: int = 0) -> None:
        """Count the time since the last call, ``at_rest`` for so long; None if no work was outstanding, or unknown."""
        elapsed = at - self.at
        if elapsed <= 0:
            return
        seen = self._history[-1].seen
        if state is not None:
            self._follow(state)
            gained = self._count(state, elapsed, min(at_rest, elapsed) if state.queued else 0)
            seen = tuple(map(operator.add, seen, gained))
        if state is self._accrued and len(self._history) > 1:
            self._history.pop()  # redundant between two others at which the same state held
        self._history.append(_Instant(at, seen))
        self._accrued = state

    def split(self, worker: Hashable, idle: int, *, at: int | None = None) -> dict[str, int]:
        """Split a worker's idle time since the last split by cause and ``paused``, and use up its weights until ``at``.

        If the scheduler saw more free slots, each cause is scaled down. If it saw fewer, messages were on their way:
        time of slots that it believed to be in use is ``round-trips``, in proportion to the time in which it was at
        rest with ready tasks, and else ``scheduler``; the remainder is ``unknown``.
        """
        if idle < 0:
            raise ValueError(f"{worker!r} reports {idle} ns of idle time; expected 0 or more")
        account = self._accounts.get(worker)
        if account is None:
            return {UNKNOWN: idle} if idle else {}
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
        """Forget a worker, which reports no more."""
        self._accounts.pop(worker, None)
        self._left.add(worker)

    def _follow(self, state: ClusterState) -> None:
        """Note the workers whose slots have changed."""
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
                accounts[worker].change(_Change(now, WorkerSlots(0, 0)))
        self._workers = workers
        self._left.intersection_update(workers)

    def _count(self, state: ClusterState, elapsed: int, at_rest: int) -> list[int]:
        """Growth of an instant's sums by a state that held for a time."""
        causes, causes_of_paused = slots_by_cause(state), paused_slots_by_cause(state)
        of_all = tuple(map(operator.add, causes, causes_of_paused))
        for shares in self.shares.values():
            shares.accrue(state.spans, of_all, elapsed, graphs=state.graphs)
        if lacking := of_all[_PARALLELISM]:
            for prefix, ns in divide(state.running or {NOTHING_RAN: 1}, lacking * elapsed).items():
                add(self.parallelism, {kept_apart(prefix, self.parallelism, MAX_APART): ns})
            if state.only is not None:
                self._add_alone(*state.only, elapsed)
        of_free = in_proportion(causes, elapsed) if state.free else [0] * len(SEEN)
        of_paused = in_proportion(causes_of_paused, elapsed) if state.paused else [0] * len(_OF_PAUSED)
        if at_rest:
            of_free[_ROUND_TRIPS] = of_free[_SCHEDULER] * at_rest // elapsed
            of_free[_SCHEDULER] -= of_free[_ROUND_TRIPS]
        return [*of_free, elapsed, at_rest, *of_paused]

    def _add_alone(self, key: Hashable, prefix: str, elapsed: int) -> None:
        known = self.alone.get(key)
        self.alone[key] = Alone(prefix, elapsed + (known.ns if known else 0))
        if len(self.alone) > MAX_APART:
            for other in sorted(self.alone, key=lambda one: self.alone[one].ns)[: MAX_APART // 2]:
                if other != key:
                    del self.alone[other]
