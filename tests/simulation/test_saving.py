from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency import EfficiencyReport, RunTrace
from dask_efficiency.accounts.buckets import CAUSES, UNKNOWN, Bucket
from dask_efficiency.accounts.lines import EVENT_LOOP, Frame
from dask_efficiency.accounts.slow_worker import Cause, SlowWorker
from dask_efficiency.report.values import LongHold
from dask_efficiency.report.wall_clock import kept_in_bounds
from dask_efficiency.runs.path.parts import PathSummary
from dask_efficiency.runs.stragglers.long_tail import LongTask
from dask_efficiency.runs.trace.errors import EmptyTraceError
from dask_efficiency.runs.trace.schema import Runs
from dask_efficiency.show.finding import Basis
from dask_efficiency.simulation.model.ensemble import Ensemble, SeededJob, SimulationJob
from dask_efficiency.simulation.saving import ELSEWHERE, SECONDS, savings
from tests.report.samples import causes, report_of, seconds, skew
from tests.runs.replay.test_replay import NO_DELAYS
from tests.simulated_traces import MS, Graph, simulate

SECOND_NS = 1000 * MS


def test_each_cause_of_waiting_is_known_to_need_cores_or_not() -> None:
    of_this_process = {"gil", "core", "throttled", "stopped", "lock", "cluster", UNKNOWN}
    assert of_this_process.isdisjoint(ELSEWHERE)
    assert of_this_process.union(ELSEWHERE) == set(CAUSES[Bucket.THREAD_NONCPU])


def four_tasks(**settings: Any) -> RunTrace:
    """Four tasks of a second on two slots: two seconds."""
    graph = Graph(["clean"] * 4, [[]] * 4, [SECOND_NS] * 4, [1] * 4, set(range(4)))
    return simulate(graph, **({"workers": 1, "nthreads": 2, "saturation": 2.0} | NO_DELAYS | settings))


TRACE = four_tasks()

TOOK: dict[str, Any] = {"cluster_seconds": 2.0, "window_seconds": 2.0, "trace": TRACE}


def waiting(cause: str, waited: float = 3.0, **fields: Any) -> EfficiencyReport:
    """Make a report of :func:`four_tasks`, whose tasks waited for some of the four seconds."""
    whole, row = seconds(thread_cpu=4 - waited, thread_noncpu=waited), causes(**{f"thread-noncpu/{cause}": waited})
    by: dict[str, Any] = {
        "by_prefix": {"clean": whole},
        "causes_by_worker": {"w0": row},
        "causes_by_prefix": {"clean": row},
    }
    return report_of(whole, **(TOOK | by | fields))


def saved(report: EfficiencyReport, engine: Any, kind: str = "all") -> float | None:
    found = savings(report, engine).get(kind)
    return None if found is None else found.seconds


class Engine:
    """Simulates nothing: every run takes as long as it is given, with the run's own cluster or another."""

    def __init__(self, own: float, cured: float, alone: float | None = None) -> None:
        self._own, self._cured, self._alone = own, cured, cured if alone is None else alone
        self.cured: list[SimulationJob] = []

    def __call__(self, trace: Any, jobs: Sequence[SeededJob], **options: Any) -> Iterator[Ensemble]:
        assert options.pop("processes") == 2
        assert 0 < options.pop("seconds") <= SECONDS
        options.pop("report")(sum(len(seeded.seeds) for seeded in jobs))
        assert not options
        own, *others = jobs
        assert [worker.nthreads for worker in own.job.cluster.workers] == [2]
        assert not own.job.without
        assert not own.job.cluster.config
        self.cured += [seeded.job for seeded in others]
        for seeded in jobs:
            cured = self._alone if seeded.job.calls_alone else self._cured
            yield Ensemble(dict.fromkeys(seeded.seeds, self._own if seeded is own else cured))


LOSSES = ("spill", "waiting_on_data")
SPILLING, WAITS_FOR_DATA = (report_of(seconds(thread_cpu=2, **{lost: 2}), **TOOK) for lost in LOSSES)


