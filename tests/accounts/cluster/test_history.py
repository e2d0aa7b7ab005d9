"""History of a cluster's accounts, and windows of the past."""

from dataclasses import replace
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.checks import RefusedPayload
from dask_efficiency.accounts.cluster.account import WIDTH
from dask_efficiency.accounts.cluster.history import (
    ClusterHistory,
    HistoryPoint,
    gpus_between,
    others_between,
    window_between,
)
from dask_efficiency.accounts.cluster.scheduler_loop import KeptTotals, LoopFunction, LoopTime, LoopTotals
from dask_efficiency.accounts.cluster.timeline import timeline_between
from dask_efficiency.accounts.gpu import KernelTotals
from dask_efficiency.accounts.lines import Frame
from dask_efficiency.accounts.processors import Processors, ProcessorTime
from tests.accounts.cluster.test_windows import Accounts, SimulatedWorker, alone, lost, new_cluster
from tests.payloads import watched
from tests.strategies import idle_payload

NOW = 2_000


def past(cluster, then, *, asked=NOW, now=NOW) -> Accounts:
    """The window from a point of the past until now, when all workers were asked."""
    return Accounts(window_between(then, cluster.point(at=now), cluster.losses, asked=asked))


def test_a_window_of_the_past_has_workers_prefixes_and_tasks():
    cluster = new_cluster()
    workers = [SimulatedWorker(cluster, address, 2) for address in "ab"]
    workers[0].work(100, 400, "old")
    for worker in workers:
        worker.heartbeat(1_000)
    then = cluster.point(at=1_000)
    workers[0].work(1_200, 1_500, "load")
    workers[1].work(1_000, 1_900, "load", cpu=300, wall=900)
    for worker in workers:
        worker.heartbeat(NOW)
    found = past(cluster, then)
    assert (found.elapsed, found.outstanding, found.no_workers) == (1_000, 1_000, 0)
    assert found.workers == {
        "name-a": {"thread-cpu": 300, "idle": 1_700},
        "name-b": {"thread-cpu": 300, "thread-noncpu": 600, "idle": 1_100},
    }
    assert found.prefixes == {"load": {"thread-cpu": 600, "thread-noncpu": 600}}
    assert (found.tasks, found.nthreads) == ({"succeeded": 2}, {"name-a": 2, "name-b": 2})


def test_what_the_first_snapshot_brings_of_the_time_before_is_left_out():
    # Its last heartbeat before the window was 200 earlier; of these, the work ended after 50.
    cluster, worker = alone(2)
    worker.heartbeat(800)
    cluster.work.set(False, at=850)
    then = cluster.point(at=1_000)
    worker.heartbeat(1_300)
    cluster.work.set(True, at=1_400)
    worker.heartbeat(NOW)
    assert past(cluster, then).workers == {"name-a": {"no-work": 800, "idle": 1_200}}


def test_a_silent_worker_is_unmeasured_since_its_last_heartbeat():
    cluster, worker = alone(2)
    worker.heartbeat(1_000)
    then = cluster.point(at=1_000)
    worker.heartbeat(1_400)
    found = past(cluster, then, asked=1_900)
    assert found.workers == {"name-a": {"idle": 800, "unmeasured": 1_200}}
    assert found.not_measured == {"name-a": "no answer came"}
    assert past(cluster, then, asked=1_300).not_measured == {}  # it has answered since
    # as its ledger has it, the answer may be older than the question, by the error of its clock
    worker.heartbeat(1_899, arrives=1_901)
    assert past(cluster, then, asked=1_900).not_measured == {}


def test_a_lost_worker_is_named_with_its_cost_in_the_window():
    cluster, worker = alone(1)
    other = SimulatedWorker(cluster, "b", 1)
    worker.presence.loss.mark, worker.presence.loss.reason = "id", "killed by SIGKILL"
    for one in (worker, other):
        one.heartbeat(1_000)
    then = cluster.point(at=1_000)
    worker.heartbeat(1_200)
    lost(cluster, "a", at=1_500)
    other.heartbeat(NOW)
    found = past(cluster, then)
    assert found.workers["name-a"] == {"idle": 200, "lost-worker": 300}
    (row,) = found.losses
    assert (row["worker"], row["reason"], row["ns"]) == ("name-a", "killed by SIGKILL", 300)
    assert past(cluster, cluster.point(at=1_600)).losses == []


