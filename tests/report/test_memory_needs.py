from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from dask_efficiency import EfficiencyReport
from dask_efficiency.accounts.cluster.scheduler_loop import RECEIVING, SENDING, LoopPart, SchedulerLoop
from dask_efficiency.accounts.memory import Why
from dask_efficiency.accounts.metered import (
    ACTORS,
    BYTES,
    BYTES_AN_HOUR,
    GROWTH,
    LIMIT,
    MANAGED,
    MEMORY,
    ON_DISK,
    OVERCOUNTED,
    PROCESS,
    UNSPILLED,
)
from dask_efficiency.report.findings import find, leading
from dask_efficiency.report.memory import MemoryOfWorker, memory_by_worker
from dask_efficiency.report.memory_needs import NOTHING_MEASURED, ideal_limit, needed_limit, needs_of
from dask_efficiency.report.turnover import LostWorker
from dask_efficiency.report.values import HeldFor, MeteredRow
from dask_efficiency.show.finding import Basis, Finding
from tests.report.samples import causes, report_of, seconds, skew

GIB = 2**30
#: A worker of 4 GiB with Dask's thresholds, whose results took 3.0 GiB, of which 0.7 were on disk, and its process 2.6.
SHORT = {
    LIMIT: 4 * GIB,
    PROCESS: round(2.6 * GIB),
    "target": round(2.4 * GIB),
    "spill": round(2.8 * GIB),
    "pause": round(3.2 * GIB),
    MANAGED: 3 * GIB,
    UNSPILLED: round(3.3 * GIB),
}
#: Kept for a second use, each for 5.1 s; run ahead; only by a client; for running tasks.
SECOND = HeldFor("random_sample", Why.BLOCKED, "sub", "mean_agg-aggregate", 9.0 * GIB, 510.0, 3 * GIB)
AHEAD = HeldFor("read_parquet", Why.AHEAD, "sum_chunk", "", 9.0 * GIB, 9.0, round(6.2 * GIB))
HELD = HeldFor("load", Why.FUTURE, "Client-7d24439e-e94a-11f1", "", 2.0 * GIB, 1.0, 3 * GIB)
RUNNING = HeldFor("mean_chunk", Why.RUNNING, "mean_agg-aggregate", "", 1.0 * GIB, 0.1, GIB)
COUNTED = {"random_sample": skew(count=100), "mean_agg-aggregate": skew(count=1), "rechunk-split": skew(count=900)}


def rows(worker: str, levels: Mapping[str, int]) -> tuple[MeteredRow, ...]:
    return tuple(MeteredRow(worker, MEMORY, "", "", label, BYTES, float(nbytes)) for label, nbytes in levels.items())


def memory(**levels: int) -> MemoryOfWorker:
    return memory_by_worker(rows("w1", SHORT | levels))["w1"]


def spilling(levels: Mapping[str, int] = SHORT, **fields: Any) -> EfficiencyReport:
    """A run of 10 s with two threads, which spilled for half of it."""
    given: dict[str, Any] = {
        "window_seconds": 10.0,
        "cluster_seconds": 10.0,
        "nthreads": {"w1": 2},
        "by_worker": {"w1": seconds(thread_cpu=10, spill=10)},
        "metered": rows("w1", levels),
    }
    return report_of(**(given | fields))


def first(report: EfficiencyReport) -> Finding:
    return find(report)[0]


def advice(report: EfficiencyReport) -> str:
    return first(report).advice


def test_the_limit_that_is_needed_follows_from_the_results_and_from_the_process() -> None:
    assert needed_limit(memory()) == pytest.approx(3 * GIB / 0.6)
    assert needed_limit(memory(unspilled=7 * GIB)) == pytest.approx(7 * GIB / 0.7)
    assert needed_limit(memory(target=0, spill=0)) == pytest.approx(3.3 * GIB / 0.8)
    assert needed_limit(memory(target=0, spill=0, pause=0)) == 0
    # Hardly a result is there to be spilled: it pauses above 0.8.
    assert needed_limit(memory(managed=1000)) == pytest.approx(3.3 * GIB / 0.8)
    assert needed_limit(NOTHING_MEASURED) == 0


