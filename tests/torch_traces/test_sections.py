import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from markupsafe import escape

from dask_efficiency.runs.sections.by_kind import KIND_COLOURS, TORCH_MEANINGS
from dask_efficiency.show.figures import format_seconds
from dask_efficiency.show.html.render import fragment, page
from dask_efficiency.show.terminal import plain
from dask_efficiency.torch_traces import TorchCriticalPath, sections
from dask_efficiency.torch_traces.sections import to_dict
from tests.report.samples import HOSTILE_NAMES
from tests.torch_traces.path.public import path_of
from tests.torch_traces.path.samples import recorded, with_execution

NAMES = ["simple_add", "event_sync", "h100", "mi300", "cpu_only", "dlrm"]


@cache
def hostile() -> TorchCriticalPath:
    path = recorded("dlrm")
    ranks = []
    for rank in path.trace.ranks:
        names = tuple(HOSTILE_NAMES[i % len(HOSTILE_NAMES)] + str(i) for i in range(len(rank.names)))
        ranks.append(replace(rank, names=names, path=HOSTILE_NAMES[0], left_out={HOSTILE_NAMES[1]: 3}))
    trace = replace(path.trace, ranks=tuple(ranks))
    graphs = tuple(replace(graph, trace=trace.rank(graph.trace.rank)) for graph in path.graphs)
    question = replace(path.question, annotation=HOSTILE_NAMES[2])
    return replace(path, trace=trace, graphs=graphs, question=question, changes=HOSTILE_NAMES[:3])


@pytest.mark.parametrize("name", NAMES)
def test_the_shares_of_each_table_add_up_to_the_whole(name: str) -> None:
    path = recorded(name)
    found = [sections.kinds(path), sections.by_name(path), sections.longest(path)]
    for section in (*found, *([sections.by_rank(path)] if len(path.graphs) > 1 else [])):
        assert sum(round(10 * float(row[2])) for row in section.rows) == 1000


def test_waits_between_ranks_need_several_ranks() -> None:
    path = recorded("dlrm")
    rows = sections.waits(path).rows
    assert rows[0][0] == "rank 7"
    assert len(rows) == 8
    caused, suffered = (sum(float(row[column]) for row in rows) for column in (1, 2))
    assert caused == pytest.approx(suffered, abs=0.5)
    assert sections.steps(path).rows[0][1] == "rank 7"
    assert not sections.waits(recorded("h100")).blocks
    assert not sections.steps(recorded("h100")).blocks


def test_notes_list_inferred_waits() -> None:
    text = " ".join(sections.notes(recorded("dlrm")).lines)
    assert "The trace does not record what calls of the CPU waited for" in text
    assert "inferred" in text
    assert "enable_cuda_sync_events=True" in text
    assert "inferred" not in " ".join(sections.notes(recorded("event_sync")).lines)


def test_notes_have_the_offsets_of_clocks() -> None:
    path = recorded("dlrm")
    offset = path.job.clocks.offset.copy()
    offset[1] = -3_000_000
    shifted = replace(path, job=replace(path.job, clocks=replace(path.job.clocks, offset=offset)))
    assert "Clocks of ranks were up to 3.0 ms apart" in " ".join(sections.notes(shifted).lines)


def test_an_execution_trace_has_a_section_on_data_alone() -> None:
    path = with_execution()
    found = sections.by_data(path)
    flow = path.data_flow()
    assert f"takes {format_seconds(flow.floor_seconds)}: no other order" in found.lines[0]
    assert {row[0] for row in found.rows} <= {"b", "c"}
    assert found.rows
    assert not sections.by_data(recorded("h100")).blocks


def test_improvements_are_worked_out_and_sorted() -> None:
    found = sections.improvements(recorded("simple_add"))
    assert found.rows[0][0] == "cudaMalloc, 2 times as fast"
    saved = recorded("simple_add").saved_seconds(speed_up={"^cudaMalloc$": 2.0})
    assert float(found.rows[0][1]) == pytest.approx(1000 * saved, abs=0.06)
    assert [bar.share for bar in found.table.drawings] == sorted(
        (bar.share for bar in found.table.drawings), reverse=True
    )


