import json
from pathlib import Path

from click.testing import CliRunner, Result

from dask_efficiency.cli import main
from tests.histories.nights import night, saved

CHECK = ("--fail-on-worse", "10%")


def asked(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["history", *map(str, arguments)])


def test_a_folder_is_shown_in_each_form(tmp_path: Path) -> None:
    folder = saved(tmp_path / "runs", [night(i, 60.0 if i < 12 else 90.0) for i in range(20)])
    headline = "nightly.py got 50 % slower with the run of 2026-11-13 03:00 (8 runs since)"
    assert headline in asked(folder).output
    assert json.loads(asked(folder, "--json").output)["headline"] == headline
    assert asked(folder, "--markdown").output.startswith("### nightly.py got 50 % slower")
    assert asked(folder, "--html", tmp_path / "page.html").output == f"{headline}.\n"
    assert "<circle" in (tmp_path / "page.html").read_text()


def test_the_exit_code_is_1_for_a_latest_run_that_is_worse(tmp_path: Path) -> None:
    folder = saved(tmp_path, [*(night(i) for i in range(10)), night(10, 75.0)])
    ran = asked(folder, "--fail-on-worse", "10%")
    assert ran.exit_code == 1
    assert ran.stderr == (
        "Error: nightly.py, run of 2026-11-11 03:00: 25 % more time, 75.0 s after 60.0 s in 10 runs; "
        "--fail-on-worse allows 10 %\n"
    )
    assert asked(folder, "--fail-on-worse", "30%").exit_code == 0


def test_too_few_runs_are_said_and_pass(tmp_path: Path) -> None:
    ran = asked(saved(tmp_path, [night(0), night(1, 100.0)]), "--fail-on-worse", "10%")
    why = "1 of 1 names are not judged: fewer than 5 whole runs before the latest, or nothing ran in that\n"
    assert (ran.exit_code, ran.stderr) == (0, why)
    failed = [night(i, ended_by="KeyError") for i in range(6)]
    ran = asked(saved(tmp_path / "f", [*failed, *(night(6 + i) for i in range(3)), night(9, 200.0)]), *CHECK)
    assert (ran.exit_code, ran.stderr) == (0, why)


def test_a_latest_run_that_ended_by_an_error_does_not_pass(tmp_path: Path) -> None:
    ran = asked(saved(tmp_path, [*(night(i) for i in range(10)), night(10, 90.0, ended_by="MemoryError")]), *CHECK)
    assert (ran.exit_code, ran.stderr) == (
        1,
        "Error: nightly.py, run of 2026-11-11 03:00, ended by MemoryError; not judged\n",
    )


def test_what_cannot_be_judged_has_exit_code_2(tmp_path: Path) -> None:
    assert asked(tmp_path / "nowhere", "--fail-on-worse", "10%").exit_code == 2
    assert asked(saved(tmp_path, [night(0)]), "--label", "branch").exit_code == 2
    assert asked(tmp_path, "--label", "branch=main").exit_code == 2
    assert asked(tmp_path, "--fail-on-worse", "ten").exit_code == 2
