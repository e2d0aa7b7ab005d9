"""Claims: slow workers are found before a job starts, and nobody else is accused; with real and simulated faults.

With 4 workers recall of 0.95 or more, the right cause for 9 in 10 of those found, an accusation in at most
1 of 50 runs in which nothing is wrong, at most 20 s a run; and 1000 workers on 250 hosts in 60 s.

    python -m benchmarks.preflight injected [--repeats 3] [--healthy 50] [--faults NAME ...] [--seed 0] [--torch]
    python -m benchmarks.preflight simulated [--repeats 20] [--seed 0] [--moments 0.03]

``injected`` needs root, for links and disks. It prints each run, then recall, right causes, false accusations and
seconds. A run takes half a minute. With ``--torch`` pairs run an all-reduce and a training step over gloo too, and how
many times as long the victim takes in each is printed; that takes longer than claimed. Run it on a machine that does
nothing else: what others compute takes cores from some worker while it measures itself.

Faults are those of :mod:`benchmarks.worker_bed`, a worker that hangs (``hung``: SIGSTOP), memory that neighbours slow
(``slow-memory``: all other cores stream while the victim measures itself; left out where that does not slow it), and
``trunk``: a slow link between two bridges with two workers on each, where the path is to be named and no worker.

``simulated`` sweeps slowdown and number of workers, and counts accusations among healthy ones and their seconds.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from distributed import Client

import dask_efficiency
from benchmarks import preflight_simulated
from benchmarks.figures import figure
from benchmarks.worker_bed import (
    FAULTS,
    LINK,
    Bed,
    Fault,
    add_bridge,
    add_cable,
    add_host,
    bed,
    lacking,
    pin,
    sh,
    unlike_others,
)
from dask_efficiency.accounts.slow_worker import Cause
from dask_efficiency.preflights.judge.readings import Component
from tests.preflights.simulated import MOMENTS_DIFFER

#: How often it is looked whether the victim measures.
LOOK_SECONDS = 0.01

#: Least slowdown of memory by neighbours; with less, the fault cannot be injected on this machine.
MIN_SLOWDOWN = 1.5

_STREAM = """
import numpy as np
source, target = np.ones(2**24), np.empty(2**24)
while True:
    np.copyto(target, source)
