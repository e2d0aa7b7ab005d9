"""Max-min fair sharing: what each of many transfers gets of the links that it crosses, and when it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from math import ceil

from dask_efficiency.simulation.model.events import EventHeap

#: The links that a transfer crosses, by their positions.
Path = tuple[int, ...]


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
        self._loads = _Loads(len(capacities))
        self._lanes: dict[Path, _Lane] = {}
        self._started = 0
        #: How often the links have been shared.
        self.sharings = 0
        self._to_share = False

    def start(self, path: Path, nbytes: int, arrived: Callable[[], object]) -> None:
        """Send bytes over these links from now on."""
        if nbytes <= 0 or not path:
            self._clock.at(self._clock.now, arrived)
            return
        lane = self._lanes.get(path)
        if lane is None:
            lane = self._lanes[path] = _Lane(path, self._clock.now)
            self._loads.add(lane)
        lane.advance(self._clock.now)
        self._started += 1
        heappush(lane.ends, (lane.served + nbytes, self._started, arrived))
        self._loads.count(lane, 1)
        self._changed()

    def backlog(self, link: int) -> float:
        """Bytes that are still to cross a link that is full; 0 for one that is not."""
        if link not in self._loads.full:
            return 0.0
        now = self._clock.now
        left = 0.0
        for lane in self._loads.crossing(link):
            served = lane.served + (now - lane.at) * lane.rate
            left += sum(end - served for end, _, _ in lane.ends)
        return max(left, 0.0)

    def _changed(self) -> None:
        # Once for all that changes in an instant.
        if not self._to_share:
            self._to_share = True
            self._clock.at(self._clock.now, self._share)

    def _share(self) -> None:
        self._to_share = False
        self.sharings += 1
        if not self._lanes:
            self._loads.full.clear()
            return
        now = self._clock.now
        soonest, first = float("inf"), None
        for lane, rate in self._loads.rates(self._capacities).items():
            if rate != lane.rate:
                lane.advance(now)
                lane.rate = rate
            # From now on, as instants may be so large that their fractions are lost.
            left = (lane.ends[0][0] - lane.served) / rate - (now - lane.at)
            if left < soonest:
                soonest, first = left, lane
        self._clock.at(now + ceil(soonest), self._end, self.sharings, first)

    def _end(self, sharing: int, first: _Lane) -> None:
        if sharing != self.sharings:
            return  # shared anew since
        now = self._clock.now
        ended: list[tuple[int, Callable[[], object]]] = []
        for lane in list(self._lanes.values()):
            # Rates are not whole: what is done within the nanosecond is done.
            reached = lane.served + (now + 1 - lane.at) * lane.rate
            if lane is first:  # however its bytes were rounded, or this would be tried for ever
                reached = max(reached, lane.ends[0][0])
            while lane.ends and lane.ends[0][0] <= reached:
                _, order, arrived = heappop(lane.ends)
                ended.append((order, arrived))
                self._loads.count(lane, -1)
            if not lane.ends:
                del self._lanes[lane.path]
                self._loads.remove(lane)
        self._changed()
        for _, arrived in sorted(ended, key=lambda one: one[0]):
            arrived()


class _Lane:
    """The transfers over one path: as they have the same rate, each ends at a number of bytes served to all."""

    __slots__ = ("at", "ends", "path", "rate", "served", "transfers")

    def __init__(self, path: Path, now: int) -> None:
        self.path = path
        #: How many transfers there are.
        self.transfers = 0
        self.at = now
        #: Bytes that a transfer has been sent that was there from the start, at the instant ``at``.
        self.served = 0.0
        #: Bytes a nanosecond, of each.
        self.rate = 0.0
        #: Bytes served at which a transfer ends, its number, and what is then called.
        self.ends: list[tuple[float, int, Callable[[], object]]] = []

    def advance(self, now: int) -> None:
        self.served += (now - self.at) * self.rate
        self.at = now


class _Loads:
    """Which lanes cross each link, and how many transfers."""

    def __init__(self, links: int) -> None:
        # Dictionaries for their order: that of sets would differ from one process to the next.
        self._crossing: list[dict[_Lane, None]] = [{} for _ in range(links)]
        self._transfers = [0] * links
        #: Links on which transfers could have more if it had: as of the last sharing.
        self.full: set[int] = set()

    def crossing(self, link: int) -> Iterable[_Lane]:
        return self._crossing[link]

    def add(self, lane: _Lane) -> None:
        for link in lane.path:
            self._crossing[link][lane] = None

    def remove(self, lane: _Lane) -> None:
        for link in lane.path:
            del self._crossing[link][lane]

    def count(self, lane: _Lane, change: int) -> None:
        lane.transfers += change
        for link in lane.path:
            self._transfers[link] += change

    def rates(self, capacities: Sequence[float]) -> dict[_Lane, float]:
        """The max-min fair rate of each lane's transfers: none can have more without taking from one that has no more.

        References
        ----------
        Bertsekas and Gallager, Data Networks, 1992, 6.5.2: progressive filling. All rates grow alike until a link is
        full; its transfers keep what they have, the others grow on.
        """
        left, growing = list(capacities), self._transfers.copy()
        # A link's share only grows while others fill up, so that a heap finds the next full link.
        shares = [(left[link] / count, link) for link, count in enumerate(growing) if count]
        heapify(shares)
        rates: dict[_Lane, float] = {}
        self.full.clear()
        level = 0.0
        while shares:
            share, link = shares[0]
            if not growing[link]:
                heappop(shares)
                continue
            now = left[link] / growing[link]
            if now > share:
                heapreplace(shares, (now, link))
                continue
            heappop(shares)
            # What is left is the difference of nearly equal numbers: never let its error take from a share.
            level = max(level, now)
            self.full.add(link)
            for lane in self._crossing[link]:
                if lane not in rates:
                    rates[lane] = level
                    transfers = lane.transfers
                    taken = level * transfers
                    for other in lane.path:
                        left[other] -= taken
                        growing[other] -= transfers
        return rates
