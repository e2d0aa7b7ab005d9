"""Samples are changed by tasks that report each of them to a queue, from which the script shows the progress.

source: activeloopai/deeplake pull requests 1449 and 2515; like cases: dimagi/commcare-hq pull request 27216,
        overview/overview-server issue 308
date:   2022-01-20 (pull request 2515: 2023-08-03; pull request 27216: 2020-04-21)
seen:   progress is reported for every sample, which slows down the whole process, where samples are small.
cause:  each report goes to the scheduler and back, while the task waits, which takes longer than the sample itself.
cure:   add up, and report now and then: every tenth of a second, or every hundred samples.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from distributed import Client, Queue

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    LOCK,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    PROCESSES,
    SLEEP,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
SHARDS, SAMPLES, SIDE = 8, scaled(900), 192
#: Seconds between two reports.
INTERVAL = 0.1

EXPECTED = Expected(
    cause="each sample is reported to a queue of the scheduler, and the task waits for the answer (a message for each"
    " sample)",
    place="queue.put in changed",
    cure="report less often: add up, and put a sum every tenth of a second (or let the script count finished tasks)",
    says=r"(round ?-?trip|message|call|request|report|\bput\b|update|communicat)\w*\W+(\w+\W+){0,10}(scheduler|each"
    r"|every|per (sample|step|item)|too often|queue)|(scheduler|queue)\W+(\w+\W+){0,10}(each|every|per|often|waits?"
    r"|answers?|round ?-?trips?|times|thousands|calls)|chatty|wait(s|ed|ing)? (for|on) (the |an? )?(answer|reply"
    r"|scheduler|queue)",
    places=(*marked(__file__), function("changed"), r"\bQueue\b"),
    cures=r"\bbatch|less often|fewer|once (a|per|every|for)|throttl|every \w+ (seconds?|samples|items)|add up|collect"
    r"|as_completed|progress\(|\breturn\b|accumulat|(not|instead of)\W+(\w+\W+){0,3}(each|every)|at the end|together",
    never={
        LOCK: "it is the scheduler's answer that is waited for",
        SLEEP: "tasks do not sleep",
        MORE_WORKERS: "there would be more reports",
        PROCESSES: "they have one thread each",
        HOLDS_GIL: "one thread a worker",
        LONGER_TASKS: "tasks take seconds",
        MORE_MEMORY: "there is enough",
        COMPUTED_AGAIN: "each task runs once",
    },
)


class EachSample:
    """Reports each sample."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue

    def one_more(self) -> None:
        self.queue.put(1)  # <- here

    def end(self) -> None:
        pass


class NowAndThen(EachSample):
    """Reports how many samples there were since the last time."""

    def __init__(self, queue: Queue) -> None:
        super().__init__(queue)
        self.count = 0
        self.reported = time.monotonic()

    def one_more(self) -> None:
        self.count += 1
        if time.monotonic() - self.reported > INTERVAL:
            self.end()

    def end(self) -> None:
        self.queue.put(self.count)
        self.count, self.reported = 0, time.monotonic()


def changed(shard: int, name: str, way: Callable[[Queue], EachSample]) -> float:
    """Brightness of the changed samples of a shard."""
    reports = way(Queue(name))
    rng = np.random.default_rng(shard)
    total = 0.0
    for _ in range(SAMPLES):
        sample = rng.random((SIDE, SIDE))
        total += float(np.sqrt(sample.T * 0.7 + 0.1).mean())
        reports.one_more()  # <- here
    reports.end()
    return total


def shown(queue: Queue, total: int) -> int:
    """Follow the reports until all samples are there."""
    done = 0
    while done < total:
        time.sleep(0.2)
        done += sum(queue.get(batch=True))
    return done


def brightness(client: Client, name: str, way: Callable[[Queue], EachSample]) -> float:
    queue = Queue(name)
    futures = client.map(changed, range(SHARDS), name=name, way=way)
    shown(queue, SHARDS * SAMPLES)
    return float(sum(client.gather(futures)))


def bad(client: Client) -> float:
    return brightness(client, "samples-one-by-one", EachSample)


def good(client: Client) -> float:
    return brightness(client, "samples-now-and-then", NowAndThen)
