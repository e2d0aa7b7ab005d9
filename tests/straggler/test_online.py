import dataclasses
import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_efficiency.accounts.slow_worker import Cause, SlowWorker
from dask_efficiency.straggler.online import StragglerWatch
from dask_efficiency.straggler.task_rates import PROCESS_SUMS, TASK_SUMS, TRANSFER_SUMS, TaskRates
from tests.straggler.simulated import SimulatedCluster, SimulatedWorker, healthy, slow


def names(findings: list[SlowWorker]) -> list[str]:
    return [finding.worker for finding in findings]


@pytest.mark.parametrize("workers", [3, 4, 8, 40])
@pytest.mark.parametrize("factor", [1.3, 2.0])
def test_a_worker_that_takes_longer_is_found_with_its_effect(workers: int, factor: float) -> None:
    cluster = healthy(workers)
    cluster[1].slowness = slow(factor, since=60)
    run = SimulatedCluster(cluster).run(150)
    assert names(run.found) == ["w1"]
    (finding,) = run.watch.findings
    assert finding.effect == pytest.approx(factor, rel=0.1)
    assert finding.since == pytest.approx(1e9 + 60, abs=6)
    assert finding.cause == Cause.SLOW_CPU
    assert finding.evidence[0].signal == "duration"
    assert finding.evidence[0].value > finding.evidence[0].high >= finding.evidence[0].peers


@pytest.mark.parametrize("seed", range(4))
def test_nobody_is_blamed_among_healthy_workers(seed: int) -> None:
    assert SimulatedCluster(healthy(8), seed).run(240).found == []


def test_workers_that_differ_a_little_are_not_stragglers() -> None:
    cluster = healthy(8)
    for i, worker in enumerate(cluster):
        worker.slowness = slow(1 + 0.01 * i)
    assert SimulatedCluster(cluster).run(120).found == []


def test_a_burst_of_jitter_is_not_a_straggler() -> None:
    cluster = healthy(6)
    cluster[2].slowness = slow(2.0, since=60, until=66)
    assert SimulatedCluster(cluster).run(120).found == []


def test_contention_that_comes_and_goes_every_second_is_found() -> None:
    cluster = healthy(6)
    cluster[2].slowness = lambda at: 2.5 if int(at) % 2 else 1.0
    assert names(SimulatedCluster(cluster).run(120).found) == ["w2"]


def test_a_straggler_that_recovers_is_cleared_once_and_remembered() -> None:
    cluster = healthy(6)
    cluster[0].slowness = slow(2.0, since=40, until=120)
    run = SimulatedCluster(cluster).run(240)
    assert names(run.found) == names(run.cleared) == ["w0"]
    assert run.watch.findings == ()
    (past,) = run.watch.past
    assert 1e9 + 120 < past.until < 1e9 + 150
    assert run.watch.findings_between(1e9 + 50, 1e9 + 60) == (past.finding,)
    assert run.watch.findings_between(1e9 + 200, 1e9 + 210) == ()
    assert run.watch.findings_between(1e9 + 0, 1e9 + 10) == ()


def test_a_straggler_near_the_edge_is_not_found_and_cleared_in_turns() -> None:
    for factor in (1.1, 1.12, 1.14, 1.16):
        cluster = healthy(8)
        cluster[3].slowness = slow(factor)
        run = SimulatedCluster(cluster).run(300)
        assert len(run.found) <= 1
        assert run.cleared == []


# -- the cases in which a worker is slow and not to blame, or cannot be told ---------------------


def test_of_two_workers_none_is_blamed_without_a_history() -> None:
    cluster = healthy(2)
    cluster[0].slowness = slow(2.0)
    assert SimulatedCluster(cluster).run(240).found == []


def test_of_two_workers_the_one_that_became_slow_is_blamed_by_its_history() -> None:
    cluster = healthy(2)
    cluster[0].slowness = slow(2.0, since=60)
    assert names(SimulatedCluster(cluster).run(180).found) == ["w0"]


def test_of_two_workers_none_is_blamed_when_the_other_becomes_faster() -> None:
    cluster = healthy(2)
    cluster[0].slowness = slow(2.0, until=60)
    assert SimulatedCluster(cluster).run(180).found == []


def test_a_worker_alone_is_never_blamed() -> None:
    cluster = healthy(1)
    cluster[0].slowness = slow(3.0, since=60)
    assert SimulatedCluster(cluster).run(180).found == []


