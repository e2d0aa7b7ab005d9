from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from dask_efficiency.accounts.gpu.totals import GpuUse
from dask_efficiency.accounts.skew import Largest
from dask_efficiency.accounts.worker.activity import SlotReservation
from dask_efficiency.accounts.worker.balance import Outcome
from dask_efficiency.accounts.worker.ledger import Ledger
from dask_efficiency.accounts.worker.slots import Run
from dask_efficiency.gpu.records import TaskId
from dask_efficiency.plugin.worker import pending
from dask_efficiency.plugin.worker.fine_metrics import FineMetrics
from dask_efficiency.plugin.worker.pending import LATE_NS, MIN_WAITED_NS, PendingTasks


class Threads:
    """A meter that a test says the runs of."""

    def __init__(self) -> None:
        self.meter = SimpleNamespace(done={}, windows=None)
        self.claimed = 0

    def elsewhere(self, key: Any, reservation: SlotReservation) -> Run:
        return reservation.start, reservation.start + 5, 0, 0, -1


class Spills:
    """What was spilled beside each task, where somebody watches it."""

    def __init__(self) -> None:
        self.watch = SimpleNamespace(last=0, watching=True)
        self.spilled: int | None = None

    def beside(self, reservation: SlotReservation, run: Run) -> int | None:
        return self.spilled


class Worker:
    """One slot after another, as a worker's hooks tell of them."""

    def __init__(self, nthreads: int = 1) -> None:
        self.ledger = Ledger(nthreads, at=0)
        self.log: list[Any] = ["before"]
        self.known: dict[TaskId, GpuUse] = {}
        self.digests: dict[Any, float] = {}
        self.rated: list[tuple[str, int, int, float]] = []
        #: Nanoseconds that libraries' threads computed while each task waited.
        self.computed = 0
        self.threads = Threads()
        self.spills = Spills()
        self.pending = PendingTasks(
            self.ledger,
            FineMetrics(self.digests),
            self.log,
            threads=self.threads,
            spills=self.spills,
            library=lambda: lambda reservation, waited: min(waited, self.computed),
            use=lambda task, stop: self.known.get(task),
            rate=self.rated.extend,
        )

    def run(
        self,
        key: str,
        *,
        start: int,
        stop: int,
        cpu: int = 0,
        gpu: bool = True,
        outcome: Outcome = Outcome.SUCCEEDED,
        recomputed: bool = False,
    ) -> TaskId:
        self.ledger.reserve(key, "train", recomputed=recomputed, at=start)
        reservation = self.ledger.release(key, at=stop)
        assert reservation is not None
        task = TaskId(1, start)
        self.log.append(key)
        run = start, stop, cpu, 1, -1
        self.pending.tasks.append((key, reservation, outcome, run, -1.0, gpu, key))
        return task

    def finalized(self, at: int) -> dict[str, int]:
        balance = self.ledger.balance(at=at, used=self.pending.used_so_far())
        assert sum(balance.finalized.values()) + balance.running == balance.nthreads * balance.elapsed
        return {bucket: ns for bucket, ns in balance.finalized.items() if ns} | {"running": balance.running}


@pytest.fixture
def worker() -> Worker:
    return Worker()


def test_a_task_waits_frozen_until_its_use_of_the_gpu_is_known(worker):
    task = worker.run("x", start=0, stop=100, cpu=20)
    worker.pending.all(at=100)
    assert worker.finalized(100) == {"running": 100}
    worker.known[task] = GpuUse(kernel=50, contention=10, copy=5, wait=7)
    worker.pending.all(at=100)
    assert worker.finalized(100) == {"thread-cpu": 20, "gpu": 50, "thread-noncpu": 30, "running": 0}
    assert worker.pending.details == {
        "thread-noncpu: GPU contention": 10,
        "thread-noncpu: GPU copies": 5,
        "thread-noncpu: GPU wait": 7,
    }


