import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import psutil
import pytest
from click.testing import CliRunner, Result

from dask_efficiency import load_trace
from dask_efficiency.cli import main
from dask_efficiency.simulation.engine.launch import SimulationError
from dask_efficiency.simulation.model.cluster import ClusterSpec
from dask_efficiency.simulation.model.requirements import SIMULATED
from tests.plugin.watch import eventually
from tests.simulation.fake_engine import FakeEngine, recorded
from tests.simulation.simulation_samples import simulated_by
from tests.simulation.test_calls import LAB
from tests.terminals import in_a_log, on_a_terminal


@pytest.fixture(autouse=True)
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeEngine]:
    monkeypatch.chdir(tmp_path)
    recorded().save("run.trace")
    Path("lab.yaml").write_text(LAB)
    Path("near.hosts").write_text("pc0:2\npc1:2\n")
    Path("far.hosts").write_text("pc0\npc1\n")
    with simulated_by(FakeEngine()) as engine:
        yield engine


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["simulate", *arguments])


def words(text: str) -> str:
    return " ".join(text.split())


def figures(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("run.trace", *arguments, "--json").stdout)
    return found


def test_without_options_it_is_the_runs_own_cluster(engine: FakeEngine) -> None:
    result = run("run.trace", "--seeds", "3")
    assert result.exit_code == 0
    assert "recorded: 434 ms." in words(result.stdout)
    assert "Simulated on its own cluster, the run takes" in words(result.stdout)
    assert len(engine.jobs) == 1


def test_options_describe_the_cluster(engine: FakeEngine) -> None:
    setting = "distributed.scheduler.work-stealing=false"
    result = run("run.trace", "--remove", "w1", "--workers", "8", "--threads", "1", "--config", setting, "--seeds", "2")
    assert result.exit_code == 0, result.stderr
    cluster = engine.jobs[1].cluster
    assert (len(cluster.workers), cluster.nthreads) == (8, 8)
    assert "w1" not in {worker.name for worker in cluster.workers}
    assert cluster.config == {"distributed.scheduler.work-stealing": False}


def test_cores_are_those_of_each_host_or_of_the_named_one(engine: FakeEngine) -> None:
    hosts = [worker.host for worker in recorded().workers]
    for options, expected in (
        (["--cores", "2"], dict.fromkeys(hosts, 2.0)),
        (["--cores", f"{hosts[0]}=8", "--cores", "2.5"], {**dict.fromkeys(hosts, 2.5), hosts[0]: 8.0}),
        (["--cores", f"{hosts[1]}=8"], {hosts[1]: 8.0}),
    ):
        assert run("run.trace", "--seeds", "2", *options).exit_code == 0
        assert engine.jobs[-1].cluster.cores == expected
    figures("--sweep", "2,8", "--cores", "4", "--seeds", "1")
    assert set(engine.jobs[-1].cluster.cores.values()) == {4.0}


def test_changes_and_seeds_go_to_the_simulation() -> None:
    found = figures("--what-if", "sum=2", "--without", "transfer", "--seeds", "2")
    assert (found["prefixes"], found["without"], len(found["makespans"])) == ({"sum": 0.5}, ["transfer"], 2)
    steps = figures("--ideal", "--seeds", "2")["steps"]
    assert [row["step"] for row in steps][2:5] == ["no spill", "no transfers", "no scheduling"]


@pytest.mark.parametrize(
    ("sizes", "expected"), [("2..16", [2, 4, 8, 16]), ("3..8", [3, 6, 8]), ("4,2", [2, 4]), ("5..5", [5])]
)
def test_a_sweep_is_a_range_of_doublings_or_a_list_with_threads_and_a_price(sizes: str, expected: list[int]) -> None:
    rows = figures("--sweep", sizes, "--seeds", "1", "--threads", "1", "--price", "0.4")["clusters"]
    assert [row["workers"] for row in rows] == [row["threads"] for row in rows] == expected
    assert all(row["money"] > 0 for row in rows)


def test_memory_limits_are_of_each_worker_and_a_sweep_of_them_has_units(engine: FakeEngine) -> None:
    assert figures("--memory-limit", "3GiB", "--workers", "2", "--seeds", "1")["memory_limit"] == 3 * 2**30
    assert [len(job.cluster.workers) for job in engine.jobs] == [4, 2]
    rows = figures("--sweep", "2GiB..8GiB", "--threads", "1", "--seeds", "1")["clusters"]
    assert [(row["memory_limit"] >> 30, row["workers"], row["threads"]) for row in rows] == [
        (2, 4, 4),
        (4, 4, 4),
        (8, 4, 4),
    ]
    rows = figures("--sweep", "2,4", "--memory-limit", "2 GiB", "--seeds", "1")["clusters"]
    assert {row["memory_limit"] for row in rows} == {2 * 2**30}


