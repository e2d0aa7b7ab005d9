"""Are slow workers found before a job starts, and is nobody else accused? With faults really injected, and simulated.

The claims: with 4 workers recall of 0.95 or more, the right cause for 9 in 10 of those found, an accusation in at most
1 of 50 runs in which nothing is wrong, at most 20 s a run; and 1000 workers on 250 hosts in 60 s.

    python -m benchmarks.preflight injected [--repeats 3] [--healthy 50] [--faults NAME ...] [--seed 0]
    python -m benchmarks.preflight simulated [--repeats 20]

``injected`` needs root, for links and disks. It prints each run, then recall, right causes, false accusations and
seconds, and beside it what DLRover's rule makes of the same measurements. A run takes half a minute. Run it on a
machine that does nothing else: what others compute takes cores from some worker while it measures itself.

Faults are those of ``stragglers_bed``, a worker that hangs (``hung``: SIGSTOP), memory that neighbours slow
(``slow-memory``: all other cores stream while the victim measures itself; left out where that does not slow it), and
``trunk``: a slow link between two bridges with two workers on each, where the path is to be named and no worker.

``simulated`` sweeps slowdown and number of workers, and counts accusations among healthy ones.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass

from distributed import Client

import dask_efficiency
from benchmarks import preflight_simulated
from benchmarks.preflight_bed import MIN_SLOWDOWN, PREFLIGHT_FAULTS, neighbours_slow_memory, slow_trunk
from benchmarks.preflight_rivals import gated, node_check
from benchmarks.stragglers_bed import bed, lacking
from dask_efficiency.accounts.slow_worker import Cause
from dask_efficiency.preflights.judge.components import Component

WORKERS = 4

CLAIMED_RECALL = 0.95
CLAIMED_CAUSES = 0.9
CLAIMED_FALSE = 0.02
CLAIMED_SECONDS = 20.0
TRUNK = "trunk"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one run: the fault and its worker (empty for none), who was found and why, slow paths, and DLRover's view."""

    fault: str
    victim: str
    found: dict[str, Cause]
    paths: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
    dlrover: frozenset[str]
    seconds: float

    @property
    def hit(self) -> bool:
        """Whether what is wrong was found."""
        return bool(self.paths) if self.fault == TRUNK else self.victim in self.found

    @property
    def right(self) -> bool:
        """Whether its cause is right too."""
        return self.hit and (self.fault == TRUNK or self.found[self.victim] == PREFLIGHT_FAULTS[self.fault].cause)

    @property
    def wrong(self) -> int:
        """How many others were accused, paths included."""
        return len(self.found) - (self.victim in self.found) + (len(self.paths) if self.fault != TRUNK else 0)


def run(fault: str, victim: str) -> Outcome:
    """A cluster's life with one preflight; nothing is wrong in it if ``fault`` is empty."""
    with bed(WORKERS, network=slow_trunk if fault == TRUNK else None) as cluster:
        if fault in PREFLIGHT_FAULTS:
            with PREFLIGHT_FAULTS[fault].inject(cluster, victim):
                time.sleep(1.0)
                return _tested(cluster.client, fault, victim)
        return _tested(cluster.client, fault, "")


def _tested(client: Client, fault: str, victim: str) -> Outcome:
    began = time.monotonic()
    result = dask_efficiency.preflight(client, device="cpu")
    seconds = time.monotonic() - began
    hosts = {one.host: one.name for one in result.subjects}
    found = {finding.worker or hosts[finding.host]: finding.cause for finding in result.slow_workers}
    times = {
        name: [
            max([ratios.get(component, 1.0) for component in components])
            for components in ((Component.CPU, Component.CPU_ALL), (Component.SEND, Component.RECEIVE))
        ]
        for name, ratios in result.ratios.items()
        if ratios
    }
    compute, network = ({name: of[i] for name, of in times.items()} for i in range(2))
    dlrover = node_check(sorted(times), gated(compute, network)) if times else set()
    paths = tuple((path.one, path.other) for path in result.paths)
    return Outcome(fault, victim, found, paths, frozenset(dlrover), seconds)


