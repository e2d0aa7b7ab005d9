"""Sentences on what stands still."""

from __future__ import annotations

from dataclasses import replace

from dask_efficiency.accounts.lines import Frame
from dask_efficiency.accounts.stalls import KINDS, NO_WORKER, SILENT, TASK, StalledWork
from dask_efficiency.report.findings import find, leading
from dask_efficiency.report.kinds import BESIDE
from dask_efficiency.report.stalls import STALLED, does, findings_of
from dask_efficiency.report.values import Unfinished
from tests.report.samples import report_of, seconds

LOAD = StalledWork(TASK, 1, "load", ("3",), 252.0, 2.0, "network", (Frame("recv", "/home/me/client.py", 88),))


def test_each_kind_has_a_title_and_advice() -> None:
    assert set(STALLED) <= BESIDE.keys()
    assert [one.kind for one in findings_of(StalledWork(kind, 1, "p") for kind in KINDS)] == list(STALLED)


def test_a_finding_says_which_tasks_where_for_how_long_and_why() -> None:
    (one,) = findings_of([LOAD])
    assert one.title == "Tasks stand still"
    who, why = "1 task of load on worker 3, for 4.2 min, usually 2.0 s", "waiting for the network, `recv`, client.py:88"
    assert one.where == f"{who}: {why}"
    (asked,) = findings_of([StalledWork(NO_WORKER, 4, "train", seconds=12.0, detail="GPU=1, on no worker")])
    assert asked.where == "4 tasks of train, for 12.0 s: GPU=1, on no worker"
    (silent,) = findings_of([StalledWork(SILENT, 2, "", ("a", "b"), 30.0)])
    assert silent.where == "2 tasks on workers a, b, for 30.0 s"


def test_what_threads_do_is_called_as_in_findings() -> None:
    barrier = (Frame("p2p_barrier", "/env/lib/python3.12/site-packages/distributed/shuffle/_core.py", 1),)
    assert does("cluster", barrier) == "waiting for a shuffle to move data"
    assert does("cluster", ()) == "waiting for the cluster's answer"
    assert does("gil", ()) == "waiting for the GIL"
    assert [does(cause, ()) for cause in ("computing", "")] == ["computing", ""]


def test_what_stands_still_comes_first_and_idle_threads_follow_from_it() -> None:
    rows = seconds(thread_cpu=4, thread_noncpu=10, idle=20, running=16.7)
    report = report_of(
        rows,
        cluster_seconds=13.0,
        window_seconds=13.0,
        tasks={"succeeded": 20},
        nthreads={"w": 4},
        phases={"run": 13.0},
        unfinished=(Unfinished("load", 1, {"3": 1}, {}, 252.0),),
        ended_by="KeyboardInterrupt",
        stalls=(LOAD,),
    )
    assert find(report)[0].kind == "stalled/task"
    assert "idle" not in [one.kind for one in find(report)]
    assert leading(report)[0].kind == "stalled/task"
    assert find(replace(report, stalls=()))[0].kind == "never-ended"
    ended_well = replace(report, unfinished=(), ended_by="")
    assert not {one.kind for one in find(ended_well)}.intersection(STALLED)


def test_a_short_stall_explains_no_loss_of_hours_and_stands_for_no_other_tasks() -> None:
    report = report_of(
        seconds(thread_cpu=20_000, idle=60_000),
        cluster_seconds=28_800.0,
        window_seconds=28_800.0,
        tasks={"succeeded": 2_000},
        nthreads={"w": 4},
        phases={"run": 28_800.0},
        unfinished=(Unfinished("load", 1, {"3": 1}, {}, 252.0),),
        stalls=(LOAD,),
    )
    assert [one.kind for one in find(report)][:2] == ["stalled/task", "idle"]
    stands = replace(report, stalls=(replace(LOAD, seconds=20_000.0),))
    assert "idle" not in [one.kind for one in find(stands)]
    many = replace(report, unfinished=(Unfinished("load", 500, {"3": 1}, {}, 252.0),))
    assert [one.kind for one in find(many)][:2] == ["stalled/task", "outstanding"]
