import io
import re
from dataclasses import replace

import pytest

from dask_efficiency import critical_path
from dask_efficiency.runs import compare_paths
from dask_efficiency.runs.sections.path import (
    bounds,
    by_host,
    by_name,
    context,
    differences,
    document,
    improvements,
    kinds,
    notes,
    sections,
    what_if,
    what_if_document,
)
from dask_efficiency.show.terminal import plain
from tests.runs.path_samples import hostile, transfers
from tests.simulated_traces import SAMPLES, tree


@pytest.mark.parametrize("name", SAMPLES)
def test_the_shares_of_each_table_add_up_to_the_whole(name: str) -> None:
    path = critical_path(SAMPLES[name]())
    for section in (kinds(path), by_name(path, "prefix"), by_name(path, "worker")):
        assert sum(round(10 * float(row[2])) for row in section.rows) == 1000
    # the time of no task is the client's and the scheduler's
    assert "(no task)" in {row[0] for row in by_name(path, "prefix").rows}
    assert "(client and scheduler)" in {row[0] for row in by_name(path, "worker").rows}


def test_kinds_come_largest_first_with_seconds_of_the_wall_clock() -> None:
    path = transfers()
    first = kinds(path).rows[0]
    assert first[0] == "transfer"
    assert float(first[1]) == pytest.approx(path.seconds("kind")["transfer"] * 1000, abs=0.06)
    assert float(first[2]) == pytest.approx(100 * path.summary()["transfer"], abs=0.06)
    lengths = [bar.share for bar in kinds(path).table.drawings[:-1]]
    assert lengths == sorted(lengths, reverse=True)


def test_hosts_are_left_out_if_they_are_named_as_their_workers() -> None:
    path = transfers()
    assert by_host(path).rows
    alone = tuple(replace(worker, host=worker.name) for worker in path.trace.workers)
    assert not by_host(critical_path(replace(path.trace, workers=alone))).rows


def test_dropped_rows_and_notes_are_a_caveat() -> None:
    path = critical_path(replace(tree(4), dropped={"transitions": 7, "runs": 0}, notes=("clocks differ",)))
    section = notes(path)
    assert section.caveat
    assert section.lines == ("clocks differ", "Not recorded, as there was no room or it was lost: 7 transitions.")


def test_a_change_is_shown_with_its_sign_and_the_new_path() -> None:
    before = transfers()
    after = before.what_if(without=("transfer",))
    effect, by_kind, by_prefix = what_if(before, after, "With no transfer")
    assert effect.lines[0].startswith("With no transfer: ")
    assert "% shorter." in effect.lines[0]
    changes = {row[0]: row[3] for row in by_kind.rows}
    assert changes["transfer"].startswith("-")
    assert changes["total"].startswith("-")
    assert by_kind.table.sums == (len(by_kind.rows) - 1,)
    assert by_prefix.rows[-1][1:4] == by_kind.rows[-1][1:4]
    assert "no shorter" in what_if(before, before, "With nothing")[0].lines[0]
    longer, why = what_if(before, before.what_if(speed_up={"sum": 0.1}), "With 'sum' 0.1 times as fast")[0].lines
    assert "% longer." in longer
    assert "in another order" in why
    shown = " ".join(plain(what_if_document(before, after, "With no transfer")).split())
    assert before.headline in shown
    assert f"Then: {after.headline}" in shown


def test_the_best_improvements_are_shown_with_their_errors() -> None:
    section = improvements(transfers())
    assert section.title == "Where 10 % would help most"
    assert section.rows[0][0] == "(transfer)"
    assert float(section.rows[0][1]) > 2 * float(section.rows[0][2])
    assert [float(row[1]) for row in section.rows] == sorted((float(row[1]) for row in section.rows), reverse=True)


def test_differences_add_up_to_the_whole_and_name_moves_onto_the_path_and_off_it() -> None:
    for name in SAMPLES:
        for section in differences(compare_paths(transfers(), critical_path(SAMPLES[name]()))):
            *rows, total = (float(row[2]) for row in section.rows)
            assert sum(rows) == pytest.approx(total, abs=0.06 * len(rows))
    paths = transfers(), critical_path(SAMPLES["spilling"]())
    onto, off = ({row[0]: row[4] for row in differences(compare_paths(*both))[0].rows} for both in (paths, paths[::-1]))
    assert (onto["unspill"], off["unspill"]) == ("onto the path", "off the path")
    assert onto["compute-cpu"] == off["compute-cpu"] == ""


def test_names_of_users_are_harmless_and_bounded() -> None:
    path = hostile()
    texts = [context(path), *(cell for part in sections(path) for row in part.rows for cell in row)]
    texts += [line for part in sections(path) for line in part.lines]
    for text in texts:
        assert text.isprintable()
        assert len(text) <= 400


def test_the_headline_comes_before_the_tables() -> None:
    path = transfers()
    text = " ".join(plain(document(path), 500).split())
    places = [path.headline, f"1. {path.findings[0].title}", "What the makespan was spent on", "By task prefix"]
    assert list(map(text.index, places)) == sorted(map(text.index, places))
    assert str(path) == plain(document(path))
    assert "divided by the 8 slots" in " ".join(bounds(critical_path(tree(8))).lines)


def test_a_comparison_is_shown_by_itself_in_plain_text_and_in_rich() -> None:
    console = pytest.importorskip("rich.console")
    comparison = compare_paths(transfers(), critical_path(SAMPLES["spilling"]()))
    text = str(comparison)
    assert "onto the path" in text
    assert " ".join(text.split()).index(comparison.headline) < text.index("By kind")
    order = list(map(text.index, ("By kind", "By task prefix", "Before: ", "Now: ")))
    assert order == sorted(order)
    screen = io.StringIO()
    console.Console(file=screen, width=80, color_system=None, legacy_windows=False).print(comparison)
    assert [word for word in re.findall(r"[\w.%-]+", text) if word not in screen.getvalue() and set(word) > {"-"}] == []