@pytest.mark.parametrize(
    ("report", "nthreads", "without"),
    [
        (waiting("gil"), [1, 1], set()),
        (waiting("sleep"), [4], set()),
        (waiting("network"), [4], set()),
        (SPILLING, [2], {"spill"}),
        (WAITS_FOR_DATA, [2], {"transfer"}),
    ],
    ids=["gil", "sleep", "network", "spill", "transfers"],
)
def test_each_cure_is_the_advised_one(report: EfficiencyReport, nthreads: list[int], without: set[str]) -> None:
    engine = Engine(2.0, 1.5)
    assert savings(report, engine)
    (job,) = engine.cured
    assert [worker.nthreads for worker in job.cluster.workers] == nthreads
    assert job.without == without
    # Processes share the memory that there was.
    assert sum(worker.memory_limit for worker in job.cluster.workers) == TRACE.workers[0].memory_limit > 0


@pytest.mark.parametrize(
    ("cause", "memory"), [("gil", {"max_working": 1.0}), ("sleep", {"p95_working": 0.4})], ids=["processes", "threads"]
)
def test_no_cure_is_simulated_whose_tasks_would_not_fit_into_memory(cause: str, memory: dict[str, float]) -> None:
    limit = TRACE.workers[0].memory_limit
    sizes = {name: share * limit for name, share in memory.items()}
    assert not savings(waiting(cause, skew={"clean": skew(**sizes)}), Engine(2.0, 1.5))


def test_tasks_that_were_sampled_and_did_not_wait_for_the_gil_do_not_hold_it() -> None:
    not_sampled = waiting("sleep", not_sampled={"w0": "nobody looked"})
    for report, known in ((waiting("sleep"), {"clean": 0.0}), (waiting("gil"), {}), (not_sampled, {})):
        savings(report, engine := Engine(2.0, 1.5))
        assert [dict(job.gil) for job in engine.cured] == [known]


def with_results(nbytes: list[int], cpu: list[float]) -> RunTrace:
    """:func:`four_tasks` three times over, with results of so many bytes, by tasks of so much CPU time."""
    count = len(nbytes)
    graph = Graph(["clean"] * count, [[]] * count, [SECOND_NS] * count, nbytes, set(range(count)))
    trace = simulate(graph, **({"workers": 1, "nthreads": 2, "saturation": 2.0} | NO_DELAYS))
    spent = np.array([round(cpu[task] * SECOND_NS) for task in trace.runs.task.tolist()])
    return replace(trace, runs=replace(trace.runs, cpu_ns=spent))


ALIKE, OTHER_SIZES = [10**8] * 12, [10**8 + size for size in range(12)]
#: CPU time of tasks of a second each: half of them take .6 s less.
UNEVEN = [0.2] * 3 + [0.8] * 6 + [0.2] * 3


@pytest.mark.parametrize(
    ("nbytes", "cpu", "lost", "factor"),
    [
        (ALIKE, UNEVEN, 6.0, 1.0 - 3.6 / 12),
        (ALIKE, UNEVEN, 1.2, 1.0 - 2.4 / 12),  # twice what the spilling takes, at most
        (ALIKE, [0.0] * 3 + [0.2] * 3 + [0.8] * 6, 6.0, 1.0 - 3.6 / 12),  # of some it is not known
        (OTHER_SIZES, UNEVEN, 6.0, None),
        ([1000] * 12, UNEVEN, 6.0, None),
    ],
    ids=["alike", "little spilling", "unknown", "sizes", "small"],
)
def test_with_memory_tasks_of_alike_large_results_are_as_quick_as_their_quickest_quarter(
    nbytes: list[int], cpu: list[float], lost: float, factor: float | None
) -> None:
    engine = Engine(6.0, 4.0)
    whole = seconds(thread_cpu=12 - lost, spill=lost)
    report = report_of(whole, cluster_seconds=6.0, window_seconds=6.0, trace=with_results(nbytes, cpu))
    savings(report, engine)
    (job,) = engine.cured
    assert job.prefixes == ({} if factor is None else {"clean": pytest.approx(factor)})


