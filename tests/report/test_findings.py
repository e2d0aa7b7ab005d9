"""Headline and findings of a report."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from dask_efficiency import EfficiencyReport, load_report, load_trace
from dask_efficiency.accounts.buckets import CAUSE_NAMES, FINALIZED, GOOD, Breakdown, Bucket
from dask_efficiency.accounts.lines import EVENT_LOOP, Frame
from dask_efficiency.accounts.slow_worker import Cause, SlowWorker
from dask_efficiency.report.findings import find, headline, in_a_line
from dask_efficiency.report.kinds import BESIDE, KINDS
from dask_efficiency.report.turnover import Arrival, LostWorker
from dask_efficiency.report.values import LongHold, Repeat, Saved
from dask_efficiency.runs.path.parts import PathSummary
from dask_efficiency.show.finding import MAX_HEADLINE, MAX_TITLE, Basis, Finding
from tests.report.samples import causes, report_of, reports, seconds, skew, waiting_for_the_gil, with_gpus

RECORDED = Path(__file__).parents[1] / "data" / "diagnoses"
SLOW = SlowWorker("w3", "host", Cause.STOPPED, 3.0, 0.9, 0.0, 2.27, seconds_lost=3.0)


def first(report: EfficiencyReport) -> Finding:
    return find(report)[0]


def of_ten_seconds(*workers: Breakdown, **fields: Any) -> EfficiencyReport:
    return report_of(*workers, **{"cluster_seconds": 10.0, "window_seconds": 10.0, **fields})


def test_the_headline_has_the_runtime_and_the_possible_saving() -> None:
    report = of_ten_seconds(*[seconds(thread_cpu=4, spill=6)] * 2, nthreads={"w0": 1, "w1": 1})
    assert headline(report) == "10.0 s, of which up to 6.0 s can be saved (2 workers x 1 thread)"
    replayed = replace(report, savings={"spill": Saved(5.5, 5.0, 6.0)})
    assert headline(replayed) == "10.0 s, of which 5.5 s can be saved (2 workers x 1 thread)"
    assert first(replayed).saves_interval == (5.0, 6.0)
    both = replace(replayed, savings={**replayed.savings, "all": Saved(5.9, 5.0, 6.0)})
    assert headline(both) == "10.0 s, of which 5.9 s can be saved (2 workers x 1 thread)"
    bound = replace(report, savings={"all": Saved(5.9, 5.0, 6.0)})
    assert headline(bound) == headline(report)
    uneven = replace(report, nthreads={"w0": 2, "w1": 3})
    assert headline(uneven).endswith("(2 workers, 5 threads)")


def test_a_healthy_run_has_no_findings() -> None:
    report = of_ten_seconds(seconds(thread_cpu=39.5, idle=0.5), nthreads={"w": 4})
    assert find(report) == ()
    assert headline(report) == "10.0 s; no finding saves more than 300 ms (99 % efficient)"
    bound = replace(report, cores=4.0)
    assert headline(bound) == ("10.0 s; no finding saves more than 300 ms (99 % efficient, bound by 4 cores)")
    assert in_a_line(report) == "99 % efficient; Threads idle: 500 ms of thread time"


def test_without_anything_to_judge_the_headline_has_the_reason() -> None:
    unmeasured = report_of(seconds(unmeasured=3), not_measured={"w0": "no snapshot in 30 s"})
    for report, text in (
        (report_of(), "Nothing was recorded: the window holds no thread time"),
        (report_of(seconds(no_work=3)), "Nothing ran: there was no work in any of 3.0 thread-seconds"),
        (report_of(seconds(running=3)), "Too early to tell: 3.0 thread-seconds are running and nothing has ended"),
        (unmeasured, "Nothing was measured: all of 3.0 thread-seconds (no snapshot in 30 s)"),
    ):
        assert headline(report) == in_a_line(report) == text


def test_a_client_that_took_most_of_the_time_leads() -> None:
    phases = {"optimize": 0.1, "run": 2.0, "gather": 0.1}
    report = report_of(seconds(thread_cpu=2), cluster_seconds=2.0, window_seconds=9.0, phases=phases, nthreads={"w": 1})
    assert headline(report) == "9.0 s, 7.0 s of it in your own code (1 worker x 1 thread)"
    assert first(report).kind == "client"
    assert str(first(report)).startswith("No work on the cluster, in your own code: saves up to 7.0 s.")


def test_a_cluster_without_workers_is_a_finding_with_the_time_of_the_request() -> None:
    times = {"cluster_seconds": 2.0, "window_seconds": 8.2, "no_workers_seconds": 6.1}
    assert str(first(report_of(seconds(thread_cpu=2), arrivals=(Arrival("w0", 6.0, 6.1, 6.2),), **times))) == (
        "No worker was there: saves up to 6.1 s. 1 worker asked for, the first after 6.0 s\n"
        "Start workers before the work, or scale up sooner."
    )


def test_lost_workers_are_named_with_the_reason() -> None:
    memory = LostWorker("w3", "killed by its nanny at 96% of its memory limit", False, 2 * 10**9, {}, 10**9, 1)
    other = LostWorker("w5", "killed by SIGKILL", False, 10**9, {}, 0, 0)
    whole = seconds(thread_cpu=4, lost_worker=3, recomputed=1)
    report = report_of(whole, nthreads={"w": 1}, lost_workers=(other, memory))
    found = {one.kind: one for one in find(report)}
    why = "worker w3 was lost (killed by its nanny at 96% of its memory limit)"
    assert (found["lost-worker"].where, found["recomputed"].where) == (f"{why}, and 1 more", why)
    assert found["lost-worker"].advice.startswith("Give workers more memory")


@given(reports)
def test_any_report_has_a_headline_and_findings_that_keep_their_bounds(report: EfficiencyReport) -> None:
    assert 0 < len(headline(report)) <= MAX_HEADLINE
    assert in_a_line(report)
    least = 0.03 * report.wall_clock_seconds
    for one in find(report):
        assert len(one.lines) <= 2
        assert one.lines[0].isprintable()
        json.dumps(one.to_dict())
        assert one.saves_seconds is None or one.saves_seconds >= least
        if one.kind.partition("/")[0] in set(Bucket):
            most = max(0.0, report.cluster_seconds - report.ideal_seconds) + 1e-9
            assert one.saves_seconds is None or one.saves_seconds <= most
            assert one.saves_interval is None or one.saves_interval[1] <= most


def test_losses_are_findings_with_the_line_the_cure_and_a_bound_of_the_saving() -> None:
    found = first(waiting_for_the_gil())
    assert (found.kind, found.title) == ("thread-noncpu/gil", "Waiting for the GIL")
    assert (found.where, found.basis) == ("tasks of clean", Basis.BOUNDED)
    assert found.advice.endswith(".")
    assert found.page == "docs/buckets.md#thread-noncpu-gil"
    # A bound is the lost time of the threads, and no more than the ideal leaves.
    report = of_ten_seconds(seconds(thread_cpu=8, idle=12), cores=1.0)
    assert first(report).saves_seconds == 2.0  # 8 s of CPU on one core
    assert first(replace(report, cores=8.0)).saves_seconds == 6.0  # 12 thread-s of two threads
    assert find(replace(report, cluster_seconds=math.nan)) == ()
    (gpus,) = (one for one in find(with_gpus()) if one.kind == "gpu-idle")
    assert gpus.saves_seconds is None
    assert gpus.where.endswith("of the time")


def test_of_idle_threads_the_task_that_all_waited_for_is_named() -> None:
    fields = {"causes_by_worker": {"w0": causes(**{"idle/parallelism": 19})}, "skew": {"join": skew()}}
    report = report_of(seconds(thread_cpu=21, idle=19), cluster_seconds=20.0, window_seconds=20.0, **fields)
    assert (
        first(report).where == "The largest of 200 join took 21.0 s, 40 times the median; for 19.0 s nothing else ran"
    )


def test_small_tasks_are_one_fault_with_one_cure() -> None:
    lost = causes(**{"idle/scheduler": 6, "idle/graph": 1, "overhead/hand-over": 2, "overhead/event-loop": 1})
    fields = {"causes_by_worker": {"w0": lost}, "tasks": {"succeeded": 1000}, "nthreads": {"w0": 2}}
    report = of_ten_seconds(seconds(thread_cpu=10, idle=7, overhead=3), **fields)
    found = find(report)
    assert [one.kind for one in found] == ["small-tasks", "idle/graph"]
    # all but the useful time, on two threads; 9 s of it for the scheduler and event loops
    assert (found[0].saves_seconds, found[0].lost_seconds) == (5.0, 9.0)
    assert found[0].advice.startswith("Make partitions bigger, or fuse tasks: those of 10 ms end before")
    longer = find(replace(report, tasks={"succeeded": 100}))
    assert [one.kind for one in longer] == ["idle/scheduler", "overhead/hand-over", "idle/graph", "overhead/event-loop"]
    frozen = Frame("_find_and_load", "<frozen importlib._bootstrap>", 1165)
    importing = replace(report, loop_blocks=(LongHold("w0", EVENT_LOOP, (frozen,), 2.5),))
    assert [one.kind for one in find(importing)][:2] == ["idle/scheduler", "small-tasks"]


def test_a_chain_has_no_saving_as_it_may_be_unbreakable() -> None:
    fields = {"causes_by_worker": {"w0": causes(**{"idle/parallelism": 10})}}
    path = PathSummary("A chain", 10.0, {}, 9.9, 1.0, 9.5)
    report = of_ten_seconds(seconds(thread_cpu=10, idle=10), path=path, **fields)
    (found,) = find(report)
    assert (found.kind, found.saves_seconds) == ("idle/parallelism", None)
    assert headline(report) == "10.0 s, 50 % efficient (1 worker)"


def test_a_slow_worker_comes_before_the_causes_that_it_may_explain() -> None:
    slow = replace(SLOW, seconds_lost=3.1)
    report = of_ten_seconds(seconds(thread_cpu=10, spill=10), stragglers=(slow,))
    found = find(report)
    assert [one.kind for one in found] == ["slow-worker", "spill"]
    assert str(found[0]) == (
        "Slow worker, its process stands still at times: saves 3.1 s. Worker w3, 2.27x as long for the same work\n"
        "Look for what stops it: SIGSTOP, a debugger, a batch system, a frozen container, a paused virtual machine."
    )
    assert replace(slow, seconds_lost=None).worker in find(replace(report, stragglers=(slow,)))[0].where


@pytest.mark.parametrize(
    ("known", "bound", "kinds"),
    [
        ({"stragglers": (SLOW,)}, 11.9, ["slow-worker", "spill"]),  # 3 s count twice, a bound half
        ({"stragglers": (SLOW,)}, 12.1, ["spill", "slow-worker"]),
        ({"savings": {"idle": Saved(3.0, 3.0, 3.0)}}, 5.9, ["idle", "spill"]),
        ({"savings": {"idle": Saved(3.0, 3.0, 3.0)}}, 6.1, ["spill", "idle"]),
    ],
)
def test_bounds_count_half_and_findings_that_name_a_worker_twice(known: dict, bound: float, kinds: list[str]) -> None:
    idle = 3 if "savings" in known else 0
    whole = seconds(thread_cpu=20 - bound - idle, spill=bound, idle=idle)
    report = report_of(whole, cluster_seconds=20.0, window_seconds=20.0, **known)
    assert [one.kind for one in find(report)] == kinds


def test_results_that_were_made_again_are_a_finding_with_their_share_of_all_time() -> None:
    report = of_ten_seconds(
        seconds(thread_cpu=10, idle=10),
        by_prefix={"load": seconds(thread_cpu=8), "sum": seconds(thread_cpu=2)},
        repeats={"load": Repeat(100, 2)},
        skew={"load": skew(count=200)},
        tasks={"succeeded": 400},
    )
    few = replace(report, repeats={"load": Repeat(7, 2)})  # 2.8 % of the time that tasks held slots
    assert not [one for one in find(few) if one.kind == "repeats"]
    again = next(one for one in find(report) if one.kind == "repeats")
    assert (again.lost_seconds, again.saves_seconds) == (4.0, 4.0)
    assert again.lines == (
        "The same results were computed again: saves up to 4.0 s. 100 tasks, up to 2 times, most of load",
        "Use persist() for what is used again.",
    )
    # a damaged file, whose workers held no slot
    none_held = replace(report, by_worker={"w0": seconds(idle=20)})
    assert next(one for one in find(none_held) if one.kind == "repeats").saves_seconds == 10.0


@pytest.mark.parametrize("name", [file.name.partition(".")[0] for file in sorted(RECORDED.glob("*.known.json"))])
def test_the_first_screen_of_a_recorded_run_fits_a_terminal(name: str) -> None:
    report = load_report(RECORDED / f"{name}.json")
    trace = RECORDED / f"{name}.trace"
    screen = str(replace(report, trace=load_trace(trace)) if trace.exists() else report).splitlines()
    assert len(screen) <= 24
    assert max(map(len, screen)) <= 80


def test_every_loss_has_a_title() -> None:
    losses = [bucket for bucket in FINALIZED if bucket not in (*GOOD, Bucket.NO_WORK)]
    assert sorted(KINDS) == sorted([*losses, *CAUSE_NAMES])
    assert max(len(kind.title) for kind in (*KINDS.values(), *BESIDE.values())) <= MAX_TITLE
