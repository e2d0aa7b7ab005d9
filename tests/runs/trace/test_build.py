import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.trace.schema import RUN_INSTANTS, SHUFFLED, RunOutcome, WorkerChange
from tests.runs.trace.scenes import EPOCH, Scene, needs_of, runs_of


def instants(run):
    return [run[name] for name in RUN_INSTANTS]


def test_a_run_joins_the_rows_of_the_scheduler_and_the_worker_of_which_the_later_counts():
    scene = Scene()
    run_id = scene.process("a", 1, scene.submit({"a": ()}))
    scene.send(1, scene.on_worker(1, run_id, stop=MISSING, ended=MISSING, thread=MISSING))
    scene.send(1, scene.on_worker(1, run_id, slot=3, thread=99))
    scene.move("a", "processing", "memory", scene.cause("task-finished"), 1, 28)
    trace = scene.trace()
    (run,) = runs_of(trace, "a")
    assert (run["worker"], run["slot"], run["thread"], run["cpu_ns"]) == (1, 3, 99, 7)
    assert instants(run) == sorted(instants(run))
    assert len(set(instants(run))) == len(RUN_INSTANTS)
    assert run["assigned"] > EPOCH
    assert trace.tasks.nbytes.tolist() == [28]


def test_instants_of_workers_and_clients_are_converted_to_the_scheduler_s_clock():
    same, apart = Scene(), Scene(offsets=(10**15, -(10**12)))
    for scene in (same, apart):
        scene.run("b", 1, scene.run("a", 0, scene.submit({"a": (), "b": ("a",)})))
    for key in "ab":
        assert instants(runs_of(apart.trace(), key)[0]) == instants(runs_of(same.trace(), key)[0])
    trace = same.trace(phases={"gather": [(30, 40)], "optimize": [(1, 2), (5, 6)]}, client="client")
    assert [worker.clock_offset for worker in trace.workers] == [0, 0]
    assert trace.phases.start.tolist() == [EPOCH + 1, EPOCH + 5, EPOCH + 30]
    assert trace.phases.phase.tolist() == [0, 0, 2]
    assert trace.clients == ("client",)
    empty = Scene().trace()
    assert {len(getattr(empty, name)) for name in ("tasks", "runs", "transitions", "transfers", "phases")} == {0}


@pytest.mark.parametrize(
    ("finish", "kind", "removed", "outcome"),
    [
        ("memory", "task-finished", False, RunOutcome.SUCCEEDED),
        ("erred", "task-erred", False, RunOutcome.FAILED),
        ("released", "task-erred", False, RunOutcome.FAILED),
        ("released", "execute-unknown-error", False, RunOutcome.FAILED),
        ("released", "reschedule", False, RunOutcome.CANCELLED),
        ("released", "client-releases-keys", False, RunOutcome.CANCELLED),
        ("released", "task-finished", False, RunOutcome.CANCELLED),
        ("released", "handle-worker-cleanup", True, RunOutcome.LOST),
        ("erred", "handle-worker-cleanup", True, RunOutcome.LOST),
    ],
)
def test_the_outcome_of_a_run_follows_from_its_end_and_its_cause(finish, kind, removed, outcome):
    scene = Scene()
    scene.process("a", 0, scene.submit({"a": ()}))
    (running,) = runs_of(scene.trace(), "a")
    assert (running["outcome"], running["reported"]) == (RunOutcome.RUNNING, MISSING)
    cause = scene.cause(kind)
    scene.move("a", "processing", finish, cause)
    if removed:
        scene.recorder.worker_changed(scene.tick(), 0, WorkerChange.LEFT, stimulus_id=cause)
    assert [run["outcome"] for run in runs_of(scene.trace(), "a")] == [outcome]


def test_a_run_released_before_its_worker_left_or_cut_off_by_it_is_cancelled_and_not_lost():
    for kind, rows in (("client-releases-keys", False), ("retire-workers", True)):
        scene = Scene()
        run_id = scene.process("a", 0, scene.submit({"a": ()}))
        cause = scene.cause(kind)
        scene.move("a", "processing", "released", cause)
        left = cause if rows else scene.cause("retire-workers")
        scene.recorder.worker_changed(scene.tick(), 0, WorkerChange.LEFT, stimulus_id=left)
        if rows:
            scene.send(0, scene.on_worker(0, run_id))
        (run,) = runs_of(scene.trace(), "a")
        assert run["outcome"] == RunOutcome.CANCELLED
        assert (run["reported"] == MISSING) == rows