def test_more_than_half_that_become_slow_are_found_by_their_history() -> None:
    cluster = healthy(8)
    for worker in cluster[:5]:
        worker.slowness = slow(1.8, since=60)
    assert sorted(names(SimulatedCluster(cluster).run(180).found)) == ["w0", "w1", "w2", "w3", "w4"]


def test_nobody_is_blamed_when_the_work_becomes_slower_for_all() -> None:
    cluster = healthy(8)
    for worker in cluster:
        worker.slowness = slow(2.0, since=60)
    assert SimulatedCluster(cluster).run(180).found == []


def test_workers_of_another_kind_are_not_compared() -> None:
    cluster = healthy(8)
    for worker in cluster[:4]:
        worker.slowness, worker.group = slow(2.0), "small"
    assert SimulatedCluster(cluster).run(120).found == []
    cluster = healthy(8)
    for worker in cluster[:4]:
        worker.slowness = slow(2.0)  # half and half of one kind: nobody can tell
    assert SimulatedCluster(cluster).run(120).found == []


def sized(low: float, high: float):  # type: ignore[no-untyped-def]
    """Tasks that take 0.2 s a megabyte, of sizes between these."""

    def task(rng):  # type: ignore[no-untyped-def]
        megabytes = math.exp(rng.uniform(math.log(low), math.log(high)))
        return "f", 0.2 * megabytes * float(rng.lognormal(0, 0.1)), megabytes * 1e6

    return task


def test_a_worker_with_larger_partitions_is_not_slow() -> None:
    cluster = healthy(6, task=sized(0.3, 3))
    cluster[4].task = sized(1.5, 6)
    assert SimulatedCluster(cluster).run(180).found == []


def test_a_worker_is_slow_whatever_the_sizes_of_its_partitions() -> None:
    cluster = healthy(6, task=sized(0.3, 3))
    cluster[4].slowness = slow(1.6)
    assert names(SimulatedCluster(cluster).run(180).found) == ["w4"]


def test_one_huge_partition_is_not_a_slow_worker() -> None:
    cluster = healthy(6)
    done = []

    def task(rng):  # type: ignore[no-untyped-def]
        if rng.random() < 0.01 and not done:
            done.append(1)
            return "f", 20.0, 1e6
        return "f", 0.2 * float(rng.lognormal(0, 0.1)), 1e6

    cluster[2].task = task
    assert SimulatedCluster(cluster).run(180).found == []


def test_other_work_is_not_slower_work() -> None:
    cluster = healthy(6)
    cluster[2].task = lambda rng: ("g", 1.0 * float(rng.lognormal(0, 0.1)), 1e6)
    assert SimulatedCluster(cluster).run(180).found == []


def by_turns(seconds: Callable[[int], float]) -> Callable[[np.random.Generator], tuple[str, float, float]]:
    """Tasks of one prefix whose seconds go round."""
    counter = itertools.count()
    return lambda rng: ("f", seconds(next(counter)), 1e6)


@pytest.mark.parametrize("seed", range(3))
def test_tasks_that_are_meant_to_differ_within_a_prefix_accuse_nobody(seed: int) -> None:
    cluster = healthy(4)
    for i, worker in enumerate(cluster):
        worker.task = by_turns(lambda n, i=i: 0.1 * (0.5 + (4 * n + i) * 7 % 11 / 10))
    assert SimulatedCluster(cluster, seed).run(150).found == []


@pytest.mark.parametrize("share", [0.95, 0.02])
def test_a_worker_that_has_the_longer_ones_of_different_tasks_is_not_accused(share: float) -> None:
    cluster = healthy(4, share=share)
    for i, worker in enumerate(cluster):
        worker.task = by_turns(lambda n, i=i: 0.1 * (0.5 + n * 7 % 11 / 10 + 0.25 * (i == 2)))
    assert SimulatedCluster(cluster).run(150).found == []
    cluster[2].slowness = slow(2.0)
    assert names(SimulatedCluster(cluster).run(150).found) == ["w2"]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("tail", ["lognormal", "pareto"])
def test_heavy_tails_accuse_nobody(tail: str, seed: int) -> None:
    draw = {"lognormal": lambda rng: rng.lognormal(0, 1), "pareto": lambda rng: min(50, 0.3 * (1 + rng.pareto(1.3)))}
    cluster = healthy(4, task=lambda rng: ("f", 0.2 * float(draw[tail](rng)), 1e6))
    assert SimulatedCluster(cluster, seed).run(150).found == []


