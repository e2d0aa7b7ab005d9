import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dask_efficiency import compare
from dask_efficiency.cli import main
from tests.report.samples import report_of, seconds


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs a1, a2 and a3 that lose 2, 3 and 4 thread-seconds; b that loses 6; one in which nothing ran."""
    monkeypatch.chdir(tmp_path)
    for name, spill in (("a1", 2), ("a2", 3), ("a3", 4), ("b", 6)):
        report_of(seconds(thread_cpu=10, spill=spill)).save(f"{name}.json")
    report_of(seconds(no_work=10)).save("nothing.json")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["compare", *arguments])


def test_two_files_are_compared() -> None:
    result = run("a1.json", "b.json")
    assert result.exit_code == 0
    assert result.stdout.startswith("a1.json -> b.json")
    assert "lost time rose by 200 %, 2.0 -> 6.0 " in result.stdout.replace("\n", " ")


@pytest.mark.parametrize(
    "arguments",
    [
        ("a?.json", "b.json"),
        ("--before", "a1.json", "--before", "a2.json", "--before", "a3.json", "--after", "b.json"),
        ("--before", "a[12].json", "--before", "a3.json", "--after", "b.json"),
    ],
)
def test_several_files_a_side_are_medians(arguments: tuple[str, ...]) -> None:
    result = run(*arguments, "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == compare(["a1.json", "a2.json", "a3.json"], "b.json").to_dict()


def test_patterns_of_urls_are_looked_up(tmp_path: Path) -> None:
    result = run(f"{tmp_path.as_uri()}/a?.json", "b.json", "--json")
    assert result.exit_code == 0, result.stderr
    assert len(json.loads(result.stdout)["before"]) == 3


def test_a_file_whose_name_looks_like_a_pattern_is_a_file() -> None:
    report_of(seconds(thread_cpu=1)).save("run[1].json")
    assert json.loads(run("run[1].json", "b.json", "--json").stdout)["before"] == ["run[1].json"]


def test_a_page_is_written_and_the_headline_printed() -> None:
    result = run("a1.json", "b.json", "--html", "out.html")
    assert (result.exit_code, result.stdout) == (0, f"{compare('a1.json', 'b.json').headline}.\n")
    assert Path("out.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


@pytest.mark.parametrize(("limit", "code"), [("200%", 0), ("199.9 %", 1), ("0%", 1), ("1000%", 0)])
def test_a_rise_above_the_limit_ends_with_1(limit: str, code: int) -> None:
    result = run("a1.json", "b.json", "--max-loss", limit)
    assert result.exit_code == code
    assert "lost time rose by 200 %" in result.stdout


def test_the_message_names_the_figure_and_the_limit() -> None:
    result = run("a1.json", "b.json", "--max-loss", "5%", "--json")
    assert result.stderr == (
        "Error: lost time rose by 200 %, from 2.000 to 6.000 thread-seconds; --max-loss allows 5 %\n"
    )
    assert json.loads(result.stdout)["lost_ns"]["change"] == 4 * 10**9


def test_from_nothing_lost_any_loss_is_above_the_limit() -> None:
    report_of(seconds(thread_cpu=10)).save("perfect.json")
    result = run("perfect.json", "a1.json", "--max-loss", "500%")
    assert result.exit_code == 1
    assert "rose, from 0.000 to 2.000" in result.stderr
    assert run("perfect.json", "perfect.json", "--max-loss", "0%").exit_code == 0


@pytest.mark.parametrize("sides", [("a1.json", "nothing.json"), ("nothing.json", "a1.json")])
def test_a_run_in_which_nothing_ran_does_not_pass_the_limit(sides: tuple[str, str]) -> None:
    result = run(*sides, "--max-loss", "5%")
    assert result.exit_code == 2
    assert result.stderr == "Error: nothing.json: nothing ran, so --max-loss cannot tell\n"
    assert run(*sides).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("a1.json", "gone.json"), "gone.json"),
        (("a1.json", "q*.json"), "no file matches 'q*.json'"),
        (("a1.json", "foreign.json"), "foreign.json"),
    ],
)
def test_what_cannot_be_read_ends_with_2_in_one_line(arguments: tuple[str, str], said: str) -> None:
    Path("foreign.json").write_text("{}")
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "expected BEFORE and AFTER"),
        (("a1.json",), "expected BEFORE and AFTER"),
        (("a1.json", "a2.json", "b.json"), "patterns of files need quotes"),
        (("a1.json", "b.json", "--after", "b.json"), "expected BEFORE and AFTER"),
        (("--after", "b.json"), "--before is missing"),
        (("--before", "b.json"), "--after is missing"),
    ],
)
def test_sides_that_are_not_two_are_refused(arguments: tuple[str, ...], said: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())


@pytest.mark.parametrize("limit", ["5", "0.05", "-5%", "a%", "nan%", "", "%", "1/3%"])
def test_a_limit_is_a_share_in_per_cent(limit: str) -> None:
    result = run("a1.json", "b.json", "--max-loss", limit)
    assert result.exit_code == 2
    assert "is not a share such as 5% or 0.5%" in result.stderr
