from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.runs.trace.schema import BLOCKED_BY, Blocked, Graphs, RunOutcome, Runs, Stimuli, Tasks, Transitions
from dask_efficiency.simulation.model.overheads import MIN_NS, cold_starts, overheads
from tests.runs.trace.samples import damaged_traces
from tests.simulated_traces import MS, US, tree
from tests.simulation.cold_trace import COLD, cold_trace


@pytest.mark.parametrize("cause", [MISSING, BLOCKED_BY.index("computing"), BLOCKED_BY.index("call")])
def test_a_loop_that_stood_still_before_the_first_task_of_a_prefix_is_found(cause: int) -> None:
    trace = cold_trace(cause)
    ns, waited = cold_starts(trace)
    first = np.argmin(trace.runs.received)
    prefix = int(trace.tasks.prefix[trace.runs.task[first]])
    assert ns[0, prefix] == pytest.approx(COLD, abs=5 * MS)
    assert ns.sum() == ns[0, prefix]
    assert waited[first]
    # It is no travel time of a message.
    assert overheads(trace).to_worker.max() < COLD / 2


@pytest.mark.parametrize(
    "trace",
    [
        cold_trace(BLOCKED_BY.index("gil")),
        cold_trace(BLOCKED_BY.index("core")),
        cold_trace(ns=MIN_NS // 2),
        cold_trace(run=19),
    ],
    ids=["waited for the GIL", "waited for a core", "short", "not the first task of its prefix"],
)
def test_other_waits_of_a_loop_are_no_cold_starts(trace: RunTrace) -> None:
    assert not cold_starts(trace)[0].any()
    assert overheads(trace).to_worker.max() > MIN_NS // 4


@settings(max_examples=15)
@given(damaged_traces())
def test_damaged_traces_have_samples_which_are_not_negative(trace: RunTrace) -> None:
    ns, waited = cold_starts(trace)
    assert (ns >= 0).all()
    assert len(waited) == len(trace.runs)
    found = overheads(trace)
    assert len(found.prepare) == len(found.finish) == len(trace.prefixes) + 1
    assert len(found.settling) == len(trace.graphs)
    for sample in (*found.prepare, *found.finish, found.switch, found.to_worker, found.to_scheduler):
        assert len(sample)
        assert sample.min() >= 0
    assert found.settling.min(initial=0) >= 0
    assert min(found.scheduler, found.transition, found.worker) >= 0


def one_slot(count: int, **shifts: Any) -> RunTrace:
    """Runs of 10 ms one after the other on one worker, 20 ms apart; parts that are given take so long."""
    took = {"way": MS, "prepare": 300 * US, "finish": 200 * US, "back": 700 * US, "between": 20 * MS, **shifts}
    columns = dict.fromkeys(("worker", "slot"), np.zeros(count))
    columns |= {"task": np.arange(count), "outcome": np.full(count, RunOutcome.SUCCEEDED)}
    columns["assigned"] = MS + np.arange(count) * took["between"]
    columns |= dict.fromkeys(("received", "ready", "executing"), columns["assigned"] + took["way"])
    columns |= dict.fromkeys(("submitted", "start"), columns["received"] + took["prepare"])
    columns["stop"] = columns["start"] + 10 * MS
    columns["ended"] = columns["stop"] + took["finish"]
    columns["reported"] = columns["ended"] + took["back"]
    runs = Runs.from_columns({name: np.asarray(column, np.int64) for name, column in columns.items()})
    tasks = Tasks.from_columns({"prefix": np.arange(count) % 2, "graph": np.zeros(count, np.int64)})
    nothing: dict[str, Any] = {"transitions": Transitions.empty(), "stimuli": Stimuli.empty()}
    return replace(tree(8), runs=runs, tasks=tasks, prefixes=("a", "b"), **nothing)


def samples(trace: RunTrace) -> dict[str, Any]:
    """Different values of each sample, with the scheduler's time in the way back."""
    found = overheads(trace)
    ways = {"to_worker": found.to_worker, "back": found.to_scheduler + found.scheduler}
    around = {"prepare": found.prepare, "finish": found.finish}
    return {name: sorted(set(values.tolist())) for name, values in ways.items()} | {
        name: [sorted(set(values.tolist())) for values in each] for name, each in around.items()
    }


def test_costs_without_waiting_are_found_by_prefix() -> None:
    prepare = np.where(np.arange(50) % 2, 900 * US, 300 * US)
    assert samples(one_slot(50, prepare=prepare)) == {
        "to_worker": [MS],
        "back": [700 * US],
        "prepare": [[300 * US], [900 * US], [300 * US, 900 * US]],
        "finish": [[200 * US]] * 3,
    }


def test_time_at_a_disk_is_no_overhead() -> None:
    trace = one_slot(10)
    disk = trace.runs.columns() | {"unspill_ns": np.full(10, 100 * US), "spill_ns": np.full(10, 150 * US)}
    found = samples(replace(trace, runs=Runs(**disk)))
    assert (found["prepare"][0], found["finish"][0]) == ([200 * US], [50 * US])


def test_messages_of_one_batch_give_the_workers_time_and_no_travel_time() -> None:
    trace = one_slot(60)
    batches = trace.runs.columns()
    number = np.arange(60)
    # Twelve batches of five: all assigned at once, and taken up 40 us after each other.
    batches["assigned"] = batches["assigned"][number // 5 * 5]
    batches["received"] = batches["received"][number // 5 * 5] + number % 5 * 40 * US
    found = overheads(replace(trace, runs=Runs(**batches)))
    assert found.to_worker.tolist() == [MS] * 12
    assert found.worker == 40 * US


def test_messages_while_the_loop_uses_the_disk_give_no_travel_time() -> None:
    trace = one_slot(50)
    late = np.arange(50) % 2 == 0
    runs = replace(trace.runs, reported=trace.runs.reported + np.where(late, 5 * MS, 0))
    assert samples(replace(trace, runs=runs))["back"] == [700 * US, 5700 * US]
    # Right after the end of a run, the loop reads what another one needs, or writes what is too much.
    columns = {
        "worker": np.zeros(25, np.int32),
        "start": runs.ended[late] + 100,
        "stop": runs.ended[late] + 5 * MS,
        "cause": np.full(25, BLOCKED_BY.index("unspill"), np.int8),
    }
    assert samples(replace(trace, runs=runs, blocked=Blocked.from_columns(columns)))["back"] == [700 * US]
    # The same as its run has it: the next one read its inputs until it was submitted.
    runs = replace(runs, unspill_ns=np.roll(np.where(late, 19 * MS, 0), 1))
    assert samples(replace(trace, runs=runs))["back"] == [700 * US]


def test_reports_right_after_another_one_give_no_travel_time() -> None:
    trace = one_slot(60)
    columns = trace.runs.columns()
    late = columns["reported"].copy()
    late[1::2] = late[0::2] + 100 * US
    columns |= {"ended": np.minimum(columns["ended"], late), "reported": late}
    assert len(overheads(replace(trace, runs=Runs(**columns))).to_scheduler) == 30


def test_a_message_leaves_after_all_transitions_of_its_stimulus() -> None:
    trace = one_slot(40)
    columns = dict.fromkeys(("task", "stimulus"), np.tile(np.arange(40), 3))
    columns["at"] = np.concatenate([trace.runs.assigned + late * US for late in (0, 200, 400)])
    stimuli = Stimuli.from_columns({"kind": np.zeros(40, np.int64)})
    found = overheads(replace(trace, transitions=Transitions.from_columns(columns), stimuli=stimuli))
    assert set(found.to_worker.tolist()) == {600 * US}
    assert found.transition == 200 * US


def test_a_graph_settles_with_its_last_transition() -> None:
    graphs = Graphs.from_columns({"client": [0], "received": [0], "taken_in": [MS]})
    transitions = Transitions.from_columns({"at": [2 * MS, 9 * MS], "task": [0, 1], "stimulus": [0, 0]})
    stimuli = Stimuli.from_columns({"kind": [0], "graph": [0]})
    found = overheads(replace(one_slot(2), graphs=graphs, transitions=transitions, stimuli=stimuli))
    assert found.settling.tolist() == [8 * MS]


def test_a_run_without_samples_gets_the_assumed_ones() -> None:
    found = overheads(one_slot(0))
    for sample in (*found.prepare, *found.finish, found.switch, found.to_worker, found.to_scheduler):
        assert len(sample) == 1
    assert min(found.scheduler, found.transition, found.worker) > 0
