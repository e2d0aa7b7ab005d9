from __future__ import annotations

from typing import Any

import pytest

from dask_efficiency.accounts.gpu import GpuUse
from dask_efficiency.accounts.skew import Most
from dask_efficiency.accounts.worker.balance import Outcome
from dask_efficiency.accounts.worker.ledger import Ledger
from dask_efficiency.accounts.worker.log import Moved, Run, TaskSet
from dask_efficiency.accounts.worker.slots import Ended
from dask_efficiency.gpu.meter import TaskId
from dask_efficiency.plugin.worker import pending
from dask_efficiency.plugin.worker.fine_metrics import SpillMetrics
from dask_efficiency.plugin.worker.pending import LATE_NS, MIN_RATED_NS, MIN_WAITED_NS, PendingTasks
from dask_efficiency.plugin.worker.spill_watch import SpillWatch


class Threads:
    """Task threads of which only the claimed CPU time counts."""

    def __init__(self) -> None:
        self.claimed = 0

    def elsewhere(self, start: int, wall: int) -> Run:
        return start, start + wall, 0, 0, -1


class Worker:
    """Tasks that end in the slots of a worker, one after another."""

    def __init__(self, nthreads: int = 1, *, at: int = 0, threads: Any = None) -> None:
        self.ledger = Ledger(nthreads, at=at)
        self.known: dict[TaskId, GpuUse] = {}
        self.digests: dict[Any, float] = {}
        self.rated: list[tuple[str, int, int, float]] = []
        #: Nanoseconds that libraries' threads computed while each task waited.
        self.computed = 0
        self.threads = threads or Threads()
        self.spills = SpillWatch({}, lambda *_: None)
        self.spills.watching = True
        self.ended: list[Ended] = []
        self.pending = PendingTasks(
            self.ledger,
            SpillMetrics(self.digests),
            threads=self.threads,
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
        """End a task that held its slot from ``start`` to ``stop``."""
        self.ledger.reserve(key, "train", recomputed=recomputed, at=start)
        reservation = self.ledger.release(key, at=stop)
        assert reservation is not None
        entry = Moved(stop, key, "executing", "memory", TaskSet.NEITHER, run, **moved)
        self.ended.append(Ended(reservation, outcome, entry, used))

    def run(self, key: str, *, start: int, stop: int, cpu: int = 0, gpu: bool = True, **more: Any) -> TaskId:
        self.end(key, start=start, stop=stop, run=(start, stop, cpu, 1, -1), watched=gpu, **more)
        return TaskId(1, start)

    def all(self, *, at: int) -> None:
        """Finalize ended tasks."""
        ended, self.ended = self.ended, []
        self.pending.finalize(ended, at=at)

    def finalized(self, at: int) -> dict[str, int]:
        balance = self.ledger.balance(at=at, used=self.pending.used_so_far())
        assert sum(balance.finalized.values()) + balance.running == balance.nthreads * balance.elapsed
        return {bucket: ns for bucket, ns in balance.finalized.items() if ns} | {"running": balance.running}


@pytest.fixture
def worker() -> Worker:
    return Worker()


W = MIN_WAITED_NS
OF_DIGESTS = {("execute", "", "train", "disk-write", "seconds"): 60e-9}


def ran(start: int, stop: int, cpu: int) -> dict[str, Any]:
    """The run of a task in thread 1."""
    return {"run": (start, stop, cpu, 1, -1)}


@pytest.mark.parametrize(
    ("ended", "finalized"),
    [
        # Threads of libraries that computed while the task waited.
        (
            ran(0, 10 * W, 2 * W) | {"stop": 10 * W, "computed": 3 * W},
            {"thread-cpu": 2 * W, "library-threads": 3 * W, "thread-noncpu": 5 * W},
        ),
        # The CPU of the thread is exact, the rest of the slot is overhead.
        (ran(10, 90, 70), {"thread-cpu": 70, "thread-noncpu": 10, "overhead": 20}),
        (ran(30, 80, 50) | {"outcome": Outcome.RESCHEDULED}, {"overhead": 100}),
        # Spilling by the watch comes before that by the digests: 0 to 5 before the thread began, 10 of the 30 that it
        # ran, 20 after it was done.
        (
            ran(5, 35, 10) | {"digests": OF_DIGESTS, "spilled": [(-5, 5), (10, 20), (60, 80)]},
            {"thread-cpu": 10, "thread-noncpu": 20, "spill": 25, "overhead": 45},
        ),
        (
            ran(0, 30, 10) | {"digests": OF_DIGESTS, "watching": False},
            {"thread-cpu": 10, "thread-noncpu": 20, "spill": 60, "overhead": 10},
        ),
        # Spilling before the task took its slot does not count.
        (
            ran(20, 50, 30) | {"start": 20, "stop": 55, "spilled": [(5, 20)]},
            {"idle": 20, "thread-cpu": 30, "overhead": 5},
        ),
        # Outside the metered threads: measured by Dask, at most the time of the slot; it may wait for all spilling.
        ({"run": None, "elsewhere": 5, "watched": True}, {"thread-noncpu": 5, "overhead": 95}),
        ({"run": None, "elsewhere": 500}, {"thread-noncpu": 100}),
        (
            {"start": 10, "stop": 55, "run": None, "elsewhere": 35, "spilled": [(5, 20)]},
            {"idle": 10, "thread-noncpu": 35, "spill": 10},
        ),
        # It seceded: measured up to then.
        (
            ran(10, 500, 300) | {"used": (40, 80), "watched": True},
            {"thread-cpu": 40, "thread-noncpu": 40, "overhead": 20},
        ),
    ],
)
def test_the_slot_of_an_ended_task_is_divided_to_the_nanosecond(worker, ended, finalized):
    ended = {"start": 0, "stop": 100} | ended
    worker.digests |= ended.pop("digests", {})
    worker.computed = ended.pop("computed", 0)
    worker.spills.watching = ended.pop("watching", True)
    for start, stop in ended.pop("spilled", ()):
        worker.spills._note(start, stop)
    worker.end("x", **ended)
    assert worker.threads.claimed == 0
    worker.all(at=ended["stop"])
    assert worker.threads.claimed == (ended["run"][2] if ended["run"] else 0)
    assert worker.finalized(ended["stop"]) == finalized | {"running": 0}


@pytest.mark.parametrize(
    ("cpu", "use", "finalized", "details"),
    [
        (
            20,
            GpuUse(kernel=50, contention=10, copy=5, wait=7),
            {"thread-cpu": 20, "gpu": 50, "thread-noncpu": 30},
            {"contention": 10, "copies": 5, "wait": 7},
        ),
        # 70 in calls that spin, so that 90 of CPU are 20 of work: 40 a kernel's, 30 more of waiting, 10 beside both.
        (90, GpuUse(kernel=40, wait=30, spun=70), {"thread-cpu": 20, "gpu": 40, "thread-noncpu": 40}, {"wait": 30}),
        # Details never exceed the time that they explain.
        (
            20,
            GpuUse(kernel=60, contention=15, copy=50, wait=50),
            {"thread-cpu": 20, "gpu": 60, "thread-noncpu": 20},
            {"contention": 15, "copies": 5},
        ),
    ],
)
def test_a_task_waits_until_its_use_of_the_gpu_is_known(worker, cpu, use, finalized, details):
    task = worker.run("x", start=0, stop=100, cpu=cpu)
    worker.all(at=100)
    assert worker.finalized(100) == {"running": 100}
    worker.known[task] = use
    worker.all(at=100)
    assert worker.finalized(100) == finalized | {"running": 0}
    assert worker.pending.details == {f"thread-noncpu: GPU {name}": ns for name, ns in details.items()}


def test_the_activity_view_has_a_task_while_it_waits(worker):
    task = worker.run("x", start=0, stop=100, cpu=20)
    worker.all(at=100)
    active = worker.ledger.balance(at=100, used=worker.pending.used_so_far()).active
    assert (active["thread-cpu"], active["thread-noncpu"]) == (20, 80)
    worker.known[task] = GpuUse(kernel=80)
    worker.run("y", start=100, stop=200, gpu=False)
    worker.all(at=200)
    active = worker.ledger.balance(at=200).active
    assert (active["thread-cpu"], active["gpu"], active["thread-noncpu"]) == (20, 80, 100)


def test_time_of_the_gpu_is_not_that_of_libraries(worker):
    worker.computed = 7 * W
    task = worker.run("x", start=0, stop=10 * W)
    worker.known[task] = GpuUse(kernel=6 * W, wait=4 * W)
    worker.all(at=10 * W)
    assert worker.finalized(10 * W) == {"gpu": 6 * W, "library-threads": 4 * W, "running": 0}
    assert worker.pending.details == {}


def test_overhead_has_causes(worker):
    worker.end("x", start=0, stop=100, run=(30, 80, 50, 1, -1))
    worker.end("y", outcome=Outcome.RESCHEDULED, start=100, stop=300, run=(130, 180, 50, 1, -1))
    worker.all(at=300)
    assert worker.pending.overhead == {"hand-over": 30, "event-loop": 20, "rescheduled": 200}


def test_unknown_use_counts_as_none_when_it_is_late_and_holds_up_only_later_tasks(worker):
    worker.run("late", start=0, stop=10, cpu=7)
    task = worker.run("next", start=10, stop=20)
    worker.known[task] = GpuUse(kernel=10)
    worker.all(at=10 + LATE_NS - 1)
    assert worker.finalized(20) == {"running": 20}
    assert worker.pending.unknown == 0
    worker.all(at=10 + LATE_NS)
    assert worker.finalized(20) == {"thread-cpu": 7, "gpu": 10, "thread-noncpu": 3, "running": 0}
    assert worker.pending.unknown == 1


@pytest.mark.parametrize(
    ("outcome", "recomputed", "bucket"),
    [(Outcome.FAILED, "", "failed"), (Outcome.CANCELLED, "", "cancelled"), (Outcome.SUCCEEDED, "w3", "recomputed")],
)
def test_a_wasted_task_waits_for_no_gpu_and_keeps_its_one_bucket(worker, outcome, recomputed, bucket):
    task = worker.run("x", start=0, stop=100, outcome=outcome, recomputed=recomputed)
    worker.known[task] = GpuUse(kernel=50)
    worker.all(at=100)
    assert worker.finalized(100) == {bucket: 100, "running": 0}
    assert worker.pending.details == {}


def test_a_closing_worker_finalizes_every_task_with_the_use_that_is_known(worker):
    known = worker.run("known", start=0, stop=10)
    worker.run("unknown", start=10, stop=30)
    worker.known[known] = GpuUse(kernel=10)
    worker.all(at=30)
    worker.pending.finalize_waiting(30)
    assert worker.finalized(30) == {"gpu": 10, "thread-noncpu": 20, "running": 0}
    assert worker.pending.unknown == 1


def test_waiting_tasks_are_bounded(worker, monkeypatch):
    monkeypatch.setattr(pending, "MAX_WAITING", 3)
    for i in range(6):
        worker.run(str(i), start=10 * i, stop=10 * i + 10)
    worker.all(at=60)
    assert worker.pending.unknown == 3
    assert worker.finalized(60) == {"thread-noncpu": 30, "running": 30}


def test_a_run_that_began_before_its_slot_waits_for_no_gpu(worker):
    worker.end("x", start=0, stop=10, run=(1, 9, 0, 7, -1))
    # The owner of the GPU time before its slot was taken is not known.
    worker.end("x", start=10, stop=20, run=(9, 19, 0, 7, -1), watched=True)
    worker.all(at=20)
    assert worker.finalized(20) == {"thread-noncpu": 17, "overhead": 3, "running": 0}
    worker.end("x", start=20, stop=30, run=(21, 29, 0, 7, -1), watched=True)
    worker.all(at=30)
    assert worker.finalized(30)["running"] == 10
    worker.known[TaskId(7, 21)] = GpuUse(kernel=5)
    worker.all(at=30)
    assert worker.finalized(30) == {"thread-noncpu": 20, "gpu": 5, "overhead": 5, "running": 0}


def test_durations_and_sizes_of_tasks_are_kept_while_a_window_is_open(worker):
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
    assert train.longest.n == 30
    assert train.largest == Most(70, "a")


def test_successful_tasks_that_were_not_very_short_are_rated_by_their_size(worker):
    for key, took, more in (("long", 5, {}), ("short", 0, {}), ("failed", 5, {"outcome": Outcome.FAILED})):
        ns = took * MIN_RATED_NS + 1
        worker.end(key, start=0, stop=ns, run=(0, ns, 7, 1, -1), nbytes=10.0, **more)
    worker.all(at=1)
    assert worker.rated == [("train", 5 * MIN_RATED_NS + 1, 7, 10.0)]
