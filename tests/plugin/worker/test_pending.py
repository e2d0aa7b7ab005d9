from __future__ import annotations

from typing import Any

import pytest

from dask_efficiency.accounts.gpu import GpuUse
from dask_efficiency.accounts.skew import LargestResult
from dask_efficiency.accounts.worker.balance import Outcome
from dask_efficiency.accounts.worker.ledger import Ledger
from dask_efficiency.accounts.worker.log import Moved, Run, TaskSet
from dask_efficiency.accounts.worker.slots import Ended
from dask_efficiency.gpu.meter import TaskId
from dask_efficiency.plugin.worker import pending
from dask_efficiency.plugin.worker.fine_metrics import FineMetrics
from dask_efficiency.plugin.worker.pending import LATE_NS, MIN_RATED_NS, MIN_WAITED_NS, PendingTasks
from dask_efficiency.plugin.worker.spill_watch import SpillWatch


class Threads:
    """Counts what tasks used."""

    def __init__(self) -> None:
        self.claimed = 0

    def elsewhere(self, start: int, wall: int) -> Run:
        return start, start + wall, 0, 0, -1


class Worker:
    """One slot after another, as a worker's log tells of them."""

    def __init__(self, nthreads: int = 1) -> None:
        self.ledger = Ledger(nthreads, at=0)
        self.known: dict[TaskId, GpuUse] = {}
        self.digests: dict[Any, float] = {}
        self.rated: list[tuple[str, int, int, float]] = []
        #: Nanoseconds that libraries' threads computed while each task waited.
        self.computed = 0
        self.threads = Threads()
        self.spills = SpillWatch({}, lambda *_: None)
        self.spills.watching = True
        self.ended: list[Ended] = []
        self.pending = PendingTasks(
            self.ledger,
            FineMetrics(self.digests),
            threads=self.threads,  # type: ignore[arg-type]
            spills=self.spills,
            library=lambda: lambda reservation, waited: min(waited, self.computed),
            use=lambda task, stop: self.known.get(task),
            rate=self.rated.extend,
        )

    def end(
        self,
        key: str,
        *,
        start: int,
        stop: int,
        run: Run | None,
        used: tuple[int, int] | None = None,
        outcome: Outcome = Outcome.SUCCEEDED,
        recomputed: str = "",
        **moved: Any,
    ) -> None:
        """A task ended that held its slot from ``start`` to ``stop``."""
        self.ledger.reserve(key, "train", recomputed=recomputed, at=start)
        reservation = self.ledger.release(key, at=stop)
        assert reservation is not None
        entry = Moved(stop, key, "executing", "memory", TaskSet.NEITHER, run, **moved)
        self.ended.append(Ended(reservation, outcome, entry, used))

    def run(self, key: str, *, start: int, stop: int, cpu: int = 0, gpu: bool = True, **more: Any) -> TaskId:
        self.end(key, start=start, stop=stop, run=(start, stop, cpu, 1, -1), watched=gpu, **more)
        return TaskId(1, start)

    def all(self, *, at: int) -> None:
        """Finalize what ended."""
        ended, self.ended = self.ended, []
        self.pending.finalize(ended, at=at)

    def finalized(self, at: int) -> dict[str, int]:
        balance = self.ledger.balance(at=at, used=self.pending.used_so_far())
        assert sum(balance.finalized.values()) + balance.running == balance.nthreads * balance.elapsed
        return {bucket: ns for bucket, ns in balance.finalized.items() if ns} | {"running": balance.running}


@pytest.fixture
def worker() -> Worker:
    return Worker()


def test_a_task_waits_frozen_until_its_use_of_the_gpu_is_known(worker):
    task = worker.run("x", start=0, stop=100, cpu=20)
    worker.all(at=100)
    assert worker.finalized(100) == {"running": 100}
    worker.known[task] = GpuUse(kernel=50, contention=10, copy=5, wait=7)
    worker.all(at=100)
    assert worker.finalized(100) == {"thread-cpu": 20, "gpu": 50, "thread-noncpu": 30, "running": 0}
    assert worker.pending.details == {
        "thread-noncpu: GPU contention": 10,
        "thread-noncpu: GPU copies": 5,
        "thread-noncpu: GPU wait": 7,
    }


def test_what_libraries_computed_while_a_task_waited_is_no_waiting(worker):
    worker.computed = 3 * MIN_WAITED_NS
    worker.run("x", start=0, stop=10 * MIN_WAITED_NS, cpu=2 * MIN_WAITED_NS, gpu=False)
    worker.all(at=10 * MIN_WAITED_NS)
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
    worker.all(at=10 * MIN_WAITED_NS)
    finalized = worker.finalized(10 * MIN_WAITED_NS)
    assert finalized == {"gpu": 6 * MIN_WAITED_NS, "library-threads": 4 * MIN_WAITED_NS, "running": 0}
    assert worker.pending.details == {}


def test_the_time_before_and_after_a_thread_s_work_is_told_apart(worker):
    worker.end("x", start=0, stop=100, run=(30, 80, 50, 1, -1))
    worker.all(at=100)
    assert worker.pending.overhead == {"hand-over": 30, "event-loop": 20, "rescheduled": 0}