def test_a_worker_is_not_judged_by_the_little_that_others_do_too() -> None:
    cluster = healthy(4)
    turns = itertools.count()
    cluster[1].task = lambda rng: ("f", 0.3, 1e6) if next(turns) % 20 == 0 else ("own", 0.4, 1e6)
    for worker in (cluster[0], *cluster[2:]):
        worker.task = lambda rng: ("f", 0.2 * float(rng.lognormal(0, 0.1)), 1e6)
    assert SimulatedCluster(cluster).run(300).found == []


def test_a_new_worker_has_time_to_show_what_it_does() -> None:
    cluster = healthy(6)
    cluster[5].joins_at = 100
    cluster[5].slowness = slow(3.0, until=108)  # imports, warms up
    assert SimulatedCluster(cluster).run(180).found == []
    cluster[5].slowness = slow(3.0)
    late = SimulatedCluster(cluster).run(104)
    assert late.found == []
    assert names(late.run(60).found) == ["w5"]


def test_a_worker_whose_tasks_do_not_end_is_found_by_those_that_run() -> None:
    cluster = healthy(6)
    cluster[1].slowness = slow(1e6, since=60)
    cluster[1].hanging = (("f", 60.0, 1e6), ("f", 61.0, 1e6), ("f", 62.0, 1e6))
    assert names(SimulatedCluster(cluster).run(400).found) == ["w1"]


def test_a_long_task_of_another_prefix_that_runs_is_no_straggler() -> None:
    cluster = healthy(6)
    cluster[1].hanging = (("other", 60.0, 1e6),)
    assert SimulatedCluster(cluster).run(300).found == []


def partitions(rng: np.random.Generator) -> tuple[str, float, float]:
    return "f", float(rng.lognormal(0, 0.05)), 1e8


@pytest.mark.parametrize("nbytes", [2e9, 0.0], ids=["its input is as large", "its size is not known"])
def test_one_task_that_runs_on_is_no_slow_worker(nbytes: float) -> None:
    cluster = healthy(4, task=partitions)
    cluster[1].hanging = (("f", 60.0, nbytes),)
    assert SimulatedCluster(cluster).run(90).found == []


def test_running_tasks_whose_inputs_are_as_much_larger_are_no_slow_worker() -> None:
    cluster = healthy(4, task=partitions)
    cluster[1].hanging = (("f", 60.0, 2e9), ("f", 60.0, 2e9))
    assert SimulatedCluster(cluster).run(80).found == []


@pytest.mark.parametrize("every", [1, 8])
def test_one_partition_that_is_20_times_as_large_is_no_slow_worker(every: int) -> None:
    """Of each so many passes over the data."""
    cluster = healthy(4, task=partitions)
    number = iter(range(10_000))

    def with_a_giant(rng: np.random.Generator) -> tuple[str, float, float]:
        prefix, seconds, nbytes = partitions(rng)
        times = 20.0 if next(number) % (10 * every) == 5 else 1.0
        return prefix, times * seconds, times * nbytes

    cluster[1].task = with_a_giant
    assert SimulatedCluster(cluster).run(400).found == []


def test_a_paused_worker_is_short_of_memory() -> None:
    cluster = healthy(6)
    cluster[1].paused = lambda at: 0.6 if at > 40 else 0.0
    run = SimulatedCluster(cluster).run(120)
    assert names(run.found) == ["w1"]
    (finding,) = run.watch.findings
    assert finding.cause == Cause.MEMORY
    assert finding.effect == pytest.approx(2.5, rel=0.2)


def test_a_worker_that_is_paused_all_the_time_is_found() -> None:
    cluster = healthy(6)
    cluster[1].paused = lambda at: 1.0 if at > 40 else 0.0
    (finding,) = SimulatedCluster(cluster).run(120).found
    assert (finding.worker, finding.cause) == ("w1", Cause.MEMORY)


def test_a_worker_that_spills_more_of_as_much_is_short_of_memory() -> None:
    cluster = healthy(6)
    cluster[1].spilling = 0.5
    (finding,) = SimulatedCluster(cluster).run(120).found
    assert (finding.worker, finding.cause) == ("w1", Cause.MEMORY)


def test_a_worker_that_spills_more_as_it_holds_more_is_not_to_blame() -> None:
    cluster = healthy(6)
    cluster[1].spilling, cluster[1].held = 0.5, 1e10
    assert SimulatedCluster(cluster).run(120).found == []


