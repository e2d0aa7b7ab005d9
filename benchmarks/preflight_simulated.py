"""A preflight of workers that are made up, in time that is skipped: detection, and how long it takes at a scale.

The scheduler's side is the real one; the workers are those of :mod:`tests.preflights.simulated`.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterable
from random import Random
from statistics import median

from dask_efficiency.preflights.judge.readings import Subject
from dask_efficiency.preflights.judge.result import PreflightResult
from dask_efficiency.preflights.scheduler.plan import Candidate, Plan
from dask_efficiency.preflights.scheduler.preflight import Preflight
from tests.preflights.simulated import MOMENTS_DIFFER, SimulatedLoop, Workers

#: Healthy clusters of each size.
SIZED = 5


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
