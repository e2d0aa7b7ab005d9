"""A script computes in the process in which its LocalCluster has the scheduler.

source: fmi-faim/faim-ipa issue 70
date:   2024-01-02
seen:   with a local cluster, the scheduler becomes slow while the main program computes something heavy.
cause:  a LocalCluster's scheduler is a thread's event loop in the script's own process. What keeps the GIL there, keeps
        the scheduler from handing out tasks.
cure:   start the cluster in a process of its own; or give that computation to the cluster as a task.

The script sorts long lists, each in one call that keeps the GIL, while its tasks run; `good` makes it a task.
"""

from __future__ import annotations

import random

from distributed import Client

from benchmarks.public_reports.programs import LONGER_TASKS, TWO_BY_ONE, Expected, compute_for, function, marked, scaled

CLUSTER = TWO_BY_ONE
TASKS = scaled(50)
COLUMNS = 4
ENTRIES = scaled(1_500_000)

EXPECTED = Expected(
    cause="the script's own code keeps the GIL of the process that the scheduler is in",
    place="the line that sorts, in the script",
    cure="a scheduler in a process of its own, or the computation in a task",
    says=r"(?s)(?=.*(scheduler|GIL))(?=.*(script|client|own code|main ?thread|same process|this process))",
    places=(*marked(__file__), function("ranks"), r"\bsort\w*"),
    cures=r"(own|another|separate|other) process|subprocess|(in|as) a task|on the (cluster|workers)|submit",
    never={
        r"(?i)graphs? smaller|smaller graphs?": "the graph is 50 tasks",
        LONGER_TASKS: "the tasks take 0.1 s",
        r"(?i)fewer (and longer )?tasks": "there are 50",
    },
)


def measure(number: int) -> int:
    compute_for(0.1)
    return number % 11


def ranks(columns: int) -> int:
    """Rank the entries of each column."""
    total = 0
    for column in range(columns):
        entries = random.Random(column).choices(range(ENTRIES), k=ENTRIES)
        total += sorted(range(ENTRIES), key=entries.__getitem__)[ENTRIES // 2]  # <- here
    return total


def bad(client: Client) -> float:
    futures = client.map(measure, range(TASKS))
    ranked = ranks(COLUMNS)
    return ranked + sum(client.gather(futures))


def good(client: Client) -> float:
    futures = client.map(measure, range(TASKS))
    ranked = client.submit(ranks, COLUMNS)
    return ranked.result() + sum(client.gather(futures))
