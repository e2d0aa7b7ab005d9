"""Tasks differ much in length, and the longest is the last in the list.

source: OGGM/oggm issue 661; a like case: dask/dask issue 6956
date:   2019-01-07 (the like case 2020-12-11)
seen:   one task for each glacier, of all sizes. Near the end of a stage most cores are idle while a few large glaciers
        are still being worked on.
cause:  a large one that is begun last runs on alone when all others are done.
cure:   sort by size, and begin with the largest: the small ones fill the gaps at the end.
"""

from __future__ import annotations

from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LONGER_TASKS,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    compute_for,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
#: Sizes as in a catalogue that is sorted by size.
SIZES = (*[1] * 20, *[2] * 10, 40)
SECONDS = 0.12 * scaled(100) / 100

EXPECTED = Expected(
    cause="one task is much longer than all others and is begun last, so the other worker is idle for most of"
    " the time it"
    " takes",
    place="simulate, the longest task, or the map() that has it last",
    cure="begin with the longest (sort by size, priority), or split it",
    says=r"long(est|er)? (task|one|run)|(one|last|single|few) (\w+ )?(long |slow )?task|straggl|tail|uneven"
    r"|unequal|imbalanc"
    r"|balanc|skew|at the end|alone|idle|(much|far) longer|nothing (else|left|more)|too few tasks|outlier",
    places=(*marked(__file__), function("simulate")),
    cures=r"(long|larg|bigg)\w* (\w+ )?first|first\b.*\b(long|larg|bigg)|sort|order|priorit|earl(y|ier)|begin with"
    r"|start\w* (it|them|the long\w*)|split|smaller (tasks|pieces)|(in|into) (parts|pieces)|even",
    never={
        MORE_WORKERS: "the last task needs one worker, however many there are",
        LONGER_TASKS: "the longest task is too long already",
        HOLDS_GIL: "one thread a worker, and the work does not hold the GIL",
    },
)


def simulate(size: int) -> int:
    compute_for(size * SECONDS)
    return size * size


def bad(client: Client) -> float:
    runs = client.map(simulate, SIZES, pure=False)  # <- here
    return float(sum(client.gather(runs)))


def good(client: Client) -> float:
    runs = client.map(simulate, sorted(SIZES, reverse=True), pure=False)
    return float(sum(client.gather(runs)))
