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
from dask_efficiency.report.conditions import Conditions
from dask_efficiency.report.conditions_of import conditions_of
from dask_efficiency.report.findings import find, headline, in_a_line
from dask_efficiency.report.kinds import BESIDE, KINDS, OF_CHAINS, advice
from dask_efficiency.report.turnover import Arrival, LostWorker
from dask_efficiency.report.values import ClientRow, GraphsSent, LongHold, ProfileRow, Repeat, Saved
from dask_efficiency.runs.path.parts import PathSummary
from dask_efficiency.show.finding import MAX_HEADLINE, MAX_TITLE, Basis, Finding
from tests.report.samples import (
    SECOND,
    causes,
    changed,
    report_of,
    reports,
    seconds,
    skew,
    waiting_for_the_gil,
    with_gpus,
)

RECORDED = Path(__file__).parents[1] / "data" / "diagnoses"
#: A client at a line of its own, in a library that computes by Dask.
OPENS = (
    Frame("f", "/home/me/etl.py", 8),
    Frame("open_many", "/opt/lib/python3.12/site-packages/files.py", 3),
    Frame("Future.result", "/opt/lib/python3.12/site-packages/distributed/client.py", 400),
)
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


def test_the_headline_promises_no_less_than_a_finding_below_it() -> None:
    report = of_ten_seconds(*[seconds(thread_cpu=2, spill=4, idle=4)] * 2, nthreads={"w0": 1, "w1": 1})
    saved = replace(report, savings={"spill": Saved(3.0, 2.5, 3.5)})
    assert [one.saving for one in find(saved)] == ["saves 3.0 s", "saves up to 4.0 s"]
    assert headline(saved) == "10.0 s, of which 3.0 s to 4.0 s can be saved (2 workers x 1 thread)"


def test_findings_are_worked_out_once_for_all_that_show_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = []
    monkeypatch.setattr("dask_efficiency.report.findings.find", lambda report: asked.append(report) or find(report))
    report = of_ten_seconds(*[seconds(thread_cpu=4, spill=6)] * 2, nthreads={"w0": 1, "w1": 1})
    report.save(tmp_path / "run.json")
    report.to_html(tmp_path / "run.html")
    assert report.headline in str(report)
    assert len(asked) == 1


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
        (report_of(window_seconds=0.0), "Nothing was recorded: the window holds no thread time"),
        (report_of(by_worker={}, window_seconds=6.0), "No worker was there in 6.0 s"),
        (report_of(by_worker={}, no_workers_seconds=6.0), "No worker was there, and work waited for 6.0 s"),
        (report_of(seconds(no_work=3)), "Nothing ran: there was no work in any of 3.0 thread-seconds"),
        (report_of(seconds(running=3)), "Too early to tell: 3.0 thread-seconds are running and nothing has ended"),
        (unmeasured, "Nothing was measured: all of 3.0 thread-seconds (no snapshot in 30 s)"),
    ):
        assert headline(report) == in_a_line(report) == text


def test_a_reason_is_only_that_of_the_workers_that_it_is_named_with() -> None:
    other, silent = "ImportError: it has another version", "no answer came"
    rows = {name: seconds(thread_cpu=30, unmeasured=ns) for name, ns in {"new": 20, "a": 1, "b": 2, "c": 3}.items()}
    report = of_ten_seconds(
        seconds(thread_cpu=120, unmeasured=26),
        by_worker=rows,
        not_measured={"a": silent, "b": silent, "new": other},
        nthreads=dict.fromkeys(rows, 4),
    )
    (found,) = (one for one in find(report) if one.kind == "unmeasured")
    assert found.where == f"worker new ({other}), and 2 for other reasons"


def test_a_client_that_took_most_of_the_time_leads() -> None:
    phases = {"optimize": 0.1, "run": 2.0, "gather": 0.1}
    report = report_of(seconds(thread_cpu=2), cluster_seconds=2.0, window_seconds=9.0, phases=phases, nthreads={"w": 1})
    assert headline(report) == "9.0 s, 7.0 s of it on the client, in your own code (1 worker x 1 thread)"
    assert first(report).kind == "client"
    assert str(first(report)).startswith("No work on the cluster, on the client, in your own code: saves up to 7.0 s.")


