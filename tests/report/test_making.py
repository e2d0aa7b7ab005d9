"""Collections that a client makes are noted with the user's line, and constructors are as before afterwards."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import pandas as pd
import pytest
from dask.delayed import Delayed

from dask_efficiency import EfficiencyReport
from dask_efficiency.accounts.lines import Frame
from dask_efficiency.report.conditions_of import conditions_of
from dask_efficiency.report.cures import with_builder
from dask_efficiency.report.made import AS_FINE, MANY, asked_by, made_most, made_singly
from dask_efficiency.report.making import MAKING, MAX_PARTS, MAX_PREFIXES, MadeLines
from dask_efficiency.report.values import ClientRow, Made
from dask_efficiency.show.finding import Finding
from tests.report.samples import report_of, skew


@pytest.fixture(autouse=True)
def nothing_open() -> None:
    """Close what tests of observers left open."""
    for lines in MAKING._open:
        MAKING.remove(lines)


@contextmanager
def noted() -> Iterator[MadeLines]:
    lines = MadeLines()
    MAKING.add(lines)
    try:
        yield lines
    finally:
        MAKING.remove(lines)


def at(function: Callable[..., object], below: int) -> str:
    """Place of the line so far below the beginning of a function of this file."""
    return f"{Path(__file__).name}:{function.__code__.co_firstlineno + below}"


def arrays() -> None:
    x = da.ones(100, chunks=10)
    (x.reshape(10, 10) + 1).sum()


def bags() -> None:
    db.from_sequence(range(12), npartitions=4)


def values() -> None:
    for i in range(20):
        dask.delayed(len, pure=False)([i])


def tables() -> None:
    for _ in range(3):
        dd.from_pandas(pd.DataFrame({"a": [1, 2]}), npartitions=2)


def test_each_line_has_its_collections_their_parts_and_what_it_called() -> None:
    with noted() as lines:
        arrays()
        bags()
        values()
        tables()
    made = lines.by_line()
    assert made[at(arrays, 1)].parts % 10 == 0
    assert made[at(arrays, 1)].largest == 10
    several = made[at(arrays, 2)]
    assert several.collections >= 3
    assert several.called in ("reshape", "sum")
    assert made[at(bags, 1)] == Made("from_sequence", 1, 4, 4, 0, ("from_sequence",))
    of_values = made[at(values, 2)]
    assert (of_values.called, of_values.parts, of_values.largest) == ("delayed", 20, 1)
    of_tables = made[at(tables, 2)]
    assert (of_tables.called, of_tables.collections, of_tables.parts, of_tables.frames) == ("from_pandas", 3, 0, 0)
    assert list(made) == [at(arrays, 1), at(arrays, 2), at(bags, 1), at(values, 2), at(tables, 2)]


def test_what_is_computed_or_made_in_a_task_is_no_new_collection() -> None:
    x = da.ones(10, chunks=5)
    with noted() as lines:
        dask.persist(x, scheduler="synchronous")
        task = threading.Thread(target=arrays, name="Dask-Default-Threads-1")
        task.start()
        task.join()
    assert lines.by_line() == {}
    arrays()
    assert lines.by_line() == {}


def test_constructors_are_as_before_once_the_last_report_ends() -> None:
    before = vars(da.Array)["__new__"], vars(Delayed)["__init__"]
    first, second = MadeLines(), MadeLines()
    MAKING.add(first)
    MAKING.add(second)
    MAKING.remove(first)
    values()
    assert vars(da.Array)["__new__"] is not before[0]
    MAKING.remove(second)
    assert (vars(da.Array)["__new__"], vars(Delayed)["__init__"]) == before
    assert not first.by_line()
    assert second.by_line()[at(values, 2)].collections == 40


def test_arrays_bags_and_dataframes_that_are_imported_while_a_report_is_open_are_noted(tmp_path: Path) -> None:
    script = tmp_path / "etl.py"
    script.write_text("""
import sys
from dask.base import DaskMethodsMixin
from dask_efficiency.report.making import MAKING, MadeLines
MAKING.add(lines := MadeLines())
assert not {"dask.array", "dask.bag", "dask.dataframe"} & {*sys.modules}
import dask.array as da
da.arange(10, chunks=5)
import dask.bag as db
db.from_sequence([1, 2], npartitions=2)
import dask.dataframe as dd
dd.from_dict({"a": [1]}, npartitions=1)
MAKING.remove(lines)
for line, made in lines.by_line().items():
    print(line, made.called, made.parts)
