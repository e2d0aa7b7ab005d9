import math
import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_efficiency import RunTrace, load_trace
from dask_efficiency.accounts.tables import MISSING, Column, Texts
from dask_efficiency.runs.trace import archive as archives
from dask_efficiency.runs.trace.files import MAX_NS, MAX_NUMBER, TraceFileError, check_positions
from dask_efficiency.runs.trace.run_trace import POINTS_INTO, TABLES, WorkerSpec
from dask_efficiency.runs.trace.schema import Blocked, Releases, Series, Shuffled
from dask_efficiency.show import progress
from tests.runs.trace.archives import Change, archive, forged, set_to
from tests.runs.trace.equal import assert_same
from tests.simulated_traces import SAMPLES, lost_worker, random_graph, simulate, tree


def everything() -> RunTrace:
    """A trace with something in every field."""
    trace = simulate(random_graph(12))
    at = trace.start + 1
    return replace(
        trace,
        name='a "run"\n\ud800',
        spans=("", "outer/inner \N{SNOWMAN}"),
        workers=(*trace.workers, WorkerSpec("w", "a", "h", 1, 0, {"GPU": 1.0, "room": math.inf}, -5, 7, 1.5, 0.25)),
        series=Series.from_columns(
            {"at": [at, at + 1], "worker": [0, 1], "cpu": [0.1, math.nan], "steal": [0.3, math.nan]}
        ),
        shuffled=Shuffled.from_columns({"task": [3], "sender": [0], "receiver": [1], "nbytes": [7], "start": [at]}),
        constraints={0: {"retries": 2}, 5: {"resources": {"GPU": 1}}, 7: {"retries": 2}},
        config={"bandwidth": 1e8, "nested": {"list": [1, None, True]}},
        dropped={"transitions": 3},
        notes=("a note",),
        core_waits={"inc": 0.5},
        gil_waits={"inc": 0.25},
    )


def nothing() -> RunTrace:
    """A trace without a row."""
    trace = tree(2)
    empty: dict[str, Any] = {name: kind.empty() for name, kind in TABLES.items()}
    no_edges = {"dependency_starts": np.zeros(1, np.int64), "dependencies": np.zeros(0, np.int32)}
    return replace(trace, keys=Texts.of([]), **no_edges, **empty)


def round_trip(trace: RunTrace) -> RunTrace:
    trace.save("memory://traces/a.trace")
    return load_trace("memory://traces/a.trace")


@pytest.mark.parametrize("made", [*SAMPLES.values(), everything, nothing], ids=[*SAMPLES, "everything", "nothing"])
def test_a_run_is_loaded_as_it_was_saved(made: Callable[[], RunTrace]) -> None:
    assert_same(round_trip(made()), made())


def test_a_setting_that_json_does_not_know_is_no_reason_to_lose_a_run() -> None:
    odd = {"limit": np.int64(3), "path": Path("a"), "keys": ("b",)}
    loaded = round_trip(replace(tree(2), config=odd, constraints={0: {"retries": np.int32(2)}}))
    assert loaded.config == {"limit": 3, "path": "a", "keys": ["b"]}
    assert loaded.constraints == {0: {"retries": 2}}


def _range(trace: RunTrace, column: Column) -> tuple[int, int]:
    """The numbers that a column can hold."""
    if column.clock is not None:
        return trace.stop - MAX_NS, trace.start + MAX_NS
    return -MAX_NUMBER if not column.unit else 0, MAX_NS if column.unit == "ns" else MAX_NUMBER