def test_time_in_which_only_seceded_tasks_ran_is_not_the_clients() -> None:
    phases = {"run": 2.0, "seceded": 6.5, "gather": 0.4}
    report = report_of(seconds(thread_cpu=2), cluster_seconds=2.0, window_seconds=9.0, phases=phases, nthreads={"w": 1})
    assert headline(report) == "9.0 s, 7.0 s of it in tasks that had seceded (1 worker x 1 thread)"
    assert str(first(report)).startswith("Only tasks that had seceded ran: saves up to 7.0 s.")
    assert "client" not in {one.kind for one in find(report)}


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
    why = "worker w3 was lost (killed by its nanny at 96% of its memory limit): its memory was not measured"
    assert (found["lost-worker"].where, found["recomputed"].where) == (f"{why}; and 1 more", why)
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
            bounds = [
                bound for name, bound in report.ideal_bounds.items() if name != "chain" or one.kind not in OF_CHAINS
            ]
            if one.kind == Bucket.SPILL:  # with memory enough, tasks compute for less long than the ideal has it
                bounds = []
            most = max(0.0, report.cluster_seconds - max(bounds, default=0.0)) + 1e-9
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


@pytest.mark.parametrize(
    ("slept", "where"),
    [
        ({"inc": 4, "add": 3, "mul": 2.5, "put": 0.5}, "`inc`, etl.py:1; and 2 more lines"),
        ({"inc": 7, "add": 3}, "`inc`, etl.py:1"),
        ({"inc": 4, "add": 1, "mul": 1, "put": 1}, "`inc`, etl.py:1"),
    ],
)
def test_a_line_that_is_the_first_of_several_alike_is_not_blamed_alone(slept: dict[str, float], where: str) -> None:
    lines = [(Frame(name, "etl.py", number),) for number, name in enumerate(slept, 1)]
    fields = {
        "causes_by_worker": {"w0": causes(**{"thread-noncpu/sleep": 10})},
        "causes_by_prefix": {name: causes(**{"thread-noncpu/sleep": each}) for name, each in slept.items()},
        "by_prefix": {name: seconds(thread_noncpu=each) for name, each in slept.items()},
        "profile": tuple(ProfileRow("thread-noncpu", "sleep", *row, 1) for row in zip(slept, lines, strict=True)),
    }
    assert first(of_ten_seconds(seconds(thread_cpu=10, thread_noncpu=10), **fields)).where == where


def test_of_idle_threads_the_task_that_all_waited_for_is_named() -> None:
    fields = {"causes_by_worker": {"w0": causes(**{"idle/parallelism": 19})}, "skew": {"join": skew()}}
    report = report_of(seconds(thread_cpu=21, idle=19), cluster_seconds=20.0, window_seconds=20.0, **fields)
    assert (
        first(report).where == "The largest of 200 join took 21.0 s, 40 times the median; for 19.0 s nothing else ran"
    )


def test_workers_that_came_and_went_are_the_place_of_the_time_without_any() -> None:
    there = {"workers": 7, "most_workers": 2, "most_threads": 2}
    times = {"window_seconds": 20.0, "cluster_seconds": 8.0, "no_workers_seconds": 12.0}
    one = find(report_of(seconds(thread_cpu=16), attendance=there, **times))[0]
    assert (one.kind, one.where) == ("no-workers", "7 workers came and went, at most 2 at a time")
    assert one.advice.startswith("Keep some, as by adapt(minimum=)")
    # one of ten was started again
    again = find(
        report_of(seconds(thread_cpu=16), attendance={"workers": 11, "most_workers": 10, "most_threads": 10}, **times)
    )[0]
    assert (again.where, again.advice) == ("", "Start workers before the work, or scale up sooner.")
    all_stayed = find(report_of(seconds(thread_cpu=16), attendance=there | {"workers": 2}, **times))[0]
    assert (all_stayed.where, all_stayed.advice) == ("", "Start workers before the work, or scale up sooner.")


def test_graphs_that_one_compute_would_send_together_are_no_finding_of_small_tasks_as_well() -> None:
    idle = causes(**{"idle/graph": 20.0, "idle/scheduler": 10.0})

    def kinds(graphs: int) -> set[str]:
        report = of_ten_seconds(
            seconds(thread_cpu=10, idle=30),
            causes_by_worker={"w0": idle},
            nthreads={"w0": 4},
            tasks={"succeeded": 880},
            graphs=graphs,
        )
        return {one.kind for one in find(report)}

    assert kinds(220) & {"idle/graph", "small-tasks"} == {"idle/graph"}
    assert "small-tasks" in kinds(2)
    idle = causes(**{"idle/graph": 3.0, "idle/scheduler": 27.0})
    assert "small-tasks" in kinds(220)


