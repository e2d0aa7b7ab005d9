"""Files that are read again and again, beside healthy runs that look like it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dask_efficiency import EfficiencyReport
from dask_efficiency.accounts.lines import NATIVE, PYTHON
from dask_efficiency.accounts.metered import BYTES, FILES
from dask_efficiency.report.file_reads import files_read
from dask_efficiency.report.findings import find, headline, leading
from dask_efficiency.report.values import MeteredRow, ProfileRow
from tests.report.recipe_stacks import stack_of
from tests.report.samples import causes, report_of, seconds, skew

MB = 1_000_000
LOADS = stack_of(
    "me/archive.py Archive.__getitem__", "numpy/lib/npyio.py NpzFile.__getitem__", "zipfile.py ZipExtFile.read"
)
SQUARES = stack_of("me/archive.py square")
DAYS = [f"day-{i}" for i in range(15)]


def rows_of(labels: Mapping[str, float], worker: str = "w0") -> list[MeteredRow]:
    """Bytes by label; ``"read"`` is of the prefix ``load``."""
    return [
        MeteredRow(worker, FILES, "", "load" if label == "read" else "", label, BYTES, value)
        for label, value in labels.items()
    ]


def in_turn(worker: str = "w0", *, times: int = 15, way: str = "again") -> list[MeteredRow]:
    """Fifteen files of 3 MB, each read so many times."""
    each = {f"size {name}": 3.0 * MB for name in DAYS} | {f"{way} {name}": times * 3.0 * MB for name in DAYS}
    return rows_of({"read": times * 45.0 * MB, **each}, worker)


def report_with(
    rows: list[MeteredRow], *, load: float = 16.0, core: float = 16.0, network: float = 0.0, **fields: Any
) -> EfficiencyReport:
    """Four threads on two cores for 10 s, in which ``load`` computes and waits for a core, and ``square`` computes."""
    waits = causes(**{"thread-noncpu/core": core, "thread-noncpu/network": network})
    rest = 40.0 - load - core - network
    given: dict[str, Any] = {
        "by_worker": {"w0": seconds(thread_cpu=load + rest, thread_noncpu=core + network)},
        "by_prefix": {
            "load": seconds(thread_cpu=load, thread_noncpu=core + network),
            "square": seconds(thread_cpu=rest),
        },
        "causes_by_worker": {"w0": waits},
        "causes_by_prefix": {"load": waits},
        "nthreads": {"w0": 4},
        "cores": 2.0,
        "cluster_seconds": 10.0,
        "window_seconds": 10.0,
        "profile": (
            ProfileRow("thread-cpu", NATIVE, "load", LOADS, 5),
            ProfileRow("thread-noncpu", "core", "load", LOADS, 5),
            ProfileRow("thread-cpu", NATIVE, "square", SQUARES, 5),
        ),
        "metered": tuple(rows),
    }
    return report_of(**(given | fields))


def kinds(report: EfficiencyReport) -> list[str]:
    return [one.kind for one in find(report)]


def test_files_that_are_read_fifteen_times_are_the_first_finding_with_the_line_that_reads_and_no_promise() -> None:
    report = report_with(in_turn())
    first, *others = find(report)
    assert str(first) == (
        "The same files are read again and again. "
        "644 MiB of files of 42.9 MiB, 15 times, for 80 % of all thread time: `Archive.__getitem__`, archive.py:1\n"
        "Use chunks as the files have them, or load each file once, in one task that the others depend on."
    )
    assert (first.saves_seconds, first.page) == (None, "docs/buckets.md#reads-again")
    assert first.evidence == {
        "times": 15.0,
        "share_of_thread_time": pytest.approx(0.8),
        "wall_clock_seconds": pytest.approx(8.0 * 14 / 15),
    }
    assert "thread-noncpu/core" not in {one.kind for one in others}  # which reading keeps busy
    assert leading(report)[0] == first
    assert headline(report) == "10.0 s, 60 % efficient (1 worker x 4 threads)"


def test_what_is_read_again_in_python_for_each_of_several_lines_is_told_once() -> None:
    parses = stack_of("me/archive.py Archive.parse")
    rows = tuple(ProfileRow("thread-cpu", PYTHON, prefix, parses, 5) for prefix in ("load", "square"))
    lines = {"load": "`x.max()` in archive.py:5", "square": "`x.min()` in archive.py:6"}
    alike = dict.fromkeys(lines, skew(count=200))
    report = report_with(in_turn(), load=12.0, profile=rows, computed_by=lines, skew=alike)
    assert "computing" in kinds(report_with([], load=12.0, profile=rows, computed_by=lines, skew=alike))
    assert "reads-again" in kinds(report)
    assert "computing" not in kinds(report)


def test_healthy_runs_have_no_such_finding() -> None:
    once = {f"size {name}": 3.0 * MB for name in DAYS} | {f"once {name}": 3.0 * MB for name in DAYS}
    for rows in (
        in_turn(times=1, way="once"),
        in_turn(times=2),  # as where a result is asked for twice
        in_turn(way="once"),  # of files that were never seen again, however much is read
        rows_of({"read": 1e9, "size big": 1e9, "again big": 1e9}),  # in ranges, by many tasks
        rows_of({"read": 3e9, "size (other)": 1e7, "once (other)": 3e9}),  # many small ones, of which few were seen
        rows_of({"read": 40.0 * MB, "size small": MB, "again small": 40.0 * MB}),  # that is soon done
        rows_of({"read": 3e9, **once, "once (other)": 1e9, "size table": MB, "again table": 2e9}),
        [],
    ):
        assert "reads-again" not in kinds(report_with(rows))


def test_files_that_stay_open_need_surer_looks() -> None:
    """What is read of files that are never seen open would count as theirs."""
    for nbytes, expected in ((0.0, True), (4.0 * MB, True), (20.0 * MB, False)):
        rows = rows_of(
            {"read": 4e8 + nbytes, "size grid": 2e7, "kept-open grid": 4e8, "size (other)": nbytes / 10}
            | {"once (other)": nbytes}
        )
        assert ("reads-again" in kinds(report_with(rows))) is expected


def test_bytes_that_may_be_of_the_network_are_not_taken_for_a_files() -> None:
    assert "reads-again" not in kinds(report_with(in_turn(), network=1.0))
    assert "reads-again" in kinds(report_with(in_turn(), network=0.1))


def test_it_is_no_finding_where_reading_takes_little_of_the_time() -> None:
    assert "reads-again" not in kinds(report_with(in_turn(), load=3.0, core=3.0))


def test_a_file_that_several_workers_read_is_one_and_is_read_again() -> None:
    workers = [row for i in range(15) for row in in_turn(f"w{i}", times=1, way="once")]
    read = files_read(workers)
    assert (read.sizes, read.again, read.once) == (45.0 * MB, 675.0 * MB, 0)
    assert read.times == 15.0
    apart = [
        row for i in range(15) for row in rows_of({"read": 3e7, "size (other)": 3e7, "once (other)": 3e7}, f"w{i}")
    ]
    assert files_read(apart).sizes == 15 * 3e7
    assert files_read(apart).times == 0.0


def test_where_functions_of_c_read_the_users_line_is_that_of_most_time_and_else_the_line_that_sent_the_tasks() -> None:
    inside = stack_of("me/grid.py mean_of")
    report = report_with(in_turn(), profile=(ProfileRow("thread-cpu", NATIVE, "load", inside, 5),))
    assert find(report)[0].where.endswith(", for 40 % of all thread time: `mean_of`, grid.py:1")
    bare = ProfileRow("thread-cpu", NATIVE, "load", LOADS[1:], 5)
    sent = {"load": "`x.mean().compute()` in job.py:3"}
    report = report_with(in_turn(), profile=(bare,), computed_by=sent)
    where = ", for 40 % of all thread time: tasks of load, computed by `x.mean().compute()` in job.py:3"
    assert find(report)[0].where.endswith(where)
    nowhere = report_with(in_turn(), profile=(bare,))
    assert find(nowhere)[0].where.endswith(", for 40 % of all thread time: tasks of load")