@pytest.mark.parametrize("mebibytes", [0.5, 3, 97, 99, 100, 512, 950, 1000, 1023, 5000, 99_999])
def test_what_would_do_is_a_little_more_than_that_and_four_fifths_of_it_less(mebibytes: float) -> None:
    nbytes = round(mebibytes * 2**20)
    found = ideal_limit(memory(managed=round(0.6 * nbytes), unspilled=0, process=0))
    assert 1.1 * nbytes <= found * 1.0001
    assert 0.8 * found < nbytes
    assert ideal_limit(NOTHING_MEASURED) == 0


def test_too_little_memory_has_its_size_and_the_seconds_of_spilling() -> None:
    found = first(spilling())
    assert found.kind == "spill"
    assert found.where == "1.5 GiB too little: 5.5 GiB a worker would do, it has 4.0 GiB"
    assert found.advice == "Give workers 5.5 GiB each, make partitions smaller, or persist less: they have 4.0 GiB."
    assert found.evidence["memory_limit"] == 4 * GIB
    assert found.evidence["memory_needed"] == pytest.approx(5.5 * GIB)
    assert found.basis is Basis.BOUNDED


def test_a_frame_has_the_ideal_limit_of_each_worker() -> None:
    pytest.importorskip("pandas")
    frame = spilling(metered=(*rows("w1", SHORT), *rows("w2", {PROCESS: GIB}))).to_frame("memory")
    assert frame.loc["w1"].tolist() == [4 * GIB, SHORT[PROCESS], 3 * GIB, ideal_limit(memory())]
    assert frame.loc["w2"].isna().tolist() == [True, False, True, True]


def test_the_worker_that_was_shortest_of_memory_counts() -> None:
    other = SHORT | {LIMIT: 16 * GIB, "target": round(9.6 * GIB), MANAGED: 4 * GIB}
    needs = needs_of(spilling(metered=(*rows("w2", other), *rows("w1", SHORT))))
    assert (needs.limit, needs.peak) == (4 * GIB, SHORT[PROCESS])


def test_one_worker_that_needs_far_more_than_the_median_is_named() -> None:
    others = SHORT | {MANAGED: GIB, UNSPILLED: GIB}
    metered = (*rows("w1", SHORT), *rows("w2", others), *rows("w3", others))
    assert first(spilling(metered=metered)).where == "1.5 GiB too little on worker w1: 5.5 GiB would do, it has 4.0 GiB"


def test_there_is_too_little_only_below_what_was_needed_without_its_margin() -> None:
    within = SHORT | {MANAGED: round(2.35 * GIB), UNSPILLED: GIB}
    needs = needs_of(spilling(within))
    assert needs.enough > needs.limit > needs.needed
    assert not needs.too_little
    assert "too little" not in first(spilling(within)).where


def test_what_a_killed_worker_would_have_needed_is_not_known() -> None:
    killed = LostWorker("w2", "killed by its nanny: 4.0 GiB of 4.0 GiB", False, 1)
    found = next(one for one in find(spilling(lost_workers=(killed,))) if one.kind == "spill")
    assert "too little" not in found.where
    assert found.advice.startswith("Give workers more memory")


def test_without_measures_the_advice_claims_nothing() -> None:
    found = first(spilling({}))
    assert "too little" not in found.where
    assert found.advice == "Give workers more memory, make partitions smaller, or persist less."
    assert "memory_needed" not in found.evidence


def test_an_array_kept_for_a_second_use_is_not_cured_by_smaller_partitions() -> None:
    assert advice(spilling(held_for=(SECOND, RUNNING), skew=COUNTED)) == (
        "Give workers 5.5 GiB each, or compute mean_agg-aggregate before: random_sample was kept 5.1 s for sub, "
        "which waited."
    )
    # Results that wait for others of their kind, or for as many: no reduction to compute before.
    for waits_for in ("random_sample", "rechunk-split", ""):
        found = replace(SECOND, waits_for=waits_for)
        assert "before" not in advice(spilling(held_for=(found, RUNNING), skew=COUNTED))
    # Most bytes are kept for another reason.
    many = replace(RUNNING, byte_seconds=10.0 * GIB)
    assert "before" not in advice(spilling(held_for=(SECOND, many), skew=COUNTED))