def test_tasks_that_ran_one_after_the_other_for_most_of_the_run_are_a_chain() -> None:
    fields = {"causes_by_worker": {"w0": causes(**{"idle/parallelism": 9})}, "waited_for": {"add": 9}}

    def advice(**tasks: Any) -> str:
        of = {"add": skew(longest_key="add-1", max_seconds=0.3, alone_seconds=0.0, max_bytes=2.0**20, **tasks)}
        return find(of_ten_seconds(seconds(thread_cpu=11, idle=9), skew=of, **fields))[0].advice

    assert advice(count=40, median_seconds=0.2).startswith(
        "Break up the chain, such as by adding up in pairs: tasks of add"
    )
    for other in (
        {"count": 40, "median_seconds": 0.1},
        {"count": 7, "median_seconds": 1.2},
        {"count": 60, "median_seconds": 0.2},
    ):
        assert advice(**other).startswith("Split the tasks of add")


def test_a_task_is_to_be_split_only_if_threads_had_none_meanwhile_and_then_it_is_named() -> None:
    fields = {"causes_by_worker": {"w0": causes(**{"idle/parallelism": 10})}, "waited_for": {"link": 9}}
    path = PathSummary("A path", 10.0, {}, 9.9, 6.0, 9.5)

    def found(alone: float, **more: Any) -> Finding:
        few = {"train": skew(count=3, longest_key="train-1", max_seconds=6.0, alone_seconds=alone, **more)}
        report = of_ten_seconds(seconds(thread_cpu=10, idle=10), path=path, skew=few, **fields)
        return find(report)[0]

    split = found(5.5)
    assert split.where == "Task train-1"
    assert split.advice == "Split that task: for 55 % of the makespan, it ran and other threads had none."
    assert split.saves_seconds
    chain = found(0.0)
    assert chain.where == "tasks of link"
    assert chain.advice == "More workers do not help: one chain of tasks is 99 % of the makespan."


def test_small_tasks_are_one_fault_with_one_cure() -> None:
    lost = causes(**{"idle/scheduler": 6, "idle/graph": 1, "overhead/hand-over": 2, "overhead/event-loop": 1})
    fields = {"causes_by_worker": {"w0": lost}, "tasks": {"succeeded": 1000}, "nthreads": {"w0": 2}}
    report = of_ten_seconds(seconds(thread_cpu=10, idle=7, overhead=3), **fields)
    found = find(report)
    assert [one.kind for one in found] == ["small-tasks"]
    # all but the useful time, on two threads, for the scheduler and event loops
    assert (found[0].saves_seconds, found[0].lost_seconds) == (5.0, 10.0)
    # a replayed saving has a cure of its own
    replayed = replace(report, savings={"idle/graph": Saved(0.4, 0.3, 0.5)})
    assert [(one.kind, one.saves_seconds) for one in find(replayed)] == [("small-tasks", 4.5), ("idle/graph", 0.4)]
    assert found[0].advice.startswith("Make partitions bigger, or fuse tasks: those of 10 ms end before")
    assert found[0].where == ""
    parquet = {"read_parquet-getitem": skew(count=400), "chunk": skew(count=600)}
    sent = replace(report, skew=parquet, computed_by=dict.fromkeys(parquet, "`table.x.sum().compute()` in etl.py:8"))
    assert find(sent)[0].where == "computed by `table.x.sum().compute()` in etl.py:8"
    assert find(sent)[0].title == "Small Parquet files, each read by small tasks"
    # of several lines, none of which sent most of them, one that sent much
    several = {"read_parquet-getitem": "`a.compute()` in etl.py:8", "chunk": "`b.compute()` in etl.py:9"}
    even = replace(sent, skew={name: skew(count=500) for name in parquet}, computed_by=several)
    assert find(even)[0].where == "computed by `a.compute()` in etl.py:8 and by other lines"
    several["read_parquet-getitem"] = "`a.compute()` in etl.py:8 and 2 more lines"
    assert find(even)[0].where == "computed by `a.compute()` in etl.py:8 and 2 more lines"
    longer = find(replace(report, tasks={"succeeded": 100}))
    assert [one.kind for one in longer] == ["idle/scheduler", "overhead/hand-over", "idle/graph", "overhead/event-loop"]
    frozen = Frame("_find_and_load", "<frozen importlib._bootstrap>", 1165)
    importing = replace(report, loop_blocks=(LongHold("w0", EVENT_LOOP, (frozen,), 2.5),))
    assert [one.kind for one in find(importing)][:2] == ["idle/scheduler", "small-tasks"]


