"""Reservations of slots, and two views of their time: by activity while tasks run, and by window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

from dask_efficiency.accounts.rows import MAX_ROWS, OTHER, scale_down
from dask_efficiency.accounts.worker.balance import ACTIVE_BUCKETS, TASK_BUCKETS, UNHELD_BUCKETS, Outcome, WindowBalance

_NAMES = tuple(map(str, ACTIVE_BUCKETS))


class SlotReservation:
    """A task's reservation of one slot: it runs since ``start``, or has ended and waits to be finalized."""

    #: Nanoseconds for which the slot was held; final once the slot is free again, -1 before.
    ns = -1
    #: Nanoseconds counted by the activity view so far, by :data:`ACTIVE_BUCKETS`; None before the first count.
    counted: list[int] | None = None

    def __init__(self, prefix: str, span: str, recomputed: str, start: int) -> None:
        self.prefix = prefix
        self.span = span
        self.recomputed = recomputed
        self.start = start

    @property
    def stop(self) -> int:
        """When the slot was free again."""
        return self.start + self.ns


class ActivityView:
    """Splits the time of held slots by activity while their tasks still run.

    Reported time is never taken back: where a task's final split differs, later time makes up for it.
    """

    def __init__(self) -> None:
        #: Per activity, nanoseconds in the view and not in the finalized buckets of tasks that succeeded.
        self._provisional = [0] * len(ACTIVE_BUCKETS)
        #: Per activity, final minus provisional nanoseconds, not yet applied.
        self._corrections = [0] * len(ACTIVE_BUCKETS)
        self._reported = [0] * len(ACTIVE_BUCKETS)

    def count(self, reservation: SlotReservation, used: Sequence[int], held: int) -> None:
        """Count what a reservation did so far: each activity has what it lacks of ``used``, the last one the rest."""
        counted = reservation.counted
        if counted is None:
            counted = reservation.counted = [0] * len(ACTIVE_BUCKETS)
        left = held - sum(counted)
        for i, ns in enumerate(used[:-1]):
            more = min(max(ns - counted[i], 0), left)
            counted[i] += more
            self._provisional[i] += more
            left -= more
        counted[-1] += left
        self._provisional[-1] += left

    def finalize(self, reservation: SlotReservation, split: Sequence[int], *, succeeded: bool) -> None:
        """Note how a reservation is split for good; if it ``succeeded`` that is in the finalized buckets now."""
        self.count(reservation, split, reservation.ns)
        assert reservation.counted is not None
        for i, ns in enumerate(split):
            self._corrections[i] += ns - reservation.counted[i]
            if succeeded:
                self._provisional[i] -= ns

    def report(self, finalized: Mapping[str, int]) -> dict[str, int]:
        """The view now, by bucket; ``finalized`` are those of tasks that succeeded and, as ``spill``, of free slots."""
        view = [finalized[name] + ns for name, ns in zip(_NAMES, self._provisional, strict=True)]
        corrections = self._corrections
        if any(corrections):
            too_much = [i for i, ns in enumerate(corrections) if ns < 0]
            too_little = [j for j, ns in enumerate(corrections) if ns > 0]
            for i, j in product(too_much, too_little):
                moved = max(0, min(-corrections[i], corrections[j], view[i] - self._reported[i]))
                for row, sign in ((self._provisional, 1), (view, 1), (corrections, -1)):
                    row[i] -= sign * moved
                    row[j] += sign * moved
        self._reported = view
        return dict(zip(_NAMES, view, strict=True))


#: Windows open at once, of a cluster as of a worker; the oldest goes when one more is opened, so that a client that
#: never closes its own costs no more. A guess: each client has one or two.
MAX_WINDOWS = 64

Row = list[int]


class SlotWindow:
    """A ledger's accounts since a window opened, when free slots and unfinalized reservations had had so much time."""

    def __init__(self, *, at: int, free: Sequence[int], held: dict[SlotReservation, int]) -> None:
        self._opened = at
        self._free = list(free)
        self._before = held
        self._rows: dict[tuple[str, str], Row] = {}
        self._tasks: dict[str, int] = {}

    def finalize(self, reservation: SlotReservation, outcome: Outcome, split: Row) -> None:
        """Record the part of a reservation that lies in the window; ``split`` is all of it, by first task buckets."""
        self._tasks[outcome] = self._tasks.get(outcome, 0) + 1
        before = self._before.pop(reservation, 0)
        total = self._row(reservation)
        for i, ns in enumerate(scale_down(split, reservation.ns - before) if before else split):
            total[i] += ns

    def close(
        self, *, nthreads: int, at: int, free: Sequence[int], held: Mapping[SlotReservation, int]
    ) -> WindowBalance:
        """The accounts of the window, which ends."""
        for reservation, ns in held.items():
            self._row(reservation)[-1] += ns - self._before.get(reservation, 0)
        return WindowBalance(
            nthreads=nthreads,
            elapsed=at - self._opened,
            free={str(b): now - then for b, now, then in zip(UNHELD_BUCKETS, free, self._free, strict=True)},
            rows={key: tuple(row) for key, row in self._rows.items()},
            tasks={str(outcome): n for outcome, n in self._tasks.items()},
        )

    def _row(self, reservation: SlotReservation) -> Row:
        """Row of a span and prefix; beyond the bound, the shared row."""
        key = reservation.span, reservation.prefix
        if key not in self._rows and len(self._rows) >= MAX_ROWS:
            key = "", OTHER
        return self._rows.setdefault(key, [0] * (len(TASK_BUCKETS) + 1))