def test_results_without_account_are_those_of_the_window():
    cluster, worker = alone(1)
    worker.presence.finished = 60
    cluster.switch_off(worker.presence, "another version", at=500)
    then = cluster.point(at=1_000)
    worker.presence.finished = 110
    cluster.accrue(at=NOW)
    found = past(cluster, then)
    assert found.tasks == {"without account": 50}
    assert found.workers == {"name-a": {"unmeasured": 1_000}}


def test_a_window_of_the_past_has_the_gpus_of_its_workers():
    cluster = new_cluster()
    kept, restarted, left, without = (SimulatedWorker(cluster, address, 1) for address in "abcd")
    gemm = KernelTotals("train", "gemm", 3, 300)
    kept.gpu, restarted.gpu, left.gpu = replace(watched(300, 100), kernels=(gemm,)), watched(10, 0), watched(7, 0)
    for worker in (kept, restarted, left, without):
        worker.heartbeat(800)
    left.heartbeat(900, final=True)
    cluster.worker_left("c", at=900)
    then = cluster.point(at=1_000)
    kept.gpu, restarted.gpu = replace(watched(400, 150), kernels=(gemm._replace(ns=400),)), watched(25, 5)
    kept.heartbeat(1_500)
    restarted.heartbeat(1_500)
    restarted.restart(1_500)
    restarted.gpu = watched(3, 1)
    joined = SimulatedWorker(cluster, "e", 1, joined=1_600, gpu=watched(50, 20))
    for worker in (kept, restarted, joined):
        worker.heartbeat(NOW)
    names = [f"name-{address}" for address in "abde"]
    assert gpus_between(then, cluster.gpu_by_worker(), names) == {
        "name-a": watched(100, 50),
        "name-b": watched(18, 6),
        "name-e": watched(50, 20),
    }
    # Since the beginning, their kernels are known, too.
    assert gpus_between(HistoryPoint(0), cluster.gpu_by_worker(), ["name-a"]) == {"name-a": kept.gpu}


def test_others_used_what_the_workers_and_the_scheduler_did_not():
    cluster = new_cluster()
    workers = [SimulatedWorker(cluster, address, 1) for address in "ab"]
    host = Processors("host", "", 0b11)
    for worker in workers:
        worker.heartbeat(1_000)
        worker.presence.processors, worker.presence.used = host, ProcessorTime(1_000, 700, 100)
    then = replace(cluster.point(at=1_000), scheduler=ProcessorTime(0, 0, 50))
    for worker in workers:
        worker.presence.used = ProcessorTime(3_000, 2_300, 500)
    scheduler = replace(host, used=ProcessorTime(0, 0, 250))
    share = others_between(then, cluster, scheduler, at=NOW)
    assert share == (1_600 - 2 * 400 - 200) / 2_000
    # What a worker used whose last reading was lost with it would be the others'.
    SimulatedWorker(cluster, "c", 1, joined=1_500)
    lost(cluster, "c", at=1_600)
    assert others_between(then, cluster, scheduler, at=NOW) is None
    assert others_between(replace(then, at=1_700), cluster, scheduler, at=NOW) == share
    assert others_between(HistoryPoint(1_700), cluster, scheduler, at=NOW) is None


def test_heartbeats_tell_of_the_time_of_the_processors():
    cluster, worker = alone(1)
    payload = {**idle_payload(1, 10), "used": [30, 20, 10]}
    cluster.receive("a", payload, at=10)
    assert worker.presence.used == ProcessorTime(30, 20, 10)
    with pytest.raises(RefusedPayload, match="processors.used is 'much'"):
        cluster.receive("a", {**idle_payload(1, 20, seq=2), "used": "much"}, at=20)