def test_what_a_shuffle_stopped_is_overhead_of_its_own(worker):
    worker.end("x", outcome=Outcome.RESCHEDULED, start=0, stop=100, run=(30, 80, 50, 1, -1))
    worker.all(at=100)
    assert worker.pending.overhead == {"hand-over": 0, "event-loop": 0, "rescheduled": 100}
    assert worker.finalized(100) == {"overhead": 100, "running": 0}


def test_waiting_that_burns_cpu_is_no_cpu_time(worker):
    # 70 in calls that spin, so that 90 of CPU are 20 of work: 40 a kernel's, 30 more of waiting, 10 beside both.
    task = worker.run("x", start=0, stop=100, cpu=90)
    worker.known[task] = GpuUse(kernel=40, wait=30, spun=70)
    worker.all(at=100)
    assert worker.finalized(100) == {"thread-cpu": 20, "gpu": 40, "thread-noncpu": 40, "running": 0}


def test_what_is_not_known_in_time_counts_as_nothing_and_is_counted(worker):
    worker.run("x", start=0, stop=100, cpu=90)
    worker.all(at=100 + LATE_NS - 1)
    assert worker.pending.unknown == 0
    worker.all(at=100 + LATE_NS)
    assert worker.pending.unknown == 1
    assert worker.finalized(100) == {"thread-cpu": 90, "thread-noncpu": 10, "running": 0}


def test_a_late_task_holds_up_only_those_behind_it_that_are_known(worker):
    worker.run("late", start=0, stop=10)
    task = worker.run("next", start=10, stop=20)
    worker.known[task] = GpuUse(kernel=10)
    worker.all(at=20)
    assert worker.finalized(20) == {"running": 20}
    worker.all(at=10 + LATE_NS)
    assert worker.finalized(20) == {"gpu": 10, "thread-noncpu": 10, "running": 0}
    assert worker.pending.unknown == 1


def test_how_long_the_loop_spilled_beside_a_task_comes_before_what_the_digests_say(worker):
    worker.digests["execute", "", "train", "disk-write", "seconds"] = 60e-9
    # 0 to 5 before the thread began, 10 of the 30 that it ran, 20 after it was done.
    for start, stop in ((-5, 5), (10, 20), (60, 80)):
        worker.spills._note(start, stop)
    worker.end("x", start=0, stop=100, run=(5, 35, 10, 1, -1))
    worker.all(at=100)
    assert worker.finalized(100) == {"thread-cpu": 10, "thread-noncpu": 20, "spill": 25, "overhead": 45, "running": 0}


def test_a_task_that_ran_in_no_thread_of_ours_may_have_waited_for_all_that_was_spilled(worker):
    worker.spills._note(5, 20)
    worker.end("x", start=10, stop=55, run=None, elsewhere=35)
    worker.all(at=55)
    assert worker.finalized(55) == {"idle": 10, "thread-noncpu": 35, "spill": 10, "running": 0}


def test_what_was_spilled_before_a_task_took_its_slot_does_not_count(worker):
    worker.spills._note(5, 20)
    worker.end("x", start=20, stop=55, run=(20, 50, 30, 1, -1))
    worker.all(at=55)
    assert worker.finalized(55) == {"idle": 20, "thread-cpu": 30, "overhead": 5, "running": 0}


def test_where_nobody_watches_the_loop_the_digests_tell_of_spilling(worker):
    worker.digests["execute", "", "train", "disk-write", "seconds"] = 60e-9
    worker.spills.watching = False
    worker.end("x", start=0, stop=100, run=(0, 30, 10, 1, -1))
    worker.all(at=100)
    assert worker.finalized(100) == {"thread-cpu": 10, "thread-noncpu": 20, "spill": 60, "overhead": 10, "running": 0}


@pytest.mark.parametrize(
    ("outcome", "recomputed", "bucket"),
    [(Outcome.FAILED, "", "failed"), (Outcome.CANCELLED, "", "cancelled"), (Outcome.SUCCEEDED, "w3", "recomputed")],
)
def test_what_was_wasted_waits_for_no_gpu_and_keeps_its_one_bucket(worker, outcome, recomputed, bucket):
    task = worker.run("x", start=0, stop=100, outcome=outcome, recomputed=recomputed)
    worker.known[task] = GpuUse(kernel=50)
    worker.all(at=100)
    assert worker.finalized(100) == {bucket: 100, "running": 0}
    assert worker.pending.details == {}


def test_a_closing_worker_books_all_that_it_knows_and_the_rest_as_unknown(worker):
    known = worker.run("known", start=0, stop=10)
    worker.run("unknown", start=10, stop=30)
    worker.known[known] = GpuUse(kernel=10)
    worker.all(at=30)
    worker.pending.rest(at=30)
    assert worker.finalized(30) == {"gpu": 10, "thread-noncpu": 20, "running": 0}
    assert worker.pending.unknown == 1


