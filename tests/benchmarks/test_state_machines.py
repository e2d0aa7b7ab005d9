"""``benchmarks/state_machines.py`` drives each task through both sides, and the accounts have all of them."""

import subprocess
import sys
from pathlib import Path

# What a mode asks for stays until the process ends, so it has one of its own.
PROGRAM = """
import os, sys, traceback
from benchmarks.state_machines import BATCH, MODES, WORK, Driver, run, session

async def main():
    async with session(MODES["trace"], WORK["no-op"]) as here:
        try:
            Driver(here).compute(3 * BATCH)  # of which the last heartbeat is a new one
            cluster = here._meter.accounts.cluster
            print("TASKS", cluster.tasks, cluster.refused, len(here.scheduler.tasks), flush=True)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(0)  # without its connections the session has no end

run(main)
"""


def test_every_task_that_is_driven_is_accounted_for() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    assert "TASKS {'succeeded': 600} 0 0" in done.stdout, done.stdout + done.stderr
