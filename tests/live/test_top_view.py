import math
from collections import Counter
from dataclasses import asdict, replace
from types import MappingProxyType

import pytest

from dask_efficiency.accounts.buckets import Breakdown
from dask_efficiency.accounts.cluster.time_left import TimeLeft
from dask_efficiency.live.top_view import Observation, WorkerObservation, baseline, read, top_view

SECOND = 1_000_000_000


def worker(nthreads: int = 2, tasks: int = 0, running: float = 0.0, **seconds: float) -> WorkerObservation:
    activity = {name.replace("_", "-"): round(s * SECOND) for name, s in seconds.items()}
    return WorkerObservation(nthreads, activity, round(running * SECOND), tasks, "running")


def observation(at: float, workers: dict[str, WorkerObservation], *, session: str = "s") -> Observation:
    activity: Counter[str] = Counter()
    for row in workers.values():
        activity.update(row.activity)
    return Observation(
        session=session,
        at=round(at * SECOND),
        started=0,
        outstanding=round(at * SECOND),
        heartbeat_seconds=0.5,
        nthreads=sum(row.nthreads for row in workers.values()),
        workers=workers,
        more_workers=0,
        activity=dict(activity),
        buckets=dict(activity),
        tasks={"succeeded": round(10 * at)},
    )


THEN = observation(10, {"a": worker(thread_cpu=5, idle=15), "b": worker(thread_cpu=20)})
NOW = observation(12, {"a": worker(thread_cpu=6, idle=18), "b": worker(thread_cpu=23, thread_noncpu=1, tasks=3)})
VIEW = top_view(THEN, NOW, source="tcp://host:8786")


def test_the_baseline_is_the_youngest_observation_of_these_accounts_that_is_old_enough():
    observations = [observation(at, {}) for at in (1, 2, 3, 4)]
    now = observation(4.5, {})
    for seconds, at in ((2, 1), (0.1, 2), (60, 0)):  # two heartbeats at least
        assert baseline(observations, now, seconds=seconds) == observations[at]
    assert baseline([], now, seconds=2) is None
    assert baseline([observation(1, {}, session="old")], observation(4, {}), seconds=1) is None


def test_an_observation_that_travels_is_read():
    payload = asdict(NOW)
    assert read(payload) == NOW
    assert read(MappingProxyType(payload)) == NOW


@pytest.mark.parametrize("payload", [{}, {"snapshot": {}}, {**asdict(NOW), "new": 1}, {**asdict(NOW), "workers": 5}])
def test_other_data_than_an_observation_is_refused(payload):
    with pytest.raises(ValueError, match="version"):
        read(payload)


def test_the_time_left_travels_and_is_in_the_view() -> None:
    now = read({**asdict(NOW), "time_left": [240.0, 180.0, 360.0]})
    assert top_view(THEN, now, source="").time_left == TimeLeft(240.0, 180.0, 360.0)
    assert top_view(THEN, now, source="").to_dict()["seconds_left"] == {"seconds": 240, "least": 180, "most": 360}
    assert VIEW.to_dict()["seconds_left"] is None


def test_a_view_has_the_time_between_two_observations_or_up_to_the_first():
    last = VIEW.last
    assert last.seconds == 2
    assert last.did == Breakdown({"thread-cpu": 4 * SECOND, "thread-noncpu": SECOND, "idle": 3 * SECOND})
    assert last.workers.names == ("a", "b")
    assert [last.workers.did(i)["thread-cpu"] for i in range(2)] == [1, 3]
    assert [worker.tasks for worker in VIEW.workers] == [0, 3]
    assert VIEW.tasks == {"succeeded": 20}
    first = top_view(None, NOW, source="")
    assert first.last.seconds == 12
    assert first.last.did.total_ns == sum(NOW.activity.values())
    assert (first.joined, first.left) == ((), ())


def test_a_worker_without_a_heartbeat_did_nothing_that_is_known():
    silent = top_view(THEN, replace(NOW, workers=THEN.workers, activity=THEN.activity), source="")
    workers = silent.last.workers
    assert not any(map(workers.did, range(2)))
    assert all(map(math.isnan, workers.useful))
    assert silent.last.threads == {}
    assert silent.to_dict()["efficiency"] is None


def test_workers_that_came_and_went_are_named_if_all_are_listed():
    now = replace(NOW, workers={"b": NOW.workers["b"], "w10": worker(), "w9": worker()})
    view = top_view(THEN, now, source="")
    assert (view.joined, view.left) == (("w9", "w10"), ("a",))
    now = replace(NOW, workers={"b": NOW.workers["b"]}, more_workers=5)
    view = top_view(THEN, now, source="")
    assert (view.joined, view.left, view.more_workers) == ((), (), 5)


def test_plain_data_for_scripts_holds_every_figure():
    data = VIEW.to_dict()
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


def test_causes_are_those_gained_in_between_and_the_rest_is_unknown():
    then = replace(THEN, causes={"idle/graph": SECOND, "thread-noncpu/gil": 0})
    causes = {"idle/graph": 2 * SECOND, "idle/scheduler": SECOND, "thread-noncpu/gil": 3 * SECOND}
    of_buckets = {"idle/graph": 18 * SECOND}
    now = replace(NOW, causes=causes, bucket_causes=of_buckets, not_sampled={"b": "no /proc"})
    view = top_view(then, now, source="")
    # One second of waiting and three of idle time: what is more than that is of another heartbeat.
    gained = ("thread-noncpu/gil", "idle/graph", "idle/scheduler", "idle/unknown")
    assert view.last.causes == dict.fromkeys(gained, SECOND)
    assert view.to_dict()["threads_by_cause"]["idle/scheduler"] == 0.5
    assert view.last.report.waiting == {"gil": 1}
    assert view.life.idle_causes == {"graph": 18}
    assert view.life.not_sampled == view.last.report.not_sampled == {"b": "no /proc"}


def test_data_that_moved_is_counted_in_between_and_since_the_accounts_began():
    then, now = (replace(one, amounts={"spilled/bytes": n, "spilled/count": n}) for one, n in ((THEN, 3), (NOW, 10)))
    data = top_view(then, now, source="").to_dict()
    assert (data["moved_bytes"], data["life"]["moved_bytes"]) == ({"spilled": 7}, {"spilled": 10})
    assert top_view(None, now, source="").to_dict()["moved_bytes"] == {"spilled": 10}


def test_gpus_are_compared_one_by_one():
    then = replace(THEN, gpus={"a": {"kernels": 5, "copies": 0, "idle": 5}, "gone": {"kernels": 99, "idle": 1}})
    now = replace(NOW, gpus={"a": {"kernels": 6, "copies": 0, "idle": 7}, "new": {"kernels": 1, "idle": 0}})
    found = top_view(then, now, source="x")
    shares = {"kernels": 0.5, "copies": 0, "idle": 0.5}
    assert found.last.gpus.shares_of_all == shares
    assert found.to_dict()["gpus"] == {"number": 2, "shares": shares}
    assert VIEW.to_dict()["gpus"] is None
    assert VIEW.last.gpus.shares_of_all == {}


@pytest.mark.parametrize("memory", [5, {"process": "1"}, {"prefixes": {"sum": -1}}, {"fullest": 3}])
def test_memory_that_is_none_is_refused(memory):
    with pytest.raises(ValueError, match="expected"):
        read({**asdict(NOW), "memory": memory})