@settings(max_examples=30)
@given(st.data())
def test_any_numbers_and_names_survive(data: st.DataObject) -> None:
    trace = tree(3)
    tables: dict[str, Any] = {}
    for name in ("tasks", "runs", "transfers", "transitions", "stimuli", "phases"):
        table = getattr(trace, name)
        columns = table.columns()
        for column, values in columns.items():
            if values.dtype == np.int64:
                numbers = st.just(MISSING) | st.integers(*_range(trace, table.schema()[column]))
                drawn = data.draw(st.lists(numbers, min_size=len(values), max_size=len(values)))
                columns[column] = np.array(drawn, np.int64)
        tables[name] = type(table)(**columns)
    texts = st.text(max_size=5)
    keys = data.draw(st.lists(texts, min_size=len(trace.tasks), max_size=len(trace.tasks)))
    floats = data.draw(st.lists(st.floats(), max_size=4))
    trace = replace(
        trace,
        **tables,
        name=data.draw(texts),
        start=data.draw(st.integers(trace.start - 1_000, trace.stop)),
        keys=Texts.of(keys),
        notes=tuple(data.draw(st.lists(texts, max_size=2))),
        series=Series.from_columns({"at": [trace.start] * len(floats), "worker": [0] * len(floats), "cpu": floats}),
    )
    assert_same(round_trip(trace), trace)


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("graphs", "taken_in", -2),
        ("graphs", "received", 0),
        ("runs", "start", 1 << 62),
        ("runs", "cpu_ns", -5),
        ("transfers", "nbytes", (1 << 62) + 1),
        ("tasks", "priority_order", -(1 << 63)),
    ],
)
def test_a_number_or_a_length_of_a_run_that_cannot_be_true_is_refused(table: str, column: str, value: int) -> None:
    with pytest.raises(TraceFileError, match=rf"{table}\.{column} is {value} in row 0; expected "):
        round_trip(with_column(everything(), table, column, lambda values: np.full_like(values, value)))
    for start, stop in ((5, 4), (0, 1 << 60), (1 << 63, 1 << 63)):
        with pytest.raises(TraceFileError, match=f"the run is from {start} to {stop}"):
            round_trip(replace(tree(2), start=start, stop=stop))


def with_column(trace: RunTrace, table: str, column: str, change: Callable[[Any], Any]) -> RunTrace:
    values = change(getattr(getattr(trace, table), column).copy())
    return replace(trace, **{table: replace(getattr(trace, table), **{column: values})})


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("traces") / "run.trace"
    everything().save(path)
    return path.read_bytes()


@pytest.mark.parametrize(
    ("foreign", "found"),
    [
        (b"", "not a zip file"),
        (b'{"format": "dask-efficiency-report"}', "not a zip file"),
        (pickle.dumps(1), "not a zip file"),
        (archive(), "without 'trace.json'"),
        (archive(trace_json="[" * 100_000), "no valid JSON"),
        (archive(trace_json="{"), "no valid JSON"),
        (archive(trace_json="[]"), r"found format \[\]; expected"),
        (archive(trace_json='{"format": "chrome"}'), "found format 'chrome'; expected"),
        (archive(trace_json='{"format": "dask-efficiency-trace", "version": 4}'), "found version 4 .* another"),
        (archive(trace_json='{"format": "dask-efficiency-trace", "version": 3}'), "'columns' is None; expected dict"),
    ],
)
def test_a_foreign_or_newer_file_is_refused_by_name(tmp_path: Path, foreign: bytes, found: str) -> None:
    path = tmp_path / "run.trace"
    path.write_bytes(foreign)
    with pytest.raises(TraceFileError, match=found) as caught:
        load_trace(path)
    assert str(caught.value).startswith(str(path))
    assert len(str(caught.value)) < 500


def test_a_file_cut_off_anywhere_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "run.trace"
    for length in range(0, len(content), 97):
        path.write_bytes(content[:length])
        with pytest.raises(TraceFileError, match="truncated"):
            load_trace(path)


