"""Which workers of a run that is over are blamed, why, and which are not: the cases of the design, by hand."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_efficiency import RunTrace
from dask_efficiency.accounts.slow_worker import Cause, SlowWorker
from dask_efficiency.runs.replay.changes import Changes
from dask_efficiency.runs.replay.replay import replay
from dask_efficiency.runs.stragglers import offline
from dask_efficiency.runs.stragglers.offline import find_stragglers, judge, seconds_lost, usual
from dask_efficiency.runs.trace.schema import Series
from tests.runs.stragglers.tables_of_tasks import slowed, tasks
from tests.simulated_traces import MS, Graph, simulate, transfer_bound


def on_hosts(frame: pd.DataFrame) -> pd.DataFrame:
    """Three workers on each host."""
    return frame.assign(host="node-" + (frame.worker.str[1:].astype(int) // 3).astype(str))


def names(findings: list[SlowWorker]) -> list[str]:
    return [one.worker for one in findings]


def test_a_worker_that_is_half_as_fast_is_found_with_its_effect_and_cause() -> None:
    [found] = find_stragglers(slowed(tasks(), "w03", 2.0))
    assert found.worker == "w03"
    assert found.seconds_lost is None, "a table does not have it"
    assert found.effect == pytest.approx(2.0, rel=0.1)
    assert found.score > 1.0
    assert found.confidence > 0.6
    assert found.evidence[0].signal == "duration"
    assert found.evidence[0].value == pytest.approx(2.0, rel=0.1)
    assert found.evidence[0].low <= found.evidence[0].peers <= found.evidence[0].high < 1.2
    # The cause follows from the CPU time of its tasks.
    assert found.cause is Cause.SLOW_CPU
    waiting, unknown = slowed(tasks(), "w03", 2.0, cpu_too=False), slowed(tasks(), "w03", 2.0)
    causes = [find_stragglers(run)[0].cause for run in (waiting, unknown.drop(columns="cpu_seconds"))]
    assert causes == [Cause.CONTENTION, Cause.UNKNOWN]


@pytest.mark.parametrize("workers", [3, 4, 8, 64])
def test_one_straggler_is_found_among_few_and_many(workers: int) -> None:
    assert names(find_stragglers(slowed(tasks(workers), "w01", 1.5))) == ["w01"]


def test_no_worker_of_a_healthy_run_is_blamed() -> None:
    for seed in range(20):
        assert find_stragglers(tasks(seed=seed)) == []
    frame = tasks(per_worker=60)
    its = frame.worker == "w02"
    assert find_stragglers(frame[~its | (frame.index % 4 == 0)]) == [], "its work was stolen"
    frame.loc[frame.index[its][7], "stop"] += 500.0
    assert find_stragglers(frame) == [], "one task was huge"
    frame = tasks(share=0.99)
    off = np.where(frame.worker == "w02", 0.06, 0.01)
    frame["cpu_seconds"] = (frame.stop - frame.start) * (1 - off)
    assert find_stragglers(frame) == [], "it was off the CPU for longer, and took no longer"


@pytest.mark.parametrize("clearly", [7, 0])
def test_a_barely_slow_worker_is_found_only_among_clearly_slow_ones(clearly: int) -> None:
    frame = slowed(tasks(24, per_worker=16, seed=4), "w00", 1.15)
    found = names(find_stragglers(slowed(frame, [f"w{i:02}" for i in range(1, clearly + 1)], 1.5)))
    assert ("w00" in found) == bool(clearly)
    assert len(found) == (8 if clearly else 0)


def test_one_of_few_workers_is_not_blamed_but_the_ratio_of_two_is_reported() -> None:
    found = judge(slowed(tasks(2), "w01", 2.0))
    assert found.slow_workers == ()
    [note] = found.notes
    assert note.startswith("Of two workers, 'w01' takes 1.93 times as long as 'w00'")
    alone = judge(tasks(1))
    assert (alone.slow_workers, alone.notes) == ((), ("There is one worker, and nobody to compare it with.",))


def test_a_straggler_is_found_within_its_group() -> None:
    slow = [f"w{i:02}" for i in range(4)]
    frame = slowed(tasks(), slow, 1.8)
    grouped = frame.assign(group=np.where(frame.worker.isin(slow), "small", "large"))
    assert find_stragglers(grouped) == []
    assert names(find_stragglers(slowed(grouped, "w02", 1.5))) == ["w02"]


def test_a_worker_with_large_partitions_is_no_straggler() -> None:
    frame = tasks(per_worker=60)
    rng = np.random.default_rng(3)
    factor = np.where(frame.worker == "w05", 4.0, 1.0) * rng.uniform(0.5, 2.0, len(frame))
    frame["input_bytes"] = 1e8 * factor
    frame["stop"] = frame.start + (frame.stop - frame.start) * factor
    frame["cpu_seconds"] *= factor
    assert find_stragglers(frame) == []
    assert names(find_stragglers(frame.drop(columns="input_bytes"))) == ["w05"]


def test_a_worker_is_neither_blamed_nor_excused_for_inputs_that_hardly_differ_within_workers() -> None:
    for seed in range(4):
        frame, random = tasks(seed=seed), np.random.default_rng(1000 + seed)
        size = 1e8 * np.exp(1e-3 * random.standard_normal(len(frame)))
        its = frame.worker == "w03"
        assert find_stragglers(frame.assign(input_bytes=size * np.where(its, 0.75, 1.0))) == []
        slow = slowed(frame.assign(input_bytes=size * np.where(its, 1.6, 1.0)), "w03", 1.5)
        assert names(find_stragglers(slow)) == ["w03"]


def test_a_slow_worker_with_four_tasks_is_judged_and_one_with_fewer_is_named() -> None:
    frame = tasks(per_worker=6, prefixes=("fit",))
    frame = frame.drop(frame[frame.worker == "w03"].index[4:])
    assert names(find_stragglers(slowed(frame, "w03", 1.6))) == ["w03"]
    newcomer = slowed(tasks(["new"], per_worker=2, prefixes=("load",)), "new", 5.0)
    found = judge(pd.concat([tasks(), newcomer], ignore_index=True))
    assert found.slow_workers == ()
    assert found.insufficient == ("new",)


def test_a_task_that_runs_on_counts_once_it_takes_longer_than_is_usual() -> None:
    frame = tasks(per_worker=12)
    late = frame.stop.max() + 200.0
    rows = [
        {"worker": "w04", "prefix": prefix, "start": late - 150.0, "stop": math.nan, "cpu_seconds": math.nan}
        for prefix in ["load"] * 8
    ]
    just_begun = [row | {"worker": "w05", "start": late - 0.1} for row in rows]
    ended = {"worker": "w00", "prefix": "load", "start": late - 2.0, "stop": late, "cpu_seconds": 1.8}
    assert names(find_stragglers(pd.concat([frame, pd.DataFrame([*rows, *just_begun, ended])]))) == ["w04"]


def test_a_slow_host_is_one_finding_and_a_slow_worker_of_a_host_is_blamed_itself() -> None:
    frame = on_hosts(tasks(12))
    found = find_stragglers(slowed(frame, ["w03", "w04", "w05"], 1.6).pipe(slowed, "w07", 2.5))
    effects = {(one.worker, one.host): one.effect for one in found}
    assert effects == {("", "node-1"): pytest.approx(1.6, rel=0.1), ("w07", "node-2"): pytest.approx(2.5, rel=0.1)}
    [alone] = find_stragglers(slowed(frame, "w03", 1.6))
    assert (alone.worker, alone.host) == ("w03", "node-1")


def test_history_names_a_slow_majority_and_without_it_no_healthy_worker_is_blamed() -> None:
    slow = [f"w{i:02}" for i in range(5)]
    before = [tasks(seed=seed) for seed in range(5)]
    found = find_stragglers(slowed(tasks(seed=9), slow, 1.6), history=before)
    assert sorted(names(found)) == slow
    assert set(names(find_stragglers(slowed(tasks(), slow, 1.6)))) <= set(slow)


def test_without_history_the_faster_are_the_measure_if_they_are_more_than_two() -> None:
    slow = [f"w{i:02}" for i in range(8)]
    assert sorted(names(find_stragglers(slowed(tasks(12), slow, 1.6)))) == slow
    assert find_stragglers(slowed(tasks(12), ["w00", "w01"], 0.6)) == []


def test_history_shows_how_far_healthy_workers_come() -> None:
    odd = [slowed(tasks(seed=seed), f"w0{seed % 8}", 1.0 + 0.3 * (seed % 2)) for seed in range(8)]
    even = [tasks(seed=seed) for seed in range(8)]
    run = slowed(tasks(seed=9), "w03", 1.35)
    assert find_stragglers(run, history=odd) == []
    assert names(find_stragglers(run, history=usual(even))) == [
        "w03"
    ]  # figures that are computed once for several runs


def test_since_is_the_time_at_which_a_worker_became_slow() -> None:
    frame = tasks(per_worker=100)
    half = float(frame.stop.max()) / 2
    late = (frame.worker == "w06") & (frame.start > half)
    frame.loc[late, "stop"] = frame.start + (frame.stop - frame.start) * 2.5
    [found] = find_stragglers(frame)
    assert found.since == pytest.approx(half, rel=0.1)


@pytest.mark.parametrize(("column", "cause"), [("disk_seconds", Cause.DISK), ("transfer_seconds", Cause.NETWORK)])
def test_slow_disks_and_networks_are_distinguished_from_slow_tasks(column: str, cause: Cause) -> None:
    frame = tasks()
    rng = np.random.default_rng(1)
    frame[column] = 0.5 * np.exp(0.1 * rng.standard_normal(len(frame))) * np.where(frame.worker == "w07", 3.0, 1.0)
    [found] = find_stragglers(frame)
    assert (found.worker, found.cause) == ("w07", cause)
    assert found.effect == pytest.approx(3.0, rel=0.1)


@pytest.mark.parametrize(("nthreads", "cause"), [(1, Cause.UNKNOWN), (2, Cause.GIL)])
def test_threads_of_a_worker_that_has_one_do_not_wait_for_each_other(monkeypatch, nthreads, cause):
    trace = simulate(farm(), workers=4, nthreads=nthreads)
    slow = SlowWorker(trace.workers[1].name, "", Cause.GIL, 2.0, 0.9, 0.0, 1.5)
    monkeypatch.setattr(offline, "judge_run", lambda *_: offline.Judgement((slow,), 4))
    [found] = judge(trace).slow_workers
    assert found.cause is cause


def test_a_larger_factor_makes_fewer_findings() -> None:
    frame = slowed(slowed(tasks(), "w01", 1.25), "w02", 2.5)
    assert names(find_stragglers(frame, factor=0.7)) == ["w02", "w01"]
    assert names(find_stragglers(frame, factor=4.0)) == ["w02"]
    for factor in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="factor is .*; expected a number above 0"):
            find_stragglers(frame, factor=factor)


def farm() -> Graph:
    rng = np.random.default_rng(1)
    count = 160
    times = (40 * MS * np.exp(0.1 * rng.standard_normal(count))).astype(int).tolist()
    return Graph(["work"] * count, [()] * count, times, [1000] * count, range(count))


def test_the_slow_worker_of_a_recorded_run_is_found_with_the_time_that_its_repair_saves() -> None:
    assert find_stragglers(simulate(farm(), seed=3, workers=4)) == []
    trace = simulate(farm(), seed=3, workers=4, slow={2: 2.5})
    [found] = find_stragglers(trace)
    assert found.worker == trace.workers[2].name
    assert found.effect == pytest.approx(2.5, rel=0.15)
    repaired = replay(trace, Changes(repaired=frozenset([found.worker])))
    saved = (trace.runs.reported.max() - repaired.runs.reported.max()) / 1e9
    assert found.seconds_lost == pytest.approx(saved, rel=0.05)
    assert 0 < seconds_lost(trace, found) < (trace.stop - trace.start) / 1e9


@settings(max_examples=25)
@given(
    seed=st.integers(0, 1000),
    times=st.sampled_from([1.0, 1.4, 3.0]),
    scale=st.sampled_from([1 / 64, 1.0, 8.0]),
    order=st.permutations(range(6)),
)
def test_the_unit_of_time_the_order_of_rows_and_the_names_of_workers_do_not_matter(seed, times, scale, order):
    frame = slowed(tasks(6, per_worker=20, seed=seed), "w03", times)
    renamed = {f"w{i:02}": f"v{place:02}" for i, place in enumerate(order)}
    scaled = {name: frame[name] * scale for name in ("start", "stop", "cpu_seconds")}
    other = frame.assign(worker=frame.worker.map(renamed), **scaled).sample(frac=1.0, random_state=seed)
    found = [{one.worker: (one.score, one.effect) for one in find_stragglers(run)} for run in (frame, other)]
    assert {renamed[name] for name in found[0]} == set(found[1])
    for name, figures in found[0].items():
        assert found[1][renamed[name]] == pytest.approx(figures)


@settings(max_examples=15)
@given(seed=st.integers(0, 1000), more=st.integers(1, 20))
def test_more_healthy_workers_do_not_hide_a_straggler_nor_make_one(seed: int, more: int) -> None:
    frame = slowed(tasks(6, seed=seed), "w03", 1.8)
    healthy = tasks([f"x{i:02}" for i in range(more)], seed=seed + 1)
    assert names(find_stragglers(pd.concat([frame, healthy], ignore_index=True))) == ["w03"]


@pytest.mark.parametrize(("end", "signal"), [("sender", "send"), ("receiver", "receive")])
def test_a_slow_sender_is_distinguished_from_a_slow_receiver(end: str, signal: str) -> None:
    trace = transfer_bound(64, seed=1, workers=5)
    moved = trace.transfers
    slow = getattr(moved, end) == 3
    longer = np.where(slow, moved.start + 6 * (moved.stop - moved.start), moved.stop)
    found = find_stragglers(replace(trace, transfers=replace(moved, stop=longer)))
    [one] = [one for one in found if one.worker == trace.workers[3].name]
    assert (one.cause, one.evidence[0].signal, one.seconds_lost) == (Cause.NETWORK, signal, None)


def heartbeats(trace: RunTrace, **of_worker_1: float) -> RunTrace:
    """The trace with 30 heartbeats of each worker, all alike but for some columns of worker 1."""
    workers, beats = len(trace.workers), 30
    columns = {name: np.zeros(workers * beats, dtype) for name, dtype in Series.dtypes().items()}
    columns["worker"] = np.tile(np.arange(workers), beats).astype(np.int32)
    columns["at"] = trace.start + np.repeat(np.arange(beats), workers) * MS
    columns["thread_cpu"][:] = 1.0
    columns["loop_interval"][:] = 0.02
    for name, value in of_worker_1.items():
        columns[name][columns["worker"] == 1] = value
    return replace(trace, series=Series(**columns))


def test_a_worker_that_pauses_lacks_memory_and_one_with_a_lagging_event_loop_is_not_blamed() -> None:
    trace = simulate(farm(), seed=3, workers=4)
    [found] = find_stragglers(heartbeats(trace, paused=0.5))
    assert (found.worker, found.cause) == ("w1", Cause.MEMORY)
    assert found.effect == pytest.approx(1.5, rel=0.02)
    assert find_stragglers(heartbeats(trace, loop_interval=0.5)) == []