def test_a_trace_without_prefixes_has_no_tasks_that_are_alike() -> None:
    trace = with_results(ALIKE, UNEVEN)
    nameless = replace(trace, tasks=replace(trace.tasks, prefix=np.full(12, -1, np.int32)))
    engine = Engine(6.0, 4.0)
    savings(report_of(seconds(thread_cpu=6, spill=6), cluster_seconds=6.0, window_seconds=6.0, trace=nameless), engine)
    assert [job.prefixes for job in engine.cured] == [{}]


def test_without_spilling_a_run_may_take_less_than_its_ideal_with_the_tasks_as_they_were() -> None:
    whole, trace = seconds(thread_cpu=10, spill=1, overhead=1), with_results(ALIKE, UNEVEN)
    report = report_of(whole, cluster_seconds=6.0, window_seconds=6.0, trace=trace)
    assert report.ideal_seconds == pytest.approx(5.0)
    found = replace(report, savings=savings(report, Engine(6.0, 3.0)))
    # the loss of two seconds of two threads, and as much of what the tasks computed, of which the lower end has none
    assert found.savings["spill"].seconds == found.savings["all"].seconds == pytest.approx(2.0, rel=0.01)
    assert found.savings["spill"].low < 1.0
    assert next(one for one in found.findings if one.kind == "spill").saves_seconds == pytest.approx(2.0, rel=0.01)


def test_more_threads_than_were_simulated_may_save_more() -> None:
    (sleeps,) = (one for kind, one in savings(waiting("sleep"), Engine(2.0, 1.5)).items() if kind != "all")
    (spills,) = (one for kind, one in savings(SPILLING, Engine(2.0, 1.5)).items() if kind != "all")
    assert sleeps.seconds == spills.seconds == pytest.approx(0.5, rel=0.01)
    assert sleeps.high == pytest.approx(1.5, rel=0.01)
    assert spills.high < 1.4


def test_larger_partitions_are_simulated_by_joining_as_many_tasks_as_are_advised() -> None:
    alike = skew(count=400, median_seconds=0.005, max_seconds=0.006)
    given: dict[str, Any] = TOOK | {
        "causes_by_worker": {"w0": causes(**{"idle/scheduler": 2})},
        "tasks": {"succeeded": 400},
        "nthreads": {"w0": 2},
        "skew": {"clean": alike},
    }
    report, engine = report_of(seconds(thread_cpu=2, idle=2), **given), Engine(2.0, 1.5)
    assert saved(report, engine, "small-tasks") == pytest.approx(0.5, abs=0.01)
    assert [(job.chunks, job.calls_alone) for job in engine.cured] == [(20, False), (20, True)]
    # The middle of the same work and of a call's cost alone, and an interval with both.
    found = savings(report, Engine(2.0, 1.8, alone=1.25))["small-tasks"]
    assert found.seconds == pytest.approx(0.5, abs=0.01)
    assert found.low < 0.2 < 0.75 < found.high
    # Import of modules explains the waits.
    frozen = Frame("_find_and_load", "<frozen importlib._bootstrap>", 1165)
    importing = replace(report, loop_blocks=(LongHold("w0", EVENT_LOOP, (frozen,), 2.0),))
    assert saved(importing, Engine(2.0, 1.5), "small-tasks") is None


def test_without_other_processes_tasks_wait_for_cores_as_long_as_they_share_them_with_one_another() -> None:
    def kept(**fields: Any) -> float | None:
        return saved(waiting("core", **fields), Engine(9.0, 9.0))

    # Two threads wait for 3 of 4 s: on a core of their own each, they would not wait.
    assert kept(others_share=0.6, cores=2.0) == pytest.approx(1.5)
    # On one core for both, they wait for one another as long as they compute.
    assert kept(others_share=0.5, cores=1.0) == pytest.approx(1.0)
    # Where the cores are not known, their leaving saves their share.
    assert kept(others_share=0.4) == pytest.approx(0.8)
    for share in (None, 0.0, 0.1):
        assert kept(others_share=share) is None
    # What shrinks beside the waiting is not known: the run may take its ideal runtime.
    found = savings(waiting("core", 2.0, others_share=0.6, cores=2.0), Engine(9.0, 9.0))["thread-noncpu/core"]
    assert (found.seconds, found.high) == (pytest.approx(1.0), pytest.approx(1.0))
    found = savings(waiting("core", 2.0, others_share=0.3, cores=1.0), Engine(9.0, 9.0))["thread-noncpu/core"]
    assert (found.seconds, found.low, found.high) == (0.0, 0.0, 0.0)


