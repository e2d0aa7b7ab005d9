"""Max-min fair sharing of links by transfers, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from math import ceil

from dask_efficiency.simulation.model.events import EventHeap

#: Positions of the links that a transfer crosses.
Path = tuple[int, ...]


class SharedLinks:
    """Links that transfers share, in virtual time; capacities are in bytes a second, above 0."""

    def __init__(self, clock: EventHeap, capacities: Sequence[float]) -> None:
        self._clock = clock
        self._capacities = [capacity / 1e9 for capacity in capacities]
        self._loads = _Loads(len(capacities))
        self._lanes: dict[Path, _Lane] = {}
        self._started = 0
        #: Number of times that the rates were computed.
        self.sharings = 0
        self._to_share = False

    def start(self, path: Path, nbytes: int, arrived: Callable[[], object]) -> None:
        """Start to send bytes over these links."""
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
        """Bytes that wait to cross a full link; 0 for one that is not full."""
        if link not in self._loads.full:
            return 0.0
        now = self._clock.now
        left = 0.0
        for lane in self._loads.crossing[link]:
            served = lane.served + (now - lane.at) * lane.rate
            left += sum(end - served for end, _, _ in lane.ends)
        return max(left, 0.0)

    def _changed(self) -> None:
        # Once for all changes of an instant.
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
            # Relative to now, as large instants lose their fractions.
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
            # Rates are fractions: a transfer that ends within this nanosecond has ended.
            reached = lane.served + (now + 1 - lane.at) * lane.rate
            if lane is first:  # it ends now, however its bytes were rounded, or this would repeat for ever
                reached = max(reached, lane.ends[0][0])
            while lane.ends and lane.ends[0][0] <= reached:
                _, order, arrived = heappop(lane.ends)
                ended.append((order, arrived))
                self._loads.count(lane, -1)
            if not lane.ends:
                del self._lanes[lane.path]
                self._loads.remove(lane)
        self._changed()
        for _, arrived in sorted(ended, key=lambda flow: flow[0]):
            arrived()


class _Lane:
    """Transfers over one path: they have the same rate, so each ends at a number of bytes that is served to all."""

    __slots__ = ("at", "ends", "path", "rate", "served", "transfers")

    def __init__(self, path: Path, now: int) -> None:
        self.path = path
        #: Number of transfers.
        self.transfers = 0
        self.at = now
        #: Bytes that a transfer from the beginning would have sent by the instant ``at``.
        self.served = 0.0
        #: Bytes a nanosecond of each transfer.
        self.rate = 0.0
        #: By transfer: bytes served at which it ends, its number, and the function to call then.
        self.ends: list[tuple[float, int, Callable[[], object]]] = []

    def advance(self, now: int) -> None:
        self.served += (now - self.at) * self.rate
        self.at = now


class _Loads:
    """Lanes and numbers of transfers that cross each link."""

    def __init__(self, links: int) -> None:
        # Dictionaries, for their order: that of sets differs between processes.
        self.crossing: list[dict[_Lane, None]] = [{} for _ in range(links)]
        self._transfers = [0] * links
        #: Links that limit some transfer, as of the last sharing.
        self.full: set[int] = set()

    def add(self, lane: _Lane) -> None:
        for link in lane.path:
            self.crossing[link][lane] = None

    def remove(self, lane: _Lane) -> None:
        for link in lane.path:
            del self.crossing[link][lane]

    def count(self, lane: _Lane, change: int) -> None:
        lane.transfers += change
        for link in lane.path:
            self._transfers[link] += change

    def rates(self, capacities: Sequence[float]) -> dict[_Lane, float]:
        """Compute the max-min fair rates: no transfer can have more without taking from one that has no more than it.

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
            # The rest is a difference of nearly equal numbers: its error must not reduce a share.
            level = max(level, now)
            self.full.add(link)
            for lane in self.crossing[link]:
                if lane not in rates:
                    rates[lane] = level
                    transfers = lane.transfers
                    taken = level * transfers
                    for other in lane.path:
                        left[other] -= taken
                        growing[other] -= transfers
        return rates
