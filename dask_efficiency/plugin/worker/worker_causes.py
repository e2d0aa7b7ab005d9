"""WorkerCauses: causes of a worker's ``thread-noncpu`` and ``overhead``, for its snapshots and windows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from distributed import Worker

from dask_efficiency.accounts.buckets import Bucket, causes_of, fit_causes, named_causes
from dask_efficiency.accounts.metered import Metered
from dask_efficiency.accounts.wire.snapshots import SnapshotCauses
from dask_efficiency.accounts.worker.answer import WindowAnswer, answer_of
from dask_efficiency.accounts.worker.balance import TASK_BUCKETS, Balance, WindowBalance
from dask_efficiency.accounts.worker.reservations import SlotReservation
from dask_efficiency.accounts.worker.waiting import Key
from dask_efficiency.plugin.guard import Guard
from dask_efficiency.plugin.worker.file_reads import FileWindows
from dask_efficiency.plugin.worker.sampler import WaitingSampler
from dask_efficiency.plugin.worker.threads import TaskThreads
from dask_efficiency.plugin.worker.window_details import begin_window

#: Reason for no samples if the user switched them off.
SWITCHED_OFF = "efficiency.waiting is off"

_NONCPU = TASK_BUCKETS.index(Bucket.THREAD_NONCPU)


class WorkerCauses:
    """Splits a worker's ``thread-noncpu``, if it is sampled, and ``overhead`` by cause, until a failure."""

    def __init__(self, worker: Worker, threads: TaskThreads) -> None:
        #: Of the open windows.
        self.files = FileWindows()
        self._new_sampler = partial(WaitingSampler, worker, threads, self.files)
        self._sampler = self._new_sampler()
        self._started = self._sampling = self._enabled = False
        self._guard = Guard("finding causes", "dask_efficiency no longer finds why this worker's threads wait")
        #: Parts of ``overhead`` by bare cause: finalized, and in the activity view.
        self._overhead: dict[str, int] = {}
        self._active: dict[str, int] = {}
        self._reported: Mapping[str, int] = {}
        #: Parts of ``overhead``, and a mark in the samples, at the opening of each window.
        self._opened: dict[str, tuple[Mapping[str, int], object]] = {}

    @property
    def not_sampled(self) -> str:
        """Reason why nothing is sampled; empty while the sampler works."""
        return self._guard.off or ((self._sampler.off or "") if self._enabled else SWITCHED_OFF)

    @property
    def spent(self) -> int:
        """CPU nanoseconds of sampling."""
        return self._sampler.spent

    def start(self, *, enabled: bool) -> None:
        """Begin to sample, or stop."""
        self._enabled = enabled
        if not enabled:
            self.stop()
        elif not self._sampling and self._guard.off is None:
            if self._started:  # a sampler starts once; its sums and windows stay
                former, self._sampler = self._sampler, self._new_sampler()
                self._sampler.go_on(former)
            self._started = self._sampling = True
            self._sampler.start()

    def stop(self) -> None:
        """Sample no more."""
        self._sampling = False
        self._sampler.stop()

    def catch_up(self) -> None:
        """Bring the samples up to now; called on the event loop, before tasks are finalized for a report."""
        if self._guard.off is not None:
            self.stop()
        elif self._enabled:
            self._sampler.tick_now()

    def library(self) -> Callable[[SlotReservation, int], int] | None:
        """Function for the nanoseconds of a task's waiting in which libraries computed; None until that was sampled."""
        sums = self._sampler.sums
        return partial(self._computed, sums.library) if sums.any_library else None

    def library_so_far(self, reservation: SlotReservation, waited: int) -> int:
        """Part of a running task's waiting in which threads of libraries computed, nanoseconds."""
        return self._computed(self._sampler.sums.library_so_far, reservation, waited)

    def _computed(self, library: Callable[[Key, int], int], reservation: SlotReservation, waited: int) -> int:
        return int(self._guard(library, (reservation.span, reservation.prefix), waited) or 0)

    def of_snapshot(self, balance: Balance, parts: Mapping[str, int]) -> SnapshotCauses:
        """Causes of the accounts at this instant; ``parts`` as of :attr:`PendingTasks.overhead`."""
        try:
            return self._of_snapshot(balance, parts)
        except Exception as error:
            self._guard.fail(error)
            return SnapshotCauses(not_sampled=self.not_sampled)

    def _of_snapshot(self, balance: Balance, parts: Mapping[str, int]) -> SnapshotCauses:
        lately = {cause: ns - self._reported.get(cause, 0) for cause, ns in parts.items()}
        self._reported = dict(parts)
        _extend(self._overhead, balance.finalized.get(Bucket.OVERHEAD, 0), lately)
        _extend(self._active, balance.active.get(Bucket.OVERHEAD, 0), lately)
        if self.not_sampled:
            finalized, active = (named_causes(row, Bucket.OVERHEAD) for row in (self._overhead, self._active))
            return SnapshotCauses(finalized, active, self.not_sampled)
        sums = self._sampler.sums
        waited: dict[str, int] = {}
        for row in sums.explain({prefix: row[_NONCPU] for prefix, row in balance.prefixes.items()}).values():
            for cause, ns in row.items():
                waited[cause] = waited.get(cause, 0) + ns
        waiting = sums.explain_activity(balance.active.get(Bucket.THREAD_NONCPU, 0))
        return SnapshotCauses(
            _fit(self._overhead, waited, balance.finalized), _fit(self._active, waiting, balance.active)
        )

    def open_window(self, window: str, parts: Mapping[str, int]) -> None:
        """Begin a window."""
        if self._guard.off is None:
            self._sampler.open_window(window)
            begin_window(self._opened, window, (dict(parts), self._sampler.sums.mark()))

    def close_window(
        self, window: str, balance: WindowBalance, parts: Mapping[str, int], metered: Mapping[Metered, int]
    ) -> WindowAnswer:
        """Answer about a window, with causes and samples."""
        try:
            return self._answer(window, balance, parts, metered)
        except Exception as error:
            self._guard.fail(error)
            return answer_of(balance, metered=metered)

    def _answer(
        self, window: str, balance: WindowBalance, parts: Mapping[str, int], metered: Mapping[Metered, int]
    ) -> WindowAnswer:
        opened, mark = self._opened.pop(window, ({}, None))
        overhead = {cause: ns - opened.get(cause, 0) for cause, ns in parts.items()}
        found = self._sampler.close_window(window)
        if self.not_sampled or found is None or mark is None:
            return answer_of(balance, overhead=overhead, metered=metered)
        noncpu = {key: row[_NONCPU] for key, row in balance.rows.items()}
        causes = {key: row for key, row in self._sampler.sums.since(mark, noncpu).items() if row}
        beside = self._sampler.sums.free_slot_library(mark)
        return answer_of(
            balance, causes=causes, overhead=overhead, beside_free_slots=beside, metered=metered, details=found
        )


def _fit(overhead: Mapping[str, int], waited: Mapping[str, int], buckets: Mapping[str, int]) -> dict[str, int]:
    """Causes of both buckets, fitted to the nanosecond: else the scheduler would refuse the accounts."""
    found: dict[str, int] = {}
    for bucket, row in ((Bucket.OVERHEAD, overhead), (Bucket.THREAD_NONCPU, waited)):
        if any(row.values()):
            found |= fit_causes(row, bucket, buckets.get(bucket, 0))
    return found


def _extend(row: dict[str, int], total: int, lately: Mapping[str, int]) -> None:
    """Make the causes of ``overhead`` sum to ``total``, which has grown, in proportion to the latest measurements."""
    more = total - sum(row.values())
    if more > 0:
        for cause, ns in causes_of(fit_causes(lately, Bucket.OVERHEAD, more), Bucket.OVERHEAD).items():
            row[cause] = row.get(cause, 0) + ns
