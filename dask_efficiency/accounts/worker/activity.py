"""ActivityView: what held slots were doing so far, whatever becomes of their tasks; no figure of it ever falls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

from dask_efficiency.accounts.buckets import Bucket

#: What a slot that a task holds is doing, whatever becomes of the task.
ACTIVE_BUCKETS = (
    Bucket.THREAD_CPU,
    Bucket.GPU,
    Bucket.LIBRARY_THREADS,
    Bucket.THREAD_NONCPU,
    Bucket.SPILL,
    Bucket.OVERHEAD,
)

_NAMES = tuple(map(str, ACTIVE_BUCKETS))


class SlotReservation:
    """A task's reservation of one slot: it runs since ``start``, or has ended and waits to be finalized."""

    #: Nanoseconds for which the slot was held; final once the slot is free again, -1 before.
    ns = -1
    #: What the activity view has counted of it so far, by :data:`ACTIVE_BUCKETS`; None before the first time.
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
    """Splits the time of held slots by activity while their tasks still run, and corrects itself when they end.

    What the view has reported is never taken back. Where a task turns out to have done something else than the view
    had counted for it, later time makes up for the difference.
    """

    def __init__(self) -> None:
        #: Per activity, nanoseconds in the view and not in the finalized buckets of tasks that succeeded.
        self._provisional = [0] * len(ACTIVE_BUCKETS)
        #: Per activity, final minus provisional nanoseconds, not yet applied.
        self._corrections = [0] * len(ACTIVE_BUCKETS)
        #: The view as it was reported last.
        self._reported = [0] * len(ACTIVE_BUCKETS)

    def count(self, reservation: SlotReservation, used: Sequence[int], held: int) -> None:
        """Count what a reservation did since the last time.

        Each activity is given what it lacks of ``used``, in their order, and the last one the rest.

        Parameters
        ----------
        reservation
            One that is not finalized.
        used
            Nanoseconds so far, by :data:`ACTIVE_BUCKETS`; the last value is not looked at.
        held
            Nanoseconds held so far.
        """
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
        """Note how the time of a reservation is split for good.

        Parameters
        ----------
        reservation
            One that has ended.
        split
            Nanoseconds by :data:`ACTIVE_BUCKETS`.
        succeeded
            Whether the split is in the finalized buckets from now on; else the view keeps it for itself.
        """
        self.count(reservation, split, reservation.ns)
        assert reservation.counted is not None
        for i, ns in enumerate(split):
            self._corrections[i] += ns - reservation.counted[i]
            if succeeded:
                self._provisional[i] -= ns

    def report(self, finalized: Mapping[str, int]) -> dict[str, int]:
        """The view at this instant, by bucket, in nanoseconds.

        Parameters
        ----------
        finalized
            The buckets of the tasks that succeeded and, under ``spill``, of free slots.
        """
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
