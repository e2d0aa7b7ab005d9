import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dask_efficiency import critical_path
from dask_efficiency.cli import main
from dask_efficiency.runs import compare_paths
from dask_efficiency.runs.sections.path import to_dict
from tests.simulated_traces import SAMPLES, transfer_bound


@pytest.fixture(autouse=True)
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    transfer_bound().save("run.trace")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["critical-path", *arguments])


def words(text: str) -> str:
    return " ".join(text.split())


def test_a_recorded_run_is_explained_drawn_and_has_its_best_improvements() -> None:
    result = run("run.trace")
    assert result.exit_code == 0
    assert critical_path(transfer_bound()).headline in words(result.stdout)
    assert "What the makespan was spent on" in result.stdout
    found = json.loads(run("run.trace", "--target", "load-3", "--json").stdout)
    assert found == to_dict(critical_path(transfer_bound(), target="load-3"))
    assert "Where 10 % would help most" in run("run.trace", "--speedups").stdout
    best = json.loads(run("run.trace", "--speedups", "--json").stdout)["speedups"][0]
    assert best["what"] == "(transfer)"
    assert best["saved_seconds"] > 0
    result = run("run.trace", "--chrome", "run.json", "--html", "run.html")
    assert (result.exit_code, result.stdout) == (0, f"{critical_path(transfer_bound()).headline}.\n")
    categories = [event.get("cat") for event in json.loads(Path("run.json").read_bytes())["traceEvents"]]
    assert "critical-path" in categories
    assert Path("run.html").read_text().startswith("<!DOCTYPE html>")
    assert run("run.trace", "--chrome", "few.json", "--only-critical").exit_code == 0
    assert Path("few.json").stat().st_size < Path("run.json").stat().st_size


def test_a_change_is_put_in_words_figures_and_a_page() -> None:
    text = words(run("run.trace", "--without", "transfer", "--repair", "w1").stdout)
    assert "With no transfer and worker 'w1' as fast as the others: " in text
    assert "% shorter." in text
    assert "% of the critical path is" in text.partition("Then: ")[2]
    options = ("--what-if", "sum=2", "--without", "transfer", "--repair", "w1", "--html", "run.html")
    found = json.loads(run("run.trace", "--json", *options).stdout)
    path = critical_path(transfer_bound())
    after = path.what_if(speed_up={"sum": 2.0}, without=("transfer",), repair=("w1",))
    changed = found.pop("what_if")
    assert found == to_dict(path)
    assert changed.pop("changes") == {"speed_up": {"sum": 2.0}, "without": ["transfer"], "repair": ["w1"]}
    assert changed == to_dict(after)
    assert after.headline in Path("run.html").read_text()


def test_moves_onto_the_path_since_an_earlier_run_are_shown() -> None:
    SAMPLES["spilling"]().save("before.trace")
    text = run("run.trace", "--before", "before.trace").stdout
    assert compare_paths(critical_path(SAMPLES["spilling"]()), critical_path(transfer_bound())).headline in words(text)
    assert "off the path" in text
    found = json.loads(run("run.trace", "--before", "before.trace", "--json").stdout)
    assert found["before"] == to_dict(critical_path(SAMPLES["spilling"]()))


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["none.trace"], 1, "No such file or directory: "),
        (["run.trace", "--what-if", "sun=2"], 1, "no prefix 'sun' in this trace; there is: 'load', 'sum'"),
        (["run.trace", "--what-if", "sum=-1"], 1, "speed_up['sum'] is -1.0; expected a number above 0"),
        (["run.trace", "--what-if", "sum"], 2, "'sum' is not a name and a factor such as"),
        (["run.trace", "--what-if", "=2"], 2, "'=2' is not a name and a factor such as"),
        (["run.trace", "--repair", "w9"], 1, "no worker 'w9' in this trace; there is: 'w0'"),
        (["run.trace", "--without", "disk"], 2, "'disk' is not one of"),
        (["run.trace", "--target", "x"], 1, "no task 'x' in this trace"),
        (["run.trace", "--target", "load-1", "--span", "default"], 1, "target and span are given"),
        (["run.trace", "--before", "run.trace", "--what-if", "sum=2"], 2, "expected one of --speedups, --before, and"),
        (["run.trace", "--before", "none.trace"], 1, "No such file or directory: "),
        (["run.trace", "--only-critical"], 2, "--only-critical needs --chrome FILE"),
    ],
)
def test_errors_that_a_user_can_correct_take_one_line(arguments: list[str], code: int, message: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in words(result.stderr)
    assert "Traceback" not in result.stderr