def test_small_tasks_of_graphs_that_tasks_compute_are_these_tasks_fault() -> None:
    compute = Frame("DaskMethodsMixin.compute", "/lib/python3.12/site-packages/dask/base.py", 370)
    stack = (
        Frame("ages", "/home/me/etl.py", 8),
        compute,
        Frame("Client.get", "/lib/site-packages/distributed/x.py", 9),
    )
    report = of_ten_seconds(
        seconds(thread_cpu=2, thread_noncpu=2, idle=16),
        tasks={"succeeded": 4000},
        nthreads={"w0": 2},
        causes_by_worker={"w0": causes(**{"idle/scheduler": 16, "thread-noncpu/cluster": 2})},
        causes_by_prefix={"ages": causes(**{"thread-noncpu/cluster": 2})},
        by_prefix={"ages": seconds(thread_cpu=2, thread_noncpu=2)},
        profile=(ProfileRow("thread-noncpu", "cluster", "ages", stack, 5),),
        skew={"ages": skew(count=400), "getitem": skew(count=3600)},
        computed_by={"ages": "`client.map(ages, parishes)` in etl.py:20"},
    )
    found = find(report)[0]
    assert (found.kind, found.title) == ("small-tasks", "Tasks that compute a graph of their own")
    assert found.where.startswith("`DaskMethodsMixin.compute`, etl.py:8 (tasks of ages)")
    assert found.advice.startswith("Make one graph on the client")
    # the client sent most, or it is not known who did
    for lines in ({"getitem": "`table.compute()` in etl.py:30"}, {}):
        assert find(replace(report, computed_by=lines))[0].title == "Too many small tasks"


def test_blocks_in_the_users_own_code_are_named_with_the_message_and_no_small_tasks() -> None:
    stack = (
        Frame("loads", "/lib/python3.12/site-packages/distributed/protocol/pickle.py", 90),
        Frame("Store.__setstate__", "/home/me/store.py", 12),
        Frame("HTTPResponse.begin", "/usr/lib/python3.12/http/client.py", 300),
    )
    block = LongHold("w0", EVENT_LOOP, stack, 8.0, "receiving tasks of area (Store)")
    report = of_ten_seconds(
        seconds(thread_cpu=2, overhead=18),
        tasks={"succeeded": 2000},
        nthreads={"w0": 2},
        causes_by_worker={"w0": causes(**{"overhead/event-loop": 18})},
        loop_blocks=(block,),
    )
    found = find(report)
    assert [one.kind for one in found] == ["overhead/event-loop"]
    assert found[0].where.startswith("`HTTPResponse.begin` in store.py:12, receiving tasks of area (Store)")
    assert found[0].advice.startswith("Do that in a task, or in a thread of its own")
    assert find(replace(report, loop_blocks=()))[0].kind == "small-tasks"


def test_waits_with_one_reason_are_one_finding() -> None:
    waits = {"w0": causes(**{"idle/scheduler": 2, "idle/round-trips": 6, "idle/parallelism": 2})}
    frozen = Frame("_find_and_load", "<frozen importlib._bootstrap>", 1165)
    importing = {"loop_blocks": (LongHold("w0", EVENT_LOOP, (frozen,), 3.0),), "nthreads": {"w0": 2}}
    report = of_ten_seconds(seconds(thread_cpu=10, idle=10), causes_by_worker=waits, worker_saturation=1.1, **importing)
    found = {one.kind: one for one in find(report)}
    assert sorted(found) == ["idle/parallelism", "idle/round-trips"]
    one = found["idle/round-trips"]
    assert (one.lost_seconds, one.where) == (8.0, "")
    assert one.advice.startswith("Import modules before the work")
    work = Frame("work", "etl.py", 3)
    busy = replace(report, loop_blocks=(LongHold("w0", EVENT_LOOP, (work,), 3.0),))
    one = next(one for one in find(busy) if one.kind == "idle/round-trips")
    assert one.where == "`work` in etl.py:3, on worker w0"
    apart = find(replace(report, loop_blocks=()))
    assert {"idle/scheduler", "idle/round-trips"} <= {one.kind for one in apart}


