"""Files that the tasks of a real worker read again and again, and files that they read once."""

from __future__ import annotations

import os
import time
import zlib
from collections import Counter
from pathlib import Path

import pytest
from distributed import Client, get_worker

from dask_efficiency import EfficiencyPlugin, EfficiencyReport, efficiency_report
from dask_efficiency.accounts.metered import FILES, READ, SIZE
from dask_efficiency.report.file_reads import files_read

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="/proc/self/io is not there: nobody counts"),
]

FILES_OF_A_TASK, NBYTES, PIECE = 2, 3_000_000, 1 << 16
#: For which a task goes on reading at most, on a machine however busy.
PATIENCE = 120.0


def read_whole(path: str) -> None:
    """Read a file, with work on each piece of it, so that it is open for long."""
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(PIECE):
            zlib.compress(piece)


def seen() -> Counter[str]:
    """Bytes by the first word of their label, as the worker knows them so far."""
    from dask_efficiency.plugin.worker.meter import _METERS

    files, found = _METERS[get_worker()]._causes.files, Counter[str]()
    for reads in list(files._windows.values()):
        for row, nbytes in {**reads.totals(), **reads.sizes()}.items():
            found[row.label.partition(" ")[0]] += nbytes
    return found


def again_and_again(paths: list[str]) -> None:
    """Read files until it has been seen that they, and as many of another task, are read again."""
    until, nbytes = time.monotonic() + PATIENCE, 2 * sum(map(os.path.getsize, paths))
    while time.monotonic() < until:
        for path in paths:
            read_whole(path)
        now = seen()
        if now["size"] < nbytes or now["again"] <= max(100_000_000, 5 * nbytes):
            continue
        if now["again"] > 0.95 * (now["again"] + now["once"]):
            break


def once_each(paths: list[str]) -> None:
    for path in paths:
        read_whole(path)


def files_in(folder: Path, number: int) -> list[str]:
    paths = [folder / f"{i}.bin" for i in range(number)]
    for path in paths:
        path.write_bytes(os.urandom(NBYTES))
    return [*map(str, paths)]


@pytest.fixture(scope="module")
def client():
    from tests.clusters import _cluster

    with _cluster(n_workers=1, threads_per_worker=2) as cluster, Client(cluster) as client:
        client.register_plugin(EfficiencyPlugin())
        client.gather(client.map(read_whole, [__file__] * 2, pure=False))  # what is imported is there
        yield client


def report_of(client: Client, function, *columns) -> EfficiencyReport:
    with efficiency_report(client) as report:
        client.gather(client.map(function, *columns, pure=False))
    return report


def test_files_that_tasks_read_again_and_again_are_found_with_the_line_that_reads(client, tmp_path):
    paths = files_in(tmp_path, 2 * FILES_OF_A_TASK)
    report = report_of(client, again_and_again, [paths[:FILES_OF_A_TASK], paths[FILES_OF_A_TASK:]])
    found = files_read(report.metered)
    assert found.sizes == sum(map(os.path.getsize, paths))
    assert found.times >= 5
    assert {*found.by_prefix} == {"again_and_again"}
    (one,) = (one for one in report.findings if one.kind == "reads-again")
    assert "of files of 11.4 MiB" in one.where
    assert "`read_whole`, test_file_reads_on_a_cluster.py:" in one.where


def test_files_that_tasks_read_once_are_not(client, tmp_path):
    paths = files_in(tmp_path, 40)
    report = report_of(client, once_each, [paths[:20], paths[20:]])
    assert "reads-again" not in {one.kind for one in report.findings}
    read = sum(row.value for row in report.metered if (row.context, row.label) == (FILES, READ))
    assert read <= 1.05 * 40 * NBYTES
    assert sum(row.value for row in report.metered if row.label.startswith(SIZE)) <= 40 * NBYTES
