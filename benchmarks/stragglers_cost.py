"""Claims about the cost of looking for stragglers, on the scheduler and in a worker's hook.

With 1000 workers of 50 prefixes each, a poll takes 5 ms or less in the median, heartbeats and
comparison together, and the watch holds 30 MB or less; a task costs its worker 5 microseconds or less.
A worker's heartbeat is read once in an interval of comparison, as the scheduler does.

``python -m benchmarks.stragglers_cost [--workers N] [--prefixes N] [--kernels N] [--seconds S]`` prints the
CPU time of polls, in milliseconds. It exits with 1 if a claim does not hold.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np
from distributed.scheduler import heartbeat_interval

from benchmarks.figures import figure
from dask_efficiency.accounts.gpu import KernelTotals
from dask_efficiency.plugin.scheduler.meter import POLL_MS
from dask_efficiency.plugin.scheduler.straggler_watch import INTERVAL_SECONDS
from dask_efficiency.straggler.online import StragglerWatch
from dask_efficiency.straggler.task_rates import (
    MIN_SECONDS_A_BYTE,
    MIN_WALL_SECONDS,
    TASK_SUMS,
    TRANSFER_SUMS,
    ReceivedRates,
    RunningTask,
    TaskRateCounter,
    TaskRateWriter,
    read_task_rates,
)

CLAIMED_POLL_MS = 5.0
CLAIMED_MB = 30.0
CLAIMED_TASK_US = 5.0

#: Workers that each worker fetches from.
SENDERS = 16


class Payloads:
    """Growing payloads of workers' heartbeats; the first worker takes twice as long."""

    def __init__(self, workers: int, prefixes: int, kernels: int) -> None:
        self._rng = np.random.default_rng(0)
        self._prefixes = [f"prefix-{i}" for i in range(prefixes)]
        self._tasks = np.zeros((workers, prefixes, len(TASK_SUMS)))
        self._transfers = np.zeros((workers, SENDERS, len(TRANSFER_SUMS)))
        self._senders = [[f"tcp://{(i + 1 + j) % workers}" for j in range(SENDERS)] for i in range(workers)]
        self._process = np.zeros((workers, 5))
        self._kernels = [(f"prefix-{i % prefixes}", f"kernel-{i}") for i in range(kernels)]
        self._launches = np.zeros(workers, np.int64)
        self._counters = [TaskRateCounter() for _ in range(workers)]
        self._writers = [TaskRateWriter() for _ in range(workers)]

    def next(self, worker: int, seconds: float) -> dict[str, object]:
        """The next heartbeat's payload, after some seconds of work."""
        n = 20.0
        wall = self._rng.lognormal(-1 + 0.7 * (worker == 0), 0.1, len(self._prefixes))
        log, share = np.log(wall / MIN_WALL_SECONDS), 0.95
        rows = (n, n * wall, share * n * wall, n * log, n * (log**2 + 0.01), n * 14, n * 196, n * 14 * log)
        for column, gained in enumerate((*rows, n * share, n * share**2)):
            self._tasks[worker, :, column] += gained
        cost = self._rng.normal(-18, 0.2, SENDERS) - np.log(MIN_SECONDS_A_BYTE)
        for column, moved in enumerate((5, 5 * cost, 5 * (cost**2 + 0.04), 0.1)):
            self._transfers[worker, :, column] += moved
        self._process[worker] += (0.1 * seconds, 1e7 * seconds, 0.02 * seconds, 0.9 * seconds, 0.8 * seconds)
        counter = self._counters[worker]
        counter.turn += 1
        for table, names, sums in (
            (counter.tasks, self._prefixes, self._tasks[worker]),
            (counter.transfers, self._senders[worker], self._transfers[worker]),
        ):
            table.update({name: [*row, counter.turn] for name, row in zip(names, sums.tolist(), strict=True)})
        running = [RunningTask(self._prefixes[0], 1.0, 1e6)]
        return self._writers[worker].heartbeat(counter, self._process[worker].tolist(), running)

    def kernels(self, worker: int) -> list[KernelTotals]:
        """Totals of GPU kernels, which take the first worker twice as long."""
        self._launches[worker] += 1_000
        launches = int(self._launches[worker])
        ns = launches * 100_000 * (1 + (worker == 0))
        return [KernelTotals(prefix, name, launches, ns) for prefix, name in self._kernels]


