from pathlib import Path

from docs.constants import constants, constants_of, markdown

SOURCE = """
#: Seconds. A guess.
WAIT = 3
#: Tasks. Chosen on the runs in `tests/data`.
MIN_TASKS, MIN_DONE = 10, 0.1

#: Nanoseconds of a second.
SECOND = 1_000_000_000
"""
BELOW = """
#: Chosen, as all below, on runs.
FIRST = 1
#: Looks. A guess that bounds memory.
LOOKS = 2
#: Ends.
TAIL = 3
"""


def test_a_constant_s_ground_is_what_its_comment_says() -> None:
    found = {one.name: one.ground for one in constants_of(SOURCE, "runs/a.py")}
    assert found == {"WAIT": "taste", "MIN_TASKS": "data", "MIN_DONE": "data", "SECOND": ""}
    assert [one.ground for one in constants_of(BELOW, "runs/a.py")] == ["data", "bound", "data"]


def test_the_page_counts_decisions_by_ground_and_lists_those_on_data() -> None:
    page = markdown(constants_of(SOURCE, "runs/a.py"))
    assert page.startswith("4 constants with 3 comments: 1 say that they were chosen on data, 1 that they are a guess")
    assert page.split("## Chosen on data")[1].split("## runs")[0].count("| `MIN_") == 2


def test_a_package_s_constants_are_those_of_all_its_modules(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "a.py").write_text(SOURCE)
    assert [one.module for one in constants(tmp_path)] == ["runs/a.py"] * 4