def summary(outcomes: list[Outcome]) -> tuple[str, bool]:
    """What the runs say together, and whether the claims hold."""
    faulty, healthy = [one for one in outcomes if one.fault], [one for one in outcomes if not one.fault]
    lines = [f"{'fault':12} {'found':>7} {'right cause':>12} {'others':>7} {'seconds':>8} {'DLRover':>8}"]
    for name in dict.fromkeys(one.fault for one in faulty):
        of = [one for one in faulty if one.fault == name]
        hit, right = sum(one.hit for one in of), sum(one.right for one in of)
        theirs = sum(one.victim in one.dlrover for one in of) if name != TRUNK else 0
        lines.append(
            f"{name:12} {f'{hit}/{len(of)}':>7} {f'{right}/{hit}':>12} {sum(one.wrong for one in of):7} "
            f"{max(one.seconds for one in of):8.1f} {f'{theirs}/{len(of)}':>8}"
        )
    hits, right = sum(one.hit for one in faulty), sum(one.right for one in faulty)
    recall, alarms = hits / max(1, len(faulty)), sum(bool(one.wrong) for one in healthy)
    slowest = max((one.seconds for one in outcomes), default=0.0)
    theirs = sum(bool(one.dlrover - {one.victim}) for one in outcomes)
    lines.append(
        f"recall {recall:.3f}; right cause {right} of {hits}; others accused with {sum(one.wrong for one in faulty)}"
    )
    lines.append(
        f"false accusations in {alarms} of {len(healthy)} runs without a fault; the slowest took {slowest:.1f} s"
    )
    lines.append(f"DLRover's rule accused somebody healthy in {theirs} of {len(outcomes)} runs")
    holds = not faulty or (recall >= CLAIMED_RECALL and right >= CLAIMED_CAUSES * hits)
    return "\n".join(lines), holds and alarms <= CLAIMED_FALSE * len(healthy) and slowest <= CLAIMED_SECONDS


def injected(args: argparse.Namespace) -> bool:
    """Inject, print and count."""
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
    outcomes = []
    for number, fault in enumerate(plan, args.seed):
        one = run(fault, str(number % WORKERS) if fault else "")
        outcomes.append(one)
        said = ", ".join(f"{who}: {cause}" for who, cause in one.found.items()) or "nobody"
        said += "".join(f"; path {'+'.join(a)} to {'+'.join(b)}" for a, b in one.paths)
        theirs = ", ".join(sorted(one.dlrover)) or "nobody"
        print(
            f"{fault or 'healthy':12} worker {one.victim or '-'} {one.seconds:6.1f} s  {said}; DLRover {theirs}",
            flush=True,
        )
    text, holds = summary(outcomes)
    print(f"\n{text}")
    return holds


def simulated(args: argparse.Namespace) -> bool:
    """Sweep and count."""
    lines, nobody_else = preflight_simulated.sweep(args.repeats)
    more, alarms = preflight_simulated.healthy(25 * args.repeats)
    text, in_time = preflight_simulated.at_scale()
    print("\n".join([*lines, *more, text]))
    return nobody_else and in_time and alarms <= CLAIMED_FALSE * 25 * args.repeats


def main() -> int:
    """Run one part; 1 where a claim does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("injected", "simulated"))
    every = [*PREFLIGHT_FAULTS, TRUNK]
    parser.add_argument("--faults", nargs="+", choices=every, default=every)
    parser.add_argument("--repeats", type=int, help="of each fault, or of each cell of the sweep")
    parser.add_argument("--healthy", type=int, default=50, help="runs without a fault")
    parser.add_argument("--seed", type=int, default=0, help="of the first run; it chooses the victims")
    args = parser.parse_args()
    args.repeats = args.repeats if args.repeats is not None else (3 if args.part == "injected" else 20)
    holds = injected(args) if args.part == "injected" else simulated(args)
    print("the claims hold" if holds else "a claim does not hold")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
