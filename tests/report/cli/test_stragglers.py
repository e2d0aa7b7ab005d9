"""The command `stragglers`, from a recorded run and from tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.simulated_traces import wide
from dask_efficiency.accounts.slow_worker import SlowWorker
from dask_efficiency.cli import main
from tests.runs.stragglers.tables_of_tasks import slowed, tasks


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["stragglers", *map(str, arguments)])
    return result.exit_code, result.output


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_table_is_judged_and_the_straggler_named(tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"tasks.{ending}"
    frame = slowed(tasks(), "w03", 2.0)
    frame.to_csv(file, index=False) if ending == "csv" else frame.to_parquet(file)
    code, output = run(file)
    assert code == 0
    assert "Worker w03, 1.98x as long for the same work" in output


def test_a_recorded_run_is_judged(tmp_path: Path) -> None:
    file = tmp_path / "run.trace"
    wide(slow={1: 3.0}).save(file)
    code, output = run(file)
    assert code == 0
    assert "Worker w1, " in output
    assert " can be saved." in output


def test_json_has_the_findings_and_the_slow_workers(tmp_path: Path) -> None:
    file = tmp_path / "tasks.csv"
    slowed(tasks(), "w03", 2.0).to_csv(file, index=False)
    _, output = run(file, "--json")
    found = json.loads(output)
    assert found["headline"] == "1 of 8 workers is slow"
    assert [one["kind"] for one in found["findings"]] == ["slow-worker"]
    assert [SlowWorker.from_dict(one).worker for one in found["slow_workers"]] == ["w03"]


def test_history_judges_two_workers(tmp_path: Path) -> None:
    file, before = tmp_path / "now.csv", [tmp_path / f"before-{seed}.csv" for seed in range(4)]
    slowed(tasks(2, seed=9), "w01", 1.6).to_csv(file, index=False)
    for seed, path in enumerate(before):
        tasks(2, seed=seed).to_csv(path, index=False)
    options = [option for path in before for option in ("--history", path)]
    assert "None of 2 workers is slow." in run(file)[1]
    assert "Worker w01, 1." in run(file, *options)[1]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.csv", None, "No such file"),
        ("other.csv", "a,b\n1,2\n", "the table has no column 'worker'"),
        ("other.trace", "text", "expected a 'dask-efficiency-trace' file"),
        ("cut.parquet", "PAR1", "Error: "),
    ],
)
def test_what_cannot_be_read_is_one_line(tmp_path: Path, name: str, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    code, output = run(tmp_path / name)
    assert code == 1
    assert message in output
    assert output.count("\n") == 1


def test_a_factor_of_nothing_is_refused(tmp_path: Path) -> None:
    tasks(3).to_csv(tmp_path / "t.csv", index=False)
    code, output = run(tmp_path / "t.csv", "--factor", "0")
    assert code == 1
    assert "factor is 0.0; expected a number above 0" in output
