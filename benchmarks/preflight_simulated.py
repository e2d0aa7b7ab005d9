"""A preflight of workers that are made up, in time that is skipped: detection, and how long it takes at a scale.

The scheduler's side is the real one. Workers answer by a model: each component takes as long as is usual, times a
factor of the worker that is near 1 (healthy machines of one kind differ by 2 %), times one of the moment (3 %).
"""

from __future__ import annotations

import asyncio
import math
import selectors
import time
from collections.abc import Mapping
from random import Random
from typing import Any

from dask_efficiency.plugin import names
from dask_efficiency.preflights.hardware.host import REPEATS
from dask_efficiency.preflights.judge.readings import Subject
from dask_efficiency.preflights.judge.result import PreflightResult
from dask_efficiency.preflights.scheduler.plan import Candidate, Plan
from dask_efficiency.preflights.scheduler.preflight import Preflight

#: How much healthy workers differ, and one measurement from the next, as standard deviations of logarithms.
WORKERS_DIFFER = 0.02
MOMENTS_DIFFER = 0.03

#: Readings of a healthy worker, and seconds for a byte and for a round trip between two.
RATES = {"cpu": 3e10, "cpu_all": 6e10, "memory_bandwidth": 1e10, "disk": 3e8, "python": 5e6}
BYTE, ROUND_TRIP = 1e-9, 4e-4

#: Seconds that a real worker takes to measure itself, beside the start of its process, and a real pair.
START_SECONDS = 0.3
ALONE_SECONDS = 2.4
PAIR_SECONDS = 0.8

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
    """

    def __init__(self, hosts: Mapping[str, str], slow: Mapping[str, Mapping[str, float]], random: Random) -> None:
        self.hosts = hosts
        self._slow = slow
        self._random = random
        self._factors = {worker: {name: self._near(WORKERS_DIFFER) for name in (*RATES, "send")} for worker in hosts}

    def _near(self, spread: float) -> float:
        return math.exp(self._random.gauss(0.0, spread))

    def seconds(self, worker: str, component: str) -> float:
        """Slowdown of a worker for a component, in this measurement."""
        factor = self._slow.get(worker, {}).get(component, 1.0)
        return factor * self._factors[worker][component] * self._near(MOMENTS_DIFFER)

    async def ask(self, address: str, step: dict[str, Any], seconds: float) -> Any:
        await asyncio.sleep(MESSAGE_SECONDS)
        if math.inf in self._slow.get(address, {}).values():
            await asyncio.sleep(seconds)
            raise TimeoutError
        if step["step"] == names.READY:
            return {"machine": self.hosts[address]}
        if step["step"] == names.MEASURE:
            repeats = step.get("repeats", REPEATS)
            share = len(step["components"]) / len(RATES) * repeats / REPEATS
            await asyncio.sleep(START_SECONDS + ALONE_SECONDS * share)
            return {
                "measured": {
                    name: {
                        "value": RATES[name] / min(self.seconds(address, name) for _ in range(repeats)),
                        "share": 1.0,
                        "count": repeats,
                        "range": 1.7 * MOMENTS_DIFFER,
                    }
                    for name in step["components"]
                }
            }
        await asyncio.sleep(PAIR_SECONDS)
        both = [max(self.seconds(worker, "send") for worker in (address, step["partner"])) for _ in range(2)]
        return {"send": BYTE * both[0], "receive": BYTE * both[1], "latency": ROUND_TRIP}


def tested(workers: Workers, seed: int) -> PreflightResult:
    """The result of a preflight of these workers; its ``seconds`` are those that it would take."""
    subjects = [Subject(worker, worker, host) for worker, host in workers.hosts.items()]
    preflight = Preflight(Plan("simulated"), [Candidate(one) for one in subjects], workers.ask, random=Random(seed))
    loop = SimulatedLoop()
    try:
        began = loop.time()
        loop.run_until_complete(preflight.run())
        took = loop.time() - began
    finally:
        loop.close()
    links = tuple(link for of_group in preflight.links.values() for link in of_group)
    return PreflightResult(tuple(one.subject for one in preflight.workers), links, 0.0, took)


def sweep(repeats: int) -> tuple[list[str], bool]:
    """Detection by slowdown and number of workers; True where nobody healthy was accused."""
    lines = ["component  slowdown  workers   found  others accused"]
    wrong = 0
    for component in ("cpu", "send"):
        for slowdown in (1.2, 1.3, 1.4, 1.5, 2.0, 3.0, 5.0):
            for number in (2, 3, 4, 5, 6, 8, 16):
                hits = others = 0
                for seed in range(repeats):
                    random = Random(f"{component} {slowdown} {number} {seed}")
                    hosts = {f"w{i}": f"h{i}" for i in range(number)}
                    victim = random.choice(list(hosts))
                    workers = Workers(hosts, {victim: {component: slowdown}}, random)
                    found = {finding.worker for finding in tested(workers, seed).slow_workers}
                    hits += victim in found
                    others += len(found - {victim})
                wrong += others
                lines.append(
                    f"{component:10} {slowdown:7.1f}x {number:8} {hits / repeats:7.2f} {others / repeats:15.2f}"
                )
    return lines, wrong == 0


def healthy(repeats: int) -> tuple[list[str], int]:
    alarms = 0
    for seed in range(repeats):
        hosts = {f"w{i}": f"h{i}" for i in range(4 + seed % 13)}
        found = tested(Workers(hosts, {}, Random(seed)), seed)
        alarms += bool(found.findings)
    return [f"healthy: somebody accused in {alarms} of {repeats} runs"], alarms


def at_scale(workers: int = 1000, hosts: int = 250) -> tuple[str, bool]:
    """Seconds and the scheduler's CPU time of a test of many workers; True if it names the slow ones in time."""
    names_of = {f"w{i}": f"h{i % hosts}" for i in range(workers)}
    slow = {"w7": {"cpu": 1.5}, "w300": {"disk": 3.0}, "w500": {"send": 2.0}, "w900": {"cpu": math.inf}}
    began = time.thread_time()
    found = tested(Workers(names_of, slow, Random(1)), 1)
    cpu = time.thread_time() - began
    named = {finding.worker for finding in found.slow_workers}
    alone = sum(bool(one.readings) for one in found.subjects)
    rounds = 2 * len(found.links) / workers
    text = (
        f"{workers} workers on {hosts} hosts: {found.seconds:.1f} s, of which {cpu:.1f} s are computed here; "
        f"{alone} tested alone, {rounds:.1f} pairs each; named {', '.join(sorted(named)) or 'nobody'}, "
        f"expected {', '.join(sorted(slow))}"
    )
    return text, named == set(slow) and found.seconds <= 60