def test_all_workers_of_a_slow_host_are_one_finding() -> None:
    cluster = healthy(8)
    for i, worker in enumerate(cluster):
        worker.host = f"host{i // 2}"
    cluster[2].slowness = cluster[3].slowness = slow(1.6)
    run = SimulatedCluster(cluster).run(180)
    (finding,) = run.watch.findings
    assert (finding.worker, finding.host) == ("", "host1")


def test_one_slow_worker_of_a_host_does_not_blame_the_host() -> None:
    cluster = healthy(8)
    for i, worker in enumerate(cluster):
        worker.host = f"host{i // 2}"
    cluster[2].slowness = slow(1.6)
    assert names(SimulatedCluster(cluster).run(180).found) == ["w2"]


# -- causes --------------------------------------------------------------------------------------


def test_tasks_that_wait_for_a_core_are_in_contention() -> None:
    cluster = healthy(6)
    worker = cluster[3]
    worker.slowness, worker.share, worker.core_wait = slow(2.0), 0.48, 0.5
    (finding,) = SimulatedCluster(cluster).run(120).found
    assert (finding.worker, finding.cause) == ("w3", Cause.CONTENTION)
    assert {evidence.signal for evidence in finding.evidence} >= {"duration", "cpu_share"}


def test_tasks_that_wait_while_their_process_computes_wait_for_the_gil() -> None:
    cluster = healthy(6)
    worker = cluster[3]
    worker.slowness, worker.share, worker.beside, worker.lag = slow(2.0), 0.48, 0.5, 0.03
    (finding,) = SimulatedCluster(cluster).run(120).found
    assert (finding.worker, finding.cause) == ("w3", Cause.GIL)


def test_a_process_that_is_stopped_in_turns_is_in_contention() -> None:
    cluster = healthy(6)
    worker = cluster[3]
    worker.slowness, worker.share, worker.lag = slow(2.0), 0.48, 0.2
    (finding,) = SimulatedCluster(cluster).run(120).found
    assert (finding.worker, finding.cause) == ("w3", Cause.CONTENTION)


def test_waiting_for_a_core_without_longer_tasks_is_no_slowness() -> None:
    cluster = healthy(6)
    cluster[3].core_wait = 0.9
    cluster[4].beside = 0.9
    assert SimulatedCluster(cluster).run(120).found == []


@pytest.mark.parametrize("share", [0.95, 0.3])  # it waits for the GPU, with the CPU or without
@pytest.mark.parametrize("workers", [4, 8])
def test_a_slow_gpu_is_found_by_the_kernels_that_its_peers_run_too(share: float, workers: int) -> None:
    cluster = healthy(workers, kernel=0.6, share=share)
    cluster[3].gpu_slowness = slow(1.5, since=60)
    run = SimulatedCluster(cluster).run(180)
    assert [found.cause for found in run.found] == [Cause.GPU]
    (finding,) = run.watch.findings
    assert (finding.worker, finding.cause) == ("w3", Cause.GPU)
    assert finding.effect == pytest.approx(1.3, rel=0.05)
    of_kernels = next(evidence for evidence in finding.evidence if evidence.signal == "gpu_kernel")
    assert of_kernels.value == pytest.approx(1.5, rel=0.05)
    assert of_kernels.low <= of_kernels.peers <= of_kernels.high < 1.1


def test_a_gpu_is_not_to_blame_for_what_its_tasks_do_elsewhere() -> None:
    cluster = healthy(6, kernel=0.3)
    cluster[3].slowness = slow(2.0)
    (finding,) = SimulatedCluster(cluster).run(120).found
    assert (finding.worker, finding.cause) == ("w3", Cause.SLOW_CPU)


def test_kernels_take_longer_for_larger_inputs_and_accuse_nobody() -> None:
    cluster = healthy(8, kernel=0.9, task=sized(0.5, 2))
    cluster[3].task = sized(2, 8)
    assert SimulatedCluster(cluster).run(180).found == []


def test_kernels_of_few_workers_are_compared_by_nobody() -> None:
    cluster = healthy(6)
    for worker in cluster[:2]:
        worker.kernel = 0.6
    cluster[0].gpu_slowness = slow(3.0)
    (finding,) = SimulatedCluster(cluster).run(120).found
    assert (finding.worker, finding.cause) == ("w0", Cause.SLOW_CPU)
    assert "gpu_kernel" not in {evidence.signal for evidence in finding.evidence}


