"""SlotTracker: what each transition of a worker's task means for the slot that it holds, as one table of rules."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from operator import add
from typing import Any, Protocol

from dask_efficiency.accounts.worker.activity import SlotReservation
from dask_efficiency.accounts.worker.balance import Outcome
from dask_efficiency.accounts.worker.ledger import Ledger
from dask_efficiency.accounts.worker.slot_windows import PlainSums

#: Annotation by which the scheduler marks a task that had been in memory once before.
RECOMPUTED = "dask-efficiency-recomputed"

#: Longer prefixes are cut to so many characters, wherever they are counted.
MAX_PREFIX_LENGTH = 200

#: States of a task whose thread is, or was, at work; a transfer that nobody wants any more is ``cancelled``, too.
AT_WORK = frozenset({"executing", "cancelled", "resumed", "long-running"})

_SUCCEEDED = Outcome.SUCCEEDED


#: When a task's thread began and stopped, by the monotonic clock, and its CPU time between, in nanoseconds; the
#: thread's ident (0 where it was no thread of ours), and its native id (-1 where nobody records).
Run = tuple[int, int, int, int, int]

#: A task that only ran in its thread, in its slot: the task; when it took the slot, and when that was free again; its
#: run; then bytes of its input or output, and of its output (-1 where nobody wants to know).
PlainTask = tuple[Any, int, int, Run, float, int]


class Had(StrEnum):
    """What a task had before a transition."""

    NO_SLOT = "no slot"
    SLOT = "a slot"
    LEFT = "a thread, having left its slot"


class Place(StrEnum):
    """Among which tasks upstream counts a task after a transition."""

    EXECUTING = "executing"
    LONG_RUNNING = "long-running"
    NEITHER = "neither"


class SlotEvent(StrEnum):
    """What a transition meant."""

    NOTHING = "nothing"
    TAKEN = "taken"
    DISCARDED = "discarded"
    SECEDED = "seceded"
    ENDED = "ended"
    NOT_STORED = "not stored"


#: What a task had, where upstream counts it now, and so what happened. Whether its thread is still at work is seen
#: by its place alone: a task that is cancelled and wanted again changes its state and stays where it was.
RULES: Mapping[tuple[Had, Place], SlotEvent] = {
    (Had.NO_SLOT, Place.EXECUTING): SlotEvent.NOTHING,
    (Had.NO_SLOT, Place.LONG_RUNNING): SlotEvent.NOTHING,
    # It has ended already; the same stimulus may add that its result could not be stored.
    (Had.NO_SLOT, Place.NEITHER): SlotEvent.NOT_STORED,
    # Nobody will take the result of this run, if the task had been cancelled; else it only moved.
    (Had.SLOT, Place.EXECUTING): SlotEvent.DISCARDED,
    (Had.SLOT, Place.LONG_RUNNING): SlotEvent.SECEDED,
    (Had.SLOT, Place.NEITHER): SlotEvent.ENDED,
    (Had.LEFT, Place.EXECUTING): SlotEvent.ENDED,
    (Had.LEFT, Place.LONG_RUNNING): SlotEvent.NOTHING,
    (Had.LEFT, Place.NEITHER): SlotEvent.ENDED,
}

#: What became of a task that was not cancelled, by the state in which it ended; of any other, it was cancelled.
_OUTCOMES = {"memory": Outcome.SUCCEEDED, "error": Outcome.FAILED}


class TaskPlaces(Protocol):
    """The part of distributed's ``WorkerState`` that is read here."""

    tasks: dict[Any, Any]
    executing: set[Any]
    long_running: set[Any]


class SlotUser(Protocol):
    """Who finalizes the tasks that ended."""

    def so_far(self, key: Any) -> tuple[int, int] | None:
        """(CPU, wall) nanoseconds that a task which leaves its slot used until now; None where nobody can tell."""

    def ended(
        self, key: Any, ts: Any, reservation: SlotReservation, outcome: Outcome, used: tuple[int, int] | None
    ) -> None:
        """A task's thread is done; ``used`` is what it used in its slot, where it left that before."""

    def not_stored(self, key: Any) -> None:
        """The result of the task that ended last could not be stored."""


class SlotRecorder(Protocol):
    """Who records the same for a trace; called before the :class:`SlotUser`."""

    def taken(self, ts: Any, executing: SlotReservation | int) -> None:
        """A task took a slot, or is to have the next that is free: when, its reservation will tell."""

    def seceded(self, key: Any, reservation: SlotReservation) -> None:
        """A task left its slot and goes on in its thread."""

    def ended(self, key: Any, ts: Any, at: int, *, left: bool = False) -> None:
        """A task's thread is done; whether it had left its slot before."""


