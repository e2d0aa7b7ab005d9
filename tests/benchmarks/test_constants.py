"""Constants, halved and doubled: which are read while a run is judged, and what another value of one reaches."""

import shutil
from pathlib import Path

import pytest

from benchmarks.studies.constants import Tried, changed, lines_run, pool, read_by, summary, tried
from docs.constants import Constant, constants

RECORDED = Path(__file__).parents[1] / "data" / "diagnoses"


@pytest.mark.parametrize(
    ("value", "factor", "other"),
    [(10, 0.5, 5), (1, 0.5, 1), (1, 2.0, 2), (0.3, 2.0, 0.6), ((1.0, 4), 0.5, (0.5, 2)), (1 << 62, 2.0, 1 << 63)],
)
def test_whole_numbers_stay_whole_and_tuples_change_as_a_whole(value: object, factor: float, other: object) -> None:
    assert repr(changed(value, factor)) == repr(other)


def test_a_change_reaches_other_modules_and_what_they_made_of_it_when_imported(tmp_path: Path) -> None:
    for file in RECORDED.glob("skew.*"):
        shutil.copy(file, tmp_path)
    listed = {(one.module, one.name): one for one in constants()}
    with pool(1) as worker:
        usual, lines = worker.apply(lines_run, ([tmp_path],))
    read = read_by(lines, listed.values())
    names, titles, unread = (
        listed["show/figures.py", "NAME_LENGTH"],  # of functions of other modules
        listed["show/finding.py", "MAX_TITLE"],  # of tables
        listed["show/html/figures.py", "MAX_TICKS"],
    )
    assert names in read
    assert titles in read
    assert unread not in read
    of_names, of_titles, of_ticks = tried([tmp_path], (names, titles, unread), usual)
    assert of_names.told_otherwise == (1, 1)
    assert of_names.changed["double"] == (0, 0)
    assert "RecipeError" in of_titles.failed["half"]
    assert of_ticks.told_otherwise == (0, 0)


def test_of_constants_that_nothing_reads_nothing_is_said() -> None:
    some = [Constant(name, "2", "report/findings.py", line, "") for line, name in enumerate(("A", "B", "C", "D", "E"))]
    found = [
        Tried(some[0], {"half": (1, 2), "double": (0, 0)}),
        Tried(some[1], {"double": (0, 0)}, {"half": "ValueError: 1"}),
        Tried(some[2], {"half": (0, 0), "double": (0, 0)}),
        Tried(some[3]),
    ]
    *_, last = summary(some, found, 7)
    assert last == (
        "5 constants, 4 read while 7 runs are judged, 3 tried: 1 change a first screen, 1 of them a first finding; "
        "1 are needed as they are; 1 change nothing"
    )
