"""Every number of a range is scattered as its own piece of data and gets its own task.

source: dask/distributed issue 2316
date:   2018-10-22
seen:   on a cluster of eight workers the squares of a million scattered numbers were to be summed; the scheduler's
        machine was busy and its event loop unresponsive, one worker did a little, the others hardly anything.
cause:  each number is one future, one task and one dependency of the last task; the work of a task is nothing beside
        what the client and the scheduler spend for each of them.
cure:   the thread: nearly all of the time is overhead per task; make fewer and larger tasks (batch the numbers).

The tasks are trivial on purpose.
"""

from __future__ import annotations

from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    MORE_MEMORY,
    MORE_WORKERS,
    PROCESSES,
    TWO_BY_TWO,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_TWO
NUMBERS = scaled(6_000)
PIECES = 8

EXPECTED = Expected(
    cause="thousands of tasks of a few microseconds each (and as many one-number pieces of scattered data): the"
    " overhead"
    " per task and per future, on client and scheduler, is the whole run time; the workers are idle",
    place="the scatter of the list (one future per number) and the map of square over those futures; function square,"
    " key prefix 'square'",
    cure="batch: give each task a range of numbers (a few tasks per core), do not scatter single numbers",
    says=r"overhead"
    r"|(many|thousands of|hundreds of|too|very|so|tiny|small|short|brief|little) (\w+ ){0,2}(tasks|futures|keys|pieces)"
    r"|(tasks?|futures|pieces)\b.{0,20}\b(too |very |so )?(small|short|tiny|brief|many|trivial|micro)"
    r"|(per|for each|of each|for every|of every|each) (task|future|piece|number|key)"
    r"|(longer|larger|bigger|fewer) (and \w+ )?tasks|tasks? (longer|larger|bigger)|microseconds"
    r"|scheduler.{0,40}(busy|bottleneck|limit|overload|keep up|held|cpu)|little work",
    places=(*marked(__file__), function("square"), r"\bscatter\b"),
    cures=r"batch|group|combine|merge|chunk|range|together|several|more work"
    r"|(fewer|larger|longer|bigger)\b.{0,40}\btasks?"
    r"|tasks? (longer|larger|bigger)|(many|more) .{0,40}(in|per|to|for) (a|each|one|every) (task|call)"
    r"|(not|without|avoid|less|fewer) .{0,20}scatter",
    never={
        MORE_WORKERS: "the workers are idle",
        HOLDS_GIL: "the work of a task is nothing",
        PROCESSES: "the work of a task is nothing",
        MORE_MEMORY: "memory is ample",
        r"(?im)(^|[.:;])\s*scatter\b": "the program scatters already, and that is part of the harm",
    },
)


def square(number: int) -> int:
    return number * number


def squares_between(start: int, stop: int) -> int:
    return sum(square(number) for number in range(start, stop))


def bad(client: Client) -> float:
    numbers = client.scatter(list(range(NUMBERS)))  # <- here
    squares = client.map(square, numbers)  # <- here
    return client.submit(sum, squares).result()


def good(client: Client) -> float:
    edges = [NUMBERS * piece // PIECES for piece in range(PIECES + 1)]
    sums = client.map(squares_between, edges[:-1], edges[1:])
    return client.submit(sum, sums).result()
