"""A report, and what is known of its block without us: the client's clock, and Dask's own log of events."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from distributed import Client

from dask_efficiency import EfficiencyReport, efficiency_report
from dask_efficiency.accounts.cluster.cluster import GRACE_NS

#: Between an entry in Dask's log and the hook by which we hear of the same, on a busy machine; seconds.
HOOK = 0.5

#: A worker that closes may still tell, for so long, of time after its removal; seconds.
GRACE = GRACE_NS / 1e9


@dataclass(frozen=True, slots=True)
class Stay:
    """A worker's time with the scheduler, in seconds since the epoch."""

    joined: float
    left: float = math.inf


@dataclass(slots=True)
class Observed:
    """A report and what it must agree with."""

    block: efficiency_report
    #: Instants between which it opened, and between which it closed; seconds since the epoch.
    opened: tuple[float, float]
    closed: tuple[float, float] = (math.inf, math.inf)
    stays: list[Stay] = field(default_factory=list)

    @property
    def report(self) -> EfficiencyReport:
        """The report; there when its block has ended."""
        return self.block.report

    def thread_seconds(self, threads: int) -> tuple[float, float]:
        """Of workers of so many threads: at least and at most."""
        least = most = 0.0
        for stay in self.stays:
            least += max(0.0, min(stay.left, self.closed[0]) - max(stay.joined + HOOK, self.opened[1]))
            most += max(0.0, min(stay.left + GRACE, self.closed[1]) - max(stay.joined - HOOK, self.opened[0]))
        return threads * least, threads * most


@contextmanager
def observed(client: Client) -> Iterator[Observed]:
    """Report on a block; what was seen is complete when it has ended."""
    block = efficiency_report(client)
    opening = time.time()
    with block:
        seen = Observed(block, (opening, time.time()))
        yield seen
        closing = time.time()
    seen.closed = closing, time.time()
    seen.stays = [stay for stay in stays(client) if stay.left > seen.opened[0] and stay.joined < seen.closed[1]]


def stays(client: Client) -> list[Stay]:
    """Every worker that was ever there, by Dask's log; those of one address one after the other."""
    found = []
    joined: dict[str, float] = {}
    for at, message in client.get_events("all"):
        if message["action"] == "add-worker":
            joined[message["worker"]] = at
        elif message["action"] == "remove-worker" and message["worker"] in joined:
            found.append(Stay(joined.pop(message["worker"]), at))
    return found + [Stay(at) for at in joined.values()]