def test_a_long_task_in_even_pieces_is_divided_by_the_threads_that_can_compute() -> None:
    alike = skew(count=20, median_seconds=0.1, max_seconds=1.4, longest_key="clean-1", alone_seconds=1.2)
    given: dict[str, Any] = TOOK | {
        "causes_by_worker": {"w0": causes(**{"idle/parallelism": 2.4})},
        "long_tail": (LongTask("clean", "clean-1", "w0", 20, 0.1, 1.4, 0.0, 0.0),),
        "skew": {"clean": alike},
        "cores": 4.0,
        "nthreads": {"w0": 2},
    }

    def found(**other: Any) -> float | None:
        return saved(report_of(seconds(thread_cpu=1.6, idle=2.4), **(given | other)), Engine(2.0, 2.0))

    assert found() == pytest.approx(1.2 / 2)
    assert found(skew={"clean": replace(alike, alone_seconds=1.4)}) == pytest.approx(1.3 / 2)
    assert found(path=PathSummary("A path", 2.0, {}, 1.9, 1.4, 1.7)) == pytest.approx(0.3)
    for other in ({"cores": 1.0}, {"skew": {"clean": replace(alike, longest_key="another")}}, {"skew": {}}):
        assert found(**other) is None
    assert found(long_tail=()) is None
    # Once split, the longest task of the longest chain bounds nothing.
    first = TRACE.keys[0]
    of_chain: dict[str, Any] = {
        "path": PathSummary("A path", 2.0, {}, 1.9, 1.4, 1.7),
        "long_tail": (replace(given["long_tail"][0], key=first),),
        "skew": {"clean": replace(alike, longest_key=first)},
    }
    assert found(**of_chain) == pytest.approx(1.2 / 2)


@given(own=st.floats(0.1, 10.0), cured=st.floats(0.0, 10.0), cores=st.none() | st.floats(0.1, 8.0))
def test_a_promise_is_between_no_time_and_all_but_the_ideal(own: float, cured: float, cores: float | None) -> None:
    report = waiting("gil", cores=cores)
    for found in savings(report, Engine(own, cured)).values():
        assert 0 <= found.low <= found.seconds <= found.high <= report.cluster_seconds - report.ideal_seconds


@pytest.mark.parametrize(
    "engine", [Engine(1.5, 0.5), Engine(2.5, 0.5), Mock(side_effect=EmptyTraceError("no task ended"))]
)
def test_without_a_good_simulation_of_the_own_run_nothing_is_promised(engine: Any) -> None:
    assert savings(waiting("gil"), engine) == {}


@pytest.mark.parametrize(
    "report",
    [
        waiting("gil", trace=None),
        waiting("gil", causes_by_worker={}),
        waiting("lock"),
        waiting("sleep", causes_by_worker={"w0": causes(**{"thread-noncpu/sleep": 2.0, "thread-noncpu/lock": 1.0})}),
        waiting("core"),
        waiting("gil", trace=replace(TRACE, runs=Runs.empty())),
        waiting("gil", trace=replace(TRACE, dropped={"runs": 1})),
        waiting("gil", window_seconds=9.0),
        report_of(seconds(thread_cpu=4, failed=4), trace=TRACE),
        report_of(seconds(thread_cpu=4), trace=TRACE),
    ],
    ids=["no trace", "no causes", "lock", "a lock too", "core", "empty", "dropped", "client", "failed", "no loss"],
)
def test_other_runs_and_losses_have_no_savings(report: EfficiencyReport) -> None:
    assert savings(report, Engine(2.0, 1.0)) == {}


