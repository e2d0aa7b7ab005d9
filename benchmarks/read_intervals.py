"""Claim: stragglers are found, only later, where each worker's heartbeats are read every second, third or fourth time.

Workers whose heartbeats come 6 s apart, as those of a thousand do, run tasks of a few prefixes by a fake clock. One
becomes slower; the command prints in how many of the runs it is named, after how long, and whom else the watch names.
There is nothing to choose here: all settings are the watch's own, and were made elsewhere.

``python -m benchmarks.read_intervals [--workers N] [--runs N] [--task-seconds S]``
"""

from __future__ import annotations

import argparse
import statistics
import sys
from dataclasses import dataclass

import numpy as np

from benchmarks.figures import figure
from dask_efficiency.accounts.wire.heartbeats import REPEATS
from dask_efficiency.plugin.scheduler.straggler_watch import POLL_SECONDS
from dask_efficiency.straggler.online import StragglerWatch
from dask_efficiency.straggler.task_rates import (
    MissedRates,
    ReceivedRates,
    TaskRateCounter,
    TaskRateWriter,
    read_task_rates,
)

SEED = 71_000
HEARTBEAT_SECONDS = 6.0
PREFIXES = 4
ONSET_SECONDS = 240.0
STOP_SECONDS = 900.0
SLOWNESS = (1.0, 1.15, 1.3, 1.5, 2.0)

#: The slowness that the claim is about.
HALF_SLOWER = 1.5
#: The victim.
VICTIM = "0"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Seconds from the onset until the victim was named (None: never), and how often somebody else was."""

    seconds: float | None
    alarms: int


class Worker:
    """Runs one task after the other on each thread, and makes heartbeats."""

    def __init__(self, number: int, random: np.random.Generator, task_seconds: float, slowness: float) -> None:
        self.name = str(number)
        self._random = random
        self._task_seconds = task_seconds
        self._slowness = slowness if self.name == VICTIM else 1.0
        self._own = float(random.lognormal(0, 0.02))
        self._counter = TaskRateCounter()
        self._writer = TaskRateWriter()
        self._free_at = random.uniform(0, task_seconds, 2)
        self._process = np.zeros(5)
        self.next_heartbeat = float(random.uniform(0, HEARTBEAT_SECONDS))
        self.beats = int(random.integers(REPEATS))
        self.received: ReceivedRates | None = None

    def heartbeat(self) -> dict[str, object]:
        """The heartbeat that is due at :attr:`next_heartbeat`; sets the next one."""
        at = self.next_heartbeat
        cpu = 0.0
        for thread, free_at in enumerate(self._free_at):
            while free_at <= at:
                prefix = int(self._random.integers(PREFIXES))
                slowness = self._slowness if free_at > ONSET_SECONDS else 1.0
                spread = float(self._random.lognormal(0, 0.3))
                took = self._task_seconds * (1 + prefix) / 2 * spread * self._own * slowness
                self._counter.task(f"step-{prefix}", wall=round(took * 1e9), cpu=round(took * 0.9e9), nbytes=1e6)
                cpu += 0.9 * took
                free_at += took
            self._free_at[thread] = free_at
        self._process += (0.0, 0.0, 0.02 * HEARTBEAT_SECONDS, cpu + 0.1, cpu)
        self.next_heartbeat += HEARTBEAT_SECONDS + float(self._random.normal(0, 0.02))
        self.beats += 1
        return self._writer.heartbeat(self._counter, self._process.tolist())

    def read(self, payload: dict[str, object], watch: StragglerWatch, at: float) -> None:
        found = read_task_rates(payload, "ledger", self.received)
        if isinstance(found, MissedRates):
            raise RuntimeError(f"worker {self.name} cannot be read at {at} s")
        self.received = found
        watch.receive(self.name, found.rates, at=round(at * 1e9), held=1e8, lag=0.02)


def run(seed: int, workers: int, every: int, slowness: float, task_seconds: float) -> Outcome:
    random = np.random.default_rng([seed, workers])
    watch = StragglerWatch()
    members = [Worker(number, random, task_seconds, slowness) for number in range(workers)]
    for member in members:
        watch.joined(member.name, host=f"host-{member.name}", group=1, at=0)
    seconds, alarms = None, 0
    for at in np.arange(POLL_SECONDS, STOP_SECONDS, POLL_SECONDS).tolist():
        for member in members:
            if member.next_heartbeat <= at:
                payload = member.heartbeat()
                if member.beats % every == 0 or member.received is None:
                    member.read(payload, watch, at)
        interval = HEARTBEAT_SECONDS * max(2, every)
        change = watch.poll(at=round(at * 1e9), now=1e9 + at, interval_seconds=interval)
        for finding in change.found:
            if finding.worker == VICTIM and slowness > 1 and at > ONSET_SECONDS:
                seconds = at - ONSET_SECONDS if seconds is None else seconds
            else:
                alarms += 1
    return Outcome(seconds, alarms)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=100)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--task-seconds", type=float, default=2.0)
    given = parser.parse_args()
    print(f"{given.workers} workers of two threads, tasks of {given.task_seconds:g} s, {given.runs} runs each")
    half: dict[int, list[Outcome]] = {}
    others = 0
    print("slower by   every   named   seconds until then (least to most)   others named")
    for slowness in SLOWNESS:
        for every in range(1, REPEATS + 1):
            outcomes = [
                run(SEED + number, given.workers, every, slowness, given.task_seconds) for number in range(given.runs)
            ]
            named = sorted(outcome.seconds for outcome in outcomes if outcome.seconds is not None)
            took = f"{statistics.median(named):6.0f} ({named[0]:.0f} to {named[-1]:.0f})" if named else "     -"
            others += sum(outcome.alarms for outcome in outcomes)
            if slowness == HALF_SLOWER:
                half[every] = outcomes
            alarms = sum(outcome.alarms for outcome in outcomes)
            print(f"{slowness - 1:8.0%} {every:8} {len(named):5}/{given.runs:<4} {took:34} {alarms:5}", flush=True)
    holds = True
    for every, outcomes in half.items():
        seconds = [outcome.seconds for outcome in outcomes if outcome.seconds is not None]
        holds &= figure(f"50 % slower named, every {every}", len(seconds), of=len(outcomes), at_least=len(outcomes))
        if seconds:
            figure(f"seconds until then, every {every}", sorted(seconds))
    figure("others named", others)
    return int(not holds)


if __name__ == "__main__":
    sys.exit(main())
