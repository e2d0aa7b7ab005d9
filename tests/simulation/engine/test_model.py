"""Workers of a simulated cluster: locks, disks and messages, with Dask's own checks after every step."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.simulation.engine.scenarios"]
    done = subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": "0"}, capture_output=True, text=True)
    assert not done.returncode, done.stderr[-3_000:]
    figures = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {name: each[name] for each in figures for name in each}


def test_two_threads_that_hold_the_lock_take_as_long_as_one(found: dict[str, Any]) -> None:
    # Eight tasks of 100 ms.
    assert found["lock"]["ms"] == pytest.approx(800, abs=10)
    assert found["no lock"]["ms"] == pytest.approx(400, abs=10)


def test_results_that_do_not_fit_are_written_and_read_back_while_the_loop_waits(found: dict[str, Any]) -> None:
    # Ten results of 10 MB, room for three; 100 ms to disk, and 50 ms back.
    spill, without = found["spill"], found["no spill"]
    assert spill["spill_ms"] >= 700
    assert spill["unspill_ms"] >= 7 * 50
    assert spill["ms"] == pytest.approx(without["ms"] + spill["spill_ms"] + spill["unspill_ms"], rel=0.1)
    assert without["spill_ms"] == without["unspill_ms"] == 0


def test_the_memory_that_a_run_needs_is_that_with_which_nothing_is_spilled(found: dict[str, Any]) -> None:
    for name in ("spill", "no spill", "enough memory", "four fifths"):
        assert found[name]["memory_needed"] == pytest.approx(100e6 / 0.6, rel=1e-3)
        assert not found[name]["overfull"]
    assert found["enough memory"]["spill_ms"] == 0 < found["four fifths"]["spill_ms"]


def test_a_full_worker_pauses_until_others_have_used_its_results(found: dict[str, Any]) -> None:
    assert found["pause"]["changes"][:2] == ["PAUSED", "RESUMED"]
    assert found["pause"]["memory"] == 25
    assert found["pause"]["overfull"]
    assert any("w0 gets so full" in note for note in found["pause"]["notes"])


def test_results_of_a_lost_worker_are_computed_again_and_a_retiring_one_hands_them_over(found: dict[str, Any]) -> None:
    assert "LEFT" in found["lost"]["changes"]
    assert sum(found["lost"]["workers"]["make"].values()) > 10
    assert found["lost"]["memory"] == 31
    retired = found["retired"]
    assert retired["changes"] == ["RETIRING", "LEFT"]
    assert set(retired["workers"]["use"]) == {"w1"}
    assert sum(retired["workers"]["make"].values()) - 10 <= retired["outcomes"].get("LOST", 0)


def test_a_worker_joins_late_or_in_place_of_one_of_its_name_and_address(found: dict[str, Any]) -> None:
    # Twenty tasks of 100 ms; the second worker comes after 400.
    assert found["joined"]["changes"] == ["JOINED"]
    assert found["joined"]["ms"] == pytest.approx(1_200, abs=20)
    assert found["replaced"]["changes"] == ["LEFT", "JOINED"]
    assert found["replaced"]["memory"] == 20


def test_tasks_run_only_on_allowed_workers(found: dict[str, Any]) -> None:
    assert found["restricted"]["workers"] == {"work": {"w1": 8}}
    assert found["loose"]["workers"] == {"work": {"w0": 8}}
    assert found["resources"]["most_at_once"] == 1


def test_results_from_before_the_recording_are_there(found: dict[str, Any]) -> None:
    assert found["data"]["outcomes"] == {"SUCCEEDED": 2}
    assert any("were there before" in note for note in found["data"]["notes"])


def test_outputs_of_a_shuffle_are_spread_over_all_workers_after_its_bytes_have_arrived(found: dict[str, Any]) -> None:
    assert found["p2p"]["workers"]["shuffle"] == {"w0": 2, "w1": 2, "w2": 2, "w3": 2}
    assert found["p2p"]["ms"] > found["p2p, no transfers"]["ms"] + 10
    # Those of a worker that was killed run on others.
    workers = found["p2p, killed"]["workers"]["shuffle"]
    assert "w3" not in workers
    assert sum(workers.values()) == 8


def test_tasks_fail_and_secede_as_they_did(found: dict[str, Any]) -> None:
    assert found["failing"]["outcomes"] == {"FAILED": 3, "SUCCEEDED": 6}
    # Six tasks of 100 ms that hold a slot for half of it.
    assert found["seceding"]["ms"] == pytest.approx(350, abs=10)