class Seceded:
    """A task that left its slot: its reservation, (CPU, wall) that it used until then, and since when it is away."""

    __slots__ = ("at", "reservation", "used")

    def __init__(self, reservation: SlotReservation | None, used: tuple[int, int] | None, at: int) -> None:
        self.reservation = reservation
        self.used = used
        self.at = at


class SlotTracker:
    """Follows a worker's transitions, and tells its ledger and its recorder what they mean for its slots.

    Parameters
    ----------
    state
        The worker's state, as it is after each transition.
    ledger
        The accounts of its slots.
    user
        Who finalizes the tasks that ended.
    at
        Now, in monotonic nanoseconds: tasks that run already take their slots.
    """

    def __init__(self, state: TaskPlaces, ledger: Ledger, user: SlotUser, *, at: int) -> None:
        self._tasks = state.tasks
        self._executing: Collection[Any] = state.executing
        self._long_running: Collection[Any] = state.long_running
        self._ledger = ledger
        self._user = user
        self._ended = user.ended
        #: Who records a trace; None while nobody does.
        self.recorder: SlotRecorder | None = None
        #: Tasks that were cancelled and wanted again while their thread was at work: the scheduler will not
        #: take the result of that run, and has the task run once more.
        self._discarded: set[Any] = set()
        self._seceded = {ts.key: Seceded(None, None, at) for ts in state.long_running}
        self._seceded_ns = 0
        for ts in state.executing:
            self.taken(ts, at)

    @property
    def simple(self) -> bool:
        """Whether tasks may be told of by :meth:`follow`."""
        return self._ledger.idles and not self._discarded

    def follow(
        self, tasks: Sequence[PlainTask], running: Mapping[Any, tuple[Any, int]], *, at: int, wait: bool = False
    ) -> tuple[dict[tuple[str, str], PlainSums], dict[tuple[str, str], SlotReservation]]:
        """Follow many tasks at once that took their slots, ran in their threads for the first time, and nothing else.

        The recorder is not told of them, who has to know at once.

        Parameters
        ----------
        tasks
            Those that ended, each of which was in its thread while it had its slot.
        running
            Those that took slots and have not ended, and when, by key. None of both has a slot by the ledger.
        at
            When the last of this happened.
        wait
            Whether those that ended cannot be finalized yet.

        Returns
        -------
        tuple
            Sums of those that ended, by span and prefix as :func:`place_of` tells them; to be recorded by
            :meth:`~dask_efficiency.accounts.worker.ledger.Ledger.finalize_plain`. Where they wait, their reservations,
            by the same.
        """
        ledger = self._ledger
        by_place: dict[tuple[str | None, str], list[PlainTask]] = {}
        for task in tasks:
            ts = task[0]
            place = ts.span_id, ts.prefix
            if place not in by_place:
                by_place[place] = []
            by_place[place].append(task)
        sums = _named({place: _sums_of(those) for place, those in by_place.items()})
        ended = {place: _reservation_of(place, row, at) for place, row in sums.items()} if wait else {}
        held = sum([row[3] for row in sums.values()]) + sum([at - start for _, start in running.values()])
        ledger.skip(
            at=at,
            idle=ledger.slots_free * (at - ledger.at) - held,
            taken={key: SlotReservation(*_facts(ts), start) for key, (ts, start) in running.items()},
            ended=ended.values(),
        )
        return sums, ended

    def transition(self, key: Any, start: str, finish: str, at: int) -> None:
        """A task changed its state, ``at`` monotonic nanoseconds."""
        if finish == "executing":
            self.taken(self._tasks[key], at)
        elif start == "executing" and finish == "memory":
            self.succeeded(key, self._tasks.get(key), at)
        elif start in AT_WORK:
            self._move(key, start, finish, at)

    def reservation_of(self, key: Any) -> SlotReservation | None:
        """The slot that a task has now, whether it was told of or not; may be called from any thread."""
        reservation = self._ledger.held.get(key)
        if reservation is None:
            ts = self._tasks.get(key)
            if ts is not None and ts.state == "executing":
                return SlotReservation(*_facts(ts), 0)
        return reservation

    def seceded_ns(self, at: int) -> int:
        """Nanoseconds that tasks have run in their threads after they left their slots."""
        return self._seceded_ns + sum(at - task.at for task in self._seceded.values())

    def seceded(self) -> list[Seceded]:
        """The tasks that left their slots and run."""
        return list(self._seceded.values())

    def taken(self, ts: Any, at: int) -> None:
        """A task became ``executing``."""
        prefix, span, recomputed = _facts(ts)
        reservation = self._ledger.reserve(ts.key, prefix, span, recomputed=recomputed, at=at)
        if reservation is not None and self.recorder is not None:
            self.recorder.taken(ts, reservation)

    def succeeded(self, key: Any, ts: Any, at: int, *, recorded: bool = False) -> None:
        """A task went from ``executing`` to ``memory``, as nearly all do; ``ts`` is None if it is forgotten already.

        ``recorded`` says whether the recorder knows.
        """
        reservation = self._ledger.release(key, at=at)
        if reservation is not None:
            outcome = _SUCCEEDED
            if self._discarded and key in self._discarded:
                self._discarded.remove(key)
                outcome = Outcome.CANCELLED
            if self.recorder is not None and not recorded:
                self.recorder.ended(key, ts, reservation.start + reservation.ns)
            self._ended(key, ts, reservation, outcome, None)

    def _move(self, key: Any, start: str, finish: str, at: int) -> None:
        ts = self._tasks.get(key)
        event = RULES[self._had(key), self._place(ts)]
        if event is SlotEvent.DISCARDED:
            if start == "cancelled":
                self._discarded.add(key)
        elif event is SlotEvent.SECEDED:
            self._discarded.discard(key)
            reservation = self._ledger.release(key, at=at)
            assert reservation is not None
            self._seceded[key] = Seceded(reservation, self._user.so_far(key), at)
            if self.recorder is not None:
                self.recorder.seceded(key, reservation)
        elif event is SlotEvent.ENDED:
            self._discarded.discard(key)
            outcome = Outcome.CANCELLED if start == "cancelled" else _OUTCOMES.get(finish, Outcome.CANCELLED)
            left = self._seceded.pop(key, None)
            if left is None:
                reservation = self._ledger.release(key, at=at)
                assert reservation is not None
                if self.recorder is not None:
                    self.recorder.ended(key, ts, reservation.start + reservation.ns)
                self._ended(key, ts, reservation, outcome, None)
                return
            self._seceded_ns += at - left.at
            if self.recorder is not None:
                self.recorder.ended(key, ts, at, left=True)
            if left.reservation is not None:
                self._ended(key, ts, left.reservation, outcome, left.used)
        elif event is SlotEvent.NOT_STORED and finish == "error":
            self._user.not_stored(key)

    def _had(self, key: Any) -> Had:
        if key in self._seceded:
            return Had.LEFT
        return Had.SLOT if self._ledger.has(key) else Had.NO_SLOT

    def _place(self, ts: Any) -> Place:
        if ts is None:
            return Place.NEITHER
        if ts in self._executing:
            return Place.EXECUTING
        return Place.LONG_RUNNING if ts in self._long_running else Place.NEITHER