def test_no_more_tasks_wait_than_there_is_room_for(worker, monkeypatch):
    monkeypatch.setattr(pending, "MAX_WAITING", 3)
    for i in range(6):
        worker.run(str(i), start=10 * i, stop=10 * i + 10)
    worker.all(at=60)
    assert worker.pending.unknown == 3
    assert worker.finalized(60) == {"thread-noncpu": 30, "running": 30}


def test_details_never_exceed_what_they_explain(worker):
    task = worker.run("x", start=0, stop=100, cpu=20)
    worker.known[task] = GpuUse(kernel=60, contention=15, copy=50, wait=50)
    worker.all(at=100)
    assert worker.finalized(100)["thread-noncpu"] == 20
    assert worker.pending.details == {"thread-noncpu: GPU contention": 15, "thread-noncpu: GPU copies": 5}


def test_the_activity_view_has_the_task_while_it_waits(worker):
    task = worker.run("x", start=0, stop=100, cpu=20)
    worker.all(at=100)
    active = worker.ledger.balance(at=100, used=worker.pending.used_so_far()).active
    assert (active["thread-cpu"], active["thread-noncpu"]) == (20, 80)
    worker.known[task] = GpuUse(kernel=80)
    worker.all(at=100)
    worker.run("y", start=100, stop=200, gpu=False)
    worker.all(at=200)
    active = worker.ledger.balance(at=200).active
    assert (active["thread-cpu"], active["gpu"], active["thread-noncpu"]) == (20, 80, 100)


def test_while_a_window_is_open_it_is_kept_what_each_task_took_and_made(worker):
    def end(key: str, made: int, outcome: Outcome = Outcome.SUCCEEDED) -> None:
        worker.end(key, start=0, stop=100, run=(0, 30, 10, 1, -1), made=made, outcome=outcome)

    end("before", 90)
    worker.all(at=100)
    worker.pending.sizes.open_window("w")
    end("a", 70)
    end("b", -1)
    end("gone", -1)
    end("failed", 80, Outcome.FAILED)
    worker.all(at=100)
    (train,) = worker.pending.sizes.close_window("w").values()
    assert (train.ns.count, train.nbytes.count) == (3, 1)
    assert train.longest is not None
    assert train.longest.ns == 30
    assert train.largest == LargestResult(70, "a")


def test_tasks_that_succeeded_and_were_not_very_short_are_rated_by_their_size(worker):
    for key, took, more in (("long", 5, {}), ("short", 0, {}), ("failed", 5, {"outcome": Outcome.FAILED})):
        ns = took * MIN_RATED_NS + 1
        worker.end(key, start=0, stop=ns, run=(0, ns, 7, 1, -1), nbytes=10.0, **more)
    worker.all(at=1)
    assert worker.rated == [("train", 5 * MIN_RATED_NS + 1, 7, 10.0)]


def test_the_cpu_of_a_run_is_claimed_when_it_is_finalized(worker):
    worker.end("x", start=0, stop=100, run=(10, 90, 70, 1, -1))
    assert worker.threads.claimed == 0
    worker.all(at=100)
    assert worker.threads.claimed == 70
    assert worker.finalized(100) == {"thread-cpu": 70, "thread-noncpu": 10, "overhead": 20, "running": 0}


def test_a_task_that_ran_in_no_thread_of_ours_is_what_upstream_says_and_no_longer_than_its_slot_was_held(worker):
    worker.end("x", start=0, stop=100, run=None, elsewhere=5, watched=True)
    worker.all(at=100)
    assert worker.finalized(100) == {"thread-noncpu": 5, "overhead": 95, "running": 0}
    worker.end("x", start=100, stop=200, run=None, elsewhere=500)
    worker.all(at=200)
    assert worker.finalized(200) == {"thread-noncpu": 105, "overhead": 95, "running": 0}


def test_a_task_that_left_its_slot_counts_as_measured_up_to_then_and_its_cpu_counts_whole(worker):
    worker.end("x", start=0, stop=100, run=(10, 500, 300, 1, -1), used=(40, 80), watched=True)
    worker.all(at=500)
    assert worker.threads.claimed == 300
    assert worker.finalized(100) == {"thread-cpu": 40, "thread-noncpu": 40, "overhead": 20, "running": 0}


def test_where_the_gpu_is_watched_a_run_within_its_slot_waits_for_its_use(worker):
    worker.end("x", start=0, stop=10, run=(1, 9, 0, 7, -1))
    # Part of it lay before its slot was taken: then whose the GPU time was is not known.
    worker.end("x", start=10, stop=20, run=(9, 19, 0, 7, -1), watched=True)
    worker.all(at=20)
    assert worker.finalized(20) == {"thread-noncpu": 17, "overhead": 3, "running": 0}
    worker.end("x", start=20, stop=30, run=(21, 29, 0, 7, -1), watched=True)
    worker.all(at=30)
    assert worker.finalized(30)["running"] == 10
    worker.known[TaskId(7, 21)] = GpuUse(kernel=5)
    worker.all(at=30)
    assert worker.finalized(30) == {"thread-noncpu": 20, "gpu": 5, "overhead": 5, "running": 0}