"""

_BANDWIDTH = """
from dask_efficiency.preflights.hardware.host import copies
print(copies(0, 0.3)["value"])
"""


@contextmanager
def _hung(bed: Bed, victim: str) -> Iterator[None]:
    """The process is stopped, and does not answer."""
    pid = bed.member(victim).pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def streaming(cores: set[int]) -> Iterator[list[int]]:
    """Processes that move as many bytes as they can, one on each of these cores, stopped at first."""
    with ExitStack() as stack:
        pids = []
        for core in cores:
            process = subprocess.Popen([sys.executable, "-c", _STREAM])
            stack.callback(process.wait)
            stack.callback(process.kill)
            os.sched_setaffinity(process.pid, {core})
            os.kill(process.pid, signal.SIGSTOP)
            pids.append(process.pid)
        yield pids


def _send(pids: list[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def neighbours_slow_memory() -> float:
    """Slowdown of a core that moves memory while all others do."""
    last, others = _last_core()

    def bandwidth() -> float:
        command = ["taskset", "-c", str(last), sys.executable, "-c", _BANDWIDTH]
        return max(float(sh(*command)) for _ in range(3))

    with streaming(others) as pids:
        alone = bandwidth()
        _send(pids, signal.SIGCONT)
        return alone / bandwidth()


def _last_core() -> tuple[int, set[int]]:
    cores = os.sched_getaffinity(0)
    return max(cores), cores - {max(cores)}


@contextmanager
def _slow_memory(bed: Bed, victim: str) -> Iterator[None]:
    """All other cores stream memory while the victim measures itself, as if they shared a host with it alone.

    It is kept on the last core, where nothing else is put, so that no CPU time is taken from it.
    """
    pid, (last, others) = bed.member(victim).pid, _last_core()
    over = threading.Event()

    def measures() -> bool:
        with suppress(OSError):
            return any(path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children"))
        return False

    with streaming(others) as pids:

        def follow() -> None:
            while not over.wait(LOOK_SECONDS):
                _send(pids, signal.SIGCONT if measures() else signal.SIGSTOP)

        pin(pid, {last})
        thread = threading.Thread(target=follow)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            pin(pid, others | {last})


#: All faults of a worker.
PREFLIGHT_FAULTS = {
    **FAULTS,
    "hung": Fault(Cause.UNRESPONSIVE, _hung),
    "slow-memory": Fault(Cause.MEMORY_BANDWIDTH, _slow_memory),
}


@contextmanager
def slow_trunk(workers: int) -> Iterator[tuple[str, list[str]]]:
    """Network namespaces on two bridges, half of them on each, with a slow link between the bridges."""
    number = unlike_others()
    bridges = [f"dbed{number}a", f"dbed{number}b"]
    links = [f"dbed{number}-{i}" for i in range(workers)]
    ends = [f"dbed{number}t0", f"dbed{number}t1"]
    with ExitStack() as stack:
        for bridge in bridges:
            add_bridge(stack, bridge)
        sh("ip", "addr", "add", f"10.213.{number}.1/24", "dev", bridges[0])
        add_cable(stack, *ends)
        for end, bridge in zip(ends, bridges, strict=True):
            sh("ip", "link", "set", end, "master", bridge, "up")
            sh("tc", "qdisc", "add", "dev", end, "root", "tbf", "rate", LINK, "burst", "32kb", "latency", "400ms")
        for i, link in enumerate(links):
            add_host(stack, link, bridges[i * 2 // workers], f"10.213.{number}.{i + 2}")
        yield f"10.213.{number}.1", links


WORKERS = 4

CLAIMED_RECALL = 0.95
CLAIMED_CAUSES = 0.9
CLAIMED_FALSE = 0.02
CLAIMED_SECONDS = 20.0
TRUNK = "trunk"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run: the fault and its worker (empty for none), the workers found with causes, and slow paths."""

    fault: str
    victim: str
    found: dict[str, Cause]
    paths: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
    seconds: float
    #: Times as long as others that the victim takes, by component measured with torch.
    ratios: dict[str, float]

    @property
    def hit(self) -> bool:
        return bool(self.paths) if self.fault == TRUNK else self.victim in self.found

    @property
    def right(self) -> bool:
        return self.hit and (self.fault == TRUNK or self.found[self.victim] == PREFLIGHT_FAULTS[self.fault].cause)

    @property
    def wrong(self) -> int:
        return len(self.found) - (self.victim in self.found) + (len(self.paths) if self.fault != TRUNK else 0)


#: Components of pairs that need torch, which are options too.
WITH_TORCH = ("collective", "training")


def run(fault: str, victim: str, options: dict[str, str]) -> Outcome:
    """A cluster's life with one preflight; nothing is wrong in it if ``fault`` is empty."""
    with bed(WORKERS, network=slow_trunk if fault == TRUNK else None) as cluster:
        if fault in PREFLIGHT_FAULTS:
            with PREFLIGHT_FAULTS[fault].inject(cluster, victim):
                time.sleep(1.0)
                return _tested(cluster.client, fault, victim, options)
        return _tested(cluster.client, fault, "", options)


def _tested(client: Client, fault: str, victim: str, options: dict[str, str]) -> Outcome:
    began = time.monotonic()
    result = dask_efficiency.preflight(client, device="cpu", **options)
    seconds = time.monotonic() - began
    hosts = {one.host: one.name for one in result.subjects}
    found = {finding.worker or hosts[finding.host]: finding.cause for finding in result.slow_workers}
    paths = tuple((path.first, path.second) for path in result.paths)
    ratios = {name: result.ratios.get(victim, {}).get(Component(name), math.nan) for name in WITH_TORCH if options}
    return Outcome(fault, victim, found, paths, seconds, ratios)


