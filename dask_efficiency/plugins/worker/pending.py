"""Settling: ended tasks on their way into the ledger, until all is known of them that can be."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dask_efficiency.gpu.records import TaskId
from dask_efficiency.gpu.totals import GpuUse
from dask_efficiency.ledger import Hold, Ledger, Outcome, Used
from dask_efficiency.plugins.worker.fine_metrics import Digests

#: A task whose slot is free: its key, hold and outcome, nanoseconds of CPU, of wall and of spilling beside it (None
#: where only the digests tell), its window where the GPU is watched, and the stimulus that ended it. A plain tuple,
#: for there is one for every task.
Ended = tuple[Any, Hold, Outcome, int, int, int | None, TaskId | None, Any]

#: Where what a task had of the GPU is not known so long after its end, it counts as nothing.
LATE_NS = 3_000_000_000

#: Tasks that wait for that; beyond, the oldest count as late.
MAX_WAITING = 10_000

_SUCCEEDED = Outcome.SUCCEEDED


class _Waiting(NamedTuple):
    """A task that succeeded, of which all is known but the GPU's part."""

    task: TaskId
    hold: Hold
    used: Used


class Settling:
    """Books ended tasks when their digests have arrived and, where the GPU is watched, their use of it.

    Parameters
    ----------
    ledger
        Where to.
    digests
        What upstream says of spilling.
    stimulus_log
        Upstream adds a task's digests right after the stimulus that ends it, so while the last
        stimulus logged is still that one, they are yet to come.
    use
        What an ended task had of the GPU; None while that is not known.
    """

    def __init__(
        self, ledger: Ledger, digests: Digests, stimulus_log: Sequence[Any], use: Callable[[TaskId], GpuUse | None]
    ) -> None:
        self._ledger = ledger
        self._spill = digests.spill
        self._stimulus_log = stimulus_log
        self._use = use
        #: Those whose digests are yet to come; always this very list.
        self.ended: list[Ended] = []
        self._waiting: deque[_Waiting] = deque()
        #: Tasks that were booked with nothing of the GPU, for it was not known in time.
        self.unknown = 0
        #: Nanoseconds within ``thread-noncpu`` that the GPU explains.
        self.details: dict[str, int] = {}

    def former(self) -> None:
        """Book the tasks of former stimuli."""
        if len(self.ended) == 1:  # nearly always
            self._book(self.ended.pop())
            return
        last = self._stimulus_log[-1]
        ended = [task for task in self.ended if task[-1] is not last]
        self.ended[:] = [task for task in self.ended if task[-1] is last]
        for task in ended:
            self._book(task)

    def all(self, *, at: int) -> None:
        """Book every task; called between stimuli, so that all digests have arrived.

        Those stay whose use of the GPU is not known, and not late.
        """
        ended = self.ended[:]
        self.ended.clear()
        for task in ended:
            self._book(task)
        self._book_waiting(at - LATE_NS)

    def rest(self, *, at: int) -> None:
        """Book every task, whatever is known: no more will be."""
        self.all(at=at)
        self._book_waiting(at)

    def so_far(self) -> dict[object, Used]:
        """What the tasks used that are not booked yet, by hold."""
        return {waiting.hold: waiting.used for waiting in self._waiting}

    def _book(self, ended: Ended) -> None:
        _, hold, outcome, cpu, wall, spill, task, _ = ended
        if spill is None:
            spill = self._spill(hold.span, hold.prefix)
        if task is None or outcome is not _SUCCEEDED or hold.recomputed:
            self._ledger.settle(hold, outcome, cpu=cpu, wall=wall, spill=spill)
        else:
            self._waiting.append(_Waiting(task, hold, Used(cpu, wall, spill=spill)))
            self._book_waiting()

    def _book_waiting(self, late: int = -1) -> None:
        """In the order in which they ended, as their use becomes known."""
        while self._waiting:
            task, hold, used = self._waiting[0]
            use = self._use(task)
            if use is None:
                if len(self._waiting) <= MAX_WAITING and hold.start + hold.ns > late:
                    return
                self.unknown += 1
                use = GpuUse()
            self._waiting.popleft()
            # Waiting that burns CPU is no work of the CPU.
            cpu = max(0, used.cpu - use.spun)
            self._ledger.settle(hold, _SUCCEEDED, cpu=cpu, gpu=use.kernel, wall=used.wall, spill=used.spill)
            self._explain(use, min(used.wall, hold.ns) - cpu - use.kernel)

    def _explain(self, use: GpuUse, noncpu: int) -> None:
        """Note what of a task's ``thread-noncpu`` was the GPU's, at most all of it."""
        parts = {"GPU contention": use.contention, "GPU copies": use.copy, "GPU wait": use.wait}
        for name, ns in parts.items():
            ns = max(0, min(ns, noncpu))
            noncpu -= ns
            if ns:
                detail = f"thread-noncpu: {name}"
                self.details[detail] = self.details.get(detail, 0) + ns
