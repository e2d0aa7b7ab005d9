import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dask_efficiency.cli import main
from dask_efficiency.torch_traces import cli as torch_critical_path
from dask_efficiency.torch_traces import load_critical_path as load_path
from dask_efficiency.torch_traces import summary
from dask_efficiency.torch_traces.path.speeds import WITHOUT
from dask_efficiency.torch_traces.sections import to_dict
from tests.torch_traces.path.samples import ALEX, RECORDED, recorded


@pytest.fixture(autouse=True)
def traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(RECORDED["simple_add"], "step.json.gz")
    shutil.copytree(RECORDED["dlrm"], "job", ignore=shutil.ignore_patterns("*.md", "*.py"))


def run(*arguments: str, command: str = "torch path") -> Result:
    return CliRunner().invoke(main, [*command.split(), *arguments])


def words(text: str) -> str:
    return " ".join(text.split())


def figures(*arguments: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(run(*arguments, "--json").stdout)
    found.pop("files")
    return found


def of(path: object) -> dict[str, object]:
    found = json.loads(json.dumps(to_dict(path)))  # type: ignore[arg-type]
    found.pop("files")
    return dict(found)


def test_a_trace_is_explained() -> None:
    result = run("step.json.gz", "--annotation", ALEX, "--instance", "1")
    assert result.exit_code == 0
    assert f"{recorded('simple_add').headline}." in words(result.stdout)
    assert figures("step.json.gz", "--annotation", ALEX, "--instance", "1") == of(recorded("simple_add"))


@pytest.mark.parametrize("files", [["job"], ["job/*.json.gz"], [f"job/rank{rank}.json.gz" for rank in range(8)]])
def test_a_folder_a_pattern_and_a_list_are_one_path_over_all_ranks(files: list[str]) -> None:
    assert figures(*files) == of(recorded("dlrm"))


def test_one_rank_and_several_instances_are_explained_alone() -> None:
    found = figures("job", "--rank", "3")
    assert (found["ranks"], found["rank"]) == ([3], 3)
    assert figures("step.json.gz", "--annotation", "param", "--instance", "0:1")["instance"] == [0, 1]


def test_changes_are_printed_and_in_json() -> None:
    asked = ("step.json.gz", "--annotation", ALEX, "--instance", "1")
    message = words(run(*asked, "--what-if", "cudaMalloc=2", "--without", "kernel-launch").stdout)
    assert "With 'cudaMalloc' 2 times as fast and no kernel-launch: " in message
    found = json.loads(run(*asked, "--what-if", "cudaMalloc=2", "--without", "kernel-launch", "--json").stdout)
    path = recorded("simple_add").what_if(speed_up={"cudaMalloc": 2.0}, without=["kernel-launch"])
    assert found["what_if"]["window_seconds"] == path.window_seconds
    assert found["window_seconds"] == recorded("simple_add").window_seconds


def test_files_hold_the_path_that_was_asked_for() -> None:
    asked = ("step.json.gz", "--annotation", ALEX, "--instance", "1")
    result = run(*asked, "--chrome", "few.json", "--html", "step.html", "--save", "step.path")
    assert (result.exit_code, result.stdout) == (0, f"{recorded('simple_add').headline}.\n")
    assert Path("step.html").read_text().startswith("<!DOCTYPE html>")
    assert load_path("step.path").window_seconds == recorded("simple_add").window_seconds
    assert run(*asked, "--chrome", "whole.json", "--whole").exit_code == 0
    assert run(*asked, "--chrome", "edges.json", "--all-edges").exit_code == 0
    sizes = [Path(f"{name}.json").stat().st_size for name in ("few", "whole", "edges")]
    assert sizes == sorted(set(sizes))
    assert run(*asked, "--without", "kernel-gap", "--save", "changed.path").exit_code == 0
    assert load_path("changed.path").changes == ("With no kernel-gap",)


def test_a_saved_path_is_shown_again() -> None:
    recorded("simple_add").save("step.path")
    assert figures("step.path") == of(recorded("simple_add"))
    result = run("step.path", "--rank", "0")
    assert result.exit_code == 2
    assert "step.path is a saved path, which has its annotation, instance and rank already" in words(result.stderr)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "Missing argument 'FILES...'"),
        (["none.json"], 1, "none.json"),
        (["step.json.gz", "--annotation", "nothing"], 1, "nothing"),
        (["step.json.gz", "--annotation", ALEX, "--instance", "99"], 1, "99"),
        (["step.json.gz", "--instance", "one"], 2, "'one' is not a number such as 1, or the first and the last"),
        (["job", "--rank", "9"], 1, "no rank 9 in this trace; there is: 0, 1, 2, 3"),
        (["step.json.gz", "--what-if", "conv9=2"], 1, "no kernel or operator 'conv9' in this trace; there is: "),
        (["step.json.gz", "--what-if", "gemm=0"], 1, "speed_up['gemm'] is 0.0; expected a number above 0"),
        (["step.json.gz", "--what-if", "gemm"], 2, "'gemm' is not a name and a factor such as 'sum=2.0'"),
        (["step.json.gz", "--instance", "3"], 1, "instance is 3, but no annotation is named"),
        (["step.json.gz", "--data-loading", "["], 1, "data_loading has '[', which is no regular expression: "),
        (["step.json.gz", "--without", "disk"], 2, "'disk' is not one of"),
        (["step.json.gz", "--whole"], 2, "--whole needs --chrome FILE"),
        (["step.json.gz", "--all-edges"], 2, "--all-edges needs --chrome FILE"),
        (["step.json.gz", "step.json.gz"], 1, "rank 0"),
        (["localhost:8786"], 1, "localhost:8786 is a scheduler; expected traces that torch.profiler wrote"),
    ],
)
def test_errors_that_a_user_can_correct_take_one_line(arguments: list[str], code: int, message: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in words(result.stderr)
    assert "Traceback" not in result.stderr


def test_a_summary_is_printed_in_json_and_on_a_page() -> None:
    found = summary("job")
    result = run("job", "--top", "3", command="torch summary")
    assert result.exit_code == 0
    assert f"{found.headline}." in words(result.stdout)
    assert "5 more ranks are closer to the median." in words(result.stdout)
    assert json.loads(run("job", "--json", command="torch summary").stdout) == found.to_dict()
    alone = json.loads(run("job", "--rank", "3", "--json", command="torch summary").stdout)
    assert [row["rank"] for row in alone["tables"]["ranks"]] == [3]
    assert run("job", "--html", "page.html", command="torch summary").stdout == f"{found.headline}.\n"
    assert Path("page.html").read_text().startswith("<!DOCTYPE html>")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "Missing argument 'FILES...'"),
        (["none.json"], 1, "none.json"),
        (["job", "--rank", "9"], 1, "no rank 9 in this trace; there is: 0, 1, 2, 3"),
        (["job", "--top", "0"], 2, "0 is not in the range"),
        (["step.path"], 1, "step.path is a saved path of a torch trace: `dask-efficiency torch path step.path`"),
        (["step.path", "step.json.gz"], 1, "step.path is a saved path of a torch trace"),
        (["empty.json"], 1, "nothing in these traces takes time; expected operators, calls or kernels"),
    ],
)
def test_errors_of_a_summary_take_one_line(arguments: list[str], code: int, message: str) -> None:
    recorded("simple_add").save("step.path")
    Path("empty.json").write_text('{"traceEvents": []}')
    result = run(*arguments, command="torch summary")
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in words(result.stderr)


@pytest.mark.parametrize("command", ["report", "critical-path", "stragglers"])
def test_other_commands_name_this_one(command: str) -> None:
    recorded("simple_add").save("step.path")
    for name, what, use in (
        ("step.json.gz", "a trace of torch.profiler", "torch summary"),
        ("step.path", "a saved path of a torch trace", "torch path"),
    ):
        result = run(name, command=command)
        assert result.exit_code == 1
        assert f"{name} is {what}: `dask-efficiency {use} {name}`" in words(result.stderr)


def test_the_command_can_leave_out_all_that_the_analysis_knows() -> None:
    assert tuple(WITHOUT) == torch_critical_path.WITHOUT