def test_a_window_of_the_past_has_a_timeline_of_the_points_in_it():
    second = 10**9
    cluster, worker = alone(2)
    for at in range(1, 7):
        if at != 3:  # in which it idles
            worker.work((at - 1) * second, at * second)
        worker.heartbeat(at * second)
        cluster.remember(at=at * second)
    then, now = cluster.history.before(2 * second), cluster.point(at=6 * second)
    timeline = timeline_between(cluster.history.timeline(then, now))
    assert (timeline.bin_ns, timeline.elapsed_ns, timeline.bins) == (second, 4 * second, 4)
    assert timeline.activity["thread-cpu"] == (0, second, second, second)
    assert timeline.activity["idle"] == (2 * second, second, second, second)
    whole = timeline_between(cluster.history.timeline(HistoryPoint(0), now))
    assert sum(whole.activity["thread-cpu"]) == 5 * second


@given(st.lists(st.integers(1, 500), min_size=3, max_size=8), st.integers(0, 6), st.integers(1, 3))
def test_each_worker_has_its_threads_times_the_window(gaps, at, nthreads):
    cluster, worker = alone(nthreads)
    instants, points = list(accumulate(gaps)), []
    now = instants[-1]
    for start, stop in pairwise(instants):
        worker.work(start, stop)
        worker.heartbeat(stop)
        points.append(cluster.point(at=stop))
    then = points[min(at, len(points) - 1)]
    found = past(cluster, then, asked=now, now=now)
    assert sum(found.workers.get("name-a", {}).values()) == nthreads * (now - then.at)
    assert sum(sum(row.values()) for row in found.prefixes.values()) == now - then.at


@pytest.mark.parametrize("max_numbers", [10 * WIDTH, 4 * WIDTH])
def test_where_there_is_too_much_to_keep_old_points_are_rarer_and_the_oldest_stays(max_numbers):
    cluster, _ = alone(1)
    history = ClusterHistory(100, max_numbers)
    for at in range(1_000):
        history.add(cluster.point(at=at))
    kept = [point.at for point in history]
    assert kept[0] == 0 or len(kept) == 100
    assert kept[-1] == 999
    assert len(kept) <= max_numbers // WIDTH
    assert kept[-1] - kept[-2] <= kept[1] - kept[0]
    assert history.before(at=kept[1]).at == kept[1]
    assert history.before(at=kept[1] - 1).at == kept[0]
    assert history.before(at=-1).at == kept[0]
    assert ClusterHistory(3).before(at=5) is None


def test_points_share_what_did_not_change():
    one = HistoryPoint(1, prefixes={"a": (1, 2), "b": (3, 4)}, waited_for={"a": 1})
    other, numbers = HistoryPoint(2, prefixes={"a": (1, 2), "b": (3, 5)}, waited_for={"a": 1}).sharing(one)
    assert other.prefixes == {"a": (1, 2), "b": (3, 5)}
    assert other.prefixes["a"] is one.prefixes["a"]
    assert other.waited_for is one.waited_for
    assert numbers == 2 + 2 + len(other.activity)  # the new row, and the new table


def test_an_event_loop_and_gpus_count_in_what_a_history_may_keep():
    cluster, worker = alone(1)
    worker.gpu = watched(30, 10)
    worker.heartbeat(10)
    part = LoopFunction("comm handler", "heartbeat_worker", Frame("heartbeat", "scheduler.py", 1))
    history = ClusterHistory(100)
    sizes = []
    for at in range(3):
        loop = LoopTotals(at, 0, handlers={part: LoopTime(at, 1)})
        history.add(replace(cluster.point(at=at), loop=KeptTotals.of(loop)))
        sizes.append(history._numbers)
    first, second, third = history
    assert third.loop.names is second.loop.names is first.loop.names
    assert third.loop.totals.handlers[part].ns == 2
    assert sizes[2] - sizes[1] == sizes[1] - sizes[0] < sizes[0]
    assert sizes[2] - sizes[1] > WIDTH + 6 * 13
