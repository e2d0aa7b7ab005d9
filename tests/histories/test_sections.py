from pathlib import Path

from dask_efficiency import history
from dask_efficiency.histories.sections import MAX_LISTED, page, to_dict
from dask_efficiency.show.document import Spark, Trend
from tests.histories.nights import night, saved

EVIL = "w\x1b[2J\n<img src=x>|`rm`"


def test_a_terminal_has_blocks_and_a_page_a_plot_with_medians(tmp_path: Path) -> None:
    found = history(saved(tmp_path, [night(i, 60.0 if i < 12 else 90.0) for i in range(20)]))
    (spark,) = (block for block in found.document.sections[0].blocks if isinstance(block, Spark))
    assert spark.shares == (*(60 / 90,) * 12, *(1.0,) * 8)
    (trend,) = (block for block in page(found).sections[0].blocks if isinstance(block, Trend))
    assert trend.stretches == ((0, 12, 60 / 90), (12, 20, 1.0))
    assert trend.top == "90.0 s"
    html = tmp_path / "page.html"
    found.to_html(html)
    assert html.read_text().count("<circle") == 20
    assert "2026-11-13 03:00: 90.0 s" in html.read_text()


def test_long_histories_are_cut_and_say_so(tmp_path: Path) -> None:
    many = [night(i, name=f"test_{i}") for i in range(MAX_LISTED + 2)]
    shown = str(history(saved(tmp_path / "many", many)))
    assert "not shown: test_1, test_0" in shown
    long = history(saved(tmp_path / "long", [night(i) for i in range(MAX_LISTED + 3)]))
    assert "the last 15 runs; 3 earlier ones are not listed" in str(long)


def test_the_first_screen_says_what_changed_and_why(tmp_path: Path) -> None:
    nights = [night(i, 60.0) for i in range(12)] + [night(i, 90.0, spill=90.0) for i in range(12, 20)]
    first, why, *_ = history(saved(tmp_path, nights)).document.findings[0]
    assert first == "nightly.py got 50 % slower with the run of 2026-11-13 03:00 (8 runs since): 60.0 s -> 90.0 s"
    assert why.startswith("With it: grown: spilling to disk")


def test_no_name_of_a_file_is_shown_raw(tmp_path: Path) -> None:
    folder = saved(tmp_path, [night(0, name=EVIL, labels={EVIL: EVIL}, ended_by=EVIL, environment={"dask": EVIL})])
    (folder / "x\x1b.json").write_text("{}")
    found = history(folder)
    assert "\x1b" not in str(found)
    found.to_html(tmp_path / "page.html")
    assert "\x1b" not in (tmp_path / "page.html").read_text()
    assert "<img" not in (tmp_path / "page.html").read_text()


def test_plain_data_has_runs_changes_and_reasons(tmp_path: Path) -> None:
    nights = [night(i, 60.0 if i < 12 else 90.0) for i in range(20)]
    data = to_dict(history(saved(tmp_path, nights)))
    assert (data["format"], len(data["runs"])) == ("dask-efficiency-history", 20)
    (change,) = data["changes"]
    assert (change["runs_since"], change["rise"], change["before"]) == (8, 0.5, 60.0)
    assert change["run"] == str(tmp_path / "012.json")
