"""Each job of a daily pipeline is run as a command, by an interpreter of its own.

source: apache/airflow pull requests 6627 and 11327; of the Dask executor, a comment in dask/dask issue 5803
date:   2020-10-07 (pull request 6627: 2019-11-20; the comment: 2020-05-12)
seen:   jobs of some milliseconds take a second or more each; when they are forked from a process that has all modules,
        it is a tenth of that.
cause:  a task starts a Python interpreter, which imports all libraries before it does its little work.
cure:   call the function in the worker, which has the modules already.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    compute_for,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
DAYS = scaled(10)

EXPECTED = Expected(
    cause="each task starts a Python process and waits for it, most of whose time is for its start and imports",
    place="run_job, where it runs the command",
    cure="call the function in the task, or start fewer processes that do more",
    says=r"sub-?process|child process|(another|other|new|own|separate|external) (process|program|interpreter|command)"
    r"|\bcommands?\b|interpreter|starts? .{0,20}process|process(es)? .{0,20}start|fork|spawn"
    r"|\bimport(s|ing)?\b|\bpopen\b",
    places=(*marked(__file__), function("run_job"), r"subprocess"),
    cures=r"(call|import|run) .{0,40}(function|module|in the (task|worker)|directly|in[- ]process|library)"
    r"|in[- ]process"
    r"|without .{0,20}(process|command|interpreter)|instead of .{0,30}(process|command|program|interpreter)"
    r"|(keep|reuse|re-use)\w* .{0,30}(process|interpreter|open|alive|running)|fewer (process|command|start)"
    r"|more work (per|for each)|several .{0,30}(process|command|start|call)|batch|once (per|for each|in each) worker"
    r"|long-(running|lived)|server",
    never={
        MORE_WORKERS: "more interpreters would start at a time on the same cores",
        MORE_MEMORY: "a job needs little",
        HOLDS_GIL: "the worker waits for another process",
    },
)

#: Folder in which the command finds this module.
HOME = Path(__file__).parents[3]


def turnover(day: int) -> float:
    """Little work of a job."""
    compute_for(0.02)
    return round(float(np.random.default_rng(day).gamma(2.0, 300.0, 5000).sum()), 2)


def run_job(day: int) -> float:
    command = [sys.executable, "-m", "benchmarks.public_reports.known.command_per_job", str(day)]
    answer = subprocess.run(command, cwd=HOME, capture_output=True, check=True, text=True)  # <- here
    return float(answer.stdout)


def bad(client: Client) -> float:
    return sum(client.gather(client.map(run_job, range(DAYS))))  # <- here


def good(client: Client) -> float:
    return sum(client.gather(client.map(turnover, range(DAYS))))


if __name__ == "__main__":
    print(turnover(int(sys.argv[1])))
