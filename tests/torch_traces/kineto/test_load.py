"""Which files are the ranks of one job."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from dask_efficiency.torch_traces.kineto.errors import KinetoFileError, RanksError, UnknownRankError
from dask_efficiency.torch_traces.kineto.load import load_kineto

HOUR = 3600 * 1_000_000


def write(path: Path, rank: int | None, *, world_size: int | None = 3, ts: int = 0, backend: str = "nccl") -> Path:
    job = {"rank": rank, "world_size": world_size, "backend": backend}
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 2, "ts": ts, "dur": 5}
    text = json.dumps({"distributedInfo": {k: v for k, v in job.items() if v is not None}, "traceEvents": [event]})
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.fixture
def job(tmp_path: Path) -> Path:
    for name, rank in (("a.json", 2), ("b.json.gz", 0), ("c.json", 1)):
        write(tmp_path / name, rank)
    (tmp_path / "notes.txt").write_text("not a trace")
    return tmp_path


def test_a_folder_has_its_ranks_in_order(job: Path) -> None:
    for given in (job, str(job), f"{job}/", job / "*.json*", f"file://{job}"):
        trace = load_kineto(given)
        assert trace.numbers == (0, 1, 2)
        assert (trace.world_size, trace.missing_ranks) == (3, ())
        assert trace.rank(2).path == str(job / "a.json")


def test_of_a_folder_of_the_profilers_own_only_its_files_are_read(job: Path) -> None:
    (job / "et.json").write_text("{}")
    for rank, end in enumerate(["json", "json.gz", "json"]):
        write(job / f"host_{rank}.17.pt.trace.{end}", rank)
    assert load_kineto(job).numbers == (0, 1, 2)


def test_a_file_alone_and_a_list_may_be_a_part_of_the_ranks(job: Path) -> None:
    assert load_kineto(job / "a.json").missing_ranks == (0, 1)
    some = load_kineto([job / "a.json", str(job / "b.json.gz")])
    assert (some.numbers, some.missing_ranks) == ((0, 2), (1,))
    with pytest.raises(UnknownRankError, match="no rank 1 in this trace; there is: 0, 2"):
        some.rank(1)


def test_a_file_in_another_place_is_read(job: Path) -> None:
    import fsspec

    elsewhere = fsspec.filesystem("memory")
    elsewhere.put(str(job), "/kineto", recursive=True)
    try:
        trace = load_kineto("memory://kineto")
    finally:
        elsewhere.rm("/kineto", recursive=True)
    assert trace.rank(0).path == "memory:///kineto/b.json.gz"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([(0, {}), (2, {})], r"of a job of 3 ranks, rank 1 is missing, and 2 ranks \(0, 2\) are there"),
        ([(1, {})], r"2 ranks \(0, 2\) are missing, and rank 1 is there"),
        ([(0, {}), (1, {}), (1, {})], "rank 1 is there 2 times: .*1.json, .*2.json$"),
        ([(0, {}), (None, {}), (1, {})], r"rank 0 is there 2 times: .* \(a file that does not say its rank is rank 0"),
        ([(0, {}), (1, {"world_size": 4})], "different jobs: .*0.json has world_size 3, .*1.json has 4"),
        ([(0, {}), (1, {"backend": "gloo"})], "different jobs: .*0.json has backend 'nccl', .*1.json has 'gloo'"),
        ([(0, {}), (5, {})], "1.json is of rank 5 in a job of 3"),
        (
            [(0, {}), (1, {"ts": 9 * HOUR}), (2, {})],
            "different runs: .*1.json begins 32400 s after the end",
        ),
    ],
)
def test_ranks_that_do_not_make_one_job_are_named(
    tmp_path: Path, files: list[tuple[int | None, dict[str, Any]]], message: str
) -> None:
    paths = [write(tmp_path / f"{number}.json", rank, **changed) for number, (rank, changed) in enumerate(files)]
    with pytest.raises(RanksError, match=message):
        load_kineto(tmp_path)
    if "missing" not in message:
        with pytest.raises(RanksError, match=message):
            load_kineto(paths)


def test_a_job_of_unknown_size_misses_nothing(tmp_path: Path) -> None:
    for rank in (0, 4):
        write(tmp_path / f"{rank}.json", rank, world_size=None)
    trace = load_kineto(tmp_path)
    assert (trace.numbers, trace.world_size, trace.missing_ranks) == ((0, 4), None, ())


def test_where_there_is_no_trace_it_is_said(tmp_path: Path) -> None:
    for given in (tmp_path, tmp_path / "*.json"):
        with pytest.raises(KinetoFileError, match="there is no trace of Kineto's"):
            load_kineto(given)
    with pytest.raises(FileNotFoundError):
        load_kineto(tmp_path / "none.json")
    with pytest.raises(KinetoFileError, match="no files were given"):
        load_kineto([])


def test_the_file_that_is_damaged_is_named(job: Path) -> None:
    (job / "c.json").write_text('{"traceEvents": [}')
    with pytest.raises(KinetoFileError, match=r"c.json: expecting value, at character 17"):
        load_kineto(job)
