"""Workers that are made up, and an event loop whose time is skipped, for a preflight in no time.

Workers answer by a model: each component takes as long as is usual, times a factor of the worker that is near 1
(healthy machines of one kind differ by 2 %), times one of the moment (3 %, or 10 % on busy machines).
"""

from __future__ import annotations

import asyncio
import math
import selectors
import time
from collections.abc import Mapping
from random import Random
from types import SimpleNamespace
from typing import Any

from dask_efficiency.plugin import names
from dask_efficiency.preflights.hardware.host import REPEATS

#: How much healthy workers differ, and one measurement from the next, as standard deviations of logarithms.
WORKERS_DIFFER = 0.02
MOMENTS_DIFFER = 0.03

#: Readings of a healthy worker, and seconds for a byte and for a round trip between two.
RATES = {"cpu": 3e10, "cpu_all": 6e10, "memory_bandwidth": 1e10, "disk": 3e8, "python": 5e6}
BYTE, ROUND_TRIP = 1e-9, 4e-4

#: Seconds that a real worker takes to start its process, and to measure itself with all repetitions.
START_SECONDS = 0.3
ALONE_SECONDS = 2.4

#: Seconds that a real pair takes to begin, and for each repetition.
MEET_SECONDS = 0.2
PAIR_SECONDS = 0.2

#: Seconds of the scheduler's own messages.
MESSAGE_SECONDS = 0.002


class _Skipping(selectors.DefaultSelector):
    """Waits for nothing: the time until the next timer is skipped."""

    skipped = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout:
            self.skipped += timeout
        return ready


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop in which waiting takes no time, and computing as long as it does."""

    def __init__(self) -> None:
        self._skipping = _Skipping()
        self._start = time.thread_time()
        super().__init__(self._skipping)

    def time(self) -> float:
        return time.thread_time() - self._start + self._skipping.skipped


class Workers:
    """Workers that answer a preflight.

    Parameters
    ----------
    hosts
        Worker to its host.
    slow
        Worker to component to how many times as long it takes; ``send`` stands for the network both ways, and infinity
        for a worker that hangs.
    random
        Decides.
    moments
        How much one repetition differs from the next, as a standard deviation of logarithms.
    """

    def __init__(
        self,
        hosts: Mapping[str, str],
        slow: Mapping[str, Mapping[str, float]],
        random: Random,
        moments: float = MOMENTS_DIFFER,
    ) -> None:
        self.hosts = hosts
        #: Workers as the scheduler has them.
        self.present: dict[str, Any] = {worker: SimpleNamespace(processing=set()) for worker in hosts}
        self._moments = moments
        self._slow = slow
        self._random = random
        self._factors = {worker: {name: self._near(WORKERS_DIFFER) for name in (*RATES, "send")} for worker in hosts}

    def _near(self, spread: float) -> float:
        return math.exp(self._random.gauss(0.0, spread))

    def seconds(self, worker: str, component: str) -> float:
        """Slowdown of a worker for a component, in this measurement."""
        factor = self._slow.get(worker, {}).get(component, 1.0)
        return factor * self._factors[worker][component] * self._near(self._moments)

    async def ask(self, address: str, step: dict[str, Any], seconds: float) -> Any:
        await asyncio.sleep(MESSAGE_SECONDS)
        if math.inf in self._slow.get(address, {}).values():
            await asyncio.sleep(seconds)
            raise TimeoutError
        if step["step"] == names.READY:
            return {"machine": self.hosts[address]}
        repeats = step.get("repeats", REPEATS)
        if step["step"] == names.MEASURE:
            share = len(step["components"]) / len(RATES) * repeats / REPEATS
            await asyncio.sleep(START_SECONDS + ALONE_SECONDS * share)
            return {"measured": {name: self._reading(address, name, repeats) for name in step["components"]}}
        await asyncio.sleep(MEET_SECONDS + PAIR_SECONDS * repeats)
        both = (address, step["partner"])
        ways = [[max(self.seconds(worker, "send") for worker in both) for _ in range(repeats)] for _ in range(2)]
        found = {name: BYTE * min(way) for name, way in zip(("send", "receive"), ways, strict=True)}
        return {**found, "latency": ROUND_TRIP}

    def _reading(self, worker: str, component: str, repeats: int) -> dict[str, Any]:
        took = [self.seconds(worker, component) for _ in range(repeats)]
        return {"value": RATES[component] / min(took), "share": 1.0, "count": repeats}
