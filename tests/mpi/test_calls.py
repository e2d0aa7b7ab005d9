import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dask_efficiency.cli import main
from dask_efficiency.files.text_files import TextFileError
from dask_efficiency.mpi import calls, machine
from dask_efficiency.mpi.calls import place as place_mpi
from dask_efficiency.mpi.calls import read_hosts_of_ranks
from dask_efficiency.mpi.calls import simulate as simulate_mpi
from dask_efficiency.mpi.result import MpiPrediction
from dask_efficiency.mpi.trace_files import load_trace as from_mpi_trace
from tests.mpi.programs import transposition, written
from tests.mpi.test_machine import star
from tests.terminals import in_a_log


def hosts(folder: Path, text: str, ranks: int) -> tuple[str, ...]:
    (folder / "hosts").write_text(text)
    return read_hosts_of_ranks(star(4), folder / "hosts", ranks)


def test_hosts_are_filled_in_their_order(tmp_path: Path) -> None:
    assert hosts(tmp_path, "h2:2\nh0\nh1:4\n", 5) == ("h2", "h2", "h0", "h1", "h1")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("h0:2\n", "hosts: 5 ranks, and 2 slots"),
        ("h0:2\nhall:3\n", "line 2: no host 'hall' in the topology; there is: 'h0'"),
        ("h0:5\n", "'h0' gets 5 ranks and has 4 slots"),
    ],
)
def test_impossible_hosts_are_named(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(TextFileError, match=message):
        hosts(tmp_path, text, 5)


#: Two rooms, with a slow cable between their switches.
CLUSTER = """\
switches: [a, b]
hosts:
  pc1: {slots: 4, switch: a, bandwidth: 1 Gbit, latency: 50 us}
  pc2: {slots: 4, switch: a, bandwidth: 1 Gbit, latency: 50 us}
  pc3: {slots: 4, switch: b, bandwidth: 1 Gbit, latency: 50 us}
links:
  - {between: [a, b], bandwidth: 10 Mbit, latency: 1 ms}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    written(tmp_path, transposition(8))
    (tmp_path / "lab.yaml").write_text(CLUSTER)
    (tmp_path / "near").write_text("pc1:4\npc2:4\n")
    (tmp_path / "far").write_text("pc1:4\npc3:4\n")
    return tmp_path


def simulated(folder: Path, hostfile: str = "near") -> MpiPrediction:
    return simulate_mpi(from_mpi_trace(folder / "program.txt"), folder / "lab.yaml", folder / hostfile)


def asked(folder: Path, *arguments: str) -> Result:
    given = ["mpi", "simulate", str(folder / "program.txt"), "--cluster", str(folder / "lab.yaml"), *arguments]
    return CliRunner().invoke(main, given)


def test_a_prediction_shows_itself(folder: Path) -> None:
    found = simulated(folder)
    text = str(found)
    assert "8 ranks on 2 hosts" in text
    assert "alltoall" in text
    assert "pc1 - a" in text
    data = json.loads(json.dumps(found.to_dict()))
    assert data["makespan_seconds"] == found.makespan_seconds
    assert sum(one["seconds"] for one in data["critical_path"]) == pytest.approx(found.makespan_seconds)
    found.to_html(folder / "page.html")
    assert "8 ranks on 2 hosts" in (folder / "page.html").read_text()


def test_without_a_hostfile_hosts_are_filled_by_their_slots(folder: Path) -> None:
    found = simulate_mpi(from_mpi_trace(folder / "program.txt"), folder / "lab.yaml")
    assert found.hosts == ("pc1",) * 4 + ("pc2",) * 4


def test_each_ranks_activity_can_be_opened_in_perfetto(folder: Path) -> None:
    found = simulated(folder, "far")
    written_events = found.to_chrome(folder / "run.json.gz")
    events = json.loads(gzip.decompress((folder / "run.json.gz").read_bytes()))["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    intervals = sum(map(len, found.timelines))
    assert len(slices) == written_events.slices == intervals + len(found.path)
    names = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert names == {"critical path", *(f"rank {rank}" for rank in range(8))}
    assert written_events.flows == len(found.path) - 1


def test_the_best_hosts_are_named_with_the_link_that_makes_others_slow(folder: Path) -> None:
    found = place_mpi(from_mpi_trace(folder / "program.txt"), folder / "lab.yaml", [folder / "far", folder / "near"])
    assert [one.name for one in found.ranked] == ["near", "far"]
    text = str(found)
    assert "near: " in found.headline
    assert "The busiest link, a - b" in " ".join(text.split())
    assert found.to_dict()["saved_seconds"] == pytest.approx(found.saved_seconds)
    found.to_html(folder / "page.html")
    assert "near" in (folder / "page.html").read_text()


def test_equally_good_hosts_take_as_long(folder: Path) -> None:
    (folder / "other").write_text("pc2:4\npc1:4\n")
    found = place_mpi(from_mpi_trace(folder / "program.txt"), folder / "lab.yaml", [folder / "near", folder / "other"])
    assert "takes as long" in found.headline


def test_an_algorithm_can_be_forced(folder: Path) -> None:
    program = from_mpi_trace(folder / "program.txt")
    found = simulate_mpi(program, folder / "lab.yaml", algorithms={"alltoall": "brucks"}, mpich="3.2.1", eager="1 kB")
    assert set(found.algorithms["alltoall"]) == {"brucks"}
    with pytest.raises(ValueError, match="bcast has no algorithm 'best'; expected one of binomial"):
        simulate_mpi(program, folder / "lab.yaml", algorithms={"bcast": "best"})
    with pytest.raises(ValueError, match=r"MPICH '5' is not known; expected one of 3.2.1, 4.0.2"):
        simulate_mpi(program, folder / "lab.yaml", mpich="5")
    with pytest.raises(ValueError, match="hostfiles is empty"):
        place_mpi(program, folder / "lab.yaml", [])


def test_the_command_prints_the_result_of_the_function(folder: Path) -> None:
    found = asked(folder, "-n", "8", "--hostfile", str(folder / "near"), "--json")
    assert found.exit_code == 0, found.output
    assert json.loads(found.output) == json.loads(json.dumps(simulated(folder).to_dict()))
    shown = asked(folder, "--hostfile", str(folder / "near"))
    assert "What the time is spent on: the critical path" in shown.output


def test_the_command_compares_hostfiles(folder: Path) -> None:
    found = asked(folder, "-f", str(folder / "far"), "-f", str(folder / "near"))
    assert found.exit_code == 0, found.output
    assert found.output.index("near") < found.output.index("far")
    page = asked(folder, "--html", str(folder / "page.html"), "--chrome", str(folder / "run.json"))
    assert page.exit_code == 0, page.output
    assert (folder / "run.json").exists()
    assert page.output.startswith("8 ranks on 2 hosts")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-n", "4"], "-n is 4, and"),
        (["-f", "a", "-f", "b", "--chrome", "run.json"], "--chrome is not for several --hostfile"),
        (["--algorithm", "bcast"], "'bcast' is not a collective and its algorithm such as bcast=binomial"),
        (["--algorithm", "bcast=best"], "bcast has no algorithm 'best'"),
        (["--eager", "64 lots"], "64 lots"),
        (["--speed", "0"], "0"),
        (["--hostfile", "nowhere"], "No such file or directory: 'nowhere'"),
        (["--html", "missing/page.html"], "missing"),
    ],
)
def test_errors_end_in_one_line(arguments: list[str], message: str, folder: Path) -> None:
    found = asked(folder, *arguments)
    assert found.exit_code in (1, 2)
    assert message in found.output
    assert "Traceback" not in found.output


def test_ctrl_c_keeps_the_best_so_far_and_names_the_missing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, runs = calls.run, []

    def interrupted(*args: Any) -> MpiPrediction:
        if runs:
            raise KeyboardInterrupt
        runs.append(run(*args))
        return runs[-1]

    monkeypatch.setattr(calls, "run", interrupted)
    result = asked(folder, "--hostfile", str(folder / "near"), "--hostfile", str(folder / "far"), "--json")
    assert result.exit_code == 130
    assert result.stderr == "Ctrl-C: stopped after 1 of 2 placements\n"
    found = json.loads(result.stdout)
    assert [one["placement"] for one in found["placements"]] == ["near"]
    assert found["not_simulated"] == ["far"]
    assert found["notes"][0] == "ended early by Ctrl-C; not simulated: placements far"


def test_ctrl_c_reports_the_progress_of_a_program(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[int] = []

    def report(actions: int) -> None:
        reported.append(actions)
        if actions > of // 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(machine, "STEPS", 2)
    program = from_mpi_trace(folder / "program.txt")
    run, of = machine.Machine.run, sum(map(len, program.ranks))
    monkeypatch.setattr(machine.Machine, "run", lambda self, shown: run(self, lambda done: (shown(done), report(done))))
    with pytest.raises(KeyboardInterrupt, match=rf"^simulating near: \d+ of {of} actions$"):
        simulated(folder)
    assert reported == sorted(reported)


def test_a_long_program_is_interrupted_in_one_line(folder: Path) -> None:
    lines = [line for _ in range(50_000) for line in ("0 send 1 0 8", "1 recv 0 0 8", "1 send 0 0 8", "0 recv 1 0 8")]
    (folder / "long.txt").write_text("\n".join(["0 init", "1 init", *lines, "0 finalize", "1 finalize", ""]))
    given = ["mpi", "simulate", str(folder / "long.txt"), "--cluster", str(folder / "lab.yaml")]
    with in_a_log([*given, "--hostfile", str(folder / "near")]) as command:
        command.until(r"simulating near: \d")
        command.interrupt()
        assert command.end() == 130
    assert command.text.splitlines()[-1].startswith("Ctrl-C: stopped")
    assert "reading" in command.text
    assert "Traceback" not in command.text