def test_a_setting_that_saves_nothing_by_a_replay_is_not_advised() -> None:
    waits = {"w0": causes(**{"idle/round-trips": 10})}
    report = of_ten_seconds(
        seconds(thread_cpu=10, idle=10), causes_by_worker=waits, worker_saturation=1.1, nthreads={"w0": 2}
    )
    saved = first(replace(report, savings={"idle/round-trips": Saved(2.0, 1.0, 3.0)}))
    assert (saved.basis, saved.saves_seconds) == (Basis.REPLAYED, 2.0)
    assert saved.advice.startswith("Set distributed.scheduler.worker-saturation to 3.5, from 1.1")
    nothing = first(replace(report, savings={"idle/round-trips": Saved(0.1, 0.0, 3.0)}))
    assert nothing.basis is Basis.BOUNDED
    assert nothing.advice.startswith("Use fewer and longer tasks")


def test_tasks_that_were_sent_one_by_one_are_told_to_be_sent_together_and_the_line_is_named() -> None:
    waits = {"w0": causes(**{"idle/parallelism": 6, "idle/graph": 2})}
    sent = {"graphs": 192, "tasks": {"succeeded": 192}, "computed_by": {"inc": "`client.submit(inc, i)` in etl.py:8"}}
    report = of_ten_seconds(seconds(thread_cpu=12, idle=8), causes_by_worker=waits, waited_for={"inc": 9}, **sent)
    waited = replace(report, rounds=190, window_seconds=13.0, phases={"upload": 1.0, "gather": 1.5})
    (found,) = find(waited)
    assert (found.kind, found.lost_seconds, found.saves_seconds) == ("one-by-one", 8.0, 3.0 + 4.0)
    assert str(found) == (
        "The client waited for each result: saves up to 7.0 s. `client.submit(inc, i)` in etl.py:8\n"
        "Send tasks together, as by client.map, and gather their results together: 192 graphs came one by one."
    )
    # its own code between the results is another matter
    own = {one.kind: one.saves_seconds for one in find(replace(waited, phases={"gather": 0.1}))}
    assert own == {"one-by-one": 4.0, "client": 3.0}
    # by its samples, the line of most time is named, and only Dask's work there ends with it
    rows = tuple(
        ClientRow(activity, OPENS, 5 * SECOND, idle * SECOND, 0) for activity, idle in (("wait", 2), ("compute", 1))
    )
    by_line = {"etl.py:8": GraphsSent(192, 190)}
    sampled = find(replace(waited, client=rows, sent_by=by_line))[0]
    assert (sampled.kind, sampled.saves_seconds) == ("one-by-one", 2.0 + 4.0)
    assert sampled.where == "192 computations one after the other, `open_many` in etl.py:8"
    assert conditions_of(replace(waited, client=rows, sent_by=by_line)).in_turn
    by_last = {"etl.py:8": GraphsSent(192, 190, needs_last=True), "etl.py:9": GraphsSent(1, 1)}
    assert conditions_of(replace(waited, client=rows, sent_by=by_last)).needs_last
    assert not conditions_of(replace(waited, client=rows, sent_by=by_line)).needs_last
    assert not conditions_of(replace(waited, client=rows)).in_turn
    assert sampled.advice.startswith("Look for an option by which open_many computes less: it sent 192 graphs")
    # sent at once, or many at a time, they wait for something else
    for fields in ({"rounds": 1}, {"rounds": 60}, {"rounds": 190, "tasks": {"succeeded": 900}}):
        together = {one.kind: one for one in find(replace(report, **fields))}
        assert together["idle/parallelism"].advice.startswith("Split the tasks of inc")
        assert together["idle/graph"].advice.startswith("Compute all of it together")


def test_a_client_waits_for_each_of_many_computations_unless_they_fill_the_threads() -> None:
    # xarray's open_mfdataset: each compares some coordinates of one more file
    few = Conditions(graphs=400, rounds=400, tasks_per_graph=5.7, threads=4.0, held_threads=0.5, in_turn=True)
    assert few.one_by_one
    assert few.threads_in_vain
    assert "more threads do not help" in advice("thread-noncpu/sleep", few)
    # of many lines, which may have other faults
    assert not replace(few, in_turn=False).one_by_one
    assert not replace(few, held_threads=3.0).one_by_one
    # an iteration over a large collection
    assert not replace(few, tasks_per_graph=200).one_by_one
    assert not replace(few, rounds=100).one_by_one


