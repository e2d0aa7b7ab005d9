from __future__ import annotations

from distributed.worker_state_machine import WorkerState

from dask_efficiency.plugin.worker.transitions import matters

TABLE = WorkerState._TRANSITIONS_TABLE


def test_what_matters_to_slots_are_all_transitions_that_may_move_one():
    with_slot = {"executing", "long-running", "cancelled", "resumed"}
    moving = {states for states in TABLE if with_slot & set(states)}
    told = {states for states in TABLE if matters(*states)}
    assert moving <= told
    assert not {("waiting", "ready"), ("memory", "released"), ("released", "forgotten"), ("fetch", "flight")} & told
