"""Max-min fair sharing: what each of many transfers gets of the links that it crosses, and when it ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from math import ceil

from dask_efficiency.simulation.events import EventHeap

#: The links that a transfer crosses, by their positions.
Path = tuple[int, ...]


def max_min_rates(transfers: Mapping[Path, int], capacities: Sequence[float]) -> dict[Path, float]:
    """What each transfer gets where none can have more without taking from one that has no more than it.

    Parameters
    ----------
    transfers
        How many cross the same links, by these links; each crosses at least one.
    capacities
        By link, above 0.

    Returns
    -------
    dict
        By path: the rate of each of its transfers, in the unit of the capacities.

    References
    ----------
    Bertsekas and Gallager, Data Networks, 1992, 6.5.2: progressive filling. All rates grow alike until a link is full;
    its transfers keep what they have, the others grow on. A link's share can only grow meanwhile, so that a heap finds
    the next full link.
    """
    crossing: dict[int, list[Path]] = {}
    load: dict[int, int] = {}
    for path, count in transfers.items():
        for link in path:
            if link in crossing:
                crossing[link].append(path)
                load[link] += count
            else:
                crossing[link] = [path]
                load[link] = count
    left = {link: capacities[link] for link in load}
    shares = [(left[link] / count, link) for link, count in load.items()]
    heapify(shares)
    rates: dict[Path, float] = {}
    level = 0.0
    while shares:
        share, link = shares[0]
        if not load[link]:
            heappop(shares)
            continue
        now = left[link] / load[link]
        if now > share:
            heapreplace(shares, (now, link))
            continue
        heappop(shares)
        # What is left is the difference of nearly equal numbers: never let its error take from a share.
        level = max(level, now)
        for path in crossing[link]:
            if path not in rates:
                rates[path] = level
                count = transfers[path]
                for other in path:
                    left[other] -= level * count
                    load[other] -= count
    return rates


class SharedLinks:
    """Links at work: transfers that share them, in virtual time.

    Parameters
    ----------
    clock
        In nanoseconds.
    capacities
        By link: bytes a second, above 0.
    """

    def __init__(self, clock: EventHeap, capacities: Sequence[float]) -> None:
        self._clock = clock
        self._capacities = [capacity / 1e9 for capacity in capacities]
        self._lanes: dict[Path, _Lane] = {}
        self._started = 0
        self._sharings = 0
        self._to_share = False

    def start(self, path: Path, nbytes: int, arrived: Callable[[], object]) -> None:
        """Send bytes over these links from now on."""
        if nbytes <= 0 or not path:
            self._clock.at(self._clock.now, arrived)
            return
        lane = self._lanes.get(path)
        if lane is None:
            lane = self._lanes[path] = _Lane(self._clock.now)
        lane.advance(self._clock.now)
        self._started += 1
        heappush(lane.ends, (lane.served + nbytes, self._started, arrived))
        self._changed()

    def _changed(self) -> None:
        # Once for all that changes in an instant.
        if not self._to_share:
            self._to_share = True
            self._clock.at(self._clock.now, self._share)

    def _share(self) -> None:
        self._to_share = False
        self._sharings += 1
        if not self._lanes:
            return
        now = self._clock.now
        rates = max_min_rates({path: len(lane.ends) for path, lane in self._lanes.items()}, self._capacities)
        soonest = float("inf")
        for path, lane in self._lanes.items():
            rate = rates[path]
            if rate != lane.rate:
                lane.advance(now)
                lane.rate = rate
            soonest = min(soonest, lane.at + (lane.ends[0][0] - lane.served) / rate)
        self._clock.at(ceil(soonest), self._end, self._sharings)

    def _end(self, sharing: int) -> None:
        if sharing != self._sharings:
            return  # shared anew since
        now = self._clock.now
        ended: list[tuple[int, Callable[[], object]]] = []
        for path, lane in list(self._lanes.items()):
            # Rates are not whole: what is done within the nanosecond is done.
            reached = lane.served + (now + 1 - lane.at) * lane.rate
            while lane.ends and lane.ends[0][0] <= reached:
                _, order, arrived = heappop(lane.ends)
                ended.append((order, arrived))
            if not lane.ends:
                del self._lanes[path]
        self._changed()
        for _, arrived in sorted(ended, key=lambda one: one[0]):
            arrived()


class _Lane:
    """The transfers over one path: as they have the same rate, each ends at a number of bytes served to all."""

    __slots__ = ("at", "ends", "rate", "served")

    def __init__(self, now: int) -> None:
        self.at = now
        #: Bytes that each transfer has been sent that was there from the start, at the instant ``at``.
        self.served = 0.0
        #: Bytes a nanosecond, of each.
        self.rate = 0.0
        #: Bytes served at which a transfer ends, its number, and what is then called.
        self.ends: list[tuple[float, int, Callable[[], object]]] = []

    def advance(self, now: int) -> None:
        self.served += (now - self.at) * self.rate
        self.at = now