def test_what_libraries_computed_while_a_task_waited_is_no_waiting(worker):
    worker.computed = 3 * MIN_WAITED_NS
    worker.run("x", start=0, stop=10 * MIN_WAITED_NS, cpu=2 * MIN_WAITED_NS, gpu=False)
    worker.pending.all(at=10 * MIN_WAITED_NS)
    assert worker.finalized(10 * MIN_WAITED_NS) == {
        "thread-cpu": 2 * MIN_WAITED_NS,
        "library-threads": 3 * MIN_WAITED_NS,
        "thread-noncpu": 5 * MIN_WAITED_NS,
        "running": 0,
    }


def test_what_the_gpu_did_for_a_task_is_not_the_libraries(worker):
    worker.computed = 7 * MIN_WAITED_NS
    task = worker.run("x", start=0, stop=10 * MIN_WAITED_NS)
    worker.known[task] = GpuUse(kernel=6 * MIN_WAITED_NS, wait=4 * MIN_WAITED_NS)
    worker.pending.all(at=10 * MIN_WAITED_NS)
    finalized = worker.finalized(10 * MIN_WAITED_NS)
    assert finalized == {"gpu": 6 * MIN_WAITED_NS, "library-threads": 4 * MIN_WAITED_NS, "running": 0}
    assert worker.pending.details == {}


def test_the_time_before_and_after_a_thread_s_work_is_told_apart(worker):
    reservation = worker.ledger.reserve("x", "train", at=0)
    worker.ledger.release("x", at=100)
    worker.pending.tasks.append(("x", reservation, Outcome.SUCCEEDED, (30, 80, 50, 1, -1), -1.0, None, "x"))
    worker.pending.all(at=100)
    assert worker.pending.overhead == {"hand-over": 30, "event-loop": 20}


def test_waiting_that_burns_cpu_is_no_cpu_time(worker):
    # 70 in calls that spin, so that 90 of CPU are 20 of work: 40 a kernel's, 30 more of waiting, 10 beside both.
    task = worker.run("x", start=0, stop=100, cpu=90)
    worker.known[task] = GpuUse(kernel=40, wait=30, spun=70)
    worker.pending.all(at=100)
    assert worker.finalized(100) == {"thread-cpu": 20, "gpu": 40, "thread-noncpu": 40, "running": 0}


def test_what_is_not_known_in_time_counts_as_nothing_and_is_counted(worker):
    worker.run("x", start=0, stop=100, cpu=90)
    worker.pending.all(at=100 + LATE_NS - 1)
    assert worker.pending.unknown == 0
    worker.pending.all(at=100 + LATE_NS)
    assert worker.pending.unknown == 1
    assert worker.finalized(100) == {"thread-cpu": 90, "thread-noncpu": 10, "running": 0}


def test_a_late_task_holds_up_only_those_behind_it_that_are_known(worker):
    worker.run("late", start=0, stop=10)
    task = worker.run("next", start=10, stop=20)
    worker.known[task] = GpuUse(kernel=10)
    worker.pending.all(at=20)
    assert worker.finalized(20) == {"running": 20}
    worker.pending.all(at=10 + LATE_NS)
    assert worker.finalized(20) == {"gpu": 10, "thread-noncpu": 10, "running": 0}
    assert worker.pending.unknown == 1


def test_how_long_the_loop_spilled_beside_a_task_comes_before_what_the_digests_say(worker):
    worker.digests["execute", "", "train", "disk-write", "seconds"] = 60e-9
    worker.ledger.reserve("x", "train", at=0)
    reservation = worker.ledger.release("x", at=100)
    worker.pending.tasks.append(("x", reservation, Outcome.SUCCEEDED, (0, 30, 10, 1, -1), -1.0, None, "x"))
    worker.spills.watch.last, worker.spills.spilled = 60, 25
    worker.pending.all(at=100)
    assert worker.finalized(100) == {"thread-cpu": 10, "thread-noncpu": 20, "spill": 25, "overhead": 45, "running": 0}


