from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_efficiency.accounts.slow_worker import Cause, SlowWorker
from dask_efficiency.straggler.online import StragglerWatch
from dask_efficiency.straggler.task_rates import PROCESS_SUMS, TASK_SUMS, TRANSFER_SUMS, TaskRates
from tests.straggler.simulated import SimulatedCluster, SimulatedWorker, healthy, slow

#: Chooses a task's prefix, seconds and bytes.
Task = Callable[[np.random.Generator], tuple[str, float, float]]


def names(findings: list[SlowWorker]) -> list[str]:
    return [finding.worker for finding in findings]


def among(count: int, changes: dict[int, dict[str, Any]], **common: Any) -> list[SimulatedWorker]:
    """Alike workers, of which some differ."""
    return [dataclasses.replace(worker, **changes.get(i, {})) for i, worker in enumerate(healthy(count, **common))]


def on_hosts(cluster: list[SimulatedWorker]) -> list[SimulatedWorker]:
    """Workers of whom two share a host."""
    return [dataclasses.replace(worker, host=f"host{i // 2}") for i, worker in enumerate(cluster)]


@pytest.mark.parametrize("workers", [3, 4, 8, 40])
@pytest.mark.parametrize("factor", [1.3, 2.0])
def test_a_worker_that_takes_longer_is_found_with_its_effect(workers: int, factor: float) -> None:
    run = SimulatedCluster(among(workers, {1: {"slowness": slow(factor, since=60)}})).run(150)
    assert names(run.found) == ["w1"]
    (finding,) = run.watch.findings
    assert finding.effect == pytest.approx(factor, rel=0.1)
    assert finding.since == pytest.approx(1e9 + 60, abs=6)
    assert finding.cause == Cause.SLOW_CPU
    assert finding.evidence[0].signal == "duration"
    assert finding.evidence[0].value > finding.evidence[0].high >= finding.evidence[0].peers


def test_a_straggler_that_recovers_is_cleared_once_and_remembered() -> None:
    run = SimulatedCluster(among(6, {0: {"slowness": slow(2.0, since=40, until=120)}})).run(240)
    assert names(run.found) == names(run.cleared) == ["w0"]
    assert run.watch.findings == ()
    (past,) = run.watch.past
    assert 1e9 + 120 < past.until < 1e9 + 150
    assert run.watch.findings_between(1e9 + 50, 1e9 + 60) == (past.finding,)
    assert run.watch.findings_between(1e9 + 200, 1e9 + 210) == ()
    assert run.watch.findings_between(1e9 + 0, 1e9 + 10) == ()


@pytest.mark.parametrize("factor", [1.1, 1.12, 1.14, 1.16])
def test_a_straggler_near_the_edge_is_not_found_and_cleared_in_turns(factor: float) -> None:
    run = SimulatedCluster(among(8, {3: {"slowness": slow(factor)}})).run(300)
    assert len(run.found) <= 1
    assert run.cleared == []


def sized(low: float, high: float) -> Task:
    """Tasks that take 0.2 s a megabyte, of sizes between these."""

    def task(rng: np.random.Generator) -> tuple[str, float, float]:
        megabytes = math.exp(rng.uniform(math.log(low), math.log(high)))
        return "f", 0.2 * megabytes * float(rng.lognormal(0, 0.1)), megabytes * 1e6

    return task


def of_prefix(prefix: str, seconds: float) -> Task:
    return lambda rng: (prefix, seconds * float(rng.lognormal(0, 0.1)), 1e6)


def by_turns(tasks: Callable[[int], tuple[str, float, float]]) -> Task:
    """Tasks by their number."""
    counter = itertools.count()
    return lambda rng: tasks(next(counter))


def partitions(rng: np.random.Generator) -> tuple[str, float, float]:
    return "f", float(rng.lognormal(0, 0.05)), 1e8


def with_a_giant(every: int) -> Task:
    """Partitions, of which one is 20 times as large in each so many passes over the data."""
    number = itertools.count()

    def task(rng: np.random.Generator) -> tuple[str, float, float]:
        prefix, seconds, nbytes = partitions(rng)
        times = 20.0 if next(number) % (10 * every) == 5 else 1.0
        return prefix, times * seconds, times * nbytes

    return task