def test_a_file_describes_the_cluster_and_hostfiles_are_ranked(engine: FakeEngine) -> None:
    result = run("run.trace", "--cluster", "lab.yaml", "--hostfile", "far.hosts", "--seeds", "2")
    assert result.exit_code == 0
    assert ClusterSpec.from_file("lab.yaml", "far.hosts").picture() in result.stderr
    assert [worker.host for worker in engine.jobs[-1].cluster.workers] == ["pc0", "pc1"]
    found = figures("--cluster", "lab.yaml", "--hostfile", "far.hosts", "--hostfile", "near.hosts")
    assert [row["placement"] for row in found["placements"]] == ["near", "far"]


def test_a_page_and_a_trace_are_written() -> None:
    result = run("run.trace", "--workers", "8", "--seeds", "2", "--html", "page.html", "--save", "predicted.trace")
    assert result.stdout.startswith("On 8 workers of 2 threads: ")
    assert Path("page.html").read_text().startswith("<!DOCTYPE html>")
    assert SIMULATED in load_trace("predicted.trace").notes


def test_a_simulation_that_is_off_has_a_warning_and_one_that_is_far_off_needs_force() -> None:
    asked = ["run.trace", "--workers", "8", "--seeds", "2"]
    with simulated_by(FakeEngine(1.1)):
        result = run(*asked)
    assert result.exit_code == 0
    assert result.stderr.startswith("Warning: simulated on its own cluster")
    with simulated_by(FakeEngine(1.3)):
        result = run(*asked)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "--force, predicts anyway" in result.stderr
        assert run(*asked, "--force").exit_code == 0