@pytest.mark.parametrize(
    ("phase", "advice"),
    [
        ("gather", "Reduce results before"),
        ("calls", "Ask Dask"),
        ("upload", "Keep large objects"),
        ("optimize", "Build graphs"),
        ("", "See"),
    ],
)
def test_what_the_client_does_meanwhile_has_its_own_cure(phase: str, advice: str) -> None:
    report = report_of(seconds(thread_cpu=2), cluster_seconds=2.0, window_seconds=9.0, phases={phase: 6.0})
    assert first(report).kind == "client"
    assert first(report).advice.startswith(advice)
    of_many = first(replace(report, graphs=30)).advice
    assert of_many.startswith("Send tasks together" if phase in ("upload", "optimize", "calls") else advice)


@pytest.mark.parametrize(
    ("activity", "advice"),
    [
        ("local", "Compute with the client"),
        ("receive", "Reduce results before"),
        ("unpickle", "Reduce results before"),
        ("hash", "Load large data in tasks"),
        ("compute", "Do it in tasks"),
        ("sleep", "Wait for results instead"),  # also while there was work
        ("file", "Read in tasks"),
        ("network", "Read in tasks"),
        ("import", "Import modules before the work"),
        ("pickle", "Keep large objects out of graphs"),
        ("build", "Build fewer tasks"),
        ("optimize", "Build graphs of fewer operations"),
        ("wait", "Ask Dask for more at a time"),
        ("lock", "See what the client does"),
    ],
)
def test_what_its_samples_tell_of_the_client_has_a_cure(activity: str, advice: str) -> None:
    row = ClientRow(activity, (Frame("f", "/home/me/etl.py", 8),), 7 * SECOND, 6 * SECOND, 0)
    phases = {"optimize": 6.0 * (activity == "optimize"), "run": 1.0}
    report = report_of(seconds(thread_cpu=2), cluster_seconds=2.0, window_seconds=9.0, phases=phases, client=(row,))
    assert first(report).kind == "client"
    assert first(report).where == "`f` in etl.py:8"
    assert first(report).advice.startswith(advice)
    few = replace(report, tasks={"succeeded": 70})
    assert first(few).advice.startswith(advice)
    # what it goes through by item takes long, whatever is made of it
    goes = Frame("unpack_collections", "/lib/python3.12/site-packages/dask/delayed.py", 90)
    by_item = replace(row, stack=(*row.stack, goes))
    words = "Pass large lists as arrays" if activity == "build" else advice
    assert first(replace(few, client=(by_item,))).advice.startswith(words)
    own = replace(row, stack=(*row.stack, Frame("parse_input", "/home/me/inputs.py", 90)))
    assert first(replace(few, client=(own,))).advice.startswith(advice)
    assert first(replace(report, tasks={"succeeded": 7000}, client=(by_item,))).advice.startswith(advice)


def test_a_client_that_sleeps_while_nothing_is_outstanding_is_not_told_to_wait_for_results() -> None:
    row = ClientRow("sleep", (Frame("f", "/home/me/etl.py", 8),), 6 * SECOND, 6 * SECOND, 0)
    report = report_of(
        seconds(thread_cpu=2), cluster_seconds=2.0, window_seconds=9.0, phases={"run": 1.0}, client=(row,)
    )
    assert first(report).advice == "Avoid the sleep, or send the next work before it: nothing was outstanding."


def test_a_result_that_is_put_together_and_received_is_one_finding() -> None:
    row = ClientRow("receive", (Frame("f", "/home/me/etl.py", 8),), 7 * SECOND, 6 * SECOND, 0)
    waits = {"w0": causes(**{"idle/parallelism": 8.0})}
    report = of_ten_seconds(
        seconds(thread_cpu=12, idle=8),
        causes_by_worker=waits,
        waited_for={"finalize-hlg": 8 * SECOND},
        window_seconds=16.0,
        phases={"run": 10.0},
        client=(row,),
    )
    (found,) = find(report)
    assert (found.kind, found.saves_seconds) == ("client", 6.0 + 4.0)
    # without a client's block, or where tasks that seceded ran meanwhile, there is no finding of the client's
    for phases in ({}, {"run": 10.0, "seceded": 6.0}):
        assert "idle/parallelism" in {one.kind for one in find(replace(report, phases=phases))}
    # without samples, or much time of the client's, these are two
    assert {one.kind for one in find(replace(report, client=()))} == {"client", "idle/parallelism"}
    (found,) = find(replace(report, window_seconds=10.2))
    assert (found.kind, found.saves_seconds) == ("idle/parallelism", 4.0)


