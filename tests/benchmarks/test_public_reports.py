import ast
import re
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.public_reports.judging import FIRST, Judged, claims, judged, together
from benchmarks.public_reports.programs import HOME, SETS, Expected, Program, marked, names_of, needs_of, program_of
from dask_efficiency.show.finding import Basis, Finding

NAMES = [(which, name) for which in SETS for name in names_of(which)]

EXPECTED = Expected(
    cause="the tasks wait for a database",
    place="load",
    cure="ask for less",
    says="database",
    places=(r"\betl\.py:42\b", r"\bload\b"),
    cures="fewer rows",
    never={"use processes": "the lock is that of a file"},
)
RIGHT = Finding(
    "thread-noncpu/network",
    "Waiting for a Database",
    "`load(day)` in etl.py:42",
    saves_seconds=4.0,
    saves_interval=(3.0, 5.0),
    basis=Basis.REPLAYED,
    advice="Ask for fewer rows.",
)
OTHER = Finding("spill", "Spilling to disk", "worker 0", advice="Use more memory.")


def judge(*shown: Finding, bad: float = 10.0, good: float = 6.0, headline: str = "10 s") -> Judged:
    return judged("a program", EXPECTED, headline, shown, bad, good)


# -- the programs ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("which", "name"), NAMES)
def test_each_program_begins_with_its_report(which: str, name: str) -> None:
    text = ast.get_docstring(ast.parse((HOME / which / f"{name}.py").read_text())) or ""
    assert re.findall(r"^(source|date|seen|cause|cure):", text, re.MULTILINE) == [
        "source",
        "date",
        "seen",
        "cause",
        "cure",
    ]
    assert re.search(r"^date: +\d{4}-\d\d-\d\d\b", text, re.MULTILINE)


@pytest.mark.parametrize(("which", "name"), NAMES)
def test_the_words_of_what_is_expected_match_its_patterns(which: str, name: str) -> None:
    program = program_of(which, name)
    if isinstance(program, str):
        pytest.skip(program)
    expected = program.expected
    assert re.search(expected.says, f"{expected.cause}\n{expected.place}", re.IGNORECASE)
    assert re.search(expected.cures, expected.cure, re.IGNORECASE)
    words = "\n".join((expected.cause, expected.place, expected.cure))
    assert [pattern for pattern in expected.never if re.search(pattern, words)] == []


def test_the_modules_that_a_program_needs_are_read_without_importing_it() -> None:
    assert needs_of("known", "mfdataset_compares") == ("xarray", "netCDF4")
    assert needs_of("known", "heavy_method") == ()
    assert isinstance(program_of("known", "heavy_method"), Program)


def test_a_mark_stands_for_all_lines_of_its_statement(tmp_path: Path) -> None:
    source = tmp_path / "etl.py"
    source.write_text("def load():\n    frame = read(\n        'a',\n    )  # <- here\n    return frame\n")
    assert marked(str(source)) == tuple(rf"\betl\.py:{line}\b" for line in (2, 3, 4))
    source.write_text("pass\n")
    with pytest.raises(ValueError, match=r"etl\.py has no line that ends in '# <- here'"):
        marked(str(source))


# -- what is judged --------------------------------------------------------------------------------


def test_a_finding_is_right_with_the_cause_and_its_place() -> None:
    one = judge(RIGHT)
    assert (one.first_right, one.three_right, one.first_cure, one.kept) == (True, True, True, [True])
    assert not judge(replace(RIGHT, title="Waiting")).first_right
    assert not judge(replace(RIGHT, where="save in etl.py:420")).first_right
    assert judge(replace(RIGHT, where="load")).first_right
    assert not judge(replace(RIGHT, advice="Use more threads.")).first_cure
    assert judge(replace(RIGHT, advice="Use more threads.")).first_right


def test_a_place_in_the_advice_is_none() -> None:
    assert not judge(replace(RIGHT, where="", advice="See etl.py:42.")).first_right


def test_the_users_own_source_and_names_of_files_say_no_cause() -> None:
    for where in ("`database.load(day)` in etl.py:42", "`load`, database.py:7", "`load`, etl.py:42 (tasks of load)"):
        assert not judge(replace(RIGHT, title="Waiting", where=where)).first_right
    assert judge(replace(RIGHT, title="Waiting", where="`Database.load`, etl.py:42")).first_right


def test_one_of_the_first_three_may_be_right() -> None:
    one = judge(OTHER, RIGHT)
    assert (one.first_right, one.three_right, one.kept) == (False, True, [True])
    nothing = judge()
    assert (nothing.first_right, nothing.three_right, nothing.first_cure, nothing.kept) == (False, False, False, [])


@pytest.mark.parametrize(("good", "kept"), [(4.9, [False]), (5.1, [True]), (6.9, [True]), (7.1, [False])])
def test_a_saving_is_judged_by_its_interval(good: float, kept: list[bool]) -> None:
    assert judge(RIGHT, good=good).kept == kept
    assert judge(replace(RIGHT, saves_interval=None, basis=Basis.BOUNDED), good=good).kept == []


def test_sentences_mislead_wherever_they_are_on_the_first_screen() -> None:
    assert judge(RIGHT).misleading == []
    assert judge(RIGHT, headline="10 s: use processes").misleading == ["'use processes': the lock is that of a file"]
    assert judge(RIGHT, replace(OTHER, advice="Or use processes.")).misleading


def test_a_cause_that_is_named_after_the_cure_is_counted() -> None:
    assert judged("a program", EXPECTED, "6 s", [RIGHT], 10.0, 6.0, shown_good=[replace(RIGHT, where="")]).still
    assert not judged("a program", EXPECTED, "6 s", [RIGHT], 10.0, 6.0, shown_good=[OTHER]).still


def test_several_runs_are_as_right_as_the_worst_of_them() -> None:
    one = together([judge(RIGHT, bad=9.0), judge(OTHER, RIGHT, bad=11.0), judge(RIGHT, bad=10.0)])
    assert (one.bad_seconds, one.first_right, one.three_right, one.kept) == (10.0, False, True, [True] * 3)


# -- what is claimed -------------------------------------------------------------------------------


def holds(*results: Judged) -> list[bool | None]:
    return [claim.holds for claim in claims(results)]


def test_all_claims_hold_for_programs_that_are_right() -> None:
    assert holds(judge(RIGHT)) == [True, True, True, True, None, None]
    assert holds() == [None, None, None, None, None, None]


def test_each_claim_can_fail() -> None:
    assert FIRST == 17 / 20
    assert holds(*[judge(RIGHT)] * 17, *[judge(OTHER, RIGHT)] * 3)[:2] == [True, True]
    assert holds(*[judge(RIGHT)] * 16, *[judge(OTHER, RIGHT)] * 4)[:2] == [False, True]
    assert holds(*[judge(RIGHT)] * 18, *[judge(OTHER)] * 2)[:2] == [True, False]
    assert holds(judge(RIGHT, headline="use processes"))[2] is False
    assert holds(*[judge(RIGHT)] * 9, judge(RIGHT, good=8.0))[3] is True
    assert holds(*[judge(RIGHT)] * 8, judge(RIGHT, good=8.0))[3] is False
    assert str(next(claims([judge(OTHER)] * 20))) == (
        "FAILS  cause and place are right in the first finding in 0 of 20 (at least 17)"
    )