def place_of(ts: Any) -> tuple[str, str]:
    """The span and prefix under which a task is counted."""
    return ts.span_id or "", ts.prefix[:MAX_PREFIX_LENGTH]


def _reservation_of(place: tuple[str, str], sums: PlainSums, at: int) -> SlotReservation:
    """One reservation for tasks that ended by now."""
    span, prefix = place
    tasks, _, _, held, _ = sums
    reservation = SlotReservation(prefix, span, False, at - held)
    reservation.ns, reservation.tasks = held, tasks
    return reservation


def _sums_of(tasks: Sequence[PlainTask]) -> PlainSums:
    _, starts, stops, runs, _, _ = zip(*tasks, strict=True)
    began, stopped, cpu, _, _ = map(sum, zip(*runs, strict=True))
    start = sum(starts)
    return [len(tasks), cpu, stopped - began, sum(stops) - start, began - start]


def _named(sums: Mapping[tuple[str | None, str], PlainSums]) -> dict[tuple[str, str], PlainSums]:
    """The same by span and prefix as they are counted."""
    found: dict[tuple[str, str], PlainSums] = {}
    for (span, prefix), row in sums.items():
        total = found.setdefault((span or "", prefix[:MAX_PREFIX_LENGTH]), row)
        if total is not row:
            total[:] = map(add, total, row)
    return found


def _facts(ts: Any) -> tuple[str, str, bool]:
    """A task's prefix and span, and whether it is computed again."""
    annotations = ts.annotations
    return ts.prefix[:MAX_PREFIX_LENGTH], ts.span_id or "", RECOMPUTED in annotations if annotations else False