def test_tasks_that_wait_to_send_a_shuffle_wait_for_no_lock_of_the_user() -> None:
    rows = {"hash-join-transfer": causes(**{"thread-noncpu/cluster": 6}), "sum": causes(**{"thread-noncpu/cluster": 2})}
    both = causes(**{"thread-noncpu/cluster": 8})
    held = {"hash-join-transfer": seconds(thread_noncpu=6), "sum": seconds(thread_noncpu=2)}
    waits = {"by_prefix": held, "causes_by_worker": {"w0": both}, "causes_by_prefix": rows}
    report = of_ten_seconds(seconds(thread_cpu=22, thread_noncpu=8), **waits)
    assert (first(report).kind, first(report).title) == ("thread-noncpu/cluster", "Waiting for a shuffle to move data")
    held["sum"] = seconds(thread_noncpu=8)
    few = changed(report, by_prefix=held, causes_by_prefix={**rows, "sum": both})
    assert first(few).title == "Waiting for the cluster's answer"
    # fused: the names are joined, or only the stack tells
    name = "rechunk-merge-rechunk-transfer"
    fused = changed(report, by_prefix={name: seconds(thread_noncpu=8)}, causes_by_prefix={name: both})
    assert first(fused).title == "Waiting for a shuffle to move data"
    stack = (Frame("rechunk_unpack", "/env/site-packages/distributed/shuffle/_rechunk.py", 90),)
    sampled = replace(few, profile=(ProfileRow("thread-noncpu", "cluster", "sum", stack, 1),))
    assert first(sampled).title == "Waiting for a shuffle to move data"


def test_a_finding_says_at_what_tasks_wait_most_of_the_time() -> None:
    queue = (Frame("train", "/home/me/train.py", 12), Frame("Queue.get", "/usr/lib/python3.12/queue.py", 171))
    rows = (
        ProfileRow("thread-noncpu", "lock", "train", queue, 6),
        ProfileRow("thread-noncpu", "lock", "train", queue[:1], 2),
        ProfileRow("thread-noncpu", "gil", "train", queue[:1], 90),
    )
    lock = causes(**{"thread-noncpu/lock": 8})
    fields = {"causes_by_worker": {"w0": lock}, "causes_by_prefix": {"train": lock}}
    by_prefix = {"train": seconds(thread_cpu=12, thread_noncpu=8)}
    report = of_ten_seconds(seconds(thread_cpu=12, thread_noncpu=8), profile=rows, by_prefix=by_prefix, **fields)
    found = first(report)
    assert (found.kind, found.title) == ("thread-noncpu/lock", "Waiting for another thread")
    assert found.where == "`Queue.get`, train.py:12 (tasks of train)"
    even = replace(report, profile=(replace(rows[0], ns=2), rows[1]))
    assert first(even).title == "Waiting for a lock"


@pytest.mark.parametrize(
    ("place", "title", "advice"),
    [
        (Frame("Queue.get", "/usr/lib/python3.12/queue.py", 171), "Waiting for another thread", "See what that thread"),
        (Frame("f", "/home/me/train.py", 171), "Waiting for a lock", "See what holds the lock"),
        (
            Frame("g", "/opt/lib/python3.12/site-packages/x.py", 3),
            "Waiting for threads of a library",
            "Give libraries'",
        ),
        # in reports of earlier versions
        (
            Frame("Future.result", "/opt/lib/python3.12/site-packages/distributed/client.py", 400),
            "Tasks wait for other tasks, and keep their threads",
            "Return futures",
        ),
    ],
)
def test_the_title_of_a_wait_and_its_advice_are_of_the_same_place(place: Frame, title: str, advice: str) -> None:
    lock, stack = causes(**{"thread-noncpu/lock": 8}), (Frame("train", "/home/me/train.py", 12), place)
    held = seconds(thread_cpu=4, library_threads=8, thread_noncpu=8)
    report = of_ten_seconds(
        held,
        profile=(ProfileRow("thread-noncpu", "lock", "train", stack, 6),),
        by_prefix={"train": held},
        causes_by_worker={"w0": lock},
        causes_by_prefix={"train": lock},
    )
    found = next(one for one in find(report) if one.kind == "thread-noncpu/lock")
    assert (found.title, found.advice[: len(advice)]) == (title, advice)