SLOW = {"slowness": slow(2.0)}
HUGE = ("f", 60.0, 2e9)
OWN = [("f", 0.3, 1e6), ("own", 0.4, 1e6)]
SMALL = {**SLOW, "group": "small"}


def different(**changes: Any) -> dict[int, dict[str, Any]]:
    """Tasks that differ within a prefix, of which one worker has the longer ones."""

    def task(i: int) -> Task:
        return by_turns(lambda n: ("f", 0.1 * (0.5 + n * 7 % 11 / 10 + 0.25 * (i == 2)), 1e6))

    return {i: {"task": task(i), **(changes if i == 2 else {})} for i in range(4)}


#: Cases in which a worker is slow and not to blame, or cannot be named: the workers, and seconds.
NOBODY: dict[str, tuple[list[SimulatedWorker], float]] = {
    "healthy workers": (healthy(8), 240),
    "workers that differ a little": (among(8, {i: {"slowness": slow(1 + 0.01 * i)} for i in range(8)}), 120),
    "a burst of jitter": (among(6, {2: {"slowness": slow(2.0, since=60, until=66)}}), 120),
    "one of two without a history": (among(2, {0: SLOW}), 240),
    "one of two when the other becomes faster": (among(2, {0: {"slowness": slow(2.0, until=60)}}), 180),
    "a worker alone": (among(1, {0: {"slowness": slow(3.0, since=60)}}), 180),
    "work that becomes slower for all": (healthy(8, slowness=slow(2.0, since=60)), 180),
    "workers of another kind": (among(8, dict.fromkeys(range(4), SMALL)), 120),
    "half and half": (among(8, dict.fromkeys(range(4), SLOW)), 120),
    "larger partitions": (among(6, {4: {"task": sized(1.5, 6)}}, task=sized(0.3, 3)), 180),
    "one huge partition": (among(6, {2: {"task": by_turns(lambda n: ("f", 20.0 if n == 99 else 0.2, 1e6))}}), 180),
    "other work": (among(6, {2: {"task": of_prefix("g", 1.0)}}), 180),
    "longer ones of different tasks": (among(4, different()), 150),
    "longer ones of different tasks that wait": (among(4, different(), share=0.02), 150),
    "little that others do too": (among(4, {1: {"task": by_turns(lambda n: OWN[n % 20 > 0])}}), 300),
    "a new worker that warms up": (among(6, {5: {"joins_at": 100, "slowness": slow(3.0, until=108)}}), 180),
    "a long task of another prefix": (among(6, {1: {"hanging": (("other", 60.0, 1e6),)}}), 300),
    "one task that runs on": (among(4, {1: {"hanging": (HUGE,)}}, task=partitions), 90),
    "one task of unknown size that runs on": (among(4, {1: {"hanging": (("f", 60.0, 0.0),)}}, task=partitions), 90),
    "running tasks with as much larger inputs": (among(4, {1: {"hanging": 2 * (HUGE,)}}, task=partitions), 80),
    "a giant in each pass": (among(4, {1: {"task": with_a_giant(1)}}, task=partitions), 400),
    "a giant in one of eight passes": (among(4, {1: {"task": with_a_giant(8)}}, task=partitions), 400),
    "spilling more as it holds more": (among(6, {1: {"spilling": 0.5, "held": 1e10}}), 120),
    "waits for a core without longer tasks": (among(6, {3: {"core_wait": 0.9}, 4: {"beside": 0.9}}), 120),
    "kernels of larger inputs": (among(8, {3: {"task": sized(2, 8)}}, kernel=0.9, task=sized(0.5, 2)), 180),
}


@pytest.mark.parametrize("case", NOBODY)
def test_no_worker_is_blamed_without_a_fault_of_its_own(case: str) -> None:
    cluster, seconds = NOBODY[case]
    assert SimulatedCluster(cluster).run(seconds).found == []


def wandering(seed: int) -> Callable[[float], float]:
    """Slowness of a worker that changes at random every 5 s."""
    drawn = np.random.default_rng(seed).lognormal(0, 0.3, 100)
    return lambda at: float(drawn[int(max(at, 0.0) / 5)])


def test_workers_whose_speed_changes_at_random_are_hardly_ever_blamed() -> None:
    blamed = 0
    for seed in range(8):
        cluster = among(4, {i: {"slowness": wandering(100 * seed + i)} for i in range(4)})
        blamed += bool(SimulatedCluster(cluster, seed).run(200).found)
    assert blamed <= 1