@pytest.mark.parametrize(
    ("symptom", "disk", "cause"),
    [({"core_wait": 0.5}, 2e-8, Cause.CONTENTION), ({"beside": 0.7}, 2e-7, Cause.GIL)],
    ids=["cpu", "gil"],
)
def test_a_disk_that_waits_for_something_else_is_not_to_blame(
    symptom: dict[str, float], disk: float, cause: Cause
) -> None:
    cluster = healthy(6, disk_seconds_per_byte=1e-8)
    slowed = {"slowness": slow(2.0), "share": 0.48, "disk_seconds_per_byte": disk, **symptom}
    cluster[3] = dataclasses.replace(cluster[3], **slowed)
    (finding,) = SimulatedCluster(cluster).run(120).watch.findings
    assert "disk" in {evidence.signal for evidence in finding.evidence}
    assert (finding.worker, finding.cause) == ("w3", cause)


def test_a_slow_disk_is_found_by_its_seconds_a_byte() -> None:
    cluster = healthy(6, disk_seconds_per_byte=1e-8)
    cluster[3].disk_seconds_per_byte = 4e-8
    (finding,) = SimulatedCluster(cluster).run(120).found
    assert (finding.worker, finding.cause) == ("w3", Cause.DISK)


def mesh(count: int) -> list[SimulatedWorker]:
    return [SimulatedWorker(f"w{i}", transfers={f"w{j}": 2e-8 for j in range(count) if j != i}) for i in range(count)]


def test_a_slow_receiver_is_told_from_its_senders() -> None:
    cluster = mesh(6)
    cluster[3].transfers = dict.fromkeys(cluster[3].transfers, 8e-8)
    (finding,) = SimulatedCluster(cluster).run(120).found
    assert (finding.worker, finding.cause) == ("w3", Cause.NETWORK)
    assert finding.evidence[0].signal == "receive"


def test_a_slow_sender_is_told_from_those_that_fetch_from_it() -> None:
    cluster = mesh(6)
    for worker in cluster:
        worker.transfers = {sender: 8e-8 if sender == "w3" else cost for sender, cost in worker.transfers.items()}
    (finding,) = SimulatedCluster(cluster).run(120).found
    assert (finding.worker, finding.cause) == ("w3", Cause.NETWORK)
    assert finding.evidence[0].signal == "send"


# -- invariants ----------------------------------------------------------------------------------


@settings(max_examples=10, deadline=None)
@given(slowest=st.integers(0, 4), factor=st.sampled_from([1.5, 2.0, 5.0]), scale=st.sampled_from([0.02, 0.2, 1.0]))
def test_who_is_found_depends_neither_on_the_order_of_workers_nor_on_the_length_of_tasks(
    slowest: int, factor: float, scale: float
) -> None:
    cluster = healthy(5, task=lambda rng: ("f", scale * float(rng.lognormal(0, 0.1)), 1e6))
    cluster[slowest].slowness = slow(factor)
    assert names(SimulatedCluster(cluster).run(90).found) == [f"w{slowest}"]


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000), count=st.integers(3, 12))
def test_findings_are_in_range_and_survive_json(seed: int, count: int) -> None:
    cluster = healthy(count)
    cluster[0].slowness = slow(1.2)
    for finding in SimulatedCluster(cluster, seed).run(60).found:
        assert SlowWorker.from_dict(finding.to_dict()) == finding
        assert all(math.isfinite(value) for item in finding.evidence for value in dataclasses.astuple(item)[1:])


def test_workers_that_come_and_go_leave_nothing_behind() -> None:
    run = SimulatedCluster(healthy(40)).run(30)
    watch = run.watch
    for i in range(40):
        watch.left(f"w{i}", now=1e9 + 30)
    before = watch.nbytes
    for round_ in range(5):
        for i in range(40):
            watch.joined(f"v{round_}-{i}", host="h", group=round_, at=10**11)
        for i in range(40):
            watch.left(f"v{round_}-{i}", now=1e9 + 100)
    assert watch.nbytes == before


def test_a_straggler_that_leaves_is_past() -> None:
    cluster = healthy(5)
    cluster[0].slowness = slow(2.0)
    run = SimulatedCluster(cluster).run(60)
    run.watch.left("w0", now=1e9 + 60)
    assert run.watch.findings == ()
    assert [past.finding.worker for past in run.watch.past] == ["w0"]


