import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dask_efficiency import RunTrace, critical_path
from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.trace.chrome import PathSlice, save_chrome
from dask_efficiency.runs.trace.errors import EmptyTraceError
from dask_efficiency.runs.trace.schema import BLOCKED_BY, Blocked, RunOutcome, Series, Shuffled, WorkerEvents
from tests.runs.trace.perfetto import FAULTS, query, query_each
from tests.simulated_traces import MS, SAMPLES, seceded, spilling, transfer_bound, tree, wide

COUNTS = ("select count(*) from slice", "select count(*) from flow", "select count(*) from counter", FAULTS)


def run_path(trace: RunTrace, *runs: int) -> list[PathSlice]:
    """A path through the slots of some runs, and what is between them as a report."""
    path = []
    for run in runs:
        start, stop = int(trace.runs.executing[run]), int(trace.runs.ended[run])
        if path:
            path.append(PathSlice("report", path[-1].stop, start))
        path.append(PathSlice("compute-cpu", start, stop, run))
    return path


def with_everything() -> RunTrace:
    trace = spilling()
    at = trace.start + MS
    return replace(
        trace,
        blocked=Blocked.from_columns({"worker": [MISSING, 0], "start": [at, at], "stop": [at + MS, at + MS]}),
        series=Series.from_columns({"at": [at, at], "worker": [0, 1], "memory": [1e9, np.nan], "cpu": [1.5, 0.1]}),
    )


def _without(trace: RunTrace, table: str, column: str) -> RunTrace:
    rows = getattr(trace, table)
    blank: Any = np.full_like(getattr(rows, column), MISSING)
    return replace(trace, **{table: replace(rows, **{column: blank})})


def test_perfetto_finds_all_that_was_written_and_no_fault_whatever_is_missing(tmp_path: Path) -> None:
    whole = with_everything()
    traces = {name: make() for name, make in SAMPLES.items()} | {"everything": whole}
    written = {}
    for name, trace in traces.items():
        done = np.flatnonzero(trace.runs.outcome == RunOutcome.SUCCEEDED)
        critical = run_path(trace, int(done[0]), int(done[-1]))
        written[name] = save_chrome(trace, tmp_path / name, critical=critical)
        assert written[name].slices > len(trace.runs)
    for table in ("tasks", "runs", "transfers", "phases", "graphs", "worker_events", "series", "blocked"):
        for column, values in getattr(whole, table).columns().items():
            if values.dtype.kind == "i":
                name = f"{table}.{column}"
                written[name] = save_chrome(_without(whole, table, column), tmp_path / name)
    found = query_each([tmp_path / name for name in written], *COUNTS)
    for (name, wrote), answer in zip(written.items(), found, strict=True):
        assert answer == [[[wrote.slices + wrote.instants]], [[wrote.flows]], [[wrote.counters]], []], name


def test_every_run_is_in_its_slot_on_its_worker(tmp_path: Path) -> None:
    trace = wide(20)
    save_chrome(trace, tmp_path / "run.json")
    sql = (
        "select p.name, t.name, s.ts, s.dur, s.name from slice s join thread_track k on k.id = s.track_id "
        "join thread t using (utid) join process p using (upid) where t.name like 'slot%' and s.depth = 0"
    )
    (found,) = query(tmp_path / "run.json", sql)
    runs = trace.runs
    expected = [
        [
            f"worker {trace.workers[runs.worker[i]].name} {trace.workers[runs.worker[i]].address}",
            f"slot {runs.slot[i]}",
            int(runs.executing[i] - trace.start),
            int(runs.ended[i] - runs.executing[i]),
            trace.prefixes[trace.tasks.prefix[runs.task[i]]],
        ]
        for i in range(len(runs))
    ]
    assert sorted(found) == sorted(expected)
    # a worker that joined long before does not stretch the view; and a name in gz is compressed
    old = WorkerEvents.from_columns({"at": [trace.start - 10**15], "worker": [0], "change": [0]})
    written = save_chrome(replace(trace, worker_events=old), tmp_path / "run.json.gz")
    assert json.loads(gzip.decompress((tmp_path / "run.json.gz").read_bytes()))
    first, slices = query(tmp_path / "run.json.gz", "select min(ts) from slice", COUNTS[0])
    assert (first, slices) == ([[0]], [[written.slices + written.instants]])


def test_an_arrow_leads_from_the_run_that_made_a_result_to_its_transfer(tmp_path: Path) -> None:
    trace = transfer_bound()
    written = save_chrome(trace, tmp_path / "run.json")
    # an arrow leaves what the run did in its slot, below the run itself
    sql = (
        "select extract_arg(run.arg_set_id, 'args.key'), extract_arg(b.arg_set_id, 'args.key'), b.name, "
        "run.ts + run.dur <= b.ts from flow join slice a on a.id = slice_out "
        "join slice run on run.id = coalesce(a.parent_id, a.id) join slice b on b.id = slice_in"
    )
    (found,) = query(tmp_path / "run.json", sql)
    assert len(found) == written.flows == len(trace.transfers)
    for made, brought, name, in_time in found:
        assert (made, name, in_time) == (brought, "transfer", 1)