DRAWS: dict[str, Callable[[np.random.Generator], float]] = {
    "healthy": lambda rng: rng.lognormal(0, 0.1),
    "lognormal": lambda rng: rng.lognormal(0, 1),
    "pareto": lambda rng: min(50, 0.3 * (1 + rng.pareto(1.3))),
}


def meant_to_differ(worker: int) -> Task:
    return by_turns(lambda n: ("f", 0.1 * (0.5 + (4 * n + worker) * 7 % 11 / 10), 1e6))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("tail", [*DRAWS, "meant to differ"])
def test_no_worker_is_blamed_for_the_distribution_of_its_tasks(tail: str, seed: int) -> None:
    if tail in DRAWS:
        cluster = healthy(4, task=lambda rng: ("f", 0.2 * float(DRAWS[tail](rng)), 1e6))
    else:
        cluster = among(4, {i: {"task": meant_to_differ(i)} for i in range(4)})
    assert SimulatedCluster(cluster, seed).run(150).found == []


MESH = [SimulatedWorker(f"w{i}", transfers={f"w{j}": 2e-8 for j in range(6) if j != i}) for i in range(6)]
SLOW_RECEIVER = [
    dataclasses.replace(w, transfers=dict.fromkeys(w.transfers, 8e-8)) if w.name == "w3" else w for w in MESH
]
SLOW_SENDER = [dataclasses.replace(w, transfers={**w.transfers, "w3": 8e-8}) if w.name != "w3" else w for w in MESH]
OFF_CPU = {**SLOW, "share": 0.48}
LATE = {"slowness": slow(2.0, since=60)}
HANGING = {"slowness": slow(1e6, since=60), "hanging": (("f", 60.0, 1e6), ("f", 61.0, 1e6), ("f", 62.0, 1e6))}
A_DISK = {"disk_seconds_per_byte": 1e-8}

#: The workers, seconds, those that are found, the cause, and signals among the evidence of the first one.
FOUND: dict[str, tuple[list[SimulatedWorker], float, str, Cause | None, set[str]]] = {
    "contention that comes and goes every second": (
        among(6, {2: {"slowness": lambda at: 2.5 if int(at) % 2 else 1.0}}), 120, "w2", None, {"duration"}
    ),
    "the one of two that became slow": (among(2, {0: LATE}), 180, "w0", None, {"duration"}),
    "more than half that became slow": (
        among(8, {i: {"slowness": slow(1.8, since=60)} for i in range(5)}), 180, "w0 w1 w2 w3 w4", None, {"duration"}
    ),
    "whatever the sizes of its partitions": (
        among(6, {4: {"slowness": slow(1.6)}}, task=sized(0.3, 3)), 180, "w4", None, {"duration"}
    ),
    "the longer ones of different tasks and slow": (
        among(4, different(**SLOW)), 150, "w2", None, {"duration"}
    ),
    "the longer ones of different tasks that wait and slow": (
        among(4, different(**SLOW), share=0.02), 150, "w2", None, {"duration"}
    ),
    "tasks that do not end": (among(6, {1: HANGING}), 400, "w1", None, {"duration"}),
    "paused all the time": (
        among(6, {1: {"paused": lambda at: 1.0 if at > 40 else 0.0}}), 120, "w1", Cause.MEMORY, {"memory"}
    ),
    "spilling more of as much": (among(6, {1: {"spilling": 0.5}}), 120, "w1", Cause.MEMORY, {"memory"}),
    "one slow worker of a host": (on_hosts(among(8, {2: {"slowness": slow(1.6)}})), 180, "w2", None, {"duration"}),
    "waits for a core": (
        among(6, {3: {**OFF_CPU, "core_wait": 0.5}}), 120, "w3", Cause.CONTENTION, {"duration", "cpu_share"}
    ),
    "waits while its process computes": (
        among(6, {3: {**OFF_CPU, "beside": 0.5, "lag": 0.03}}), 120, "w3", Cause.GIL, {"cpu_share"}
    ),
    "stopped in turns": (among(6, {3: {**OFF_CPU, "lag": 0.2}}), 120, "w3", Cause.CONTENTION, {"cpu_share"}),
    "kernels that are not slower": (among(6, {3: SLOW}, kernel=0.3), 120, "w3", Cause.SLOW_CPU, {"duration"}),
    "kernels of two workers only": (
        among(6, {0: {"kernel": 0.6, "gpu_slowness": slow(3.0)}, 1: {"kernel": 0.6}}), 120, "w0", Cause.SLOW_CPU,
        {"duration"},
    ),
    "a disk that waits for a core": (
        among(6, {3: {**OFF_CPU, "disk_seconds_per_byte": 2e-8, "core_wait": 0.5}}, **A_DISK), 120, "w3",
        Cause.CONTENTION, {"disk"},
    ),
    "a disk that waits for the gil": (
        among(6, {3: {**OFF_CPU, "disk_seconds_per_byte": 2e-7, "beside": 0.7}}, **A_DISK), 120, "w3", Cause.GIL,
        {"disk"},
    ),
    "a slow disk": (among(6, {3: {"disk_seconds_per_byte": 4e-8}}, **A_DISK), 120, "w3", Cause.DISK, {"disk"}),
    "a slow receiver": (SLOW_RECEIVER, 120, "w3", Cause.NETWORK, {"receive"}),
    "a slow sender": (SLOW_SENDER, 120, "w3", Cause.NETWORK, {"send"}),
}  # fmt: skip


