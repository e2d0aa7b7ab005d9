import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dask_efficiency import compare
from dask_efficiency.accounts.metered import BYTES, MEMORY, PROCESS
from dask_efficiency.accounts.slow_worker import SlowWorker
from dask_efficiency.cli import main
from dask_efficiency.report.runner import ScriptRun
from dask_efficiency.report.values import MeteredRow
from tests.report.samples import report_of, seconds
from tests.runs.stragglers.tables_of_tasks import slowed, tasks
from tests.simulated_traces import wide


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)])


@pytest.fixture
def runs() -> None:
    """Runs a1, a2 and a3 that lose 2, 3 and 4 thread-seconds; b that loses 6; one in which nothing ran."""
    for name, spill in (("a1", 2), ("a2", 3), ("a3", 4), ("b", 6)):
        report_of(seconds(thread_cpu=10, spill=spill)).save(f"{name}.json")
    report_of(seconds(no_work=10)).save("nothing.json")


pytestmark = pytest.mark.usefixtures("runs")


@pytest.mark.parametrize(
    "arguments",
    [
        ("a?.json", "b.json"),
        ("--before", "a1.json", "--before", "a2.json", "--before", "a3.json", "--after", "b.json"),
        ("--before", "a[12].json", "--before", "a3.json", "--after", "b.json"),
    ],
)
def test_several_files_a_side_are_medians(arguments: tuple[str, ...]) -> None:
    result = run("compare", *arguments, "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == compare(["a1.json", "a2.json", "a3.json"], "b.json").to_dict()


def test_patterns_of_urls_are_looked_up_and_a_file_named_like_a_pattern_is_a_file(folder: Path) -> None:
    result = run("compare", f"{folder.as_uri()}/a?.json", "b.json", "--json")
    assert result.exit_code == 0, result.stderr
    assert len(json.loads(result.stdout)["before"]) == 3
    report_of(seconds(thread_cpu=1)).save("run[1].json")
    assert json.loads(run("compare", "run[1].json", "b.json", "--json").stdout)["before"] == ["run[1].json"]


@pytest.mark.parametrize(("limit", "code"), [("200%", 0), ("199.9 %", 1), ("0%", 1), ("1000%", 0)])
def test_a_rise_above_the_limit_ends_with_1(limit: str, code: int) -> None:
    result = run("compare", "a1.json", "b.json", "--max-loss", limit)
    assert result.exit_code == code
    assert result.stdout.startswith("a1.json -> b.json")
    assert "lost time rose by 200 %, 2.0 -> 6.0 " in result.stdout.replace("\n", " ")


def test_the_message_names_the_figure_and_the_limit_and_from_nothing_any_loss_is_above_it() -> None:
    result = run("compare", "a1.json", "b.json", "--max-loss", "5%", "--json")
    assert result.stderr == (
        "Error: lost time rose by 200 %, from 2.000 to 6.000 thread-seconds; --max-loss allows 5 %\n"
    )
    assert json.loads(result.stdout)["lost_ns"]["change"] == 4 * 10**9
    report_of(seconds(thread_cpu=10)).save("perfect.json")
    result = run("compare", "perfect.json", "a1.json", "--max-loss", "500%")
    assert result.exit_code == 1
    assert "rose, from 0.000 to 2.000" in result.stderr
    result = run("compare", "perfect.json", "perfect.json", "--max-loss", "0%", "--html", "out.html")
    assert (result.exit_code, result.stdout) == (0, f"{compare('perfect.json', 'perfect.json').headline}.\n")
    assert Path("out.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_the_exit_code_agrees_with_the_headline_where_runs_of_one_side_differ_as_much() -> None:
    sides = ("--before", "a1.json", "--before", "a3.json", "--after", "b.json", "--after", "a1.json")
    result = run("compare", *sides, "--max-loss", "1%")
    assert "Neither runtime nor lost time changed by more than the spread of the runs" in result.stdout
    assert (result.exit_code, result.stderr.count("\n")) == (0, 1)
    assert result.stderr.startswith(
        "lost time rose by 33 %, from 3.000 to 4.000 thread-seconds (not more than the spread of the runs)"
    )
    assert run("compare", *sides, "--max-loss", "50%").stderr == ""


@pytest.mark.parametrize("sides", [("a1.json", "nothing.json"), ("nothing.json", "a1.json")])
def test_a_run_in_which_nothing_ran_does_not_pass_the_limit(sides: tuple[str, str]) -> None:
    result = run("compare", *sides, "--max-loss", "5%")
    assert (result.exit_code, result.stderr) == (2, "Error: nothing.json: nothing ran, so --max-loss cannot tell\n")
    assert run("compare", *sides).exit_code == 0


def peak(worker: str, nbytes: float) -> MeteredRow:
    return MeteredRow(worker, MEMORY, "", "", PROCESS, BYTES, nbytes)


def test_a_higher_peak_of_memory_ends_with_1_and_an_unknown_one_with_2() -> None:
    for name, nbytes in (("low", 2**30), ("high", 3 * 2**29)):
        report_of(seconds(thread_cpu=1), metered=(peak("w0", nbytes), peak("w1", 5.0))).save(f"{name}.json")
    assert run("compare", "low.json", "high.json", "--max-peak", "50%").exit_code == 0
    assert run("compare", "high.json", "low.json", "--max-peak", "0%", "--max-loss", "0%").exit_code == 0
    result = run("compare", "low.json", "high.json", "--max-peak", "10%")
    assert result.exit_code == 1
    assert result.stderr == (
        "Error: the peak of a worker's memory rose by 50 %, from 1.0 GiB to 1.5 GiB; --max-peak allows 10 %\n"
    )
    assert "peak memory of a worker  1.0 GiB  1.5 GiB  +512 MiB" in result.stdout
    result = run("compare", "a1.json", "high.json", "--max-peak", "10%")
    assert result.exit_code == 2
    assert "is not known of both sides, so --max-peak cannot tell" in result.stderr
    sides = ("--before", "low.json", "--before", "high.json", "--after", "high.json", "--after", "high.json")
    result = run("compare", *sides, "--max-peak", "10%")
    assert (result.exit_code, result.stderr.count("\n")) == (0, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a1.json", "gone.json"), "gone.json"),
        (("a1.json", "q*.json"), "no file matches 'q*.json'"),
        (("a1.json", "foreign.json"), "foreign.json"),
    ],
)
def test_an_unreadable_side_ends_with_2_in_one_line(arguments: tuple[str, str], message: str) -> None:
    Path("foreign.json").write_text("{}")
    result = run("compare", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


LIMIT = "is not a share such as 5% or 0.5%"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "expected BEFORE and AFTER"),
        (("a1.json",), "expected BEFORE and AFTER"),
        (("a1.json", "a2.json", "b.json"), "patterns of files need quotes"),
        (("a1.json", "b.json", "--after", "b.json"), "expected BEFORE and AFTER"),
        (("--after", "b.json"), "--before is missing"),
        (("--before", "b.json"), "--after is missing"),
        *(
            (("a1.json", "b.json", "--max-loss", limit), LIMIT)
            for limit in ("5", "0.05", "-5%", "a%", "nan%", "", "%", "1/3%")
        ),
    ],
)
def test_wrong_sides_and_limits_are_refused(arguments: tuple[str, ...], message: str) -> None:
    result = run("compare", *arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_table_and_a_recorded_run_are_judged_and_the_straggler_named(ending: str) -> None:
    frame = slowed(tasks(), "w03", 2.0)
    frame.to_csv("tasks.csv", index=False) if ending == "csv" else frame.to_parquet("tasks.parquet")
    result = run("stragglers", f"tasks.{ending}")
    assert result.exit_code == 0
    assert "Worker w03, 1.98x as long for the same work" in result.output
    found = json.loads(run("stragglers", f"tasks.{ending}", "--json").output)
    assert found["headline"] == "1 of 8 workers is slow"
    assert [one["kind"] for one in found["findings"]] == ["slow-worker"]
    assert [SlowWorker.from_dict(one).worker for one in found["slow_workers"]] == ["w03"]
    wide(slow={1: 3.0}).save("run.trace")
    output = run("stragglers", "run.trace").output
    assert "Worker w1, " in output
    assert " can be saved." in output


def test_history_judges_two_workers() -> None:
    slowed(tasks(2, seed=9), "w01", 1.6).to_csv("now.csv", index=False)
    options: list[str] = []
    for seed in range(4):
        tasks(2, seed=seed).to_csv(f"before-{seed}.csv", index=False)
        options += ["--history", f"before-{seed}.csv"]
    assert "None of 2 workers is slow." in run("stragglers", "now.csv").output
    assert "Worker w01, 1." in run("stragglers", "now.csv", *options).output


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.csv", None, "No such file"),
        ("other.csv", "a,b\n1,2\n", "the table has no column 'worker'"),
        ("other.trace", "text", "expected a 'dask-efficiency-trace' file"),
        ("cut.parquet", "PAR1", "Error: "),
        ("b.csv --factor 0", "worker,prefix,start,stop\nw,p,0,1\n", "factor is 0.0; expected a number above 0"),
    ],
)
def test_an_unreadable_run_and_an_impossible_factor_end_with_1_in_one_line(name, content, message):
    if content is not None:
        Path(name.split()[0]).write_text(content)
    result = run("stragglers", *name.split())
    assert result.exit_code == 1
    assert message in result.output
    assert result.output.count("\n") == 1


def test_a_recorded_script_may_be_given_longer_for_savings(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[ScriptRun] = []
    monkeypatch.setattr("dask_efficiency.report.cli.replace_process", lambda run, arguments: started.append(run))
    (folder / "job.py").write_text("")
    assert run("run", "--trace", "run.trace", "--savings", "60", "job.py").exit_code == 0
    assert run("run", "--trace", "run.trace", "job.py").exit_code == 0
    assert [each.savings for each in started] == [60.0, None]
    for wrong in ("-1", "nan", "inf", "soon"):
        assert run("run", "--trace", "run.trace", "--savings", wrong, "job.py").exit_code == 2
    assert "expected --trace FILE with it" in run("run", "--savings", "60", "job.py").stderr
