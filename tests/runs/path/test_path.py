from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dask_efficiency import critical_path
from dask_efficiency.runs.path import path as paths
from dask_efficiency.runs.path.path import NOBODY, NOT_EXPANDED
from dask_efficiency.runs.trace.errors import EmptyTraceError, UnknownNameError
from dask_efficiency.runs.trace.run_trace import TaskProfile
from dask_efficiency.runs.trace.schema import Runs
from tests.simulated_traces import MS, SAMPLES, Graph, simulate


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("by", ["kind", "prefix", "worker", "host"])
def test_seconds_add_up_to_the_makespan_for_each_grouping(name: str, by: str) -> None:
    path = critical_path(SAMPLES[name]())
    found = path.seconds(by)
    assert sum(found.values()) == pytest.approx(path.makespan_seconds)
    assert list(found.values()) == sorted(found.values(), reverse=True)
    if by != "kind":
        assert NOBODY in found
        assert getattr(path, f"by_{by}")().rename_axis(by).to_dict() == found


def test_the_breakdown_is_the_segments_in_time_order_and_the_summary_their_shares_the_largest_first() -> None:
    summary = critical_path(SAMPLES["transfer-bound"]()).summary()
    assert summary.sum() == pytest.approx(1.0)
    assert summary.index[0] == "transfer"
    assert summary.is_monotonic_decreasing
    path = critical_path(SAMPLES["tree"]())
    frame = path.breakdown()
    assert list(frame) == ["kind", "start", "stop", "duration_seconds", "key", "prefix", "worker", "host"]
    assert (frame.start[1:].to_numpy() == frame.stop[:-1].to_numpy()).all()
    assert (frame.stop - frame.start).sum() == path.scope.stop - path.scope.start
    assert frame.kind.iloc[0] == "client-submit"
    assert frame.key.isna().iloc[0]
    last = frame[frame.kind == "compute-cpu"].iloc[-1]
    assert (last.key, last.prefix) == ("sum-126", "sum")
    assert last.host == next(spec.host for spec in path.trace.workers if spec.name == last.worker)


def test_a_path_can_be_asked_for_up_to_one_task_or_for_a_span_with_those_in_it() -> None:
    trace = SAMPLES["tree"]()
    run = int(np.flatnonzero(trace.runs.task == list(trace.keys).index("sum-64"))[0])
    path = critical_path(trace, target="sum-64")
    assert (path.scope.stop, path.segments.run[-1]) == (trace.runs.reported[run], run)

    within = replace(trace, spans=("outer/inner",))
    found, expected = critical_path(within, span="outer"), critical_path(trace, span="default")
    assert found.segments.start.tolist() == expected.segments.start.tolist()
    with pytest.raises(UnknownNameError, match="no span 'out'"):
        critical_path(within, span="out")

    trace = SAMPLES["two-computations"]()
    of_graph = replace(trace, spans=("first", "second"), tasks=replace(trace.tasks, span=trace.tasks.graph))
    first, second = (critical_path(of_graph, span=name) for name in ("first", "second"))
    assert set(first.seconds("prefix")) <= {"load", "sum", NOBODY}
    assert set(second.seconds("prefix")) <= {"work", "merge", "total", NOBODY}
    # The second one begins where the client had the first one's result.
    assert second.scope.start >= trace.phases.stop[2]
    assert first.scope.stop < second.scope.start


def test_a_path_can_be_asked_for_a_window_and_a_what_if_of_it_keeps_its_scope() -> None:
    trace = SAMPLES["two-computations"]()
    end_of_first = int(trace.phases.stop[2])
    whole = critical_path(trace)
    first = critical_path(trace, window=(trace.start, end_of_first))
    second = critical_path(trace, window=(end_of_first, trace.stop))
    assert first.scope.stop == end_of_first
    assert first.makespan_seconds + second.makespan_seconds == pytest.approx(whole.makespan_seconds, rel=0.05)
    for path in (first, critical_path(trace, target="sum-20")):
        faster = path.what_if(speed_up={"load": 2.0, "sum": 2.0})
        assert 0.5 < faster.makespan_seconds / path.makespan_seconds < 0.8


@pytest.mark.parametrize(
    ("error", "asked", "message"),
    [
        (UnknownNameError, {"target": "lod-1"}, "no task 'lod-1' in this trace; there is: 'load-0', 'load-1'"),
        (UnknownNameError, {"span": "x"}, "no span 'x' in this trace; there is: 'default'"),
        (ValueError, {"target": "load-0", "span": "default"}, "target and span are given; expected one of them"),
        (ValueError, {"window": (5, 5)}, "expected its start before its stop"),
        (EmptyTraceError, {"window": (1, 2)}, "no task ended between 1 and 2"),
    ],
)
def test_a_question_without_an_answer_is_refused(error: type[Exception], asked: dict[str, Any], message: str) -> None:
    with pytest.raises(error, match=message):
        critical_path(SAMPLES["tree"](), **asked)
    with pytest.raises(EmptyTraceError, match="no task ran in the trace 'simulated'"):
        critical_path(replace(SAMPLES["tree"](), runs=Runs.empty()))


def test_other_groups_and_percentages_are_refused() -> None:
    path = critical_path(SAMPLES["tree"]())
    with pytest.raises(ValueError, match="by is 'task'; expected one of kind, prefix, worker, host"):
        path.seconds("task")
    for percent in (0, -1, 101, float("nan")):
        with pytest.raises(ValueError, match="expected more than 0 and at most 100"):
            path.speedups(percent)


def test_what_if_takes_the_changes_of_a_replay() -> None:
    path = critical_path(SAMPLES["spilling"]())
    assert path.what_if().makespan_seconds == path.makespan_seconds
    assert not path.what_if(without=["spill"]).seconds("kind").keys() & {"spill", "unspill"}
    assert path.what_if(speed_up={"sum": 2.0}).makespan_seconds < path.makespan_seconds


def test_the_table_of_speedups_has_prefixes_and_parts_with_the_most_helpful_first() -> None:
    # One chain: a tenth of each prefix's time is what is saved.
    graph = Graph(["a", "b"], [[], [0]], [40 * MS, 20 * MS], [1, 1], {1})
    path = critical_path(simulate(graph, workers=1, nthreads=1))
    table = path.speedups(percent=10)
    assert list(table.index[:2]) == ["a", "b"]
    assert table.saved_seconds.tolist()[:2] == pytest.approx([0.004, 0.002], rel=0.03)
    assert table.saved.tolist()[0] == pytest.approx(0.004 / path.makespan_seconds, rel=0.03)
    assert "(scheduler)" in table.index
    assert "(spill)" not in table.index
    # a prefix with the name of a part is distinguished from it
    graph = Graph(["transfer", "sum"], [[], [0]], [40 * MS, 20 * MS], [8_000_000, 1], {1})
    path = critical_path(simulate(graph, workers=1, nthreads=1))
    assert {"transfer", "sum", "(scheduler)"} == set(path.speedups().index)


def test_without_a_reader_of_profiles_the_path_stays_and_has_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = SAMPLES["tree"]()
    monkeypatch.setattr(paths, "offered", lambda name: None)
    profiled = critical_path(replace(trace, profiles=(TaskProfile(0, 1, trace.start, trace.stop, 0, b""),)))
    assert profiled.seconds() == critical_path(trace).seconds()
    assert profiled.notes == (NOT_EXPANDED,)
    assert critical_path(trace).notes == ()
