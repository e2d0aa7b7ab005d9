"""Tables and recorded runs as observations: what is read, and what is refused by its name."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency import RunTrace
from dask_efficiency.runs.stragglers.offline import find_stragglers, judge_run
from dask_efficiency.runs.stragglers.tables import ObservedRun, TableError, run_of_table, run_of_trace
from dask_efficiency.runs.trace.schema import Shuffled
from dask_efficiency.straggler.disk import AGAINST_USUAL
from dask_efficiency.straggler.signals import MIN_TRANSFER_BYTES
from tests.runs.stragglers.tables_of_tasks import slowed, tasks
from tests.runs.trace.samples import damaged_traces
from tests.simulated_traces import SAMPLES


def signals(run: ObservedRun) -> set[str]:
    return {observations.signal for observations in run.observations}


def test_missing_columns_switch_their_signals_off() -> None:
    frame = tasks(3)
    assert signals(run_of_table(frame)) == {"duration", "cpu_share", "non_cpu"}
    assert signals(run_of_table(frame.drop(columns="cpu_seconds"))) == {"duration"}
    more = frame.assign(disk_seconds=1.0, transfer_seconds=2.0, io_wait_seconds=0.1)
    of_disks = {"disk", "io_wait", *AGAINST_USUAL}
    assert signals(run_of_table(more)) == {"duration", "cpu_share", "non_cpu", "receive"} | of_disks
    assert signals(run_of_table(more.drop(columns="io_wait_seconds"))) == {
        "duration", "cpu_share", "non_cpu", "receive", "disk",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("start", math.nan, "start of row 0 is nan; expected seconds"),
        ("stop", -5.0, r"row 0 stops at -5\.0, before its start at 0\.0"),
        ("cpu_seconds", -1.0, r"cpu_seconds of row 0 is -1\.0; expected 0 or more"),
        ("start", "yesterday", "column 'start': .*expected numbers"),
    ],
)
def test_an_impossible_value_and_a_missing_column_are_refused(column, values, message):
    with pytest.raises(TableError, match=message):
        run_of_table(tasks(3).assign(**{column: values}))
    for needed in ("worker", "prefix", "start", "stop"):
        with pytest.raises(TableError, match=f"no column '{needed}'; expected worker, prefix, start, stop; there is: "):
            run_of_table(tasks(3).drop(columns=needed))


def test_a_table_may_be_empty_name_workers_by_numbers_and_hold_whole_seconds() -> None:
    assert find_stragglers(tasks(3).iloc[:0]) == []
    frame = slowed(tasks(5), "w02", 2.0)
    frame["worker"] = frame.worker.str[1:].astype(int)
    assert [one.worker for one in find_stragglers(frame)] == ["2"]
    frame = tasks(4, seconds=0.4).round({"start": 0, "stop": 0})
    frame["stop"] = frame[["start", "stop"]].max(axis=1)
    assert float(run_of_table(frame).observations[0].value.min()) >= 0.0


def test_the_disk_is_compared_within_hosts_of_three_workers() -> None:
    frame = tasks(6).assign(disk_seconds=1.0)
    frame["host"] = np.where(frame.worker < "w03", "one", "two")
    disk = run_of_table(frame).observed("disk")
    assert disk is not None
    assert set(disk.kinds) == {"load one", "load two", "fit one", "fit two"}


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_any_recorded_run_can_be_judged(name: str) -> None:
    trace = SAMPLES[name]()
    assert run_of_trace(trace).workers == tuple(spec.name for spec in trace.workers)
    find_stragglers(trace)


def test_the_first_task_of_a_prefix_on_a_worker_is_left_out() -> None:
    trace = SAMPLES["wide"]()
    duration = run_of_trace(trace).observed("duration")
    assert duration is not None
    assert len(duration.value) == len(trace.runs) - len(trace.workers)


def test_messages_of_shuffles_are_transfers_compared_among_themselves() -> None:
    # The last two are of a worker to itself, and too small to tell.
    pairs, ms = [(0, 1), (0, 2), (1, 2), (2, 1), (1, 1), (2, 0)], [80, 80, 10, 10, 10, 10]
    columns = {
        "task": [0] * 6,
        "sender": [sender for sender, _ in pairs],
        "receiver": [receiver for _, receiver in pairs],
        "nbytes": [10_000_000] * 5 + [MIN_TRANSFER_BYTES - 1],
        "start": [0] * 6,
        "stop": [1_000_000 * took for took in ms],
    }
    run = run_of_trace(replace(SAMPLES["wide"](), shuffled=Shuffled.from_columns(columns)))
    found = {
        (one.signal, run.workers[worker], one.kinds[kind], round(math.exp(value) * 1e9))
        for one in run.observations
        for worker, kind, value in zip(one.worker.tolist(), one.work.tolist(), one.value.tolist(), strict=True)
        if one.kinds[kind].startswith("shuffled ")
    }
    names, nanoseconds_a_byte = run.workers, [8, 8, 1, 1]
    compared = list(zip(pairs, nanoseconds_a_byte, strict=False))
    assert found == {
        *(("send", names[s], f"shuffled to {names[r]}", cost) for (s, r), cost in compared),
        *(("receive", names[r], f"shuffled from {names[s]}", cost) for (s, r), cost in compared),
    }


@given(damaged_traces())
def test_a_damaged_trace_is_judged_by_its_remaining_tasks(trace: RunTrace) -> None:
    judge_run(run_of_trace(trace), {}, 1.0)


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "worker": st.sampled_from("abcd"),
                "prefix": st.sampled_from(["x", "y", "\x1b[31m"]),
                "start": st.floats(0, 1e9),
                "took": st.sampled_from([0.0, 1e-9, 1.0, 1e9, math.nan]),
                "cpu_seconds": st.sampled_from([0.0, 1.0, math.nan, math.inf]),
                "input_bytes": st.sampled_from([0.0, 1.0, 1e15, math.nan]),
            }
        ),
        max_size=40,
    )
)
def test_any_table_is_judged_without_an_error_and_with_finite_scores(rows: list[dict[str, Any]]) -> None:
    frame = pd.DataFrame(rows, columns=["worker", "prefix", "start", "took", "cpu_seconds", "input_bytes"])
    frame["stop"] = frame.start + frame.took
    for one in find_stragglers(frame):
        assert math.isfinite(one.score)
        assert math.isfinite(one.effect)