def test_where_nobody_watches_the_loop_the_digests_tell_of_spilling(worker):
    worker.digests["execute", "", "train", "disk-write", "seconds"] = 60e-9
    worker.ledger.reserve("x", "train", at=0)
    reservation = worker.ledger.release("x", at=100)
    worker.pending.tasks.append(("x", reservation, Outcome.SUCCEEDED, (0, 30, 10, 1, -1), -1.0, None, "x"))
    worker.spills.watch.watching = False
    worker.pending.all(at=100)
    assert worker.finalized(100) == {"thread-cpu": 10, "thread-noncpu": 20, "spill": 60, "overhead": 10, "running": 0}


@pytest.mark.parametrize(
    ("outcome", "recomputed", "bucket"),
    [
        (Outcome.FAILED, False, "failed"),
        (Outcome.CANCELLED, False, "cancelled"),
        (Outcome.SUCCEEDED, True, "recomputed"),
    ],
)
def test_what_was_wasted_waits_for_no_gpu_and_keeps_its_one_bucket(worker, outcome, recomputed, bucket):
    task = worker.run("x", start=0, stop=100, outcome=outcome, recomputed=recomputed)
    worker.known[task] = GpuUse(kernel=50)
    worker.pending.all(at=100)
    assert worker.finalized(100) == {bucket: 100, "running": 0}
    assert worker.pending.details == {}


def test_a_task_of_the_present_stimulus_stays_as_its_digests_are_yet_to_come(worker):
    worker.run("former", start=0, stop=10, gpu=False)
    worker.run("present", start=10, stop=30, gpu=False)
    worker.pending.former()
    assert worker.finalized(30) == {"thread-noncpu": 10, "running": 20}
    worker.log.append("next")
    worker.pending.former()
    assert worker.finalized(30) == {"thread-noncpu": 30, "running": 0}


def test_a_closing_worker_books_all_that_it_knows_and_the_rest_as_unknown(worker):
    known = worker.run("known", start=0, stop=10)
    worker.run("unknown", start=10, stop=30)
    worker.known[known] = GpuUse(kernel=10)
    worker.pending.rest(at=30)
    assert worker.finalized(30) == {"gpu": 10, "thread-noncpu": 20, "running": 0}
    assert worker.pending.unknown == 1


def test_no_more_tasks_wait_than_there_is_room_for(worker, monkeypatch):
    monkeypatch.setattr(pending, "MAX_WAITING", 3)
    for i in range(6):
        worker.run(str(i), start=10 * i, stop=10 * i + 10)
    worker.pending.all(at=60)
    assert worker.pending.unknown == 3
    assert worker.finalized(60) == {"thread-noncpu": 30, "running": 30}


def test_details_never_exceed_what_they_explain(worker):
    task = worker.run("x", start=0, stop=100, cpu=20)
    worker.known[task] = GpuUse(kernel=60, contention=15, copy=50, wait=50)
    worker.pending.all(at=100)
    assert worker.finalized(100)["thread-noncpu"] == 20
    assert worker.pending.details == {"thread-noncpu: GPU contention": 15, "thread-noncpu: GPU copies": 5}


def test_the_activity_view_has_the_task_while_it_waits(worker):
    task = worker.run("x", start=0, stop=100, cpu=20)
    worker.pending.all(at=100)
    active = worker.ledger.balance(at=100, used=worker.pending.used_so_far()).active
    assert (active["thread-cpu"], active["thread-noncpu"]) == (20, 80)
    worker.known[task] = GpuUse(kernel=80)
    worker.pending.all(at=100)
    worker.run("y", start=100, stop=200, gpu=False)
    worker.pending.all(at=200)
    active = worker.ledger.balance(at=200).active
    assert (active["thread-cpu"], active["gpu"], active["thread-noncpu"]) == (20, 80, 100)


class Result:
    """A task's state after its end."""

    dependencies: tuple[Any, ...] = ()

    def __init__(self, nbytes: int | None) -> None:
        self.nbytes = nbytes


