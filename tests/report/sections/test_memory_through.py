"""Memory through the run, on a screen and on a page."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dask_efficiency import EfficiencyReport
from dask_efficiency.accounts.cluster.memory_timeline import MemoryLine, MemoryTimeline
from dask_efficiency.accounts.metered import BYTES, LIMIT, MEMORY
from dask_efficiency.accounts.rows import OTHER
from dask_efficiency.accounts.skew import Skew
from dask_efficiency.report.files import from_dict, to_dict
from dask_efficiency.report.sections.memory_through import kept, memory_through, thresholds
from dask_efficiency.report.values import HeldFor, MeteredRow
from dask_efficiency.show.document import PAGE, Levels, Spark, Table
from dask_efficiency.show.html.figures import levels
from dask_efficiency.show.terminal import blocks_of
from tests.report.samples import changed, report_of, seconds

GIB = 2**30
SETTINGS = {
    "distributed.worker.memory.target": "0.6",
    "distributed.worker.memory.spill": "0.75 (default 0.7)",
    "distributed.worker.memory.pause": "False (default 0.8)",
    "distributed.worker.memory.terminate": "0.95",
}


def line(limit: float, *rows: tuple[float, ...], **prefixes: tuple[float, ...]) -> MemoryLine:
    """Process, managed and spilled memory in GiB."""
    bins = [tuple(round(n * GIB) for n in row) for row in rows]
    return MemoryLine(
        round(limit * GIB), *bins, {name: tuple(round(n * GIB) for n in row) for name, row in prefixes.items()}
    )


HELD = {"merge": (0, 2.0, 1.0), "read": (0, 0.5, 0), "tiny": (0, 0.001, 0), OTHER: (0.25, 0.499, 0.5)}
CLUSTER = line(8, (1, 6, 2), (0.25, 3.0, 1.5), (0, 0, 1), **HELD)
WORKERS = {"b": line(4, (0.5, 3.9, 1), (0, 1, 1), (0, 0, 1)), "a": line(0, (0.5, 2.1, 1), (0.25, 2.5, 0.5), (0, 0, 0))}
TIMELINE = MemoryTimeline(10**9, 2_500_000_000, CLUSTER, WORKERS, 3)


def of_memory(timeline: MemoryTimeline | None = TIMELINE) -> EfficiencyReport:
    return report_of(seconds(thread_cpu=1), memory_timeline=timeline, environment=SETTINGS)


def test_on_a_screen_it_is_a_sentence_and_a_line_of_blocks() -> None:
    section = memory_through(of_memory())
    (sentence, spark) = section.blocks
    assert sentence == (
        "at most 6.0 GiB of 8.0 GiB on all workers at a time: managed 3.0 GiB, unmanaged 3.0 GiB, "
        "spilled 1.0 GiB at most"
    )
    assert spark == Spark("from 0 to the limit, 8.0 GiB:", (1 / 8, 6 / 8, 2 / 8))
    assert not memory_through(of_memory(None)).blocks
    nothing = replace(TIMELINE, cluster=line(8, (0, 0, 0), (0, 0, 0), (0, 0, 0)))
    assert not memory_through(of_memory(nothing)).blocks


def test_without_a_limit_the_blocks_are_of_the_peak_and_negative_unmanaged_memory_is_said() -> None:
    cluster = line(0, (1, 2, 1), (1, 3, 1), (0, 0, 0))
    section = memory_through(of_memory(replace(TIMELINE, cluster=cluster)))
    assert section.lines == ("at most 2.0 GiB on all workers at a time: managed 3.0 GiB, unmanaged -1.0 GiB",)
    assert section.blocks[1] == Spark("from 0 to 2.0 GiB:", (0.5, 1.0, 0.5))


def test_on_a_page_it_is_stacked_beside_the_limit_and_the_thresholds() -> None:
    section = memory_through(of_memory(), PAGE)
    (drawn,) = (block for block in section.blocks if isinstance(block, Levels))
    assert [label.text for label, _ in drawn.areas] == ["merge", "read", "other managed", "unmanaged", "spilled"]
    for i in range(3):
        assert sum(row[i] for _, row in drawn.areas) == CLUSTER.process[i] + CLUSTER.spilled[i]
    assert drawn.lines == (
        (0.6 * 8 * GIB, "target 60 %"),
        (0.75 * 8 * GIB, "spill 75 %"),
        (0.95 * 8 * GIB, "terminate 95 %"),
        (8 * GIB, "limit"),
    )
    assert (drawn.most, drawn.top) == (8 * GIB, "8.0 GiB")
    assert section.rows == (
        ("b", "3.9 GiB", "98 %", "1.0 GiB", "2.9 GiB", "1.0 GiB"),
        ("a", "2.1 GiB", "-", "2.5 GiB", "-410 MiB", "0 B"),
    )
    of_b, of_a = section.table.drawings
    assert isinstance(of_b, Levels)
    assert isinstance(of_a, Levels)
    assert [name for _, name in of_b.lines] == ["target 60 %", "spill 75 %", "terminate 95 %", "limit"]
    assert of_a.lines == ()
    assert (of_b.small, drawn.small) == (True, False)
    few = replace(PAGE, workers=1)
    assert str(memory_through(of_memory(), few).blocks[-1]).count("4 more") == 1


def test_a_limit_far_above_what_was_taken_is_not_drawn() -> None:
    cluster = line(100, (1, 6, 2), (0.25, 3.0, 1.5), (0, 0, 1))
    section = memory_through(of_memory(replace(TIMELINE, cluster=cluster)), PAGE)
    (drawn,) = (block for block in section.blocks if isinstance(block, Levels))
    assert (drawn.lines, drawn.most) == ((), 6 * GIB)


def test_thresholds_are_a_workers_own_if_it_told_them() -> None:
    assert thresholds(of_memory()) == {"target": 0.6, "spill": 0.75, "terminate": 0.95}
    own = ((LIMIT, 100.0), ("spill", 90.0), ("pause", 95.0))
    rows = [MeteredRow("a", MEMORY, "", "", label, BYTES, n) for label, n in own]
    assert thresholds(changed(of_memory(), metered=tuple(rows))) == {
        "target": 0.6,
        "spill": 0.9,
        "pause": 0.95,
        "terminate": 0.95,
    }


def test_it_survives_a_file_and_rows_of_another_length_are_refused() -> None:
    data = to_dict(of_memory())
    assert from_dict(data).memory_timeline == TIMELINE
    data["report"]["memory_timeline"]["workers"]["a"]["spilled"].append(1)
    with pytest.raises(ValueError, match="has 4 bins; expected 3"):
        from_dict(data)
    del data["report"]["memory_timeline"]
    assert from_dict(data).memory_timeline is None


def test_areas_are_drawn_from_the_top_down_and_names_of_lines_do_not_overlap() -> None:
    (drawn,) = (block for block in memory_through(of_memory(), PAGE).blocks if isinstance(block, Levels))
    shape = levels(drawn)
    assert shape["areas"][0]["hint"].startswith("spilled: ")
    assert shape["areas"][0]["path"] == "M0 400V350h480V100h480V250h240V400Z"
    # the limit is at the top, and the nearest line has room for its name
    assert [(one["y"], one["name"]) for one in shape["lines"]] == [
        ("0.0", "limit"),
        ("11.0", "terminate 95 %"),
        ("55.0", "spill 75 %"),
        ("88.0", "target 60 %"),
    ]
    assert shape["ticks"][0]["label"] == "0 s"
    assert not any(one["name"] for one in levels(replace(drawn, small=True))["lines"])


@pytest.mark.parametrize(
    ("shares", "width", "text"),
    [((0.0, 0.01, 0.5, 1.0), 10, " ▁▄█"), ((0.1, 0.9, 0.2, 0.3), 2, "█▃"), ((), 10, ""), ((1.0,), 0, "")],
)
def test_blocks_are_as_high_as_the_highest_of_those_that_share_one(shares, width, text) -> None:
    assert blocks_of(shares, width) == text


def test_small_drawings_have_few_steps_each_the_one_with_most() -> None:
    many = tuple((i * 7) % 50 for i in range(240))
    grown = line(0, many, (0,) * 240, (0,) * 240)
    (drawing,) = memory_through(of_memory(MemoryTimeline(10**9, 240 * 10**9, grown, {"a": grown})), PAGE).table.drawings
    assert isinstance(drawing, Levels)
    assert drawing.bin_ns == 4 * 10**9
    (_, unmanaged) = drawing.areas[-1]
    assert unmanaged == tuple(max(many[i : i + 4]) * GIB for i in range(0, 240, 4))


LOAD = HeldFor("load", "blocked", "sub", "mean_agg-aggregate", 9.5 * GIB, 40.0, 3 * GIB)
KEPT = (
    LOAD,
    replace(LOAD, why="ahead", needed_by="write", waits_for="", byte_seconds=2.0 * GIB, at_peak=0),
    HeldFor(OTHER, "queued", "", "", 1.0 * GIB, 1.0, GIB),
    HeldFor("sum", "future", "Client-7d24439e", "", 0.5 * GIB, 1.0, 0),
    HeldFor("sum", "running", "mean", "", 0.25 * GIB, 1.0, 0),
    HeldFor("sum", "unneeded", "", "", 0.125 * GIB, 1.0, 0),
)


def test_reasons_why_results_were_kept_are_told_with_sizes() -> None:
    section = kept(report_of(seconds(thread_cpu=1), held_for=KEPT, skew={"load": Skew(8, 1.0, 1.0, 1.0, "load-1")}))
    (table,) = section.blocks
    assert isinstance(table, Table)
    assert table.rows == (
        ("load", "for sub, waiting for mean_agg-aggregate", "9.5 GiB s", "3.0 GiB", "5.0 s"),
        ("load", "ahead of write, waiting for threads", "2.0 GiB s", "0 B", "5.0 s"),
        ("(other)", "for other tasks, waiting for threads", "1.0 GiB s", "1.0 GiB", ""),
        ("sum", "only for Client-7d24439e", "512 MiB s", "0 B", ""),
        ("sum", "input of mean at work", "256 MiB s", "0 B", ""),
        ("sum", "for nobody: about to be released", "128 MiB s", "0 B", ""),
    )
    assert not kept(report_of(seconds(thread_cpu=1))).blocks
    odd = report_of(seconds(thread_cpu=1), held_for=(replace(LOAD, why="{x}"),))
    (table,) = kept(odd).blocks
    assert isinstance(table, Table)
    assert table.rows[0][1] == "for sub"


def test_each_worker_on_a_page_has_what_most_of_it_was_kept_for() -> None:
    report = replace(of_memory(), held_at_peaks={"b": (LOAD, *KEPT[1:])})
    table = next(block for block in memory_through(report, PAGE).blocks if isinstance(block, Table))
    assert [row[-1] for row in table.rows] == ["load for sub, waiting for mean_agg-aggregate", ""]