def test_a_stolen_task_has_a_run_on_each_worker():
    scene = Scene()
    stimulus = scene.submit({"a": ()})
    scene.process("a", 0, stimulus)
    scene.run_ids += 1
    scene.move("a", "processing", "processing", "steal-7", 1, scene.run_ids)
    scene.send(1, scene.on_worker(1, scene.run_ids))
    scene.move("a", "processing", "memory", scene.cause("task-finished"), 1, 28)
    trace = scene.trace()
    given_up, done = runs_of(trace, "a")
    assert (given_up["worker"], given_up["outcome"]) == (0, RunOutcome.CANCELLED)
    assert (done["worker"], done["outcome"]) == (1, RunOutcome.SUCCEEDED)
    assert "steal" in trace.stimulus_kinds
    assert trace.stimuli.at[list(trace.stimuli.kind).index(trace.stimulus_kinds.index("steal"))] == MISSING


def test_a_task_that_was_processing_when_the_recording_began_has_a_run_and_no_transition():
    scene = Scene()
    scene.facts["a"] = ("prefix", "", (0, 0, 0), (), {})
    scene.move("a", "processing", "processing", "", 0, 5)
    scene.send(0, scene.on_worker(0, 5, received=MISSING, ready=MISSING))
    scene.move("a", "processing", "memory", scene.cause("task-finished"), 0, 28)
    trace = scene.trace()
    (run,) = runs_of(trace, "a")
    assert (run["outcome"], run["assigned"], run["received"]) == (RunOutcome.SUCCEEDED, MISSING, MISSING)
    assert run["executing"] > EPOCH
    assert len(trace.transitions) == 1
    assert trace.transitions.stimulus.tolist() == [0]


def test_the_runs_that_compute_a_lost_result_again_are_recomputed_and_repeats_are_not():
    scene = Scene()
    scene.run("a", 0, scene.submit({"a": (), "b": ()}))
    lost = scene.cause("handle-worker-cleanup")
    scene.move("a", "memory", "released", lost)
    scene.move("a", "released", "waiting", lost)
    scene.recorder.recomputed(scene.run_ids + 1)
    scene.run("b", 1, scene.run("a", 1, lost))
    scene.move("a", "memory", "released", scene.cause("client-releases-keys"))
    scene.run("a", 1, scene.submit({"a": ()}))
    trace = scene.trace()
    assert [run["recomputed"] for run in runs_of(trace, "a")] == [False, True, False]
    assert [run["recomputed"] for run in runs_of(trace, "b")] == [False]


def test_the_task_that_left_its_slot_is_named():
    scene = Scene()
    stimulus = scene.submit({"a": (), "b": (), "c": ()})
    scene.run("a", 0, stimulus)
    scene.run("b", 0, stimulus, after=1)
    scene.run("c", 0, stimulus, after=77)  # that one is not in the recording
    trace = scene.trace()
    assert [runs_of(trace, key)[0]["after"] for key in "abc"] == [MISSING, list(trace.keys).index("a"), MISSING]


def test_a_lost_row_is_replaced_by_the_scheduler_s_message():
    scene = Scene()
    scene.process("a", 0, scene.submit({"a": ()}))
    begins = scene.tick()
    ends = scene.tick(500_000)
    computed = {"action": "compute", "start": (EPOCH + begins) / 1e9, "stop": (EPOCH + ends) / 1e9}
    scene.move("a", "processing", "memory", scene.cause("task-finished"), 0, 28, [computed])
    (run,) = runs_of(scene.trace(), "a")
    assert run["stop"] - run["start"] == pytest.approx(500_000, abs=1_000)
    assert run["executing"] == MISSING
    # Upstream's guess at the clocks may be far off: the run keeps its length, and its place.
    scene.process("b", 0, scene.submit({"b": ()}))
    scene.tick(500_000)
    early = {"action": "compute", "start": computed["start"] - 3, "stop": computed["stop"] - 3}
    scene.move("b", "processing", "memory", scene.cause("task-finished"), 0, 28, [early])
    (run,) = runs_of(scene.trace(), "b")
    assert run["start"] == run["assigned"]
    assert run["stop"] - run["start"] == pytest.approx(500_000, abs=1_000)