def test_messages_of_a_shuffle_are_on_the_worker_that_sends_them_and_blocks_of_loops_named(tmp_path):
    trace = spilling()
    at = trace.start + MS
    shuffled = {"task": [0, 1], "sender": [1, 1], "receiver": [0, 1], "nbytes": [7, 8], "start": [at, at]}
    blocked = {
        "worker": [0] * 4,
        "start": [at + i * MS for i in range(4)],
        "stop": [at + i * MS for i in range(1, 5)],
        "moving_ns": [0, MS, 0, 0],
        "cause": [MISSING, MISSING, BLOCKED_BY.index("unspill"), BLOCKED_BY.index("spill")],
    }
    trace = replace(
        trace,
        shuffled=Shuffled.from_columns(shuffled | {"stop": [at + MS, at + 2 * MS]}),
        blocked=Blocked.from_columns(blocked),
    )
    save_chrome(trace, tmp_path / "run.json")
    events = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    messages = [event for event in events if event["name"] == "shuffle message"]
    assert [event["args"]["nbytes"] for event in messages] == [7, 8]
    assert [event["args"]["to"] for event in messages] == [trace.workers[0].name, trace.workers[1].name]
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert {names[event["pid"]] for event in messages} == {f"worker {trace.workers[1].name} {trace.workers[1].address}"}
    of_loops = [event["name"] for event in events if event.get("cat") == "event-loop"]
    assert of_loops == ["blocked", "moves data", "unspill", "spill"]


def test_the_critical_path_has_a_track_and_arrows_of_the_kind_between_its_runs(tmp_path: Path) -> None:
    trace = tree(4)
    last = int(trace.runs.stop.argmax())
    critical = run_path(trace, 0, last)
    save_chrome(trace, tmp_path / "run.json", critical=critical)
    names = "select s.name from slice s where s.category = 'critical-path' order by ts"
    arrows = (
        "select a.ts, b.ts, extract_arg(f.arg_set_id, 'cat') from flow f join slice a on a.id = slice_out "
        "join slice b on b.id = slice_in where extract_arg(f.arg_set_id, 'name') = 'critical path'"
    )
    found, joined = query(tmp_path / "run.json", names, arrows)
    assert found == [["compute-cpu"], ["report"], ["compute-cpu"]]
    assert len(joined) == 1
    start = [int(trace.runs.executing[run]) - trace.start for run in (0, last)]
    assert joined[0][0] >= start[0]
    assert joined[0][1:] == [start[1], "report"]


def test_only_the_critical_path_is_left_when_asked_for(tmp_path: Path) -> None:
    trace = transfer_bound()
    last = int(trace.runs.stop.argmax())
    full = save_chrome(trace, tmp_path / "full.json")
    few = save_chrome(trace, tmp_path / "few.json", critical=run_path(trace, 0, last), only_critical=True)
    assert few.slices < full.slices / 3
    content = json.loads((tmp_path / "few.json").read_bytes())
    keys = {event["args"]["key"] for event in content["traceEvents"] if event.get("cat") in ("thread-cpu", "transfer")}
    task = int(trace.runs.task[last])
    inputs = trace.dependencies[trace.dependency_starts[task] : trace.dependency_starts[task + 1]]
    there = [
        i for i in inputs if ((trace.transfers.task == i) & (trace.transfers.receiver == trace.runs.worker[last])).any()
    ]
    assert keys == {trace.keys[0], trace.keys[task], *(trace.keys[i] for i in there)}


def test_a_task_that_seceded_gives_its_slot_to_the_next(tmp_path: Path) -> None:
    trace = seceded()
    path = tmp_path / "run.json"
    save_chrome(trace, path)
    slots = "select count(*) from thread t where t.name like 'slot%'"
    beside = "select count(*) from slice where category = 'seceded'"
    found, outside, faults = query(path, slots, beside, FAULTS)
    assert found == [[sum(worker.nthreads for worker in trace.workers)]]
    assert outside == [[int((trace.runs.seceded != MISSING).sum())]]
    assert faults == []


def test_a_trace_is_written_with_its_own_critical_path(tmp_path: Path) -> None:
    trace = transfer_bound()
    full = trace.to_chrome(tmp_path / "full.json")
    few = trace.to_chrome(tmp_path / "few.json", only_critical=True)
    assert few.slices < full.slices
    arrows = "select count(*) from flow f where extract_arg(f.arg_set_id, 'name') = 'critical path'"
    tiles = "select sum(dur) from slice where category = 'critical-path'"
    (in_full, long), (in_few, _) = query_each([tmp_path / "full.json", tmp_path / "few.json"], arrows, tiles)
    path = critical_path(trace)
    assert long == [[round(path.makespan_seconds * 1e9)]]
    assert in_full == in_few
    assert in_full[0][0] > 0
    # one in which nothing ended has none
    trace = replace(trace, runs=trace.runs.take(np.zeros(len(trace.runs), np.bool_)))
    trace.to_chrome(tmp_path / "run.json")
    with pytest.raises(EmptyTraceError):
        trace.to_chrome(tmp_path / "none.json", only_critical=True)
    assert not (tmp_path / "none.json").exists()
