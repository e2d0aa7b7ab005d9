"""Postcodes are checked one by one, each in a task of its own.

source: dask/distributed issue 2181
date:   2018-08-14 (with comments of 2018-10-02)
seen:   millions of short commands were given to Client.map, and took minutes to be submitted before anything ran; in a
        bag with a hundred of them in each partition there was little delay, and all went well.
cause:  every element of the list is a task and a future: client and scheduler have to do for each about as much as
        the function itself takes, or more.
cure:   batches: a bag with many elements in each partition, or a list of them for each task.
"""

from __future__ import annotations

from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LOCK,
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
ADDRESSES, BATCH = scaled(8_000), 500

EXPECTED = Expected(
    cause="one task for each of thousands of postcodes, of some microseconds each: the overhead of submitting,"
    " scheduling and gathering them is nearly all of the time",
    place="the client.map() (or the gather()); function check_digit, prefix of the tasks' keys",
    cure="give each task a batch of postcodes: lists, or a bag with few partitions",
    says=r"overhead"
    r"|(many|thousands of|hundreds of|too|very|so|tiny|small|short|brief|little) (\w+ ){0,2}(tasks|futures"
    r"|keys|pieces)"
    r"|(tasks?|futures|pieces)\b.{0,20}\b(too |very |so )?(small|short|tiny|brief|many|trivial|micro)"
    r"|(per|for each|of each|for every|of every|each) (task|future|piece|number|key|call)"
    r"|(longer|larger|bigger|fewer) (and \w+ )?tasks|tasks? (longer|larger|bigger)|microseconds"
    r"|scheduler.{0,40}(busy|bottleneck|limit|overload|keep up|held|cpu)|little work",
    places=(*marked(__file__), function("check_digit"), function("bad")),
    cures=r"batch|group|combine|merge|chunk|range|together|several|more work|\bbag\b|partition"
    r"|(fewer|larger|longer|bigger)\b.{0,40}\btasks?"
    r"|tasks? (longer|larger|bigger)|(many|more) .{0,40}(in|per|to|for) (a|each|one|every) (task|call)",
    never={
        MORE_WORKERS: "the workers are idle",
        HOLDS_GIL: "the work of a task is nothing",
        PROCESSES: "the work of a task is nothing",
        MORE_MEMORY: "memory is ample",
        LOCK: "there is none",
    },
)


def postcode(number: int) -> str:
    return f"{number * 7919 % 99_991:05d}-{number * 104_729 % 9_973:04d}"


def check_digit(code: str) -> int:
    """Digit that makes the weighted sum of the others a multiple of ten."""
    digits = [int(letter) for letter in code if letter.isdigit()]
    return -sum((1 + place % 3) * digit for place, digit in enumerate(digits)) % 10


def check_digits(codes: list[str]) -> list[int]:
    return [check_digit(code) for code in codes]


def bad(client: Client) -> float:
    codes = [postcode(number) for number in range(ADDRESSES)]
    digits = client.gather(client.map(check_digit, codes))  # <- here
    return float(sum(digits))


def good(client: Client) -> float:
    codes = [postcode(number) for number in range(ADDRESSES)]
    batches = [codes[first : first + BATCH] for first in range(0, ADDRESSES, BATCH)]
    digits = client.gather(client.map(check_digits, batches))
    return float(sum(map(sum, digits)))