def test_a_comparison_that_is_spread_over_polls_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = healthy(12, task=lambda rng: (f"f{rng.integers(4)}", 0.2 * float(rng.lognormal(0, 0.1)), 1e6))
    cluster[1].slowness = slow(1.5, since=60)
    at_once = SimulatedCluster(cluster).run(180)
    monkeypatch.setattr("dask_efficiency.straggler.peers.PIECE", 1)
    monkeypatch.setattr("dask_efficiency.straggler.online.MAX_A_POLL", 1)
    in_pieces = SimulatedCluster(cluster)
    in_pieces.run(1.25 * 3)
    assert in_pieces.watch.comparing
    in_pieces.run(400)
    assert names(at_once.found) == names(in_pieces.found) == ["w1"]


def test_a_comparison_leaves_off_after_each_piece_when_its_time_is_over() -> None:
    def polls(in_time: bool) -> int:
        run = SimulatedCluster(healthy(8)).run(8.0)
        at, taken = round((run.at + 60) * 1e9), 1
        run.watch.poll(at=at, now=1e9, interval_seconds=10.0, in_time=lambda: in_time)
        while run.watch.comparing:
            run.watch.poll(at=at, now=1e9, interval_seconds=10.0, in_time=lambda: in_time)
            taken += 1
        return taken

    assert polls(in_time=False) > 2 * polls(in_time=True)


def test_workers_may_come_and_go_while_a_comparison_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dask_efficiency.straggler.peers.PIECE", 1)
    monkeypatch.setattr("dask_efficiency.straggler.online.MAX_A_POLL", 1)
    cluster = healthy(40)
    for i, worker in enumerate(cluster):
        worker.joins_at = 3.0 * i
    run = SimulatedCluster(cluster)
    for i in range(30):
        run.run(4)
        run.watch.left(f"w{i}", now=1e9 + run.at)
    assert run.found == []


@pytest.mark.parametrize("turn_seconds", [20, 1e9])
def test_a_straggler_is_found_though_there_are_more_prefixes_than_are_compared(turn_seconds: float) -> None:
    """Of 100 that run at the same time, or of 400 that are run ten after the other, as some of them are over."""
    at_once = 100 if turn_seconds > 1e6 else 40
    run = SimulatedCluster([])

    def task(rng: np.random.Generator) -> tuple[str, float, float]:
        turn = int(run.at / turn_seconds)
        return f"f{turn * at_once // 4 + rng.integers(at_once)}", 0.02 * float(rng.lognormal(0, 0.1)), 1e6

    run = SimulatedCluster(healthy(6, task=task))
    run.workers[0].slowness = slow(2.0)
    run.run(240)
    assert names(run.found) == ["w0"]


def test_prefixes_that_go_on_keep_their_columns_however_many_there_are() -> None:
    def task(rng: np.random.Generator) -> tuple[str, float, float]:
        return f"f{rng.integers(100)}", 0.01 * float(rng.lognormal(0, 0.1)), 1e6

    run = SimulatedCluster(healthy(4, task=task)).run(5)
    columns = run.watch._prefixes._columns
    first = {prefix: columns.get(prefix) for prefix in (f"f{i}" for i in range(100))}
    assert sum(column is None for column in first.values()) == 36
    run.run(60)
    assert {prefix: columns.get(prefix) for prefix in first} == first


def test_a_prefix_that_is_over_makes_room_for_one_that_goes_on() -> None:
    run = SimulatedCluster([])

    def task(rng: np.random.Generator) -> tuple[str, float, float]:
        turn = "before" if run.at < 10 else "after"
        return f"{turn}-{rng.integers(60)}", 0.02 * float(rng.lognormal(0, 0.1)), 1e6

    run = SimulatedCluster(healthy(4, task=task))
    run.run(30)
    columns = run.watch._prefixes._columns
    held = [columns.get(f"after-{i}") for i in range(60)]
    assert sum(column is None for column in held) == 56
    run.run(30)
    held = [columns.get(f"after-{i}") for i in range(60)]
    assert None not in held
    assert run.found == []


def test_no_piece_of_a_comparison_grows_with_the_number_of_transfers_or_prefixes() -> None:
    workers = 1_000
    watch = StragglerWatch()
    names = [f"w{i}" for i in range(workers)]
    for name in names:
        watch.joined(name, host="h", group="group", at=0)
    tasks, transfers = np.ones((50, len(TASK_SUMS))), np.ones((16, len(TRANSFER_SUMS)))
    prefixes = tuple(f"f{i}" for i in range(50))
    rates = TaskRates(prefixes, 5 * tasks, tuple(names[:16]), 5 * transfers, np.ones(len(PROCESS_SUMS)))
    for name in names:
        watch.receive(name, rates, at=1)
    pieces = list(watch._compared(2))
    assert len(pieces) > 20
    assert max(pieces) <= 5 * workers
