"""PendingTasks: ended tasks on their way into the ledger, until all is known of them that can be."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from dask_efficiency.accounts.gpu.totals import GpuUse
from dask_efficiency.accounts.worker.activity import SlotReservation
from dask_efficiency.accounts.worker.balance import Outcome, Used
from dask_efficiency.accounts.worker.ledger import Ended, Ledger
from dask_efficiency.accounts.worker.slot_windows import PlainSums
from dask_efficiency.accounts.worker.slots import MAX_PREFIX_LENGTH, PlainTask, Run, place_of
from dask_efficiency.gpu.records import TaskId
from dask_efficiency.plugin.worker.fine_metrics import FineMetrics
from dask_efficiency.plugin.worker.process_metrics import input_bytes
from dask_efficiency.plugin.worker.task_sizes import SizesByWindow
from dask_efficiency.straggler.task_rates import MIN_WALL_SECONDS, RatedTask

if TYPE_CHECKING:
    from dask_efficiency.accounts.worker.slots import SlotTracker
    from dask_efficiency.plugin.worker.loop_spills import LoopSpills
    from dask_efficiency.plugin.worker.threads import TaskThreads

#: Tasks that ended are finalized together, once there are so many, and before each report of the accounts.
BATCH = 100

#: Where what a task had of the GPU is not known so long after its end, it counts as nothing.
LATE_NS = 3_000_000_000

#: Tasks that wait for that, or groups of them; beyond, the oldest count as late.
MAX_WAITING = 10_000

#: Shorter tasks tell nothing of how fast a worker is, and their inputs are not looked at.
MIN_RATED_NS = round(MIN_WALL_SECONDS * 1e9)

#: Tasks that waited for less are not asked what they waited for: there are many of them, and no sample meets them.
MIN_WAITED_NS = 50_000

_SUCCEEDED = Outcome.SUCCEEDED

_NBYTES = itemgetter(4)
_NO_USE = GpuUse()

#: A task whose slot is free: its key, reservation and outcome, its run in its thread, bytes of its input or output (-1
#: where nobody wants to know), whether the GPU was watched meanwhile, and the stimulus that ended it. A plain tuple,
#: for there is one for every task.
Pending = tuple[Any, SlotReservation, Outcome, Run, float, bool, Any]


class _Waiting(NamedTuple):
    """Tasks that succeeded, of which all is known but the GPU's part: one, or several whose reservation is one."""

    runs: Sequence[Run]
    reservation: SlotReservation
    #: Of them all.
    used: Used
    #: Of the first of them, as far as it is known.
    uses: list[GpuUse]