def end(worker: Worker, key: str, ts: Any, outcome: Outcome = Outcome.SUCCEEDED) -> None:
    worker.ledger.reserve(key, "train", at=0)
    reservation = worker.ledger.release(key, at=100)
    assert reservation is not None
    worker.threads.meter.done[key] = 0, 30, 10, 1, -1
    worker.pending.ended(key, ts, reservation, outcome, None)


def test_while_a_window_is_open_it_is_kept_what_each_task_took_and_made(worker):
    end(worker, "before", Result(90))
    worker.pending.all(at=100)
    worker.pending.sizes.open_window("w")
    for key, ts in (("a", Result(70)), ("b", Result(None)), ("gone", None)):
        end(worker, key, ts)
    end(worker, "failed", Result(80), Outcome.FAILED)
    end(worker, "not stored", Result(90))
    worker.pending.not_stored("not stored")
    worker.pending.all(at=100)
    (train,) = worker.pending.sizes.close_window("w").values()
    assert (train.ns.count, train.nbytes.count) == (3, 1)
    assert train.longest is not None
    assert train.longest.ns == 30
    assert train.largest == Largest(70, "a")


def test_without_a_window_the_size_of_a_short_task_s_result_is_not_looked_at(worker):
    end(worker, "x", object())  # which has none
    worker.pending.all(at=100)
    assert worker.pending.sizes.close_window("w") == {}


def seen(worker: Worker, *, start: int, stop: int, run: Run | None, used: tuple[int, int] | None = None) -> None:
    """A task ended that held its slot from ``start`` to ``stop``."""
    worker.ledger.reserve("x", "train", at=start)
    reservation = worker.ledger.release("x", at=stop)
    assert reservation is not None
    if run is not None:
        worker.threads.meter.done["x"] = run
    worker.pending.ended("x", None, reservation, Outcome.SUCCEEDED, used)
    assert worker.threads.meter.done == {}


def test_a_run_is_claimed_once_and_its_cpu_counts_when_it_is_finalized(worker):
    seen(worker, start=0, stop=100, run=(10, 90, 70, 1, -1))
    assert worker.threads.claimed == 0
    worker.pending.all(at=100)
    assert worker.threads.claimed == 70
    assert worker.finalized(100) == {"thread-cpu": 70, "thread-noncpu": 10, "overhead": 20, "running": 0}


def test_a_task_that_ran_in_no_thread_of_ours_is_what_upstream_says(worker):
    worker.threads.meter.windows = deque()
    seen(worker, start=0, stop=100, run=None)
    worker.pending.all(at=100)
    assert worker.finalized(100) == {"thread-noncpu": 5, "overhead": 95, "running": 0}


def test_a_task_that_left_its_slot_counts_as_measured_up_to_then_and_its_cpu_counts_whole(worker):
    worker.threads.meter.windows = deque()
    seen(worker, start=0, stop=100, run=(10, 500, 300, 1, -1), used=(40, 80))
    worker.pending.all(at=500)
    assert worker.threads.claimed == 300
    assert worker.finalized(100) == {"thread-cpu": 40, "thread-noncpu": 40, "overhead": 20, "running": 0}


def test_where_the_gpu_is_watched_a_run_within_its_slot_waits_for_its_use(worker):
    seen(worker, start=0, stop=10, run=(1, 9, 0, 7, -1))
    worker.threads.meter.windows = deque()
    # Part of it lay before its slot was taken: then whose the GPU time was is not known.
    seen(worker, start=10, stop=20, run=(9, 19, 0, 7, -1))
    worker.pending.all(at=20)
    assert worker.finalized(20) == {"thread-noncpu": 17, "overhead": 3, "running": 0}
    seen(worker, start=20, stop=30, run=(21, 29, 0, 7, -1))
    worker.pending.all(at=30)
    assert worker.finalized(30)["running"] == 10
    worker.known[TaskId(7, 21)] = GpuUse(kernel=5)
    worker.pending.all(at=30)
    assert worker.finalized(30) == {"thread-noncpu": 20, "gpu": 5, "overhead": 5, "running": 0}