def test_a_run_too_long_for_the_time_is_not_simulated_and_a_note_says_so() -> None:
    notes: list[str] = []
    for most in (0.0, 0.003):  # four tasks take longer
        assert savings(waiting("gil"), Engine(2.0, 1.0), seconds=most, notes=notes) == {}
    *_, note = notes
    assert note == (
        "cures that were not simulated within 0.003 s have bounds as savings (Waiting for the GIL); "
        "savings=60 with trace=True, or --savings 60 with --trace, gives them longer"
    )


def test_the_wait_for_cures_is_shown_early_enough_for_its_bound(capsys: pytest.CaptureFixture[str]) -> None:
    def engine(*given: Any, report: Callable[[float], object], seconds: float, **options: Any) -> Iterator[Ensemble]:
        until = monotonic() + seconds / 2
        while monotonic() < until:
            report(1)
        return Engine(2.0, 1.5)(*given, report=report, seconds=SECONDS, **options)

    assert savings(waiting("gil"), engine, seconds=0.1)
    assert capsys.readouterr().err == "simulating cures: 1 of 6 runs, 0 s\n"


def test_a_cure_that_is_not_simulated_in_time_has_a_bound_and_a_note() -> None:
    both = causes(**{"thread-noncpu/gil": 1.5, "thread-noncpu/sleep": 1.0})
    report = waiting("gil", 2.5, causes_by_worker={"w0": both}, causes_by_prefix={"clean": both})
    engine, notes = Engine(2.0, 1.5), []

    def late(trace: Any, jobs: Sequence[SeededJob], **options: Any) -> Iterator[Ensemble]:
        for seeded, runs in zip(jobs, engine(trace, jobs, **options), strict=True):
            is_late = [worker.nthreads for worker in seeded.job.cluster.workers] == [4]
            yield Ensemble({0: runs.makespans[0]}) if is_late else runs

    found = savings(report, late, notes=notes)
    assert sorted(found) == ["all", "thread-noncpu/gil"]
    (note,) = notes
    assert "(Sleeping)" in note
    bases = {one.kind: one.basis for one in replace(report, savings=found).findings}
    assert bases == {"thread-noncpu/gil": Basis.REPLAYED, "thread-noncpu/sleep": Basis.BOUNDED}


def test_more_threads_than_tasks_save_nothing_and_the_finding_has_the_other_cure() -> None:
    report = waiting("sleep", 3.9)
    found = savings(report, Engine(2.0, 2.0))
    assert found["thread-noncpu/sleep"].seconds == 0.0
    (finding,) = replace(report, savings=found).findings
    assert (finding.kind, finding.basis) == ("thread-noncpu/sleep", Basis.BOUNDED)
    assert finding.advice == "Avoid the sleep: more threads do not help, as too few tasks can run at a time."


def test_simulations_of_the_run_itself_that_end_too_early_promise_nothing() -> None:
    notes: list[str] = []
    assert savings(waiting("gil"), Mock(return_value=[Ensemble({0: 2.0})] * 2), notes=notes) == {}
    assert len(notes) == 1


def test_a_real_simulation_of_tasks_that_sleep_halves_them() -> None:
    found = savings(waiting("sleep", 3.9), seconds=600)["thread-noncpu/sleep"]
    assert found.seconds == pytest.approx(1.0, abs=0.1)
    assert found.low < found.seconds < found.high


