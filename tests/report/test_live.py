import math
from dataclasses import asdict, replace
from types import MappingProxyType

import pytest

from dask_efficiency.buckets import Breakdown, Bucket
from dask_efficiency.report.live import Change, Reading, WorkerReading, baseline, change, natural, read

SECOND = 1_000_000_000


def worker(nthreads: int = 2, tasks: int = 0, running: float = 0.0, **seconds: float) -> WorkerReading:
    activity = {name.replace("_", "-"): round(s * SECOND) for name, s in seconds.items()}
    return WorkerReading(nthreads, activity, round(running * SECOND), tasks, "running")


def reading(at: float, workers: dict[str, WorkerReading], *, session: str = "s", more: int = 0) -> Reading:
    activity: dict[str, int] = {}
    for row in workers.values():
        for name, ns in row.activity.items():
            activity[name] = activity.get(name, 0) + ns
    return Reading(
        session=session,
        at=round(at * SECOND),
        started=0,
        outstanding=round(at * SECOND),
        heartbeat_seconds=0.5,
        nthreads=sum(row.nthreads for row in workers.values()),
        workers=workers,
        more_workers=more,
        activity=activity,
        buckets=activity,
        tasks={"succeeded": round(10 * at)},
    )


THEN = reading(10, {"a": worker(thread_cpu=5, idle=15), "b": worker(thread_cpu=20)})
NOW = reading(12, {"a": worker(thread_cpu=6, idle=18), "b": worker(thread_cpu=23, thread_noncpu=1, tasks=3)})
CHANGE = change(THEN, NOW, source="tcp://host:8786")


def test_a_change_is_what_was_gained_in_between():
    assert CHANGE.seconds == 2
    assert CHANGE.did == Breakdown({"thread-cpu": 4 * SECOND, "thread-noncpu": SECOND, "idle": 3 * SECOND})
    assert [(w.name, w.did["thread-cpu"], w.tasks) for w in CHANGE.workers] == [("a", 1, 0), ("b", 3, 3)]
    assert CHANGE.tasks == {"succeeded": 20}


def test_threads_add_up_to_the_number_of_threads():
    assert CHANGE.threads == {"thread-cpu": 2, "thread-noncpu": 0.5, "idle": 1.5}


def test_the_first_reading_is_compared_with_nothing():
    first = change(None, NOW, source="")
    assert first.seconds == 12
    assert first.did.total_ns == sum(NOW.activity.values())
    assert (first.joined, first.left) == ((), ())


def test_a_worker_without_a_heartbeat_did_nothing_that_is_known():
    silent = change(THEN, replace(NOW, workers=THEN.workers, activity=THEN.activity), source="")
    assert all(not worker.did and math.isnan(worker.useful_share) for worker in silent.workers)
    assert silent.threads == {}
    assert silent.to_dict()["efficiency"] is None


def test_workers_that_came_and_went_are_named():
    now = replace(NOW, workers={"b": NOW.workers["b"], "w10": worker(), "w9": worker()})
    view = change(THEN, now, source="")
    assert (view.joined, view.left) == (("w9", "w10"), ("a",))


def test_where_not_all_workers_are_told_nobody_is_said_to_have_come_or_gone():
    now = replace(NOW, workers={"b": NOW.workers["b"]}, more_workers=5)
    view = change(THEN, now, source="")
    assert (view.joined, view.left, view.more_workers) == ((), (), 5)


def test_useful_share_and_largest_loss_leave_out_the_time_without_work():
    (one,) = change(None, reading(1, {"a": worker(thread_cpu=1, idle=0.5, spill=0.5, no_work=8)}), source="").workers
    assert one.useful_share == 0.5
    assert one.largest_loss is Bucket.SPILL
    (one,) = change(None, reading(1, {"a": worker(no_work=8)}), source="").workers
    assert (math.isnan(one.useful_share), one.largest_loss) == (True, None)


def test_the_baseline_is_the_youngest_reading_that_is_old_enough():
    readings = [reading(at, {}) for at in (1, 2, 3, 4)]
    now = reading(4.5, {})
    assert baseline(readings, now, seconds=2) == readings[1]
    assert baseline(readings, now, seconds=0.1) == readings[2]  # two heartbeats at least
    assert baseline(readings, now, seconds=60) == readings[0]
    assert baseline([], now, seconds=2) is None


def test_new_accounts_are_compared_with_no_reading_of_the_old_ones():
    assert baseline([reading(1, {}, session="old")], reading(4, {}), seconds=1) is None


def test_what_travels_is_read():
    payload = asdict(NOW)
    assert read(payload) == NOW
    assert read(MappingProxyType(payload)) == NOW


@pytest.mark.parametrize("payload", [{}, {"snapshot": {}}, {**asdict(NOW), "new": 1}, {**asdict(NOW), "workers": 5}])
def test_what_is_no_reading_is_refused(payload):
    with pytest.raises(ValueError, match="version"):
        read(payload)


def test_plain_data_for_scripts_holds_every_figure():
    data = CHANGE.to_dict()
    assert data["scheduler"] == "tcp://host:8786"
    assert sum(data["threads"].values()) == data["nthreads"] == 4
    assert data["efficiency"] == 0.5
    assert data["workers"]["b"] == {
        "nthreads": 2,
        "threads": {"thread-cpu": 1.5, "thread-noncpu": 0.5},
        "running_seconds": 0.0,
        "tasks": 3,
        "status": "running",
    }
    assert data["life"]["thread_seconds"] == {"thread-cpu": 29.0, "thread-noncpu": 1.0, "idle": 18.0}
    assert isinstance(CHANGE, Change)


def test_names_sort_by_the_numbers_in_them():
    assert sorted(["w10", "w9", "a", "10", "9", "w"], key=natural) == ["a", "w", "w9", "w10", "9", "10"]


def test_gpus_are_compared_one_by_one():
    then = replace(THEN, gpus={"a": {"kernels": 5, "idle": 5}, "gone": {"kernels": 99, "idle": 1}})
    now = replace(NOW, gpus={"a": {"kernels": 6, "idle": 7}, "new": {"kernels": 1, "idle": 0}})
    found = change(then, now, source="x")
    assert (found.gpus, found.gpu) == (2, {"kernels": 2, "idle": 2})
    assert found.gpu_shares == {"kernels": 0.5, "idle": 0.5}
    assert found.to_dict()["gpus"] == {"number": 2, "shares": {"kernels": 0.5, "idle": 0.5}}
    assert CHANGE.to_dict()["gpus"] is None
    assert CHANGE.gpu_shares == {}
