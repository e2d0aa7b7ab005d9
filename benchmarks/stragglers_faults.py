"""Faults really injected into one worker of a cluster: whether the watch finds it, and why it is slow.

``python -m benchmarks.stragglers injected [--workers 4] [--repeats 2] [--healthy 4] [--seconds 30]`` prints each run,
then precision, recall and F1 over the runs with and without a fault, and how often the cause is right.

The faults are ``stopped`` (the process is stopped for 150 of 300 ms), ``gil`` (a thread of the worker spins in Python),
``priority`` (the process has the lowest priority, beside others that want its cores) and ``memory`` (ballast fills its
memory until Dask pauses it). Disks and networks are not throttled here: that takes rights that most machines do not
give.
"""

from __future__ import annotations

import argparse
import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from distributed import Client, LocalCluster, wait

import dask_efficiency
from dask_efficiency import EfficiencyPlugin
from dask_efficiency.stragglers.finding import Cause, Finding

MEMORY_LIMIT = 500 * 2**20

#: What a task burns, in seconds of CPU.
TASK_SECONDS = 0.03


def _task(_: int) -> None:
    until = time.thread_time() + TASK_SECONDS
    while time.thread_time() < until:
        sum(range(500))


@contextmanager
def _stopped(client: Client, address: str) -> Iterator[None]:
    pid = client.run(os.getpid, workers=[address])[address]
    over = threading.Event()

    def turns() -> None:
        while not over.is_set():
            os.kill(pid, signal.SIGSTOP)
            over.wait(0.15)
            os.kill(pid, signal.SIGCONT)
            over.wait(0.15)

    thread = threading.Thread(target=turns)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        os.kill(pid, signal.SIGCONT)


def _hog() -> None:
    def spin() -> None:
        while True:
            pass

    threading.Thread(target=spin, daemon=True).start()


@contextmanager
def _gil(client: Client, address: str) -> Iterator[None]:
    client.run(_hog, workers=[address])
    yield


@contextmanager
def _priority(client: Client, address: str) -> Iterator[None]:
    client.run(os.nice, 19, workers=[address])
    yield


def _ballast(dask_worker: Any) -> None:
    gc.collect()
    room = 0.86 * MEMORY_LIMIT - dask_worker.monitor.get_process_memory()
    dask_worker.ballast = b"x" * int(room)


@contextmanager
def _memory(client: Client, address: str) -> Iterator[None]:
    client.run(_ballast, workers=[address])
    yield


@dataclass(frozen=True, slots=True)
class Fault:
    """What is done to a worker, and the cause that is right."""

    cause: Cause
    inject: Callable[[Client, str], AbstractContextManager[None]]


FAULTS = {
    "stopped": Fault(Cause.CONTENTION, _stopped),
    "gil": Fault(Cause.GIL, _gil),
    "priority": Fault(Cause.CONTENTION, _priority),
    "memory": Fault(Cause.MEMORY, _memory),
}


def run(fault: Fault | None, *, workers: int, seconds: float) -> tuple[str, dict[str, Finding]]:
    """The victim, and who was found."""
    with (
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            memory_limit=MEMORY_LIMIT,
            dashboard_address=None,
            silence_logs=50,
        ) as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(EfficiencyPlugin())
        address = sorted(client.scheduler_info(n_workers=-1)["workers"])[workers // 2]
        victim = str(client.scheduler_info(n_workers=-1)["workers"][address]["name"])
        found: dict[str, Finding] = {}

        def work(until: float) -> None:
            while time.monotonic() < until:
                with suppress(TimeoutError):  # what a paused worker holds does not end
                    wait(client.map(_task, range(20 * workers), pure=False), timeout=3)
                found.update((finding.worker, finding) for finding in dask_efficiency.stragglers(client))

        work(time.monotonic() + 5)
        if fault is None:
            work(time.monotonic() + seconds)
        else:
            with fault.inject(client, address):
                work(time.monotonic() + seconds)
    return victim, found


def main() -> None:
    """Inject, print, and count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--faults", nargs="+", choices=FAULTS, default=[*FAULTS])
    parser.add_argument("--repeats", type=int, default=2, help="of each fault")
    parser.add_argument("--healthy", type=int, default=4, help="runs without a fault")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each run, after 5 s that are well")
    args = parser.parse_args()
    hits = misses = accused = right = false_runs = 0
    plan = [*(name for _ in range(args.repeats) for name in args.faults), *[""] * args.healthy]
    for name in plan:
        fault = FAULTS.get(name)
        victim, found = run(fault, workers=args.workers, seconds=args.seconds)
        said = ", ".join(f"{f.worker}: {f.cause}, {f.effect:.2f}x" for f in found.values()) or "nobody"
        print(f"{name or 'healthy':10} victim {victim if fault else '-'}   found {said}", flush=True)
        wrong = [worker for worker in found if fault is None or worker != victim]
        accused += len(wrong)
        if fault is None:
            false_runs += bool(wrong)
        elif victim in found:
            hits += 1
            right += found[victim].cause == fault.cause
        else:
            misses += 1
    f1 = 2 * hits / (2 * hits + misses + accused) if hits else 0.0
    print(f"\nfound {hits} of {hits + misses}, {accused} wrongly accused, F1 {f1:.3f}; right cause {right} of {hits}")
    print(f"false alarms in {false_runs} of {args.healthy} runs without a fault")


if __name__ == "__main__":
    main()
