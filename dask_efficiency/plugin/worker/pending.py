"""PendingTasks: ended tasks on their way into the ledger, until their GPU use is known."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dask_efficiency.accounts.gpu import GpuUse
from dask_efficiency.accounts.intake import whole_number
from dask_efficiency.accounts.metered import BYTES, COUNT, MADE, RESULTS, Metered
from dask_efficiency.accounts.worker.balance import Outcome, Used
from dask_efficiency.accounts.worker.ledger import Final, Ledger
from dask_efficiency.accounts.worker.log import Moved, Run
from dask_efficiency.accounts.worker.reservations import SlotReservation
from dask_efficiency.accounts.worker.slots import Ended
from dask_efficiency.gpu.meter import TaskId
from dask_efficiency.plugin.worker.fine_metrics import SpillMetrics
from dask_efficiency.plugin.worker.spill_watch import SpillWatch
from dask_efficiency.plugin.worker.threads import TaskThreads
from dask_efficiency.plugin.worker.window_details import SizesByWindow
from dask_efficiency.straggler.task_rates import MIN_WALL_SECONDS, RatedTask

#: Nanoseconds after a task's end at which an unknown GPU use counts as none: six flushes of the watch.
LATE_NS = 3_000_000_000
#: Tasks that wait for their GPU use; beyond, the oldest count as late.
MAX_WAITING = 10_000
#: Nanoseconds below which a task has no rate, and its inputs are not read.
MIN_RATED_NS = round(MIN_WALL_SECONDS * 1e9)
#: Nanoseconds of waiting below which causes are not looked up: such tasks are many, and no sample meets them.
MIN_WAITED_NS = 50_000

_SUCCEEDED, _RESCHEDULED = Outcome.SUCCEEDED, Outcome.RESCHEDULED

_NO_USE = GpuUse()


class _Waiting(NamedTuple):
    """Task that succeeded, of which only the GPU use is unknown."""

    run: Run
    reservation: SlotReservation
    used: Used


class PendingTasks:
    """Finalizes ended tasks when their fine metrics have arrived and, if the GPU is watched, their use of it.

    ``library`` gives, if anything was sampled, a function for the part of an ended task's waiting in which threads of
    libraries computed; ``use`` the GPU use of a task that ended at an instant, None while unknown. ``rate`` is called
    with the tasks that succeeded and were not very short.
    """

    def __init__(
        self,
        ledger: Ledger,
        spilled: SpillMetrics,
        *,
        threads: TaskThreads,
        spills: SpillWatch,
        library: Callable[[], Callable[[SlotReservation, int], int] | None],
        use: Callable[[TaskId, int], GpuUse | None],
        rate: Callable[[Sequence[RatedTask]], object],
    ) -> None:
        self._ledger = ledger
        self._spill = spilled.since
        self._threads, self._spills, self._library = threads, spills, library
        self._use, self._rate = use, rate
        self.sizes = SizesByWindow()
        self._waiting: deque[_Waiting] = deque()
        #: Tasks that were finalized without their GPU use, as it was not known in time.
        self.unknown = 0
        #: Nanoseconds within ``thread-noncpu`` that the GPU explains.
        self.details: dict[str, int] = {}
        #: Nanoseconds for which tasks held slots before their threads began, and after these were done.
        self._before = 0
        self._after = 0
        #: Nanoseconds of slots of tasks that a P2P shuffle stopped, to run them where their data is.
        self._rescheduled = 0
        #: Bytes and number of results of known size.
        self._made = [0, 0]

    @property
    def overhead(self) -> dict[str, int]:
        """Nanoseconds for which finalized tasks held slots without working, by cause."""
        return {"hand-over": self._before, "event-loop": self._after, "rescheduled": self._rescheduled}

    def made(self) -> dict[Metered, int]:
        """Bytes and number of the results of known size so far."""
        made = zip((BYTES, COUNT), self._made, strict=True)
        return {Metered(RESULTS, "", "", MADE, unit): whole_number(n) for unit, n in made}

    def used_so_far(self) -> dict[object, Used]:
        """Use of the tasks that are not finalized, by reservation."""
        return {waiting.reservation: waiting.used for waiting in self._waiting}

    def finalize(self, ended: Sequence[Ended], *, at: int) -> None:
        """Finalize tasks, whose fine metrics have arrived; one whose GPU use is unknown waits until it is late."""
        samples, spills, threads = self._library(), self._spills, self._threads
        rated: list[RatedTask] = []
        finalized: list[Final] = []
        before = after = claimed = 0
        for reservation, outcome, moved, in_slot in ended:
            run, start = moved.run, reservation.start
            stop = start + reservation.ns
            if run is None:
                run = threads.elsewhere(start, min(moved.elsewhere, reservation.ns))
            began, stopped, cpu, ident, _ = run
            claimed += cpu
            if in_slot is not None:  # it seceded: measured up to then
                cpu, wall = in_slot
                began, stopped = stop - wall, stop
            wall = stopped - began
            spill = library = 0
            if spills.last > start:
                inside = spills.between(max(began, start), min(stopped, stop)) if ident else 0
                spill = spills.between(start, stop) - inside
            elif not spills.watching:
                spill = sum(self._spill(reservation.span, reservation.prefix))
            succeeded = outcome is _SUCCEEDED
            if moved.made >= 0:
                self._made[0] += moved.made
                self._made[1] += 1
            if succeeded and moved.nbytes >= 0 and wall >= MIN_RATED_NS:
                rated.append((reservation.prefix, wall, cpu, moved.nbytes))
            within = began >= start and stopped <= stop
            if outcome is _RESCHEDULED:
                self._rescheduled += reservation.ns
            elif within:
                before += began - start
                after += stop - stopped
            if not within:  # it ran before these accounts began, or on after it left its slot: pro rata
                inside = max(0, min(stopped, stop) - max(began, start))
                cpu = cpu * inside // wall if wall else 0
                wall = inside
            if samples is not None and wall - cpu >= MIN_WAITED_NS:
                library = samples(reservation, wall - cpu)
            # Else the GPU time has no owner: part of it was outside the slot, or in no metered thread.
            if moved.watched and succeeded and within and ident and in_slot is None and not reservation.recomputed:
                self._waiting.append(_Waiting(run, reservation, Used(cpu, wall, library=library, spill=spill)))
            else:
                finalized.append((reservation, outcome, cpu, wall, 0, library, spill))
        self._before += before
        self._after += after
        threads.claimed += claimed
        self._ledger.finalize_many(finalized)
        if rated:
            self._rate(rated)
        if self.sizes.open:
            self.sizes.add([_sized(*one) for one in ended if one.outcome is _SUCCEEDED])
        if self._waiting:
            self.finalize_waiting(at - LATE_NS)

    def finalize_waiting(self, late: int) -> None:
        """Finalize waiting tasks in order of their ends, with their GPU use or, if they ended by ``late``, without."""
        while self._waiting:
            (start, stop, cpu, ident, _), reservation, used = self._waiting[0]
            use = self._use(TaskId(ident, start), stop)
            if use is None:
                if len(self._waiting) <= MAX_WAITING and reservation.stop > late:
                    return
                self.unknown += 1
                use = _NO_USE
            self._waiting.popleft()
            # Waiting that burns CPU is not useful CPU time.
            cpu = max(0, cpu - use.spun)
            library = max(0, min(used.library, used.wall - cpu - use.kernel))
            self._ledger.finalize(
                reservation, _SUCCEEDED, cpu=cpu, gpu=use.kernel, wall=used.wall, library=library, spill=used.spill
            )
            self._explain(use, min(used.wall, reservation.ns) - cpu - use.kernel - library)

    def _explain(self, use: GpuUse, noncpu: int) -> None:
        """Add the GPU's parts of a task's ``thread-noncpu``, at most all of it."""
        parts = {"GPU contention": use.contention, "GPU copies": use.copy, "GPU wait": use.wait}
        for name, ns in parts.items():
            ns = max(0, min(ns, noncpu))
            noncpu -= ns
            if ns:
                detail = f"thread-noncpu: {name}"
                self.details[detail] = self.details.get(detail, 0) + ns


def _sized(
    reservation: SlotReservation, _: Outcome, moved: Moved, in_slot: tuple[int, int] | None
) -> tuple[str, Any, int, int]:
    """Prefix and key of a task, nanoseconds in its thread while it had its slot, and bytes of its result."""
    if in_slot is not None:
        wall = in_slot[1]
    else:
        wall = min(moved.elsewhere, reservation.ns) if moved.run is None else moved.run[1] - moved.run[0]
    return reservation.prefix, moved.key, wall, moved.made
