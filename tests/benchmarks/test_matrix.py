from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.matrix import headline, table
from benchmarks.one_process import MODES

#: What each of three rounds gave: as rounds may be slower than others, what is added is compared within each.
FOUND = {
    "off": {"cpu": [1000.0, 2000.0, 1100.0]},
    "all": {"cpu": [1100.0, 2110.0, 1190.0]},
    "performance-report": {"cpu": [1050.0, 2050.0, 1140.0]},
    "pyspy": {"cpu": [1000.0, 2000.0, 1100.0], "instructions": []},
}


def test_what_a_mode_adds_is_taken_from_the_same_round():
    rows = table(FOUND, {"cpu": "us of CPU a task"}).splitlines()
    assert rows[2] == "| Dask alone | 1100 [1000, 2000] |"
    assert rows[3] == "| everything on | +100 (+9.1%) [+90, +110] |"


def test_what_cannot_be_counted_says_why():
    rows = table(FOUND, {"instructions": "instructions"}).splitlines()
    assert rows[-1] == f"| dask-pyspy | {MODES['pyspy'].not_counted} |"


def test_the_claim_fails_where_everything_costs_more_than_a_performance_report():
    assert headline(FOUND, "cpu") == "cpu: everything on adds +100, `performance_report` +50: claim NOT met"
    assert headline(FOUND | {"all": FOUND["off"]}, "cpu").endswith("claim met")


@pytest.mark.cluster
def test_each_way_of_watching_runs_and_has_its_row(tmp_path):
    modes = ["off", "page", "report", "performance-report"]
    command = [sys.executable, "-m", "benchmarks.matrix", "--no-instructions", "--rounds", "1", "--tasks", "1", "3"]
    done = subprocess.run(
        [*command, "--work", "no-op", "--modes", *modes],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        env=os.environ | {"DASK_TEMPORARY_DIRECTORY": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    assert [row.split("|")[1].strip() for row in rows[2:]] == [MODES[mode].title for mode in modes]