def test_a_chain_has_no_saving_as_it_may_be_unbreakable() -> None:
    fields = {"causes_by_worker": {"w0": causes(**{"idle/parallelism": 10})}}
    path = PathSummary("A chain", 10.0, {}, 9.9, 1.0, 9.5)
    report = of_ten_seconds(seconds(thread_cpu=10, idle=10), path=path, **fields)
    (found,) = find(report)
    assert (found.kind, found.saves_seconds) == ("idle/parallelism", None)
    assert headline(report) == "10.0 s, 50 % efficient (1 worker)"


def test_a_chain_bounds_no_cure_that_shortens_it() -> None:
    waits = {"w0": causes(**{"idle/parallelism": 8, "idle/round-trips": 2})}
    path = PathSummary("One task", 10.0, {}, 7.0, 5.0, 9.0)
    report = of_ten_seconds(seconds(thread_cpu=10, idle=10), causes_by_worker=waits, path=path)
    saves = {one.kind: one.saves_seconds for one in find(report)}
    assert saves["idle/parallelism"] == 4.0
    assert saves["idle/round-trips"] == 1.0


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


def test_waits_for_cores_that_threads_share_come_after_what_the_reader_can_cure() -> None:
    def kinds(idle: float) -> list[str]:
        whole = seconds(thread_cpu=10, thread_noncpu=30 - idle, idle=idle)
        waits = {"w0": causes(**{"thread-noncpu/core": 30 - idle, "idle/round-trips": idle})}
        of = {"cores": 2.0, "others_share": 0.0, "causes_by_worker": waits}
        return [one.kind for one in find(of_ten_seconds(whole, nthreads={"w0": 4}, **of))]

    assert kinds(6.0) == ["idle/round-trips", "thread-noncpu/core"]
    assert kinds(0.8)[0] == "thread-noncpu/core"


def test_small_tasks_stand_beside_repeats_if_those_that_are_none_cost_more() -> None:
    def kinds(load: float, again: int) -> list[str]:
        tiny = {"median_seconds": 0.0003, "p95_seconds": 0.001, "max_seconds": 0.002, "alone_seconds": 0.0}
        report = of_ten_seconds(
            seconds(thread_cpu=4, overhead=10, idle=26),
            causes_by_worker={"w0": causes(**{"idle/scheduler": 26, "overhead/hand-over": 10})},
            by_prefix={"load": seconds(thread_cpu=load), "sum": seconds(thread_cpu=14 - load)},
            tasks={"succeeded": 20_000},
            skew={"load": skew(count=11_000, **tiny), "sum": skew(count=9_000, **tiny)},
            repeats={"load": Repeat(again, 22)},
            nthreads={"w0": 4},
        )
        return [one.kind for one in find(report)]

    assert kinds(4.0, 10_500)[:2] == ["small-tasks", "repeats"]
    assert kinds(0.0, 10_500) == ["small-tasks"]
    assert kinds(12.0, 10_500) == ["repeats"]
    assert "small-tasks" in kinds(12.0, 9_500)


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
    assert (again.lost_seconds, again.saves_seconds) == (8.0, 4.0)
    assert again.lines == (
        "The same results were computed again: saves up to 4.0 s. 100 tasks, up to 2 times, most of load",
        "Use persist() for what is used again.",
    )
    asked = replace(report, computed_by={"load": "`len(table)` in etl.py:8 and 3 more lines"})
    again = next(one for one in find(asked) if one.kind == "repeats")
    assert again.where.endswith("most of load, computed by `len(table)` in etl.py:8 and 3 more lines")
    assert (again.title, again.page) == ("len() computes the whole dataframe", "docs/recipes.md#len-of-frame")
    # what a library asks for, one computation after the other, cannot be kept
    by_library = replace(asked, client=(ClientRow("wait", OPENS, 5 * SECOND, SECOND, 0),), graphs=300, rounds=300)
    by_library = replace(by_library, sent_by={"etl.py:8": GraphsSent(300, 300)})
    assert "repeats" not in {one.kind for one in find(by_library)}
    # and what a library does between the user's own computations is not its asking
    fetch = ClientRow("network", OPENS[:2], 5 * SECOND, SECOND, 0)
    own = ClientRow("wait", (OPENS[0], OPENS[2]), SECOND, SECOND, 0)
    assert "repeats" in {one.kind for one in find(replace(by_library, client=(fetch, own)))}
    # a damaged file, whose workers held no slot
    none_held = changed(report, by_worker={"w0": seconds(idle=20)})
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
