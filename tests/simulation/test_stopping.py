"""Progress of real simulations, and what Ctrl-C leaves of them."""

import json
from pathlib import Path

import pytest

from dask_efficiency import place, simulate, sweep
from dask_efficiency.show.progress import StoppedWarning
from dask_efficiency.simulation.model.ensemble import Simulated
from tests.simulation.fake_engine import FakeEngine, recorded
from tests.simulation.simulation_samples import simulated_by
from tests.simulation.test_calls import LAB
from tests.terminals import in_a_log, on_a_terminal


class Interrupted(FakeEngine):
    """An engine during whose call of a number Ctrl-C is pressed."""

    def __init__(self, call: int) -> None:
        super().__init__()
        self.call = call

    def __call__(self, *args: object, **options: object) -> list[Simulated]:
        if len(self.jobs) == self.call:
            options["report"](0.5)  # type: ignore[operator]
            raise KeyboardInterrupt
        return super().__call__(*args, **options)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recorded().save("run.trace")
    Path("lab.yaml").write_text(LAB)
    for number in range(4):
        Path(f"{number}.hosts").write_text(f"pc{number % 2}:2\n")


def test_a_sweep_keeps_its_rows_and_names_the_missing_ones() -> None:
    with simulated_by(Interrupted(3)), pytest.warns(StoppedWarning, match="after 2 of 4 numbers of workers"):
        found = sweep(recorded(), [1, 2, 4, 8], seeds=2)
    assert [len(one.cluster.workers) for one in found.predictions] == [1, 2]
    assert found.not_simulated == (4, 8)
    assert found.to_dict()["not_simulated"] == [4, 8]
    assert "ended early" in found.document.context
    assert "not simulated: numbers of workers 4, 8" in str(found)


def test_placements_keep_the_best_so_far_and_name_the_missing_ones() -> None:
    files = [f"{number}.hosts" for number in range(4)]
    with simulated_by(Interrupted(2)), pytest.warns(StoppedWarning, match="after 1 of 4 placements"):
        found = place(recorded(), "lab.yaml", files, seeds=2)
    assert [one.name for one in found.ranked] == ["0"]
    assert found.to_dict()["not_simulated"] == [*found.not_simulated] == ["1", "2", "3"]
    assert "not simulated: placements 1, 2, 3" in str(found)


@pytest.mark.parametrize(("call", "runs"), [(0, 0), (1, 5)])
def test_a_simulation_that_is_interrupted_names_the_runs_that_are_done(call: int, runs: int) -> None:
    with simulated_by(Interrupted(call)), pytest.raises(KeyboardInterrupt, match=f"^simulating: {runs} of 7 runs$"):
        simulate(recorded(), workers=2, seeds=2)


def test_on_a_terminal_a_sweep_has_a_bar_and_ctrl_c_leaves_its_rows(tmp_path: Path) -> None:
    pytest.importorskip("rich")
    sizes = ",".join(map(str, range(1, 41)))
    with on_a_terminal(["simulate", "run.trace", "--force", "--seeds", "1", "--sweep", sizes]) as command:
        # The seventh is of the second size: the first one is there.
        assert "━━━" in command.until(r"simulating .* [7-9] of 45 runs")
        command.interrupt()
        assert command.end() == 130
    printed = command.text.rpartition("Ctrl-C: stopped after ")[2]
    assert printed.startswith(("1 of 40", "2 of 40", "3 of 40", "4 of 40"))
    assert "ended early" in printed
    assert "makespan" in printed
    assert "Traceback" not in command.text


def test_in_a_log_there_are_lines_and_the_placements_so_far_go_to_their_file() -> None:
    asked = ["simulate", "run.trace", "--force", "--seeds", "1", "--cluster", "lab.yaml", "--json"]
    for number in range(40):
        Path(f"{number}.hosts").write_text(f"pc{number % 2}:2\n")
        asked += ["--hostfile", f"{number}.hosts"]
    with in_a_log(asked, "found.json") as command:
        assert "\x1b" not in command.until(r"simulating: [7-9] of 45 runs, ")
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