class PendingTasks:
    """Finalizes ended tasks when their fine metrics have arrived and, where the GPU is watched, their use of it.

    Parameters
    ----------
    ledger
        Where to.
    metrics
        What upstream says of spilling.
    stimulus_log
        Upstream adds a task's fine metrics right after the stimulus that ends it, so while the last
        stimulus logged is still that one, they are yet to come.
    threads
        What tasks used in their threads.
    spills
        In which times the event loop spilled.
    library
        Gives, where anything was sampled, a function that tells of so many nanoseconds that an ended task waited those
        in which threads of libraries computed.
    use
        What a task that ended at an instant had of the GPU; None while that is not known.
    rate
        Called with the tasks that succeeded and were not very short.
    """

    def __init__(
        self,
        ledger: Ledger,
        metrics: FineMetrics,
        stimulus_log: Sequence[Any],
        *,
        threads: TaskThreads,
        spills: LoopSpills,
        library: Callable[[], Callable[[SlotReservation, int], int] | None],
        use: Callable[[TaskId, int], GpuUse | None],
        rate: Callable[[Sequence[RatedTask]], object],
    ) -> None:
        self._ledger = ledger
        self._spill = metrics.spill
        self._stimulus_log = stimulus_log
        self._threads = threads
        self._meter = threads.meter
        self._done = threads.meter.done
        self._spills = spills
        self._library = library
        self._use = use
        self._rate = rate
        #: What tasks took and made, while a window is open.
        self.sizes = SizesByWindow()
        #: Those that are not finalized, oldest first; always this very list.
        self.tasks: list[Pending] = []
        self._waiting: deque[_Waiting] = deque()
        #: Tasks that were finalized with nothing of the GPU, for it was not known in time.
        self.unknown = 0
        #: Nanoseconds within ``thread-noncpu`` that the GPU explains.
        self.details: dict[str, int] = {}
        #: Nanoseconds for which tasks held their slots before their threads began, and after they were done.
        self._before = 0
        self._after = 0

    # -- what a SlotTracker tells ------------------------------------------------------------

    def so_far(self, key: Any) -> tuple[int, int] | None:
        """(CPU, wall) nanoseconds of a task that is at work, so far."""
        return self._threads.live().get(key)

    def ended(
        self, key: Any, ts: Any, reservation: SlotReservation, outcome: Outcome, used: tuple[int, int] | None
    ) -> None:
        """A task's thread is done; ``used`` is what it used in its slot, where it left that before."""
        run = self._done.pop(key, None) or self._threads.elsewhere(key, reservation)
        # Else whose the GPU's time was is not known, as part of it was outside its slot, or in no thread of ours.
        watched = (
            self._meter.windows is not None
            and used is None
            and run[3] != 0
            and run[0] >= reservation.start
            and run[1] <= reservation.stop
        )
        if used is not None:  # it seceded: measured up to then
            self._threads.claimed += run[2] - used[0]
            run = reservation.stop - used[1], reservation.stop, used[0], *run[3:]
        nbytes = -1.0
        if run[1] - run[0] >= MIN_RATED_NS and outcome is _SUCCEEDED and ts is not None:
            nbytes = size_of(ts)
        if self.sizes.open and ts is not None and ts.nbytes is not None:
            reservation.nbytes = ts.nbytes
        log = self._stimulus_log
        self.tasks.append((key, reservation, outcome, run, nbytes, watched, log[-1] if log else None))

    def not_stored(self, key: Any) -> None:
        """The result of the task that ended last could not be stored: it failed."""
        if self.tasks and self.tasks[-1][0] == key:
            self.tasks[-1] = (*self.tasks[-1][:2], Outcome.FAILED, *self.tasks[-1][3:])

    def sized(self, key: Any, nbytes: float, made: int) -> None:
        """When the task that ended last did so, a while ago, it had these bytes; as in :data:`~.slots.PlainTask`."""
        if self.tasks and self.tasks[-1][0] == key:
            self.tasks[-1] = (*self.tasks[-1][:4], nbytes, *self.tasks[-1][5:])
            self.tasks[-1][1].nbytes = made

    @property
    def overhead(self) -> dict[str, int]:
        """Nanoseconds of the tasks that were finalized, by what they held their slots for outside their threads."""
        return {"hand-over": self._before, "event-loop": self._after}

    # -- finalizing --------------------------------------------------------------------------

    def former(self) -> None:
        """Finalize the tasks of former stimuli.

        To be called before the next task once there are :data:`BATCH` of them, and at once where only the fine metrics
        tell what was spilled: they are of all tasks of a prefix together.
        """
        tasks = self.tasks
        # Where the user has upstream log no stimuli, all tasks wait for it.
        last = self._stimulus_log[-1] if self._stimulus_log else None
        kept = next((i for i, task in enumerate(tasks) if task[-1] is last), len(tasks))
        former = tasks[:kept]
        del tasks[:kept]
        self._finalize(former)

    def all(self, *, at: int) -> None:
        """Finalize every task; called between stimuli, so that all fine metrics have arrived.

        Those stay whose use of the GPU is not known, and not late.
        """
        tasks = self.tasks[:]
        self.tasks.clear()
        self._finalize(tasks)
        self._finalize_waiting(at - LATE_NS)

    def rest(self, *, at: int) -> None:
        """Finalize every task, whatever is known: no more will be."""
        self.all(at=at)
        self._finalize_waiting(at)

    def used_so_far(self) -> dict[object, Used]:
        """What the tasks used that are not finalized, by reservation."""
        return {waiting.reservation: waiting.used for waiting in self._waiting}

    def _finalize(self, tasks: Sequence[Pending]) -> None:
        if self.sizes.open:
            succeeded = [(key, one, run) for key, one, outcome, run, *_ in tasks if outcome is _SUCCEEDED]
            self.sizes.add([(one.prefix, key, run[1] - run[0], one.nbytes) for key, one, run in succeeded])
        samples = self._library()
        rated: list[RatedTask] = []
        finalized: list[Ended] = []
        for _, reservation, outcome, run, nbytes, watched, _ in tasks:
            began, stopped, cpu, _, _ = run
            self._threads.claimed += cpu
            wall = stopped - began
            start = reservation.start
            stop = start + reservation.ns
            spill = self._spills.beside(reservation, run)
            if spill is None:
                spill = self._spill(reservation.span, reservation.prefix)
            if began < start or stopped > stop:
                # It ran before these accounts began, or on after it left its slot: pro rata.
                inside = max(0, min(stopped, stop) - max(began, start))
                cpu = cpu * inside // wall if wall else 0
                wall = inside
            else:
                self._before += began - start
                self._after += stop - stopped
            if nbytes >= 0:
                rated.append((reservation.prefix, wall, cpu, nbytes))
            waited = wall - cpu
            library = samples(reservation, waited) if samples is not None and waited >= MIN_WAITED_NS else 0
            if not watched or outcome is not _SUCCEEDED or reservation.recomputed:
                finalized.append((reservation, outcome, cpu, wall, 0, library, spill))
            else:
                self._waiting.append(_Waiting([run], reservation, Used(cpu, wall, library=library, spill=spill), []))
        self._ledger.finalize_many(finalized)
        if rated:
            self._rate(rated)
        if self._waiting:
            self._finalize_waiting()

    def follow(
        self,
        tasks: Sequence[PlainTask],
        running: Mapping[Any, tuple[Any, int]],
        slots: SlotTracker,
        *,
        at: int,
        watched: bool,
    ) -> None:
        """Finalize tasks that only ran; see :meth:`~dask_efficiency.accounts.worker.slots.SlotTracker.follow`.

        If the GPU was ``watched`` meanwhile, that waits until their use of it is known.
        """
        sums, ended = slots.follow(tasks, running, at=at, wait=watched)
        if not sums:
            return
        _, cpu, wall, held, before = map(sum, zip(*sums.values(), strict=True))
        self._before += before
        self._after += held - wall - before
        self._threads.claimed += cpu
        if watched:
            self._wait(tasks, sums, ended)
        else:
            self._ledger.finalize_plain(sums)
        if max(map(_NBYTES, tasks)) >= 0:
            self._rate(
                [
                    (ts.prefix[:MAX_PREFIX_LENGTH], run[1] - run[0], run[2], nbytes)
                    for ts, _, _, run, nbytes, _ in tasks
                    if nbytes >= 0
                ]
            )
        if self.sizes.open:
            self.sizes.add(
                [(ts.prefix[:MAX_PREFIX_LENGTH], ts.key, run[1] - run[0], made) for ts, _, _, run, _, made in tasks]
            )

    @property
    def max_noncpu(self) -> int:
        """Tasks that were in their threads, and not on the CPU, for so long are asked what they waited for."""
        return MIN_WAITED_NS if self._library() is not None else sys.maxsize

    def _wait(
        self,
        tasks: Sequence[PlainTask],
        sums: Mapping[tuple[str, str], PlainSums],
        ended: Mapping[tuple[str, str], SlotReservation],
    ) -> None:
        """Finalize tasks once their use of the GPU is known, those of a span and prefix together."""
        runs: dict[tuple[str, str], list[Run]] = {place: [] for place in sums}
        for ts, _, _, run, _, _ in tasks:
            runs[place_of(ts)].append(run)
        for place, (_, cpu, wall, _, _) in sums.items():
            self._waiting.append(_Waiting(runs[place], ended[place], Used(cpu, wall), []))

    def _finalize_waiting(self, late: int = -1) -> None:
        """In the order in which they ended, as their use becomes known."""
        while self._waiting:
            runs, reservation, used, uses = self._waiting[0]
            for start, stop, _, ident, _ in runs[len(uses) :]:
                use = self._use(TaskId(ident, start), stop)
                if use is None:
                    if len(self._waiting) <= MAX_WAITING and reservation.stop > late:
                        return
                    self.unknown += 1
                    use = _NO_USE
                uses.append(use)
            self._waiting.popleft()
            whole = GpuUse(*map(sum, zip(*uses, strict=True)))
            # Waiting that burns CPU is no work of the CPU.
            cpu = sum([max(0, run[2] - use.spun) for run, use in zip(runs, uses, strict=True)])
            library = max(0, min(used.library, used.wall - cpu - whole.kernel))
            self._ledger.finalize(
                reservation,
                _SUCCEEDED,
                cpu=cpu,
                gpu=whole.kernel,
                wall=used.wall,
                library=library,
                spill=used.spill,
            )
            self._explain(whole, min(used.wall, reservation.ns) - cpu - whole.kernel - library)

    def _explain(self, use: GpuUse, noncpu: int) -> None:
        """Note what of a task's ``thread-noncpu`` was the GPU's, at most all of it."""
        parts = {"GPU contention": use.contention, "GPU copies": use.copy, "GPU wait": use.wait}
        for name, ns in parts.items():
            ns = max(0, min(ns, noncpu))
            noncpu -= ns
            if ns:
                detail = f"thread-noncpu: {name}"
                self.details[detail] = self.details.get(detail, 0) + ns


def size_of(ts: Any) -> float:
    """Bytes of a task's input or, where it has none, of its output."""
    return (input_bytes(ts) if ts.dependencies else 0.0) or ts.nbytes or 0.0
