"""Tasks that compute and then write are retried as a whole when the store refuses a write.

source: dask/dask issue 3299 and pull request 3300; a like case: ray-project/ray issue 37813
date:   2018-03-19 (the like case 2023-07-26)
seen:   thousands of blocks are computed and written to a store in the cloud, which refuses a write now and then. With
        retries= the job gets through, but takes far longer than without failures.
cause:  computing and writing are one task, so after each refusal the block is computed again from the start, to be
        written again.
cure:   retry the writing alone: a task of its own that has the retries, or a loop around the write within the task.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LONGER_TASKS,
    TWO_BY_ONE,
    Expected,
    compute_for,
    folder,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
BLOCKS = scaled(24)
#: As often as this the store refuses a block, at the most.
REFUSALS = 2

EXPECTED = Expected(
    cause="tasks fail at their end, in the write, and are run again from the start, with all they compute",
    place="the map() with retries, render_and_write, or write, which fails",
    cure="retry the write alone",
    says=r"\bretr(y|ies|ied|ying)\b|\bfail(s|ed|ing|ures?)?\b|\berr(ed|or|ors)\b|exception|(run|ran|computed|started"
    r"|done) (again|several times|more than once|twice)|repeated|Refused|OSError",
    places=(*marked(__file__), function("render_and_write"), function("write"), function("render")),
    cures=r"own task|separate|two tasks|\bsplit|retry .{0,60}(only|alone|inside|within|write|itself)|(only"
    r"|just) the (write|part|step)|\btry\b|back.?off|(inside|within|in) the (task|function)|\bcatch|handle the"
    r"|fewer failures|avoid .{0,30}(fail|retr)|fix .{0,40}(fail|error|cause)|why .{0,30}fail|(cause"
    r"|reason) of .{0,30}(fail|error)|checkpoint|earlier|stop .{0,20}fail|keep .{0,30}results?",
    never={
        LONGER_TASKS: "longer tasks lose more when they fail",
        HOLDS_GIL: "one thread a worker",
    },
)


class Refused(OSError):
    """The store is too busy, just now."""


def render(number: int) -> np.ndarray:
    compute_for(0.4)
    return np.full(100_000, number % 7)


def write(block: np.ndarray, number: int, place: str) -> int:
    for refusal in range(number % (REFUSALS + 1)):
        mark = Path(place) / f"{number}.refused.{refusal}"
        if not mark.exists():
            mark.touch()
            raise Refused(f"block {number}")
    np.save(Path(place) / f"{number}.npy", block)
    return int(block[0])


def render_and_write(number: int, place: str) -> int:
    return write(render(number), number, place)  # <- here


def _place() -> str:
    return tempfile.mkdtemp(dir=folder("computed_again_to_write"))


def bad(client: Client) -> float:
    return float(sum(client.gather(client.map(render_and_write, range(BLOCKS), place=_place(), retries=5))))  # <- here


def good(client: Client) -> float:
    blocks = client.map(render, range(BLOCKS))
    return float(sum(client.gather(client.map(write, blocks, range(BLOCKS), place=_place(), retries=5))))