@given(st.lists(st.integers(-5_000_000, 5_000_000), min_size=7, max_size=7))
def test_an_effect_never_comes_before_its_cause(errors):
    scene = Scene()
    run_id = scene.process("a", 0, scene.submit({"a": ()}))
    scene.tick(8_000)
    reported = {name: scene.now + error for name, error in zip(RUN_INSTANTS[1:-1], errors, strict=True)}
    scene.send(0, scene.on_worker(0, run_id, **reported))
    scene.move("a", "processing", "memory", scene.cause("task-finished"), 0, 28)
    trace = scene.trace()
    (run,) = runs_of(trace, "a")
    assert instants(run) == sorted(instants(run))
    if max(errors) - min(errors) < 900_000 and abs(errors[0]) < 1 and max(errors) <= 0:
        assert trace.notes == ()


def test_clocks_that_disagree_by_milliseconds_and_a_recording_that_began_late_are_noted():
    scene = Scene()
    run_id = scene.process("a", 0, scene.submit({"a": ()}))
    scene.send(0, scene.on_worker(0, run_id, received=scene.now - 3_000_000))
    trace = scene.trace(start=-2_000_000_000)
    assert trace.start == EPOCH
    late, moved = trace.notes
    assert late == "the recording began 2 s after what it was asked for: an earlier one had failed"
    assert "clocks disagree: 1 instants were moved, by 3 ms at most" in moved


def test_transfers_and_messages_of_shuffles_are_in_the_order_of_their_ends():
    scene = Scene(offsets=(0, 5_000))
    scene.run("a", 0, scene.submit({"a": (), "b": (), "barrier": ()}))
    moved = {"sender": 0, "nbytes": 28, "queued": 1, "start": 2, "arrived": 1}
    sent = {"sender": 0, "nbytes": 7, "start": 3, "stop": 9, "arrived": SHUFFLED}
    rows = {"barrier": sent, "b": {**moved, "stop": 9}, "a": {**moved, "stop": 8, "arrived": 0}}
    scene.send(1, transfers=rows)
    scene.send(1, transfers={"unheard of": {**moved, "stop": 3}})
    trace = scene.trace()
    assert trace.transfers.stop.tolist() == [EPOCH + 5_008, EPOCH + 5_009]
    assert trace.transfers.arrived.tolist() == [False, True]
    assert (trace.transfers.sender.tolist(), trace.transfers.receiver.tolist()) == ([0, 0], [1, 1])
    assert (trace.shuffled.start.tolist(), trace.shuffled.stop.tolist()) == ([EPOCH + 5_003], [EPOCH + 5_009])
    assert (trace.shuffled.sender.tolist(), trace.shuffled.receiver.tolist()) == ([1], [0])
    assert trace.shuffled.nbytes.tolist() == [7]
    assert [trace.keys[task] for task in trace.shuffled.task.tolist()] == ["barrier"]


def test_a_part_holds_the_runs_that_went_on_and_the_tasks_that_it_names():
    scene = Scene()
    scene.run("early", 0, scene.submit({"early": (), "never": ()}))
    stimulus = scene.submit({"long": ("early",)}, retries=1)
    run_id = scene.process("long", 0, stimulus)
    start = scene.tick()
    scene.run("late", 1, scene.submit({"late": ("early",)}), after=run_id)
    scene.send(0, scene.on_worker(0, run_id))
    scene.move("long", "processing", "memory", scene.cause("task-finished"), 0, 28)
    trace = scene.trace(start=start)
    assert trace.start == EPOCH + start
    assert set(trace.keys) == {"early", "long", "late"}
    assert not runs_of(trace, "early")
    assert runs_of(trace, "long")[0]["outcome"] == RunOutcome.SUCCEEDED
    assert trace.keys[int(runs_of(trace, "late")[0]["after"])] == "long"
    assert needs_of(trace, "late") == {"early"}
    assert (trace.transitions.at >= trace.start).all()
    assert np.isin(trace.transitions.stimulus, np.arange(len(trace.stimuli))).all()
    assert len(trace.graphs) == 1
    assert dict(zip(trace.keys, trace.tasks.graph.tolist(), strict=True)) == {"early": -1, "long": -1, "late": 0}
    assert {trace.keys[task]: value for task, value in trace.constraints.items()} == {"long": {"retries": 1}}