@pytest.mark.parametrize("case", FOUND)
def test_a_straggler_is_found_with_its_cause(case: str) -> None:
    cluster, seconds, expected, cause, signals = FOUND[case]
    run = SimulatedCluster(cluster).run(seconds)
    assert sorted(names(run.found)) == expected.split()
    first = (run.watch.findings or run.found)[0]
    assert cause in (None, first.cause)
    shown = {evidence.signal for evidence in first.evidence}
    assert signals <= shown
    assert "gpu_kernel" not in shown or case != "kernels of two workers only"
    if cause is Cause.NETWORK:
        assert {first.evidence[0].signal} == signals


def test_a_new_worker_has_time_to_show_its_speed() -> None:
    run = SimulatedCluster(among(6, {5: {"joins_at": 100, "slowness": slow(3.0)}})).run(104)
    assert run.found == []
    assert names(run.run(60).found) == ["w5"]


def test_a_paused_worker_is_short_of_memory_with_its_effect() -> None:
    run = SimulatedCluster(among(6, {1: {"paused": lambda at: 0.6 if at > 40 else 0.0}})).run(120)
    (finding,) = run.watch.findings
    assert (names(run.found), finding.cause) == (["w1"], Cause.MEMORY)
    assert finding.effect == pytest.approx(2.5, rel=0.2)


def test_all_workers_of_a_slow_host_are_one_finding() -> None:
    slower = {"slowness": slow(1.6)}
    (finding,) = SimulatedCluster(on_hosts(among(8, {2: slower, 3: slower}))).run(180).watch.findings
    assert (finding.worker, finding.host) == ("", "host1")


@pytest.mark.parametrize("share", [0.95, 0.3])  # it waits for the GPU, with the CPU or without
@pytest.mark.parametrize("workers", [4, 8])
def test_a_slow_gpu_is_found_by_the_kernels_that_its_peers_run_too(share: float, workers: int) -> None:
    run = SimulatedCluster(among(workers, {3: {"gpu_slowness": slow(1.5, since=60)}}, kernel=0.6, share=share)).run(180)
    assert [found.cause for found in run.found] == [Cause.GPU]
    (finding,) = run.watch.findings
    assert (finding.worker, finding.cause) == ("w3", Cause.GPU)
    assert finding.effect == pytest.approx(1.3, rel=0.05)
    of_kernels = next(evidence for evidence in finding.evidence if evidence.signal == "gpu_kernel")
    assert of_kernels.value == pytest.approx(1.5, rel=0.05)
    assert of_kernels.low <= of_kernels.peers <= of_kernels.high < 1.1


# -- invariants ----------------------------------------------------------------------------------


@settings(max_examples=10, deadline=None)
@given(slowest=st.integers(0, 4), factor=st.sampled_from([1.5, 2.0, 5.0]), scale=st.sampled_from([0.02, 0.2, 1.0]))
def test_findings_depend_neither_on_the_order_of_workers_nor_on_the_length_of_tasks(slowest, factor, scale) -> None:
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
    run = SimulatedCluster(among(5, {0: SLOW})).run(60)
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
    assert pieces.count(600) == 10  # running tasks, of a hundred workers at a time: six comparisons a worker
