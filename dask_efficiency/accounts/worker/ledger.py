"""Ledger: the accounts of one worker's thread slots, in integer nanoseconds, without clock or I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.accounts.rows import MAX_SENT, OTHER, kept_apart
from dask_efficiency.accounts.worker.balance import (
    TASK_BUCKETS,
    UNHELD_BUCKETS,
    Availability,
    Balance,
    Outcome,
    Used,
    WindowBalance,
)
from dask_efficiency.accounts.worker.reservations import MAX_WINDOWS, ActivityView, Row, SlotReservation, SlotWindow

#: Stretches of spilling in which free slots may still turn out to have waited. A guess: reports clear them.
MAX_UNDECIDED = 1_000

_PAUSED, _RETIRING, _WAITING, _CONSTRAINED, _IDLE, _SPILL = range(6)

#: Bucket of the whole time of a task that did not succeed for the first time.
_BUCKET_OF = {
    Outcome.FAILED: TASK_BUCKETS.index(Bucket.FAILED),
    Outcome.CANCELLED: TASK_BUCKETS.index(Bucket.CANCELLED),
    Outcome.RECOMPUTED: TASK_BUCKETS.index(Bucket.RECOMPUTED),
    Outcome.RESCHEDULED: TASK_BUCKETS.index(Bucket.OVERHEAD),
}
#: Names of the buckets of free slots and of tasks.
_UNHELD, _HELD = tuple(map(str, UNHELD_BUCKETS)), tuple(map(str, TASK_BUCKETS))
_SUCCEEDED, _RESCHEDULED = Outcome.SUCCEEDED, Outcome.RESCHEDULED
_NOTHING = Used()
#: Buckets of free slots, by their positions, and numbers of slots.
Reasons = tuple[tuple[int, int], ...]
#: A reservation that ended, its task's outcome, and the time used, in the order of :class:`Used`.
Final = tuple[SlotReservation, Outcome, int, int, int, int, int]


class Ledger:
    """The accounts of ``nthreads`` slots from ``at`` on.

    Every method takes ``at``, monotonic nanoseconds; an ``at`` earlier than one already seen counts as that one. Each
    slot is held by a task, or free and named after what keeps it free; no finalized bucket ever shrinks, and

    sum of finalized buckets + running == nthreads x elapsed
    """

    def __init__(self, nthreads: int, *, at: int, max_prefixes: int = 100, max_windows: int = MAX_WINDOWS) -> None:
        if nthreads < 1:
            raise ValueError(f"nthreads is {nthreads}; expected at least 1")
        self.nthreads = nthreads
        self.started = at
        #: Last instant seen, slots that no task holds, and tasks that hold one, by key; read-only for others.
        self.at = at
        self.slots_free = nthreads
        self.held: dict[object, SlotReservation] = {}
        self._ended: dict[SlotReservation, None] = {}
        #: Reservations that came while all slots were held: hooks may show a start before the end that made room.
        self._excess: dict[object, SlotReservation] = {}
        self._availability, self._waiting, self._constrained = Availability.RUNNING, 0, 0
        #: Buckets of free slots, each with the number of tasks that keep one free, in order; the other slots are idle.
        self._reasons: Reasons = ()
        self._free = [0] * len(UNHELD_BUCKETS)
        #: Stretches of spilling since the last report, oldest first: start, stop, and the free slots that may still
        #: turn out to have waited.
        self.undecided: deque[list[int]] = deque(maxlen=MAX_UNDECIDED)
        #: Finalized time of tasks by prefix; the rows sum to all of it.
        self._prefixes: dict[str, Row] = {}
        self._max_prefixes, self._max_windows = max_prefixes, max_windows
        self._tasks: dict[str, int] = {}
        self._recomputed: dict[str, list[int]] = {}
        self._activity = ActivityView()
        #: Tasks that succeeded for the first time; counted separately, because an enum's hash is slow.
        self._succeeded = 0
        self._windows: dict[str, SlotWindow] = {}

    @property
    def windows(self) -> tuple[str, ...]:
        """Windows that are open, oldest first."""
        return tuple(self._windows)

    def has(self, key: object) -> bool:
        """Check if a key holds a slot, or waits for one."""
        return key in self.held or key in self._excess

    def observe(self, availability: Availability, waiting: int, constrained: int, ready: int = 0, *, at: int) -> None:
        """Set the reasons why slots are free from ``at`` on: each task that cannot run yet names one."""
        self._advance(at)
        self._availability, self._waiting, self._constrained = availability, waiting, constrained
        if availability is Availability.RUNNING:
            self._reasons = ((_WAITING, waiting), (_CONSTRAINED, constrained)) if waiting or constrained else ()
        elif availability is Availability.PAUSED:
            self._reasons = (_PAUSED, ready + constrained), (_WAITING, waiting)
        else:
            self._reasons = ((_RETIRING, self.nthreads),)

    def turn(self, availability: Availability, ready: int = 0, *, at: int) -> None:
        """Set whether the worker takes tasks from ``at`` on; what waits stays as observed."""
        self.observe(availability, self._waiting, self._constrained, ready, at=at)

    def spilled(self, ready: int, *, start: int, stop: int) -> None:
        """Record a stretch of the event loop at the disk: ``spill`` has a slot for each task that is ready or waits.

        Other tasks may be on their way: see :meth:`delayed`.
        """
        self._advance(start)
        since = self.at
        if stop <= since or self._availability is not Availability.RUNNING:
            self._advance(stop)
            return
        self.at = stop
        idle = self._name(((_SPILL, self._waiting + ready), (_CONSTRAINED, self._constrained)), stop - since)
        if idle:
            self.undecided.append([since, stop, idle])

    def delayed(self, since: int) -> None:
        """Count unreported spilling since an instant as ``spill`` for a task that was on its way then."""
        for stretch in self.undecided:
            start, stop, slots = stretch
            waited = stop - max(start, since)
            if slots and waited > 0:
                stretch[2] -= 1
                self._free[_IDLE] -= waited
                self._free[_SPILL] += waited

    def reserve(
        self, key: object, prefix: str, span: str = "", *, recomputed: str = "", at: int
    ) -> SlotReservation | None:
        """Take a slot for a task, or queue it until one is free; None if the key has a reservation already."""
        if key in self.held or key in self._excess:
            return None
        slots = self.slots_free
        if at > self.at:
            if slots:
                if self._reasons:
                    self._name(self._reasons, at - self.at)
                else:
                    self._free[_IDLE] += slots * (at - self.at)
            self.at = at
        reservation = SlotReservation(prefix, span, recomputed, self.at)
        if slots:
            self.slots_free = slots - 1
            self.held[key] = reservation
        else:
            self._excess[key] = reservation
        return reservation

    def release(self, key: object, at: int) -> SlotReservation | None:
        """Free a task's slot, None if it held none; its outcome is given later, to :meth:`finalize`."""
        reservation = self.held.pop(key, None)
        if reservation is None:
            reservation = self._excess.pop(key, None)
            if reservation is not None:
                reservation.ns = 0
                self._ended[reservation] = None
            return reservation
        if at > self.at:
            if self.slots_free:
                self._name(self._reasons, at - self.at)
            self.at = at
        reservation.ns = self.at - reservation.start
        self._ended[reservation] = None
        if self._excess:
            waiting, promoted = next(iter(self._excess.items()))
            del self._excess[waiting]
            promoted.start = self.at
            self.held[waiting] = promoted
        else:
            self.slots_free += 1
        return reservation

    def finalize(self, reservation: SlotReservation, outcome: Outcome, **used: int) -> None:
        """Record one, which used what the fields of :class:`Used` say; see :meth:`finalize_many`."""
        self.finalize_many([(reservation, outcome, *Used(**used))])

    def finalize_many(self, tasks: Iterable[Final]) -> None:
        """Record released reservations for good, each once.

        Measurements are clamped to the time held, in the order CPU, GPU, library threads, non-CPU, spill; overhead
        is the rest. So the sum is exact, whatever was measured.
        """
        ended, prefixes = self._ended, self._prefixes
        windows = tuple(self._windows.values()) if self._windows else ()
        succeeded = 0
        for reservation, outcome, cpu, wall, gpu, library, spill in tasks:
            del ended[reservation]
            row = prefixes.get(reservation.prefix) or self._new_prefix(reservation.prefix)
            left = reservation.ns
            # Conditions, not min and max, and none of them for most tasks: this runs for every one.
            if 0 <= cpu <= wall <= left and not gpu and not library and not spill:
                noncpu = wall - cpu
                left -= wall
            else:
                cpu = 0 if cpu < 0 else cpu if cpu < left else left
                left -= cpu
                gpu = 0 if gpu < 0 else gpu if gpu < left else left
                left -= gpu
                library = 0 if library < 0 else library if library < left else left
                left -= library
                noncpu = wall - cpu - gpu - library
                noncpu = 0 if noncpu < 0 else noncpu if noncpu < left else left
                left -= noncpu
                spill = 0 if spill < 0 else spill if spill < left else left
                left -= spill
            if outcome is _SUCCEEDED and not reservation.recomputed:
                succeeded += 1
                row[0] += cpu
                row[3] += noncpu
                row[5] += left
                if gpu or library or spill:
                    row[1] += gpu
                    row[2] += library
                    row[4] += spill
                if reservation.counted is not None:
                    self._activity.finalize(reservation, (cpu, gpu, library, noncpu, spill, left), succeeded=True)
                for window in windows:
                    window.finalize(reservation, outcome, [cpu, gpu, library, noncpu, spill, left])
                continue
            if outcome is _RESCHEDULED:  # of the view's own buckets it has one, as what succeeds
                self._activity.finalize(reservation, (0, 0, 0, 0, 0, reservation.ns), succeeded=True)
            else:
                self._activity.finalize(reservation, (cpu, gpu, library, noncpu, spill, left), succeeded=False)
            if outcome is _SUCCEEDED:
                outcome = Outcome.RECOMPUTED
            i = _BUCKET_OF[outcome]
            row[i] += reservation.ns
            if outcome is Outcome.RECOMPUTED:
                self._note_recomputed(reservation)
            self._tasks[outcome] = self._tasks.get(outcome, 0) + 1
            for window in windows:
                window.finalize(reservation, outcome, [0] * i + [reservation.ns])
        self._succeeded += succeeded

    def finalize_all(self, outcome: Outcome, *, at: int) -> None:
        """Release and finalize all reservations with one outcome, as the worker closes with tasks running."""
        for key in [*self.held, *self._excess]:
            self.release(key, at=at)
        self.finalize_many([(reservation, outcome, *_NOTHING) for reservation in self._ended])

    def balance(self, *, at: int, used: Mapping[object, Used] | None = None) -> Balance:
        """The accounts at ``at``; ``used`` is by key that holds a slot, or by reservation that is not finalized."""
        self._advance(at)
        self.undecided.clear()
        used = used or {}
        for key, reservation in self.held.items():
            self._activity.count(reservation, used.get(key, _NOTHING).split, self.at - reservation.start)
        for reservation in self._ended:
            self._activity.count(reservation, used.get(reservation, _NOTHING).split, reservation.ns)
        finalized = dict(zip(_UNHELD, self._free, strict=True))
        prefixes = {prefix: tuple(row) for prefix, row in self._prefixes.items()}
        sums = [*map(sum, zip(*prefixes.values(), strict=True))] or [0] * len(_HELD)
        for bucket, ns in zip(_HELD, sums, strict=True):
            finalized[bucket] = finalized.get(bucket, 0) + ns
        tasks = {str(outcome): n for outcome, n in self._tasks.items()}
        if self._succeeded:
            tasks[str(_SUCCEEDED)] = self._succeeded
        holding = self._holding()
        return Balance(
            nthreads=self.nthreads,
            elapsed=self.at - self.started,
            finalized=finalized,
            running=sum(ns for ns, _ in holding.values()),
            prefixes=prefixes,
            tasks=tasks,
            active=self._activity.report(finalized),
            holding=holding,
            recomputed={mark: tuple(row) for mark, row in self._recomputed.items()},
        )

    def open_window(self, window_id: str, *, at: int) -> None:
        """Begin a window; one that is open under this id begins anew."""
        self._advance(at)
        self.undecided.clear()
        self._windows.pop(window_id, None)
        while len(self._windows) >= self._max_windows:
            del self._windows[next(iter(self._windows))]
        self._windows[window_id] = SlotWindow(at=self.at, free=self._free, held=self._held_so_far())

    def close_window(self, window_id: str, *, at: int) -> WindowBalance | None:
        """End a window and return its accounts; None if no such window is open."""
        if window_id not in self._windows:
            return None
        self._advance(at)
        self.undecided.clear()
        window = self._windows.pop(window_id)
        return window.close(nthreads=self.nthreads, at=self.at, free=self._free, held=self._held_so_far())

    def _advance(self, at: int) -> None:
        """Charge the free slots for the time since the last call."""
        if at > self.at:
            if self.slots_free:
                self._name(self._reasons, at - self.at)
            self.at = at

    def _name(self, reasons: Reasons, elapsed: int) -> int:
        """Charge the free slots for a time; the number of those that idled."""
        free, slots = self._free, self.slots_free
        for bucket, tasks in reasons:
            n = min(slots, tasks)
            free[bucket] += n * elapsed
            slots -= n
        free[_IDLE] += slots * elapsed
        return slots

    def _held_so_far(self) -> dict[SlotReservation, int]:
        """For how long each reservation that is not finalized has held its slot."""
        held = {reservation: self.at - reservation.start for reservation in self.held.values()}
        return held | {reservation: reservation.ns for reservation in self._ended}

    def _holding(self) -> dict[str, tuple[int, int]]:
        """Running time by prefix, and the slots held now."""
        rows: dict[str, tuple[int, int]] = {}
        for reservation, held in self._held_so_far().items():
            prefix = kept_apart(reservation.prefix, rows, self._max_prefixes)
            ns, slots = rows.get(prefix, (0, 0))
            rows[prefix] = ns + held, slots + (reservation.ns < 0)
        return rows

    def _note_recomputed(self, reservation: SlotReservation) -> None:
        mark = kept_apart(reservation.recomputed or OTHER, self._recomputed, MAX_SENT)
        row = self._recomputed.setdefault(mark, [0, 0])
        row[0] += reservation.ns
        row[1] += 1

    def _new_prefix(self, prefix: str) -> Row:
        prefix = kept_apart(prefix, self._prefixes, self._max_prefixes)
        return self._prefixes.setdefault(prefix, [0] * len(TASK_BUCKETS))