def test_no_result_is_kept_for_longer_than_the_window() -> None:
    older = replace(SECOND, result_seconds=5000.0)
    assert "was kept 10.0 s" in advice(spilling(held_for=(older, RUNNING), skew=COUNTED))


def test_a_second_use_explains_results_of_roots_that_are_ahead_until_its_reduction_is_under_way() -> None:
    ahead = replace(SECOND, why=Why.AHEAD, byte_seconds=15.0 * GIB)
    assert "compute mean_agg-aggregate before" in advice(spilling(held_for=(ahead, SECOND), skew=COUNTED))
    most = replace(ahead, byte_seconds=30.0 * GIB)
    assert "ran ahead" in advice(spilling(held_for=(most, SECOND), skew=COUNTED))


def test_the_size_is_shown_though_other_losses_are_larger() -> None:
    many = {"w1": seconds(thread_cpu=1, thread_noncpu=9, overhead=5, idle=4, spill=1)}
    assert leading(spilling(by_worker=many))[-1].kind == "spill"
    enough = SHORT | {MANAGED: GIB, UNSPILLED: GIB}
    assert leading(spilling(enough, by_worker=many))[-1].kind != "spill"


def test_root_tasks_that_ran_ahead_are_held_back_where_the_scheduler_did_not() -> None:
    assert advice(spilling(held_for=(AHEAD, RUNNING), worker_saturation=float("inf"))) == (
        "Set distributed.scheduler.worker-saturation to 1.1, from inf: 6.2 GiB of read_parquet ran ahead."
    )
    anyway = advice(spilling(held_for=(AHEAD, RUNNING), worker_saturation=1.1))
    assert anyway.startswith("Give workers 5.5 GiB each, or read in the tasks that use it: 6.2 GiB of read_parquet")


def test_memory_of_running_tasks_is_that_of_their_threads() -> None:
    hungry = SHORT | {MANAGED: 1000, PROCESS: 3 * GIB, UNSPILLED: round(3.3 * GIB)}
    found = advice(spilling(hungry, skew={"fit": replace(skew(count=9), p95_working=1.4 * GIB)}))
    assert found.startswith("Give workers 4.6 GiB each, or fewer threads: 2 tasks of fit at a time take 1.4 GiB each.")
    assert "threads" not in advice(spilling(hungry, skew={"fit": replace(skew(count=9), p95_working=0.1 * GIB)}))


def test_a_process_above_its_limit_is_told_though_it_cost_no_time() -> None:
    hungry = SHORT | {MANAGED: 1000, PROCESS: 5 * GIB, UNSPILLED: 5 * GIB}
    skews = {"fit": replace(skew(count=9), p95_working=2.2 * GIB)}
    slept = {"by_worker": {"w1": seconds(thread_cpu=10, thread_noncpu=10)}, "skew": skews}
    last = leading(spilling(hungry, **slept))[-1]
    assert (last.kind, last.where) == ("over-limit", "2.9 GiB too little: 6.9 GiB a worker would do, it has 4.0 GiB")
    assert last.advice == "Give workers 6.9 GiB each, or fewer threads: 2 tasks of fit at a time take 2.2 GiB each."
    assert last.evidence["memory_needed"] == pytest.approx(6.9 * GIB)
    # Within its limit, or where spilling has the size.
    for report in (spilling(hungry | {PROCESS: 4 * GIB}, **slept), spilling(hungry)):
        assert "over-limit" not in {one.kind for one in find(report)}