def test_a_simulation_that_stands_still_takes_one_line() -> None:
    with simulated_by(Mock(side_effect=SimulationError("task 'x' waits\nfor 'y'"))):
        result = run("run.trace")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "Error: task 'x' waits for 'y'\n"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["none.trace"], 1, "No such file or directory: "),
        (["lab.yaml"], 1, "foreign, damaged or truncated"),
        (["run.trace", "--workers", "0"], 2, "0 is not in the range"),
        (["run.trace", "--sweep", "0..4"], 2, "'0..4' is not a range of numbers of workers"),
        (["run.trace", "--sweep", "8..2"], 2, "'8..2' is not a range"),
        (["run.trace", "--sweep", "2,0"], 2, "'2,0' is not a range"),
        (["run.trace", "--sweep", "many"], 2, "'many' is not a range"),
        (["run.trace", "--sweep", "4GiB..2GiB"], 2, "'4GiB..2GiB' is not a range of memory limits"),
        (["run.trace", "--sweep", "2GiB..4GiX"], 2, "expected 1 MB or more"),
        (["run.trace", "--sweep", "2GiB", "--memory-limit", "1GiB"], 2, "--memory-limit is not for --sweep with"),
        (["run.trace", "--sweep", "2GiB", "--price", "1"], 1, "price_per_worker_hour is not for memory_limit"),
        (["run.trace", "--memory-limit", "0"], 2, "expected 1 MB or more"),
        (["run.trace", "--memory-limit", "auto"], 2, "expected 1 MB or more"),
        (["run.trace", "--ideal", "--memory-limit", "1GiB"], 2, "--memory-limit is not for --ideal"),
        (["run.trace", "--cores", "many"], 2, "'many' is not a number of cores such as 4"),
        (["run.trace", "--cores", "=2"], 2, "'=2' is not a number of cores"),
        (["run.trace", "--cores", "10.0.0.0=0"], 2, "'10.0.0.0=0' is not a number of cores"),
        (["run.trace", "--cores", "nowhere=2"], 1, "no worker is on the host 'nowhere'"),
        (["run.trace", "--ideal", "--cores", "2"], 2, "--cores is not for --ideal"),
        (["run.trace", "--config", "distributed.scheduler.work-stealin=1"], 2, "did you mean distributed.scheduler."),
        (["run.trace", "--gil", "sum"], 2, "'sum' is not a name and a share such as 'sum=0.5'"),
        (["run.trace", "--config", "distributed.scheduler.worker-saturation=much"], 2, "expected a number of 0"),
        (["run.trace", "--config", "nonsense"], 2, "'nonsense' is not a setting and its value"),
        (["run.trace", "--without", "disk"], 2, "'disk' is not one of"),
        (["run.trace", "--what-if", "sun=2"], 1, "no prefix 'sun' in this trace"),
        (["run.trace", "--remove", "w9"], 1, "no worker 'w9'"),
        (["run.trace", "--hostfile", "near.hosts"], 2, "--hostfile needs --cluster FILE"),
        (["run.trace", "--cluster", "lab.yaml", "--hostfile", "near.hosts", "--workers", "2"], 2, "is not for it"),
        (["run.trace", "--cluster", "none.yaml"], 1, "none.yaml"),
        (["run.trace", "--save", "nowhere/run.out"], 2, "'nowhere/run.out' cannot be written"),
        (["run.trace", "--save", "."], 2, "it is a folder"),
        (["run.trace", "--html", "nowhere/run.out"], 2, "does not exist"),
        (["run.trace", "--html", "."], 2, "'.' cannot be written"),
        (["run.trace", "--price", "1"], 2, "--price needs --sweep"),
        (["run.trace", "--sweep", "2..4", "--ideal"], 2, "expected one of --sweep and --ideal"),
        (["run.trace", "--sweep", "2..4", "--workers", "3"], 2, "--workers is not for --sweep"),
        (["run.trace", "--sweep", "2..4", "--save", "x"], 2, "--save is not for --sweep"),
        (["run.trace", "--ideal", "--threads", "3"], 2, "--threads is not for --ideal"),
    ],
)
def test_errors_that_a_user_can_correct_take_one_line(
    engine: FakeEngine, arguments: list[str], code: int, message: str
) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in words(result.stderr)
    assert "Traceback" not in result.stderr
    assert not engine.jobs


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_a_command_that_is_ended_leaves_neither_processes_nor_files(number: int, code: int, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "files")}
    command = [sys.executable, "-c", "from dask_efficiency.cli import main; main()"]
    command += ["simulate", "run.trace", "--seeds", "20000"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        children: list[psutil.Process] = []
        eventually(lambda: children.extend(psutil.Process(process.pid).children()) or children)
        assert [*(tmp_path / "files").glob("dask-efficiency-*")]
        process.send_signal(number)
        printed = process.communicate(timeout=120)
    assert (process.returncode, *printed) == (code, b"", b"")
    assert not psutil.wait_procs(children, timeout=120)[1]
    assert not [*(tmp_path / "files").iterdir()]


def test_on_a_terminal_a_sweep_has_a_bar_and_ctrl_c_leaves_its_rows() -> None:
    pytest.importorskip("rich")
    sizes = ",".join(map(str, range(1, 41)))
    with on_a_terminal(["simulate", "run.trace", "--force", "--seeds", "1", "--sweep", sizes]) as command:
        # The tenth is of the fifth size: the first one is there, though several run at a time.
        assert "━━━" in command.until(r"simulating .* [12]\d of 45 runs")
        command.interrupt()
        assert command.end() == 130
    printed = command.text.rpartition("Ctrl-C: stopped after ")[2]
    assert re.match(r"[1-9]\d? of 40 ", printed)
    assert "ended early" in printed
    assert "makespan" in printed
    assert "Traceback" not in command.text


def test_in_a_log_there_are_lines_and_the_placements_so_far_go_to_their_file() -> None:
    asked = ["simulate", "run.trace", "--force", "--seeds", "1", "--cluster", "lab.yaml", "--json"]
    for number in range(40):
        Path(f"{number}.hosts").write_text(f"pc{number % 2}:2\n")
        asked += ["--hostfile", f"{number}.hosts"]
    with in_a_log(asked, "found.json") as command:
        assert "\x1b" not in command.until(r"simulating: [12]\d of 45 runs, ")
        command.interrupt()
        assert command.end() == 130
    found = json.loads(Path("found.json").read_text())
    assert len(found["placements"]) + len(found["not_simulated"]) == 40
    assert "Traceback" not in command.text


@pytest.mark.parametrize("so_far", [r"simulating: [1-9]\d* of 1,001 runs", "reading run.trace: "])
def test_a_command_without_a_result_yet_ends_with_a_line(so_far: str) -> None:
    with in_a_log(["simulate", "run.trace", "--seeds", "1000", "--save", "new.trace"]) as command:
        command.until(so_far)
        command.interrupt()
        assert command.end() == 130
    assert command.text.splitlines()[-1].startswith("Ctrl-C: stopped")
    assert "Traceback" not in command.text
    assert not Path("new.trace").exists()
