"""Workers of a simulated cluster: locks, disks and messages, with Dask's own checks after every step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest


@pytest.fixture(scope="module")
def became() -> dict[str, Any]:
    """Figures of each scenario."""
    command = [sys.executable, "-m", "tests.simulation.engine.scenarios"]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert not done.returncode, done.stderr[-3_000:]
    found: dict[str, Any] = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            found |= json.loads(line)
    return found


def test_two_threads_that_hold_the_lock_take_as_long_as_one(became: dict[str, Any]) -> None:
    # Eight tasks of 100 ms.
    assert became["lock"]["ms"] == pytest.approx(800, abs=10)
    assert became["no lock"]["ms"] == pytest.approx(400, abs=10)


def test_results_that_do_not_fit_are_written_and_read_back_and_the_loop_waits_for_it(became: dict[str, Any]) -> None:
    # Ten results of 10 MB, room for three; 100 ms to disk, and 50 ms back.
    spill = became["spill"]
    assert spill["spill_ms"] >= 700
    assert spill["unspill_ms"] >= 7 * 50
    waited = spill["spill_ms"] + spill["unspill_ms"]
    assert spill["ms"] == pytest.approx(became["no spill"]["ms"] + waited, rel=0.1)
    assert became["no spill"]["spill_ms"] == became["no spill"]["unspill_ms"] == 0


def test_a_worker_that_is_full_pauses_until_others_have_used_what_it_holds(became: dict[str, Any]) -> None:
    pause = became["pause"]
    assert pause["changes"][:2] == ["PAUSED", "RESUMED"]
    assert pause["memory"] == 25
    assert any("w0 gets so full" in note for note in pause["notes"])


def test_what_a_lost_worker_had_is_computed_again(became: dict[str, Any]) -> None:
    lost = became["lost"]
    assert "LEFT" in lost["changes"]
    assert sum(lost["workers"]["make"].values()) > 10
    assert lost["memory"] == 31


def test_a_worker_that_retires_hands_over_its_results(became: dict[str, Any]) -> None:
    retired = became["retired"]
    assert retired["changes"] == ["RETIRING", "LEFT"]
    assert set(retired["workers"]["use"]) == {"w1"}
    again = sum(retired["workers"]["make"].values()) - 10
    assert again <= retired["outcomes"].get("LOST", 0)


def test_a_worker_that_joins_late_gets_tasks_from_then_on(became: dict[str, Any]) -> None:
    # Twenty tasks of 100 ms; the second worker comes after 400.
    joined = became["joined"]
    assert joined["changes"] == ["JOINED"]
    assert joined["ms"] == pytest.approx(1_200, abs=20)


def test_a_worker_can_be_replaced_by_one_of_its_name_and_address(became: dict[str, Any]) -> None:
    replaced = became["replaced"]
    assert replaced["changes"] == ["LEFT", "JOINED"]
    assert replaced["memory"] == 20


def test_tasks_run_only_where_they_may(became: dict[str, Any]) -> None:
    assert became["restricted"]["workers"] == {"work": {"w1": 8}}
    assert became["loose"]["workers"] == {"work": {"w0": 8}}
    assert became["resources"]["most_at_once"] == 1


def test_data_that_was_there_is_there(became: dict[str, Any]) -> None:
    assert became["data"]["outcomes"] == {"SUCCEEDED": 2}
    assert any("were there before" in note for note in became["data"]["notes"])


def test_outputs_of_a_shuffle_are_spread_over_all_workers_and_its_barrier_waits_for_the_bytes(
    became: dict[str, Any],
) -> None:
    assert became["p2p"]["workers"]["shuffle"] == {"w0": 2, "w1": 2, "w2": 2, "w3": 2}
    assert became["p2p"]["ms"] > became["p2p, no transfers"]["ms"] + 10


def test_outputs_of_a_shuffle_that_were_bound_to_a_worker_that_was_killed_run_on_others(became: dict[str, Any]) -> None:
    workers = became["p2p, killed"]["workers"]["shuffle"]
    assert "w3" not in workers
    assert sum(workers.values()) == 8


def test_what_failed_fails_as_often_and_what_left_its_slot_leaves_it(became: dict[str, Any]) -> None:
    assert became["failing"]["outcomes"] == {"FAILED": 3, "SUCCEEDED": 6}
    # Six tasks of 100 ms that hold a slot for half of it.
    assert became["seceding"]["ms"] == pytest.approx(350, abs=10)