def test_a_simulated_cure_saves_the_same_share_of_the_recorded_time_up_to_its_loss_and_the_idle_time() -> None:
    recorded = 2.011  # with the client's time
    found = saved(waiting("gil"), Engine(own=1.9, cured=1.14), "thread-noncpu/gil")
    assert found == pytest.approx(recorded * 0.4, abs=0.01)
    assert saved(waiting("sleep", 0.5), Engine(2.0, 0.1), "thread-noncpu/sleep") == pytest.approx(0.25)
    assert saved(waiting("core", 0.5, others_share=0.8), Engine(2.0, 2.0), "thread-noncpu/core") == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("fields", "needed"),
    [({}, 3.0), ({"worker_saturation": None}, None), ({"loop_blocks": (LongHold("w0", EVENT_LOOP, (), 2.0),)}, None)],
    ids=["a higher saturation", "an unknown one", "round trips that something else explains"],
)
def test_round_trips_are_cured_by_a_setting(fields: dict[str, Any], needed: float | None) -> None:
    row = causes(**{"idle/round-trips": 3.0})
    given = TOOK | {"causes_by_worker": {"w0": row}, "nthreads": {"w0": 2}, "worker_saturation": 1.1}
    report = report_of(seconds(thread_cpu=4, idle=3), **(given | fields))
    found = savings(report, engine := Engine(2.0, 2.0))
    if needed is None:
        assert not engine.cured
        assert found == {}
    else:
        (job,) = engine.cured
        assert job.cluster.config == {"distributed.scheduler.worker-saturation": needed}
        assert found["idle/round-trips"].seconds == 0.0  # which is worth knowing


def test_several_cures_are_simulated_alone_and_together() -> None:
    both = causes(**{"thread-noncpu/gil": 1.5, "thread-noncpu/sleep": 1.0})
    report = waiting("gil", 2.5, causes_by_worker={"w0": both}, causes_by_prefix={"clean": both})
    found = savings(report, engine := Engine(2.0, 1.5))
    assert sorted(found) == ["all", "thread-noncpu/gil", "thread-noncpu/sleep"]
    threads = sorted([worker.nthreads for worker in job.cluster.workers] for job in engine.cured)
    assert threads == [[1, 1], [2, 2], [4]]


def test_threads_that_arrive_at_random_leave_cores_idle_at_times() -> None:
    # Four threads that compute for half of their time, at two cores: these are busy for 17/20 of it.
    report = waiting("sleep", 2.0, cores=2.0)
    assert saved(report, Engine(2.0, 0.5), "thread-noncpu/sleep") == pytest.approx(2.0 - 2.0 / (2 * 17 / 20))
    assert saved(replace(report, cores=None), Engine(2.0, 0.5), "thread-noncpu/sleep") == 1.0
    # Where they hardly compute, eight threads for four are twice as fast.
    hardly = waiting("sleep", 3.999, cores=2.0)
    assert saved(hardly, Engine(2.0, 0.5), "thread-noncpu/sleep") == pytest.approx(1.0, abs=0.01)


def test_a_slow_worker_has_an_interval_and_is_no_second_cure_of_other_processes() -> None:
    slow = SlowWorker("w0", "", Cause.CONTENTION, 2.0, 0.9, 0.0, 1.5, seconds_lost=0.5)
    found = savings(waiting("lock", stragglers=(slow,)), Engine(2.0, 1.5))
    assert {kind: one.seconds for kind, one in found.items()} == {"slow-worker/w0": 0.5, "all": 0.5}
    assert found["all"].low < 0.5 < found["all"].high
    busy = savings(waiting("core", others_share=0.4, stragglers=(slow,)), Engine(2.0, 1.5))
    assert busy["all"] == busy["thread-noncpu/core"]


def test_transfers_at_once_are_a_bound_and_no_part_of_all() -> None:
    found = savings(WAITS_FOR_DATA, Engine(2.0, 1.5))
    assert list(found) == ["waiting-on-data"]
    (finding,) = replace(WAITS_FOR_DATA, savings=found).findings
    assert (finding.basis, finding.saves_interval) == (Basis.BOUNDED, None)


@pytest.mark.parametrize(("lost", "kept"), [(None, None), (0.4, 0.4), (1.5, 1.0)])
def test_without_a_straggler_a_run_takes_its_ideal_runtime_at_least(lost: float | None, kept: float | None) -> None:
    slow = SlowWorker("w0", "", Cause.SLOW_CPU, 2.0, 0.9, 0.0, 1.5, seconds_lost=lost)
    report = waiting("gil", waited=2.0, cores=2.0, stragglers=(slow,))
    assert report.ideal_seconds == 1.0
    assert [one.seconds_lost for one in kept_in_bounds(report)] == [kept]
    unknown = replace(report, cluster_seconds=0.0)
    assert kept_in_bounds(unknown) == (slow,)
