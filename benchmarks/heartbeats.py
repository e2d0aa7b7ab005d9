"""Claim: with 50 active prefixes a heartbeat takes 5 kB or less, and 6.5 kB or less with a GPU.

``python -m benchmarks.heartbeats`` makes a worker of four threads that has run for an hour, lets its heartbeats, half a
second apart, reach the scheduler's accounts, and prints for 10, 50 and 100 prefixes, where all change and where three
do, with a GPU of 50 kernels of 190 characters and without:

- bytes as msgpack, of those that tell what changed and of those that tell everything (one of 128);
- microseconds to make them, to read them (decoding and checking), to book what was read, and to read the task rates
  for stragglers: the median of heartbeats that differ, as they come, and the twentieth part, which is what an idle
  machine takes.

It exits with 1 if the sizes are not as claimed. Times are printed only; the goal is 40 us to read and book one.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any

import msgpack

from benchmarks.figures import figure
from dask_efficiency.accounts.buckets import CAUSES, Bucket, fit_causes
from dask_efficiency.accounts.cluster.cluster import ClusterLedger
from dask_efficiency.accounts.gpu import DeviceTotals, GpuTotals, KernelTotals
from dask_efficiency.accounts.wire.heartbeats import EVERYTHING, HeartbeatWriter, read
from dask_efficiency.accounts.wire.snapshots import Snapshot, SnapshotCauses
from dask_efficiency.accounts.worker.balance import Balance, Outcome
from dask_efficiency.accounts.worker.ledger import Ledger
from dask_efficiency.straggler.task_rates import (
    ReceivedRates,
    RunningTask,
    TaskRateCounter,
    TaskRateWriter,
    read_task_rates,
)

CLAIMED_BYTES = 5_000
CLAIMED_GPU_BYTES = 6_500
GOAL_US = 40.0

THREADS = 4
INTERVAL_NS = 500_000_000
AGE_NS = 3600 * 10**9
SENDERS = 16
KERNELS = 50

#: Prefixes, and how many of them change from one heartbeat to the next.
SCENES = ((10, 3), (10, 10), (50, 3), (50, 50), (100, 3), (100, 100))

INCARNATION = "5f2a9c1e8d3b4f6a9e7c1b2d3f4a5c6e"
PREFIXES = ("read-parquet", "merge-chunk", "shuffle-transfer", "getitem", "assign", "groupby-aggregate", "sum-tree")
OUTSIDE = ("get-data", "gather-dep: network", "gather-dep: deserialize", "CPU of other threads")
DETAILS = ("thread-noncpu: waiting for a core", "thread-cpu: deserialize", "thread-noncpu: disk-read")
READINGS = ("power_watts", "sm_clock_hertz", "temperature_celsius", "memory_used_bytes", "utilisation_ratio")


class FakeWorker:
    """A worker, as far as its heartbeats tell."""

    def __init__(self, prefixes: int, *, gpu: bool) -> None:
        self._random = random.Random(0)
        self._prefixes = [f"{PREFIXES[i % len(PREFIXES)]}-{i}" for i in range(prefixes)]
        self._ledger = Ledger(THREADS, at=0)
        self.counter = TaskRateCounter()
        self.at = 0
        self._seq = 0
        self._beside = {name: dict.fromkeys(names, 0) for name, names in (("o", OUTSIDE), ("d", DETAILS))}
        self.process = [0.0] * 5
        self._used = dict.fromkeys(self._prefixes, 0) if gpu else None
        #: Of each kernel, what KernelTotals has.
        self._kernels: list[tuple[str, str, int, int]] = [
            (self._prefixes[i % prefixes], f"{'void elementwise_kernel<4, float>':x<187}{i:03}", 0, 0)
            for i in range(KERNELS)
        ]
        for prefix in self._prefixes:
            self._work(prefix, AGE_NS * THREADS // prefixes // 100, 100)
        for i in range(SENDERS):
            self._fetch(i, 500)

    def _work(self, prefix: str, ns: int, tasks: int) -> None:
        for _ in range(tasks):
            took = max(200_000, round(ns * self._random.lognormvariate(0, 0.2)))
            self._ledger.reserve("task", prefix, at=self.at)
            self.at += took // THREADS
            reservation = self._ledger.release("task", at=self.at)
            assert reservation is not None
            wall = round(reservation.ns * 0.97)
            share = self._random.uniform(0.7, 0.95)
            self._ledger.finalize(reservation, Outcome.SUCCEEDED, cpu=round(wall * share), wall=wall)
            self.counter.task(prefix, wall=took, cpu=round(took * share), nbytes=self._random.lognormvariate(16, 0.3))

    def _fetch(self, sender: int, times: int) -> None:
        for _ in range(times):
            seconds = self._random.lognormvariate(-3, 0.5)
            nbytes = self._random.randrange(10**6, 10**7)
            self.counter.transfer(f"tcp://10.0.1.{sender}:40123", seconds=seconds, nbytes=nbytes)

    @property
    def running(self) -> list[RunningTask]:
        return [RunningTask(prefix, 2.5, 1e6) for prefix in self._prefixes[:2]]

    def live(self, changing: int) -> Snapshot:
        """The snapshot half a second later, after tasks of ``changing`` prefixes."""
        begin = self.at
        some = self._random.sample(self._prefixes, changing)
        for prefix in some:
            self._work(prefix, INTERVAL_NS * THREADS // changing // 4, 4)
        self.at = max(self.at, begin + INTERVAL_NS)
        for sender in self._random.sample(range(SENDERS), min(SENDERS, changing)):
            self._fetch(sender, 1)
        for counts in self._beside.values():
            for name in counts:
                counts[name] += self._random.randrange(10**6, 10**8)
        self.process = [total + self._random.uniform(0, 0.3) for total in self.process]
        self._seq += 1
        balance = self._ledger.balance(at=self.at)
        outside, details = map(dict, self._beside.values())
        gpu = None if self._used is None else self._gpu(self._used, some)
        causes = causes_of(balance)
        return Snapshot(INCARNATION, self._seq, balance, outside, details, gpu=gpu, causes=causes)

    def _gpu(self, used: dict[str, int], some: Sequence[str]) -> GpuTotals:
        for prefix in some:
            used[prefix] += self._random.randrange(10**6, INTERVAL_NS // 50)
        for i, (prefix, name, launches, ns) in enumerate(self._kernels[: len(some)]):
            more = self._random.randrange(1, 400), self._random.randrange(10**5, 10**8)
            self._kernels[i] = prefix, name, launches + more[0], ns + more[1]
        whole = sum(used.values())
        uuid = "GPU-5f2a9c1e-8d3b-4f6a-9e7c-1b2d3f4a5c6e"
        device = DeviceTotals(uuid, "NVIDIA H100 80GB HBM3", 2 * whole, whole, 0, whole, dict(used))
        kernels = tuple(KernelTotals(*kernel) for kernel in sorted(self._kernels, key=lambda kernel: -kernel[3]))
        readings = {uuid: {name: self._random.uniform(1, 1e9) for name in READINGS}}
        return GpuTotals("cupti", "CUPTI 13.0", (device,), kernels, dict(used), whole, whole, readings=readings)


def causes_of(balance: Balance) -> SnapshotCauses:
    """Some for each bucket that has any."""
    rows = []
    for buckets in (balance.finalized, balance.active):
        row = {}
        for bucket in (Bucket.THREAD_NONCPU, Bucket.OVERHEAD):
            ns = buckets.get(bucket, 0)
            row.update(fit_causes({cause: ns // (i + 3) for i, cause in enumerate(CAUSES[bucket][:4])}, bucket, ns))
        rows.append(row)
    return SnapshotCauses(*rows)


@dataclass
class Figures:
    changes: list[int] = field(default_factory=list)
    everything: list[int] = field(default_factory=list)
    make: list[int] = field(default_factory=list)
    read: list[int] = field(default_factory=list)
    take: list[int] = field(default_factory=list)
    rates: list[int] = field(default_factory=list)


def timed(samples: list[int], call: Callable[[], Any]) -> Any:
    """The result of a call, whose duration is added to the samples."""
    began = time.perf_counter_ns()
    result = call()
    samples.append(time.perf_counter_ns() - began)
    return result


def measure(prefixes: int, changing: int, *, gpu: bool, heartbeats: int) -> Figures:
    worker, figures = FakeWorker(prefixes, gpu=gpu), Figures()
    writer, rate_writer = HeartbeatWriter(), TaskRateWriter()
    cluster = ClusterLedger(at=0)
    presence = cluster.worker_joined("tcp://10.0.0.1:40000", "worker", THREADS, at=0)
    cluster.work.set(True, at=0)
    last: ReceivedRates | None = None
    for _ in range(heartbeats):
        snapshot = worker.live(changing)

        def make(snapshot: Snapshot = snapshot) -> dict[str, Any]:
            pace = rate_writer.heartbeat(worker.counter, worker.process, worker.running)
            return {**writer.heartbeat(snapshot), "pace": pace}

        sent = msgpack.packb(timed(figures.make, make), use_bin_type=True)
        payload = msgpack.unpackb(sent, strict_map_key=False, use_list=False)
        (figures.changes if "s" in payload else figures.everything).append(len(sent))
        timed(figures.read, partial(read, payload, presence.received))
        timed(figures.take, partial(cluster.receive, presence.address, payload, at=worker.at))
        found = timed(figures.rates, partial(read_task_rates, payload["pace"], payload["i"], last))
        assert isinstance(found, ReceivedRates)
        last = found
    return figures


def main() -> int:
    """Measure, print, and say whether the claims of sizes hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--heartbeats", type=int, default=3 * EVERYTHING, help="of each scene (default: 384)")
    args = parser.parse_args()
    gc.disable()
    most = {False: 0, True: 0}
    print("microseconds: the median and the twentieth part")
    print("                         bytes              | to make     to read     to book     rates")
    print("GPU prefixes changing   changes everything |")
    for gpu, (prefixes, changing) in product((False, True), SCENES):
        figures = measure(prefixes, changing, gpu=gpu, heartbeats=args.heartbeats)
        changes, everything = (round(statistics.median(sizes)) for sizes in (figures.changes, figures.everything))
        book = [took - reading for took, reading in zip(figures.take, figures.read, strict=True)]
        times = [
            f"{median:5.0f} {least:5.0f}"
            for median, least in map(both, (figures.make, figures.read, book, figures.rates))
        ]
        print(f"{'yes' if gpu else 'no':3} {prefixes:8} {changing:8} {changes:9,} {everything:10,} | {' '.join(times)}")
        if prefixes <= 50:
            most[gpu] = max(most[gpu], changes)
    print(f"{GOAL_US:g} us to read and book one is the goal")
    small = figure("50 prefixes", most[False] / 1e3, "kB", at_most=CLAIMED_BYTES / 1e3)
    return int(not (figure("with a GPU", most[True] / 1e3, "kB", at_most=CLAIMED_GPU_BYTES / 1e3) and small))


def both(samples: Sequence[int]) -> tuple[float, float]:
    """The median and the twentieth part, in microseconds, without the first."""
    ordered = sorted(samples[10:])
    return ordered[len(ordered) // 2] / 1e3, ordered[len(ordered) // 20] / 1e3


if __name__ == "__main__":
    sys.exit(main())