def test_a_change_is_described_with_both_windows() -> None:
    before = recorded("simple_add")
    text = " ".join(plain(sections.what_if_document(before, before.what_if(speed_up={"cudaMalloc": 2.0}))).split())
    assert re.search(r"With 'cudaMalloc' 2 times as fast: 12\d ms instead of 243 ms, 48[.\d]* % shorter\.", text)
    assert "Then: 12" in text
    none = " ".join(plain(sections.what_if_document(before, before.what_if(without=["data-loading"]))).split())
    assert "With no data-loading: 243 ms instead of 243 ms, no shorter." in none


def test_a_changed_path_is_marked_as_no_recording() -> None:
    text = plain(sections.document(recorded("event_sync").what_if(without=["kernel-gap"])))
    assert "Not as it was recorded" in text
    assert "With no kernel-gap." in text


def test_time_before_a_ranks_trace_is_not_time_between_operators() -> None:
    path = recorded("dlrm")
    rows = {row[0]: float(row[1]) for row in sections.by_name(path).rows}
    assert rows[sections.UNKNOWN] == pytest.approx(1000 * path.seconds()["unattributed"], abs=0.06)
    assert rows[sections.BETWEEN] < 1000 * path.seconds()["compute-cpu"]


def test_collectives_of_a_single_rank_are_no_fault() -> None:
    assert not any("matched over ranks" in line for line in sections.notes(recorded("cpu_only")).lines)


def test_hostile_names_are_harmless() -> None:
    text = plain(sections.document(hostile()))
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert max(map(len, text.splitlines())) < 200


def test_nothing_is_broken_by_an_empty_walk() -> None:
    path = recorded("event_sync")
    empty = replace(path, stretches=path.stretches.take(np.zeros(0, np.int64)))
    assert "Nothing took any time" in plain(sections.document(empty))


def test_time_before_a_rank_began_is_not_spent_on_that_rank() -> None:
    rows = {row[0]: row[1] for row in sections.by_rank(recorded("dlrm")).rows}
    assert rows == {"rank 7": "5.99", "rank 4": "7.36", "(unattributed)": "7.51"}


def test_the_longest_path_is_compared_with_the_window_of_its_rank() -> None:
    (text, *_) = sections.longest(recorded("dlrm")).lines
    assert text.endswith("takes 9.57 ms, 53 % of its 18 ms.")
    (text, *_) = sections.longest(recorded("h100")).lines
    assert text.endswith("% of the window.")


def test_no_sentence_names_a_gpu_if_there_is_none() -> None:
    path = recorded("cpu_only")
    text = fragment(sections.document(path))
    assert "a thread of the program runs operators or Python" in text
    assert "GPU" not in text
    assert "GPU" not in plain(sections.document(path))


@pytest.mark.parametrize("name", ["simple_add", "h100", "dlrm"])
def test_a_page_has_headline_bar_tables_and_data(tmp_path: Path, name: str) -> None:
    path = recorded(name)
    path.to_html(tmp_path / "a.html")
    html = (tmp_path / "a.html").read_text()
    assert escape(path.headline) in html
    for text in ("What the window was spent on", "By kernel and operator", "Longest path", "What would help"):
        assert text in html
    for kind, seconds in path.seconds().items():
        if seconds > 0.01 * path.window_seconds:
            assert KIND_COLOURS[kind] in html  # type: ignore[index]  # a text is equal to its kind
            assert str(escape(TORCH_MEANINGS[kind])) in html  # type: ignore[index]
    (data,) = re.findall(r'<script[^>]*id="data"[^>]*>(.*?)</script>', html, flags=re.DOTALL)
    assert json.loads(data) == json.loads(json.dumps(to_dict(path)))


@pytest.mark.parametrize(
    "render", [lambda: page(sections.page(hostile())), lambda: fragment(sections.document(hostile()))]
)
def test_no_name_becomes_markup(render: object) -> None:
    html = render()  # type: ignore[operator]
    for smuggled in ("<script>alert", "<img", 'onerror=alert(1)>"', "\x1b", "\u202e"):
        assert smuggled not in html


def test_what_is_left_out_is_in_the_notes_of_json_too() -> None:
    notes = to_dict(path_of("12-kernels-at-instant-zero"))["notes"]
    assert "Left out of the file: work on a GPU hours away from the calls: 4." in notes
    assert any(note.startswith("4 of 10 launches have no work in the trace") for note in notes)