def polls(workers: int, prefixes: int, kernels: int, seconds: float) -> tuple[list[float], list[float], StragglerWatch]:
    """Milliseconds of CPU of the polls that compare, and of those that only take heartbeats in."""
    watch = StragglerWatch()
    payloads = Payloads(workers, prefixes, kernels)
    for i in range(workers):
        watch.joined(f"tcp://{i}", host=f"host{i // 4}", group=1, at=0)
    interval = float(heartbeat_interval(workers))
    interval_seconds = max(INTERVAL_SECONDS, 2 * interval)
    comparing, others = [], []
    last: list[ReceivedRates | None] = [None] * workers
    read_at = np.full(workers, -np.inf)
    polls_in_all = int(seconds * 1e3 / POLL_MS)
    due = np.linspace(0, interval, workers, endpoint=False)
    for poll in range(1, polls_in_all + 1):
        now = poll * POLL_MS / 1e3
        arrived = [
            (int(i), payloads.next(int(i), interval), payloads.kernels(int(i))) for i in np.flatnonzero(due <= now)
        ]
        due[due <= now] += interval
        was_comparing = watch.comparing
        began = time.thread_time()
        at = round(now * 1e9)
        for i, payload, of_gpu in arrived:
            if now - read_at[i] < interval_seconds:
                continue
            read_at[i] = now
            found = read_task_rates(payload, last=last[i])
            assert isinstance(found, ReceivedRates)
            last[i] = found
            watch.receive(f"tcp://{i}", found.rates, at=at, paused=0.0, lag=0.02, kernels=of_gpu)
        watch.poll(at=at, now=now, interval_seconds=interval_seconds)
        took = 1e3 * (time.thread_time() - began)
        (comparing if was_comparing or watch.comparing else others).append(took)
    return comparing, others, watch


def task_us() -> float:
    """Microseconds that a task costs its worker."""
    counter = TaskRateCounter()
    best = float("inf")
    for _ in range(5):
        began = time.thread_time()
        for _ in range(20_000):
            counter.task("f", wall=10_000_000, cpu=9_000_000, nbytes=1_000_000)
        best = min(best, (time.thread_time() - began) / 20_000)
    return 1e6 * best


def main() -> int:
    """Measure, print, and say whether the claims hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=1_000)
    parser.add_argument("--prefixes", type=int, default=50)
    parser.add_argument("--kernels", type=int, default=0, help="of the GPUs of each worker (default: 0)")
    parser.add_argument("--seconds", type=float, default=300.0, help="of the cluster's life (default: 300)")
    args = parser.parse_args()
    comparing, others, watch = polls(args.workers, args.prefixes, args.kernels, args.seconds)
    for name, times in (("polls that compare", comparing[3:]), ("other polls", others[3:])):
        median, most = np.median(times), np.quantile(times, 0.95)
        print(f"{name:24}{len(times):5}  median {median:6.2f} ms  95 % below {most:6.2f} ms")
    megabytes = watch.nbytes / 1e6
    each = task_us()
    print(f"{'arrays':24}{megabytes:11.1f} MB\n{'a task on its worker':24}{each:11.2f} us")
    print("found:", [finding.worker for finding in watch.findings])
    holds = (
        figure("polls that compare", float(np.median(comparing[3:])), "ms", at_most=CLAIMED_POLL_MS),
        figure("other polls", float(np.median(others[3:])), "ms", at_most=CLAIMED_POLL_MS),
        figure("arrays", megabytes, "MB", at_most=CLAIMED_MB if args.workers <= 1_024 else None),
        figure("a task on its worker", each, "us", at_most=CLAIMED_TASK_US),
    )
    return int(not all(holds))


if __name__ == "__main__":
    sys.exit(main())