def summary(outcomes: list[Outcome]) -> bool:
    """Print a table of all runs; True if the claims hold."""
    faulty, healthy = [one for one in outcomes if one.fault], [one for one in outcomes if not one.fault]
    lines = [f"{'fault':12} {'found':>7} {'right cause':>12} {'others':>7} {'seconds':>8}"]
    for name in dict.fromkeys(one.fault for one in faulty):
        of = [one for one in faulty if one.fault == name]
        hit, right = sum(one.hit for one in of), sum(one.right for one in of)
        lines.append(
            f"{name:12} {f'{hit}/{len(of)}':>7} {f'{right}/{hit}':>12} {sum(one.wrong for one in of):7} "
            f"{max(one.seconds for one in of):8.1f}"
        )
    hits, right = sum(one.hit for one in faulty), sum(one.right for one in faulty)
    recall, alarms = hits / max(1, len(faulty)), sum(bool(one.wrong) for one in healthy)
    slowest = max((one.seconds for one in outcomes), default=0.0)
    lines.append(
        f"recall {recall:.3f}; right cause {right} of {hits}; others accused with {sum(one.wrong for one in faulty)}"
    )
    lines.append(
        f"false accusations in {alarms} of {len(healthy)} runs without a fault; the slowest took {slowest:.1f} s"
    )
    print("\n".join(["", *lines]))
    return all(
        (
            not faulty or figure("faults found", hits, of=len(faulty), at_least=CLAIMED_RECALL * len(faulty)),
            not hits or figure("right causes", right, of=hits, at_least=CLAIMED_CAUSES * hits),
            figure("healthy runs with an accusation", alarms, of=len(healthy), at_most=CLAIMED_FALSE * len(healthy)),
            figure("the slowest run", slowest, "s", at_most=CLAIMED_SECONDS),
        )
    )


def injected(args: argparse.Namespace) -> bool:
    why = lacking()
    names = []
    for name in args.faults:
        reason = why if name == TRUNK or PREFLIGHT_FAULTS[name].needs_rights else ""
        if name == "slow-memory" and (slowdown := neighbours_slow_memory()) < MIN_SLOWDOWN:
            reason = f"the other cores make memory {slowdown:.2f} times as slow, which is too little"
        if reason:
            print(f"{name:12} is not injected: {reason}")
        else:
            names.append(name)
    plan = [name for _ in range(args.repeats) for name in names] + [""] * args.healthy
    options = {**dict.fromkeys(WITH_TORCH, "gloo"), "timeout": "180s"} if args.torch else {}
    outcomes = []
    for number, fault in enumerate(plan, args.seed):
        one = run(fault, str(number % WORKERS) if fault else "", options)
        outcomes.append(one)
        listed = ", ".join(f"{who}: {cause}" for who, cause in one.found.items()) or "nobody"
        listed += "".join(f"; path {'+'.join(a)} to {'+'.join(b)}" for a, b in one.paths)
        listed += "".join(f"; {name} {ratio:.2f} x" for name, ratio in one.ratios.items() if fault)
        print(f"{fault or 'healthy':12} worker {one.victim or '-'} {one.seconds:6.1f} s  {listed}", flush=True)
    return summary(outcomes)


def simulated(args: argparse.Namespace) -> bool:
    lines, nobody_else = preflight_simulated.sweep(args.repeats, args.seed, args.moments)
    more, alarms = preflight_simulated.healthy(25 * args.repeats, args.seed, args.moments)
    text, in_time = preflight_simulated.at_scale()
    print("\n".join([*lines, *more, text]))
    healthy = 25 * args.repeats
    kept = figure("healthy runs with an accusation", alarms, of=healthy, at_most=CLAIMED_FALSE * healthy)
    kept &= figure("sweeps in which somebody else is accused", int(not nobody_else), at_most=0)
    return figure("1000 workers in time", int(in_time), at_least=1) and kept


def main() -> int:
    """Run one part; 1 where a claim does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("injected", "simulated"))
    every = [*PREFLIGHT_FAULTS, TRUNK]
    parser.add_argument("--faults", nargs="+", choices=every, default=every)
    parser.add_argument("--repeats", type=int, help="of each fault, or of each cell of the sweep")
    parser.add_argument("--healthy", type=int, default=50, help="runs without a fault")
    parser.add_argument("--seed", type=int, default=0, help="of the first run; it chooses the victims")
    parser.add_argument("--torch", action="store_true", help="pairs run an all-reduce and a training step too")
    parser.add_argument("--moments", type=float, default=MOMENTS_DIFFER, help="how much simulated repetitions differ")
    args = parser.parse_args()
    args.repeats = args.repeats if args.repeats is not None else (3 if args.part == "injected" else 20)
    holds = injected(args) if args.part == "injected" else simulated(args)
    print("the claims hold" if holds else "a claim does not hold")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
