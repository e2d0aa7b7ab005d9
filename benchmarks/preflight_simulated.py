"""A preflight of workers that are made up, in time that is skipped: detection, and how long it takes at a scale.

The scheduler's side is the real one. Workers answer by a model: each component takes as long as is usual, times a
factor of the worker that is near 1 (healthy machines of one kind differ by 2 %), times one of the moment (3 %, or 10 %
on busy machines).
"""

from __future__ import annotations

import asyncio
import math
import selectors
import time
from collections.abc import Iterable, Mapping
from random import Random
from statistics import median
from types import SimpleNamespace
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

#: Seconds that a real worker takes to start its process, and to measure itself with all repetitions.
START_SECONDS = 0.3
ALONE_SECONDS = 2.4

#: Seconds that a real pair takes to begin, and for each repetition.
MEET_SECONDS = 0.2
PAIR_SECONDS = 0.2

#: Healthy clusters of each size.
SIZED = 5

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


def tested(workers: Workers, seed: int) -> PreflightResult:
    """The result of a preflight of these workers; its ``seconds`` are those that it would take."""
    candidates = [Candidate(Subject(worker, worker, host)) for worker, host in workers.hosts.items()]
    preflight = Preflight(Plan("simulated"), candidates, workers.ask, workers.present, Random(seed))
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        began = runner.get_loop().time()
        runner.run(preflight.run())
        took = runner.get_loop().time() - began
    links = tuple(link for of_group in preflight.links.values() for link in of_group)
    return PreflightResult(tuple(one.subject for one in preflight.workers), links, 0.0, took)


def sweep(repeats: int, seed: int = 0, moments: float = MOMENTS_DIFFER) -> tuple[list[str], bool]:
    """Detection by slowdown and number of workers; True where nobody healthy was accused."""
    lines = ["component  slowdown  workers   found  others accused"]
    wrong = 0
    for component in ("cpu", "send"):
        for slowdown in (1.2, 1.3, 1.4, 1.5, 2.0, 3.0, 5.0):
            for number in (2, 3, 4, 5, 6, 8, 16):
                hits, others = detected(component, slowdown, number, range(seed, seed + repeats), moments)
                wrong += others
                lines.append(
                    f"{component:10} {slowdown:7.1f}x {number:8} {hits / repeats:7.2f} {others / repeats:15.2f}"
                )
    return lines, wrong == 0


def detected(component: str, slowdown: float, number: int, seeds: Iterable[int], moments: float) -> tuple[int, int]:
    """Tests that name a worker that is slow in a component, and others that are named."""
    hits = others = 0
    for seed in seeds:
        random = Random(f"{component} {slowdown} {number} {seed}")
        hosts = {f"w{i}": f"h{i}" for i in range(number)}
        victim = random.choice(list(hosts))
        workers = Workers(hosts, {victim: {component: slowdown}}, random, moments)
        found = {finding.worker for finding in tested(workers, seed).slow_workers}
        hits += victim in found
        others += len(found - {victim})
    return hits, others


def healthy(repeats: int, seed: int = 0, moments: float = MOMENTS_DIFFER) -> tuple[list[str], int]:
    """Accusations among healthy workers, and seconds of a test of 4 on one machine, and of 64 and 1000, 4 on each."""
    alarms = 0
    for number in range(seed, seed + repeats):
        hosts = {f"w{i}": f"h{i}" for i in range(4 + number % 13)}
        alarms += bool(tested(Workers(hosts, {}, Random(number), moments), number).findings)
    lines = [f"healthy: somebody accused in {alarms} of {repeats} runs"]
    for workers, hosts in ((4, 1), (4, 4), (64, 16), (1000, 250)):
        at = {f"w{i}": f"h{i % hosts}" for i in range(workers)}
        runs = [tested(Workers(at, {}, Random(f"{seed} {i}"), moments), seed + i) for i in range(SIZED)]
        accused = sum(bool(run.findings) for run in runs)
        lines.append(
            f"healthy: {workers} on {hosts} hosts take {median(run.seconds for run in runs):.1f} s, "
            f"at most {max(run.seconds for run in runs):.1f} s; somebody accused in {accused} of {SIZED} runs"
        )
        alarms += accused
    return lines, alarms


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
