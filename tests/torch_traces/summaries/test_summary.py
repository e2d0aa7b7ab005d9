import json
import pickle
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dask_efficiency.runs.trace.errors import EmptyTraceError
from dask_efficiency.torch_traces import TorchSummary, load_kineto, summary
from dask_efficiency.torch_traces.kineto.errors import KinetoFileError, RanksError, UnknownRankError
from dask_efficiency.torch_traces.kineto.trace import KinetoTrace
from dask_efficiency.torch_traces.summaries import reading
from dask_efficiency.torch_traces.summaries.tables import PARTS, TABLES
from tests.torch_traces.path.programs import on_cpu, rank_of
from tests.torch_traces.path.samples import RECORDED

NAMES = [*RECORDED]


@cache
def summarised(name: str) -> TorchSummary:
    return summary(RECORDED[name])


@pytest.mark.parametrize("name", NAMES)
def test_parts_and_reasons_add_up_to_each_ranks_time(name: str) -> None:
    for rank in summarised(name).ranks:
        parts = [int(getattr(rank.breakdown, part)[0]) for part in PARTS]
        assert sum(parts) == int(rank.breakdown.length[0])
        assert min(parts) >= 0
        reasons = [*rank.idle.values()]
        assert sum(reasons) == parts[-1]
        assert min(reasons) >= 0
        for step in range(len(rank.steps)):
            assert sum(int(getattr(rank.steps, part)[step]) for part in PARTS) == rank.steps.length[step]


@pytest.mark.parametrize("name", NAMES)
def test_it_is_shown_as_text_page_json_and_frames(name: str, tmp_path: Path) -> None:
    found = summarised(name)
    assert found.headline in str(found)
    found.to_html(tmp_path / "page.html")
    assert "Where the time went" in (tmp_path / "page.html").read_text()
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    for table in TABLES:
        assert len(found.to_frame(table)) == len(data["tables"][table])


def test_it_is_the_same_of_files_and_of_a_loaded_trace() -> None:
    assert summary(load_kineto(RECORDED["dlrm"])).to_dict() == summarised("dlrm").to_dict()


def test_large_files_are_read_in_several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MANY_BYTES", 0)
    monkeypatch.setattr(reading, "BYTES_OF_PROCESS", 100_000)
    monkeypatch.setattr(reading, "_cores", lambda: 2)
    assert summary(RECORDED["dlrm"]).to_dict() == summarised("dlrm").to_dict()


def test_an_error_in_another_process_is_raised_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(reading, "MANY_BYTES", 0)
    monkeypatch.setattr(reading, "_cores", lambda: 2)
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    for file in files:
        file.write_text('{"traceEvents": [{"ph": ')
    with pytest.raises(KinetoFileError, match=r"[ab]\.json"):
        summary(files)


def test_what_is_kept_of_a_rank_is_small() -> None:
    found = summarised("h100").ranks[0]
    assert len(pickle.dumps(found)) < 30_000


def test_one_rank_is_summarised_alone() -> None:
    alone = summarised("dlrm").rank(3)
    assert alone.numbers == (3,)
    with pytest.raises(UnknownRankError, match="0, 1, 2"):
        summarised("dlrm").rank(9)


def test_a_rank_in_which_nothing_takes_time_is_refused_alone() -> None:
    ranks = [rank_of([on_cpu("aten::mm", 5, 5 + lasts)]) for lasts in (100, 0)]
    both = summary(KinetoTrace(tuple(replace(trace, rank=rank) for rank, trace in enumerate(ranks))))
    assert both.rank(0).headline
    with pytest.raises(EmptyTraceError):
        both.rank(1)


def test_an_unknown_table_and_files_of_no_job_are_refused() -> None:
    with pytest.raises(ValueError, match="'ranks'"):
        summarised("h100").to_frame("nothing")
    with pytest.raises(RanksError, match="twice|2 times"):
        summary([RECORDED["h100"], RECORDED["h100"]])


@pytest.mark.parametrize("events", [[], [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "a"}}]])
def test_a_trace_without_events_is_refused(events: list[dict[str, Any]]) -> None:
    with pytest.raises(EmptyTraceError):
        summary(KinetoTrace((rank_of(events),)))