assert "__init_subclass__" not in vars(DaskMethodsMixin)
""")
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert ran.stdout.splitlines() == ["etl.py:8 arange 2", "etl.py:10 from_sequence 2", "etl.py:12 from_dict 0"]
    assert not ran.returncode, ran.stderr


def test_a_collection_counts_once_if_somebody_s_patch_over_ours_stays_from_report_to_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pristine = vars(Delayed)["__init__"]
    with noted():
        ours = vars(Delayed)["__init__"]
        monkeypatch.setattr(Delayed, "__init__", lambda *args, **kwargs: ours(*args, **kwargs))
    try:
        with noted() as lines:
            values()
    finally:
        monkeypatch.setattr(Delayed, "__init__", pristine)
    assert sum(one.collections for one in lines.by_line().values()) == 40


def test_lines_and_prefixes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dask_efficiency.report.making.MAX_LINES", 1)
    with noted() as lines:
        for i in range(2 * MAX_PREFIXES):
            dask.delayed(len, name=f"name{i}")
        arrays()
    (only,) = lines.by_line().values()
    assert only.prefixes == tuple(f"name{i}" for i in range(MAX_PREFIXES))
    assert only.collections == 2 * MAX_PREFIXES


def test_a_failure_of_ours_ends_the_notes_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("dask_efficiency.report.making.is_the_users", lambda file: 1 / 0)
    monkeypatch.setattr(MAKING._guard, "off", None)
    with noted() as lines:
        assert da.ones(10, chunks=5).sum().compute(scheduler="synchronous") == 10
    assert lines.by_line() == {}
    assert "no longer notes where they are made" in caplog.text
    (note,) = lines.notes()
    assert note.startswith("there is no list of lines that made collections: the look at collections failed: ZeroDiv")
    monkeypatch.setattr(MAKING._guard, "off", None)
    assert lines.notes() == ()


# -- what a report says of them --------------------------------------------------------------------


def run(made: dict[str, Made], *, tasks: int = 1000) -> EfficiencyReport:
    return report_of(made=made, skew={"add": skew(count=tasks)}, computed_by={"add": "`y.compute()` in etl.py:42"})


def test_the_line_of_many_parts_is_where_the_finest_array_begins_else_the_one_that_made_most() -> None:
    coarse, fine, after = (
        Made("ones", 1, 9, 9, 0, ()),
        Made("from_array", 1, 400, 400, 0, ("a",)),
        Made("", 9, 3600, 400, 0, ()),
    )
    made = {"etl.py:1": coarse, "etl.py:2": fine, "etl.py:3": after}
    assert made_most(run(made)) == ("etl.py:2", "from_array")
    assert made_most(run(made | {"etl.py:1": Made("ones", 1, 40, round(AS_FINE * 400), 0, ())})) == ("etl.py:1", "ones")
    operations = {f"add{i}": skew(count=400) for i in range(9)}
    assert made_most(replace(run(made), skew=operations)) == ("etl.py:2", "from_array")
    several = Made("sum", MANY - 1, 900, 20, 0, ())
    assert made_most(run({"etl.py:1": coarse, "etl.py:7": several})) == ("etl.py:7", "sum")
    assert made_most(run({"etl.py:7": several, "etl.py:8": several})) == ("", "")
    assert made_most(run({"etl.py:7": several}, tasks=9_000)) == ("", "")
    assert made_most(run({})) == made_most(report_of()) == ("", "")


def test_dataframes_that_are_made_one_by_one_are_told_with_the_function_that_takes_all() -> None:
    singles = Made("from_delayed", 2 * MANY, 0, 0, MANY, ())
    report = run({"etl.py:9": singles, "etl.py:2": Made("delayed", 2000, 2000, 1, 0, ())})
    assert made_singly(report) == ("etl.py:9", singles)
    assert made_most(report) == ("etl.py:9", "from_delayed")
    facts = conditions_of(report)
    assert (facts.made_singly, facts.singles) == ("from_delayed", MANY)
    few = run({"etl.py:9": replace(singles, frames=MANY - 1)})
    assert made_singly(few)[0] == conditions_of(few).made_singly == ""


def test_dataframes_count_by_the_function_that_reads_many_files_whatever_follows(tmp_path: Path) -> None:
    for i in range(4):
        (tmp_path / f"{i}.csv").write_text("a,b\n1,2\n")

    def tables_of_files() -> None:
        for i in range(4):
            dd.read_csv(str(tmp_path / f"{i}.csv")).assign(c=1).dropna()

    with noted() as lines:
        tables_of_files()
    made = lines.by_line()[at(tables_of_files, 2)]
    assert (made.called, made.frames) == ("read_csv", 4)
    assert "read-csv" in made.prefixes


def test_collections_that_are_no_such_thing_or_endless_cost_nothing_but_themselves() -> None:
    with noted() as lines:
        with dask.config.set(array_plugins=[lambda x: x.compute(scheduler="synchronous")]):
            da.ones(4, chunks=2)
        da.ones((200_000,) * 4, chunks=1)
        bags()
    made = lines.by_line()
    assert [one.largest for one in made.values()] == [MAX_PARTS, 4]
    assert MAKING._guard.off is None


def test_reports_of_several_clients_are_not_told_each_other_s_collections() -> None:
    with noted() as one, noted() as other:
        one.client, other.client = 1, 2
        bags()
    assert one.by_line() == other.by_line() == {}


def test_a_finding_of_small_tasks_and_tasks_of_a_prefix_have_the_line_that_built_them() -> None:
    built = Made("from_array", 1, 1000, 1000, 0, ("add",))
    report = run({"etl.py:4": built})
    small = Finding("small-tasks", "Too many small tasks", "computed by `y.compute()` in etl.py:42")
    assert with_builder(report, small, "build").where == f"{small.where}, built by `from_array` in etl.py:4"
    other = Finding("large-graph", "Graphs hold large objects", "1 graph")
    assert with_builder(report, other, "build") is other
    assert asked_by(report, "add") == ", computed by `y.compute()` in etl.py:42, built by `from_array` in etl.py:4"
    assert asked_by(report, "sub") == ""
    assert asked_by(run({"etl.py:42": built}), "add") == ", computed by `y.compute()` in etl.py:42"
    twice = run({"etl.py:4": built, "etl.py:5": built})
    assert asked_by(twice, "add") == ", computed by `y.compute()` in etl.py:42"


def test_no_finding_names_the_line_of_another_dataframe_or_of_an_array_that_was_sent_elsewhere() -> None:
    """As in a program that has the length of many files, or an array, before it sorts one dataframe."""
    index = Made("set_index", 2, 0, 0, 0, ("setindex",))
    frame, files = Made("from_pandas", 1, 0, 0, 0, ("frompandas",)), Made("read_csv", 240, 60, 1, 60, ("read-csv",))
    made = {"etl.py:13": files, "etl.py:18": frame, "etl.py:19": index}
    first, then = "`len(a)` in etl.py:14", "`b.sum().compute()` in etl.py:20"
    sent = {"read-csv": first, "chunk": f"{first} and etl.py:20", "frompandas": then, "repartitionquantiles": then}
    tasks = {"frompandas": skew(count=300), "repartitionquantiles": skew(count=900), "read-csv": skew(count=60)}
    report = report_of(made=made, computed_by=sent, skew=tasks)
    small = Finding("small-tasks", "Too many small tasks", f"computed by {then}")
    assert with_builder(report, small, "build") is small
    ns = 1_000_000_000
    much = ClientRow("build", (Frame("wrapper", "/home/me/etl.py", 13),), ns, ns, 0)
    assert with_builder(replace(report, client=(much,)), small, "build") is small
    before = replace(small, where=f"computed by {first}")
    assert with_builder(report, before, "build").where == f"{before.where}, built by `read_csv` in etl.py:13"
    more = {**made, "etl.py:15": replace(files, collections=4, frames=1)}
    assert with_builder(replace(report, made=more), before, "build") is before


def test_no_finding_names_the_line_of_an_array_if_another_one_or_only_dataframes_were_sent() -> None:
    array, frame = Made("random", 1, 400, 400, 0, ("random_sample",)), Made("from_pandas", 1, 0, 0, 0, ("frompandas",))
    first, then = "`a.persist()` in etl.py:14", "`b.sum().compute()` in etl.py:20"
    small = Finding("small-tasks", "Too many small tasks", f"computed by {then}")
    one = report_of(made={"etl.py:13": array}, skew={"add": skew(count=900)})
    of_frames = {"etl.py:13": array, "etl.py:18": frame}
    assert with_builder(replace(one, made=of_frames, computed_by={"frompandas": then}), small, "build") is small
    assert with_builder(replace(one, computed_by={"random_sample": first, "add": then}), small, "build") is small
    fused = replace(one, computed_by={"add": then})
    assert with_builder(fused, small, "build").where.endswith("built by `random` in etl.py:13")
    both = {"etl.py:2": Made("random", 2, 40, 20, 0, ("getitem",)), "etl.py:3": replace(frame, prefixes=("getitem",))}
    assert asked_by(report_of(made=both, computed_by={"getitem": then}), "getitem") == f", computed by {then}"


def test_what_a_line_calls_is_named_and_not_the_wrapper_that_takes_the_time() -> None:
    read = Frame("tables", "/home/me/etl.py", 5)
    wrapper = Frame("decorator.<locals>.wrapper", "/opt/venv/lib/python3.12/site-packages/dask/backends.py", 138)
    second = 1_000_000_000
    report = replace(run({}), client=(ClientRow("build", (read, wrapper), second, second, 0),))
    small = Finding("small-tasks", "Too many small tasks", "1203 tasks")
    assert with_builder(report, small, "build").where.endswith("built by `wrapper` in etl.py:5")
    known = replace(report, made={"etl.py:5": Made("read_csv", 1, 0, 0, 1, ())})
    assert with_builder(known, small, "build").where.endswith("built by `read_csv` in etl.py:5")