@settings(max_examples=200)
@given(st.data())
def test_a_damaged_file_is_refused_or_loaded_as_it_was(content: bytes, data: st.DataObject) -> None:
    damaged = bytearray(content)
    damaged[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    fsspec.filesystem("memory").pipe("/traces/damaged.trace", bytes(damaged))
    try:
        assert_same(load_trace("memory://traces/damaged.trace"), everything())
    except TraceFileError as error:
        assert "memory://traces/damaged.trace" in str(error)


def _drop(name: str) -> Change:
    return lambda described, members: members.__delitem__(name) if name in members else described.__delitem__(name)


RUNS = ("columns", "runs")


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (set_to(*RUNS, "rows", to=10**12), "'runs/task' has .* bytes in .*; expected 1000000000000"),
        (set_to(*RUNS, "rows", to=-1), "'runs' has -1 rows"),
        (set_to(*RUNS, "rows", to=2.0), "'runs.rows' is 2.0; expected int"),
        (set_to(*RUNS, "rows", to=True), "'runs.rows' is True; expected int"),
        (set_to(*RUNS, "columns", "color", to=["", False, 0, 0, 1]), "'runs' has .*'color'"),
        (set_to(*RUNS, "columns", "task", to=["", False, 0, 0]), "'runs/task' is described by"),
        (set_to(*RUNS, "columns", "task", to=["", False, 0, 0, 9]), "'runs/task' is packed as"),
        (set_to(*RUNS, "columns", "task", to=["worker", False, 0, 0, 1]), "'runs/task' is packed as"),
        (set_to(*RUNS, "columns", "task", to=["", False, 0, 90, 1]), r"runs\.task is \d+ in row 0; expected -1 to 11"),
        (_drop("runs/start"), "lacks the column 'runs/start'"),
        (_drop("name"), "'name' is None; expected str"),
        (set_to("start", to="now"), "'start' is 'now'; expected int"),
        (set_to("prefixes", to=["a"]), r"tasks\.prefix is"),
        (set_to("prefixes", to=[1]), "'prefixes' holds 1; expected str"),
        (set_to("workers", to=[{}]), "'workers.name' is None; expected str"),
        (set_to("workers", 0, "nthreads", to="2"), "'workers.nthreads' is '2'; expected int"),
        (set_to("workers", 0, "others", to=1.5), "'workers.others' has 1.5; expected 0 to 1"),
        (set_to("core_waits", to={"inc": -1}), "'core_waits' has -1; expected 0 to 1"),
        (set_to("gil_waits", to={"inc": 2}), "'gil_waits' has 2; expected 0 to 1"),
        (set_to("constraints", to=[]), "'constraints' has numbers up to 1; expected those of 0"),
        (set_to("columns", "key_offsets", "columns", "offsets", 3, to=10**6), "'key_offsets' do not rise"),
        (lambda described, members: members.update({"runs/task": b"\0" * (1 << 20)}), "'runs/task' has"),
    ],
)
def test_a_forged_file_is_refused_by_name_and_fault(tmp_path: Path, content: bytes, change: Change, found: str) -> None:
    path = tmp_path / "run.trace"
    path.write_bytes(forged(content, "trace.json", lambda described, members: None))
    assert_same(load_trace(path), everything())
    path.write_bytes(forged(content, "trace.json", change))
    with pytest.raises(TraceFileError, match=found) as caught:
        load_trace(path)
    assert str(caught.value).startswith(str(path))


def test_a_file_that_claims_more_than_it_can_hold_takes_no_memory(tmp_path: Path, content: bytes) -> None:
    rows, path = 1 << 40, tmp_path / "run.trace"
    change = set_to(*RUNS, "rows", to=rows)
    claimed = forged(content, "trace.json", set_to(*RUNS, "columns", "task", to=["", False, 0, 0, 1]))
    path.write_bytes(forged(claimed, "trace.json", change, **{"runs/task": rows}))
    with pytest.raises(TraceFileError, match=f"'runs/task' has {rows} bytes in"):
        load_trace(path)


