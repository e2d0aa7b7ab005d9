"""The client waits for each result before it sends the next task.

source: dmlc/xgboost issue 6407
date:   2020-11-19
seen:   predictions for many partitions on a cluster of several nodes: one worker works at a time, and more nodes do not
        make it faster.
cause:  the loop that submits the tasks waits for the result of each before it goes on.
cure:   submit all tasks, then gather their results.
"""

from __future__ import annotations

from distributed import Client

from benchmarks.public_reports.programs import LONGER_TASKS, TWO_BY_ONE, Expected, compute_for, marked, scaled

CLUSTER = TWO_BY_ONE
PARTITIONS = scaled(60)

EXPECTED = Expected(
    cause="the client waits for each result before it sends the next task",
    place="the line of the loop that waits",
    cure="submit all, then gather",
    says=r"one (task |result |computation )?(after the other|at a time|by one)|each result|for each\b.*\bbefore"
    r"|wait\w* for (each|every|a|one) (result|task)",
    places=marked(__file__),
    cures=r"submit\w* (all|them|every)|\bmap\b|gather|as_completed|all .*at once|before .*wait|collect|together",
    never={
        r"(?i)split the": "no task is too long: the client sends one at a time",
        LONGER_TASKS: "the tasks are long enough",
        r"(?i)fewer workers": "with the cure, all are used",
    },
)


def predict(partition: int) -> int:
    compute_for(0.1)
    return partition % 7


def bad(client: Client) -> float:
    total = 0
    for partition in range(PARTITIONS):
        total += client.submit(predict, partition).result()  # <- here
    return total


def good(client: Client) -> float:
    futures = [client.submit(predict, partition) for partition in range(PARTITIONS)]
    return sum(client.gather(futures))
