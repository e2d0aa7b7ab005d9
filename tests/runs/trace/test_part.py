from __future__ import annotations

import numpy as np

from dask_efficiency.runs.trace.schema import Outcome
from tests.runs.trace.scenes import EPOCH, Scene, needs_of, runs_of


def test_a_part_holds_what_was_going_on_and_the_tasks_that_it_names():
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
    assert runs_of(trace, "long")[0]["outcome"] == Outcome.SUCCEEDED
    assert trace.keys[int(runs_of(trace, "late")[0]["after"])] == "long"
    assert needs_of(trace, "late") == {"early"}
    assert (trace.transitions.at >= trace.start).all()
    assert np.isin(trace.transitions.stimulus, np.arange(len(trace.stimuli))).all()
    assert len(trace.graphs) == 1
    assert dict(zip(trace.keys, trace.tasks.graph.tolist(), strict=True)) == {"early": -1, "long": -1, "late": 0}
    assert {trace.keys[task]: value for task, value in trace.constraints.items()} == {"long": {"retries": 1}}