def test_results_that_were_spilled_at_no_cost_are_told_with_who_holds_them() -> None:
    slept = {"by_worker": {"w1": seconds(thread_cpu=10, thread_noncpu=10)}, "held_for": (HELD,)}
    last = leading(spilling(SHORT | {ON_DISK: GIB}, **slept))[-1]
    assert (last.kind, last.where) == ("over-limit", "1.5 GiB too little: 5.5 GiB a worker would do, it has 4.0 GiB")
    assert last.advice.startswith("Release what is not used again: Client-7d24439e holds 3.0 GiB of load")
    assert "over-limit" not in {one.kind for one in find(spilling(SHORT | {ON_DISK: GIB // 5}, **slept))}


def test_event_loops_that_are_late_as_workers_spill_have_the_size() -> None:
    late = {"w1": causes(**{"overhead/event-loop": 9.0})}
    many = {"w1": seconds(thread_cpu=9, overhead=9, spill=2)}
    found = {one.kind: one for one in find(spilling(by_worker=many, causes_by_worker=late))}
    assert found["overhead/event-loop"].where == "1.5 GiB too little: 5.5 GiB a worker would do, it has 4.0 GiB"
    assert found["overhead/event-loop"].advice == "Give workers 5.5 GiB each: event loops are late, as workers spill."


def test_futures_that_a_client_holds_have_its_line() -> None:
    line = "`x.persist()` in etl.py:42"
    # At the peak of memory, or over time.
    for others in (replace(RUNNING, byte_seconds=9.0 * GIB), replace(RUNNING, at_peak=9 * GIB)):
        assert advice(spilling(held_for=(others, HELD), computed_by={"load": line})) == (
            "Release what is not used again: Client-7d24439e holds 3.0 GiB of load, sent by `x.persist()` in "
            "etl.py:42, that no task waits for."
        )
    many = replace(RUNNING, byte_seconds=9.0 * GIB, at_peak=9 * GIB)
    assert "Release" not in advice(spilling(held_for=(many, HELD)))
    assert "Release" not in advice(spilling(held_for=(replace(HELD, at_peak=360),))), "too little to matter"


def test_paused_workers_have_the_size_too() -> None:
    found = first(spilling(by_worker={"w1": seconds(thread_cpu=10, paused=10)}))
    assert found.kind == "paused"
    assert found.where.startswith("1.5 GiB or more too little")
    assert found.advice.startswith("Give workers 5.5 GiB each")


def leaking(growth: float, left: float, **fields: Any) -> EfficiencyReport:
    """A worker of 4 GiB that grows by so many bytes in an hour, of which tasks of ``parse`` left some."""
    grown = MeteredRow("w1", MEMORY, "", "", GROWTH, BYTES_AN_HOUR, growth)
    given: dict[str, Any] = {
        "window_seconds": 3600.0,
        "cluster_seconds": 3600.0,
        "by_worker": {"w1": seconds(thread_cpu=3600)},
        "metered": (grown, *rows("w1", {LIMIT: 4 * GIB}), *rows("w2", {LIMIT: 4 * GIB})),
        "skew": {"parse": skew(left_bytes=left), "load": skew(left_bytes=1.0)},
    }
    return report_of(**(given | fields))


def test_memory_that_grows_and_that_tasks_leave_behind_is_a_leak() -> None:
    found = next(one for one in find(leaking(GIB, 0.8 * GIB)) if one.kind == "leak")
    assert found.where == "worker w1 by 1.0 GiB, most of it left by tasks of parse"
    assert found.saves_seconds is None
    slept = leaking(GIB, 0.8 * GIB, by_worker={"w1": seconds(thread_cpu=1800, thread_noncpu=1800)})
    assert [one.kind for one in leading(slept)][-1] == "leak", "it is shown beside what costs time"
    # Growth that no task explains, or little of it, is no leak.
    other = MeteredRow("w2", MEMORY, "", "", GROWTH, BYTES_AN_HOUR, 0.9 * GIB)
    grown = replace(other, worker="w1", value=1.0 * GIB)
    levels = (*rows("w1", {LIMIT: 4 * GIB}), *rows("w2", {LIMIT: 4 * GIB}))
    assert needs_of(leaking(GIB, 0.8 * GIB)).grown
    of_others = needs_of(leaking(GIB, 0.8 * GIB, metered=(grown, other, *levels)))
    assert not of_others.grown, "most of all growth has other causes"
    for report in (leaking(GIB, 0.2 * GIB), leaking(0.01 * GIB, 0.01 * GIB), leaking(-GIB, 1.0)):
        assert "leak" not in {one.kind for one in find(report)}
    spilled = leaking(GIB, GIB, by_worker={"w1": seconds(thread_cpu=1000, spill=1000)})
    assert advice(spilled) == (
        "Find what keeps memory in tasks of parse, which left it behind: more memory only delays this."
    )


def test_what_tasks_carry_stays_with_their_results_and_is_no_leak() -> None:
    def carrying(nbytes: int, what: str = "tasks", prefix: str = "parse", count: int = 8) -> EfficiencyReport:
        of = {"of_prefix": prefix, "total_bytes": count * nbytes, "median_bytes": nbytes}
        tasks = LoopPart(SENDING if what == "tasks" else RECEIVING, what, "", "", 0, 0.1, count, **of)
        loop = SchedulerLoop(10.0, 8.0, 0.0, 0.8, 0.0, 8.0, 0.0, handlers=(tasks,))
        return leaking(GIB, 0.8 * GIB, scheduler_loop=loop, skew={"parse": skew(left_bytes=0.8 * GIB, count=100)})

    assert not needs_of(carrying(GIB // 100)).grown
    assert needs_of(carrying(GIB // 200)).grown, "they left more than that"
    # Graphs of many tasks do not say whose bytes these were.
    assert not needs_of(carrying(GIB, "graphs", "", 1)).grown
    assert needs_of(carrying(GIB // 2, "graphs", "", 1)).grown


def test_without_a_limit_a_leak_is_measured_by_the_peak() -> None:
    grown = MeteredRow("w1", MEMORY, "", "", GROWTH, BYTES_AN_HOUR, GIB)
    for peak, told in ((8 * GIB, True), (30 * GIB, False), (0, False)):
        report = leaking(GIB, GIB, metered=(grown, *rows("w1", {PROCESS: peak})))
        assert ("leak" in {one.kind for one in find(report)}) is told


def test_memory_that_grows_as_actors_keep_it_is_theirs() -> None:
    state = tuple(MeteredRow(worker, MEMORY, "", "Band", ACTORS, BYTES, 0.4 * GIB) for worker in ("w1", "w2"))
    plain = leaking(GIB, 0.2 * GIB)
    found = next(one for one in find(replace_rows(plain, *state)) if one.kind == "leak")
    assert found.where == "worker w1 by 1.0 GiB, most of it left by actors of Band"
    assert "leak" not in {one.kind for one in find(replace_rows(plain, state[0]))}


def replace_rows(report: EfficiencyReport, *more: MeteredRow) -> EfficiencyReport:
    return leaking(GIB, 0.2 * GIB, metered=(*report.metered, *more))


def test_results_that_count_more_than_the_process_has_share_memory() -> None:
    assert advice(spilling(SHORT | {OVERCOUNTED: GIB})) == (
        "Turn off distributed.worker.memory.target: results share memory, and count 1.0 GiB more than there is."
    )


def test_memory_to_spare_is_said_of_long_blocks_with_the_price() -> None:
    spare = {name: 4 * nbytes for name, nbytes in SHORT.items()}
    spare |= {PROCESS: round(1.1 * GIB), MANAGED: GIB, UNSPILLED: round(1.1 * GIB)}
    plain = {"by_worker": {"w1": seconds(thread_cpu=120)}, "window_seconds": 60.0, "cluster_seconds": 60.0}
    found = [one for one in find(spilling(spare, **plain)) if one.kind == "spare-memory"]
    assert [one.where for one in found] == ["at most 1.1 GiB of 16.0 GiB a worker was used: 1.9 GiB would do"]
    priced = find(spilling(spare, **plain, price_per_worker_hour=36.0))[-1]
    assert priced.where.endswith("1.9 GiB would do; these workers cost 0.600")
    unseen = find(spilling(spare | {PROCESS: 3 * GIB}, **plain))[-1]
    assert unseen.where == "at most 3.0 GiB of 16.0 GiB a worker was used: 3.3 GiB would do", "Dask never saw that peak"
    two = spilling(metered=(*rows("w1", spare), *rows("w2", spare | {PROCESS: 3 * GIB, MANAGED: 1000})), **plain)
    assert find(two)[-1].where == unseen.where, "of the worker that used most"
    short = plain | {"window_seconds": 59.0, "cluster_seconds": 59.0}
    lost = spilling(spare, **plain, lost_workers=(LostWorker("w2", "it left", False, 1),))
    unmeasured = spilling(spare | {PROCESS: 0}, **plain)
    many = spilling(spare | {MANAGED: 3 * GIB}, **plain)
    nearly_full = spilling(spare | {PROCESS: 15 * GIB}, **plain)
    for report in (spilling(spare, **short), many, lost, unmeasured, nearly_full):
        assert "spare-memory" not in {one.kind for one in find(report)}
