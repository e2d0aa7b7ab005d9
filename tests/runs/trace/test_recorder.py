import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.trace import recorder
from dask_efficiency.runs.trace import recorder as module
from dask_efficiency.runs.trace.recorder import MAX_NAME_LENGTH, Names
from dask_efficiency.runs.trace.schema import RunOutcome
from tests.runs.trace.scenes import Scene, needs_of, runs_of


def test_names_are_numbered_in_order_of_first_use_too_many_are_one_and_long_ones_are_cut(monkeypatch):
    together, names = Names(), Names()
    for texts in (["b", "a", "b"], ["a", "b"], ["c", "a"], []):
        assert together.numbers(texts) == [names[text] for text in texts]
    assert together == names == {"b": 0, "a": 1, "c": 2}
    monkeypatch.setattr(module, "MAX_NAMES", 2)
    names = Names()
    assert names.numbers(map(str, range(5))) == [0, 1, 2, 2, 2]
    assert list(names) == ["0", "1", "(other)"]
    long = Names()
    assert long.numbers(["x" * 1_000, "x" * 1_000, "y"]) == [0, 0, 1]
    assert list(long) == ["x" * MAX_NAME_LENGTH, "y"]


def test_a_task_is_met_with_all_that_it_needs():
    scene = Scene()
    scene.submit({"a": (), "b": ("a",), "c": ("a", "b")}, retries=2)
    trace = scene.trace()
    assert list(trace.keys) == ["a", "b", "c"]
    assert [needs_of(trace, key) for key in "abc"] == [set(), {"a"}, {"a", "b"}]
    assert trace.tasks.priority_order.tolist() == [0, 1, 2]
    assert trace.tasks.graph.tolist() == [0, 0, 0]
    assert trace.tasks.wanted.all()
    assert trace.constraints == {task: {"retries": 2} for task in range(3)}
    # one that a client submits again belongs to the first graph
    scene.submit({"a": (), "d": ("a",)})
    trace = scene.trace()
    assert trace.tasks.graph.tolist() == [0, 0, 0, 1]
    assert trace.stimuli.graph.tolist() == [0, 1]


def test_a_task_that_was_there_before_is_met_when_it_is_needed_and_read_when_it_moves():
    scene = Scene()
    scene.move("before", "released", "forgotten", scene.cause("client-releases-keys"))
    assert len(scene.trace().tasks) == 0, "it is only forgotten"
    scene.facts["oldest"] = ("old", "", (0, 0, 0), (), {})
    scene.facts["old"] = ("old", "", (0, 0, 1), ("oldest",), {})
    stimulus = scene.submit({"new": ("old",)})
    assert scene.trace().prefixes == ("prefix",)
    assert needs_of(scene.trace(), "old") == set()
    scene.move("old", "memory", "released", stimulus)
    trace = scene.trace()
    assert needs_of(trace, "old") == {"oldest"}
    assert trace.tasks.graph.tolist() == [0, MISSING, MISSING]


@given(st.integers(2, 30), st.integers(1, 60))
def test_the_newest_tasks_are_kept_and_the_dropped_ones_counted(max_tasks, count):
    scene = Scene(max_tasks=max_tasks)
    for i in range(count):
        scene.run(i, 0, scene.submit({i: ()}))
    trace = scene.trace()
    kept = [int(key) for key in trace.keys]
    assert kept == list(range(count - len(kept), count))
    assert min(count, max_tasks // 2) <= len(kept) <= max_tasks
    assert len(kept) + trace.dropped.get("tasks", 0) == count
    assert len(trace.transitions) + trace.dropped.get("transitions", 0) == 3 * count
    assert runs_of(trace, count - 1)[0]["outcome"] == RunOutcome.SUCCEEDED
    # A task may be there whose graph was dropped.
    brought = [graph for graph in trace.tasks.graph.tolist() if graph != MISSING]
    assert brought == list(range(len(trace.graphs)))[-len(brought) :]
    assert trace.tasks.graph[-1] == len(trace.graphs) - 1


@given(st.integers(2, 12), st.integers(2, 40))
def test_a_run_that_goes_on_while_others_are_dropped_is_whole_or_gone(max_tasks, count):
    scene = Scene(max_tasks=max_tasks)
    run_id = scene.process("long", 0, scene.submit({"long": ()}))
    for i in range(count):
        scene.run(i, 1, scene.submit({i: ("long",)}))
    scene.send(0, scene.on_worker(0, run_id))
    scene.move("long", "processing", "memory", scene.cause("task-finished"), 0, 28)
    trace = scene.trace()
    assert list(trace.keys).count("long") == 1
    for run in runs_of(trace, "long"):
        assert run["outcome"] == RunOutcome.SUCCEEDED
        assert run["run_id"] == run_id
    for column in (trace.runs.task, trace.transitions.task, trace.dependencies):
        assert np.isin(column, np.arange(len(trace.tasks))).all()
    assert np.isin(trace.transitions.stimulus, np.arange(len(trace.stimuli))).all()


def test_a_cluster_without_work_does_not_grow_without_bound():
    scene = Scene(max_tasks=2)
    for _ in range(100):
        scene.recorder.heartbeat(scene.tick(), 0, [0.0] * len(recorder.SERIES))
    trace = scene.trace()
    assert len(trace.series) <= 2 * recorder.TRANSITIONS_A_TASK
    assert len(trace.series) + trace.dropped["series"] == 100
