"""Jobs of uneven length are sent in batches, each after the last job of the one before.

source: tskit-dev/tsinfer issue 880
date:   2024-01-09
seen:   ancestors are matched in batches, so that each batch can be stored for a restart. Some ancestors take far longer
        than others, and up to 30 % of the workers' time goes by waiting for the last ones of a batch.
cause:  the client gathers a whole batch before it submits the next: while its longest job runs, the other workers have
        nothing to do.
cure:   submit all (or keep a fixed number in flight) and take results as they complete, in whatever order.

In each batch of six, five jobs are short and one is long. There is enough work for all workers at all times.
"""

from __future__ import annotations

from distributed import Client, as_completed

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
BATCHES = scaled(7)
BATCH = 6
SHORT, LONG = 0.05, 0.8

EXPECTED = Expected(
    cause="a batch waits for its longest job, with the other worker idle",
    place="the gather() of a batch, or its map()",
    cure="submit all jobs at once, or the next one as soon as any completes",
    says=r"\bidle|nothing to (do|run)|straggl|barrier|uneven|imbalance|batch|one (after|by) (the other|one)"
    r"|(waits?|waited|waiting) for (the|its|their|a|one)\b.{0,30}\b(last|longest|slowest|result|gather|client|tasks?)"
    r"|too few tasks|run(s|ning)? alone|not enough tasks",
    places=(*marked(__file__), function("match")),
    cures=r"as_completed|submit.{0,40}\b(all|more|earlier|before|ahead|together|at once)|(all|more) (tasks "
    r"|jobs )?at once"
    r"|larger batch|bigger batch|without waiting|in one (go|call|compute|gather)|in flight|split",
    never={
        MORE_WORKERS: "the two there are idle half of the time",
        LONGER_TASKS: "tasks take 50 ms at least",
        HOLDS_GIL: "the jobs compute without it",
    },
)


def match(ancestor: int) -> int:
    """Match one ancestor: one in a batch is long, each time at another place."""
    batch, position = divmod(ancestor, BATCH)
    compute_for(LONG if position == batch * 5 % BATCH else SHORT)
    return ancestor * ancestor % 101


def bad(client: Client) -> float:
    total = 0
    for batch in range(BATCHES):
        ancestors = range(batch * BATCH, (batch + 1) * BATCH)
        futures = client.map(match, ancestors)  # <- here
        total += sum(client.gather(futures))  # <- here
    return float(total)


def good(client: Client) -> float:
    futures = client.map(match, range(BATCHES * BATCH))
    return float(sum(result for _, result in as_completed(futures, with_results=True)))