def test_ctrl_c_leaves_the_old_file_whole_and_no_other_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, packed, original = tree(leaves=4), [], archives.pack

    def pack(*column: Any) -> Any:
        packed.append(column)
        if len(packed) == 20:
            raise KeyboardInterrupt
        return original(*column)

    old.save(tmp_path / "run.trace")
    monkeypatch.setattr(archives, "pack", pack)
    with pytest.raises(KeyboardInterrupt, match=r"^saving .*run.trace: \d+ of \d+ MB$"):
        tree(leaves=64).save(tmp_path / "run.trace")
    assert_same(load_trace(tmp_path / "run.trace"), old)
    assert [*tmp_path.iterdir()] == [tmp_path / "run.trace"]


def test_reading_and_saving_report_all_of_their_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[progress.ProgressState] = []
    display = SimpleNamespace(timing=(0.0, 0.0), show=lambda *_: None, close=lambda work, _: closed.append(work))
    monkeypatch.setattr(progress, "_display", lambda: display)
    tree(leaves=2000).save(tmp_path / "run.trace")
    tasks = len(load_trace(tmp_path / "run.trace").tasks)
    assert os.path.getsize(tmp_path / "run.trace") <= 100 * tasks
    shown = [(work.doing.split()[0], work.unit, work.done == work.of) for work in closed]
    assert shown == [("saving", "MB", True), ("reading", "MB", True)]


COLUMNS = [(table, column) for table, columns in POINTS_INTO.items() for column in columns]


def full() -> RunTrace:
    """A trace that has a row in every table."""
    return replace(
        lost_worker(),
        releases=Releases.from_columns({"at": [1], "client": [0], "task": [0]}),
        blocked=Blocked.from_columns({"worker": [0], "start": [1], "stop": [2]}),
        series=Series.from_columns({"at": [1], "worker": [0]}),
        shuffled=Shuffled.from_columns({"task": [0], "sender": [0], "receiver": [1]}),
    )


@pytest.mark.parametrize(("table", "column"), COLUMNS)
def test_a_position_out_of_range_is_named_and_may_be_missing(table: str, column: str) -> None:
    def first(value: int) -> RunTrace:
        return with_column(full(), table, column, lambda values: np.array([value, *values[1:]], values.dtype))

    check_positions(first(MISSING))
    narrow = getattr(getattr(full(), table), column).dtype == np.int8
    for wrong in (-2, 127 if narrow else 1 << 14):
        with pytest.raises(ValueError, match=rf"{table}\.{column} is {wrong} in row 0; expected -1 to"):
            check_positions(first(wrong))


@pytest.mark.parametrize(
    ("starts", "edges", "found"),
    [
        ([0, 0], [], "dependency_starts has 2 rows; expected 4"),
        ([0, 1, 1, 1], [3], "dependencies is 3 in row 0; expected 0 to 2"),
        ([0, 1, 1, 1], [-1], "dependencies is -1 in row 0; expected 0 to 2"),
        ([0, 1, 0, 1], [0], "does not rise from 0 to the 1 dependencies"),
        ([0, 0, 0, 0], [0], "does not rise"),
        ([1, 1, 1, 1], [0], "does not rise"),
    ],
)
def test_dependencies_that_do_not_fit_are_named(starts: list[int], edges: list[int], found: str) -> None:
    damaged = {"dependency_starts": np.array(starts, np.int64), "dependencies": np.array(edges, np.int32)}
    with pytest.raises(ValueError, match=found):
        check_positions(replace(tree(2), **damaged))


def test_keys_and_constraints_belong_to_tasks(tmp_path: Path) -> None:
    trace = tree(2)
    for check in (check_positions, lambda trace: trace.save(tmp_path / "run.trace")):
        with pytest.raises(ValueError, match="there are 2 keys; expected one for each of 3 tasks"):
            check(replace(trace, keys=trace.keys[:2]))
    assert os.listdir(tmp_path) == []  # it is not saved
    with pytest.raises(ValueError, match="constraints"):
        check_positions(replace(trace, constraints={3: {"retries": 1}}))
