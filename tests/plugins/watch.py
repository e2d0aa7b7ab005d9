"""How a test looks at a cluster from outside, and how near the accounts must come."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from distributed import Client
from distributed.core import Status
from distributed.diagnostics.plugin import SchedulerPlugin

from dask_efficiency.buckets import SETTLED, Breakdown
from dask_efficiency.plugins.worker import LAST_WORDS

#: What a known answer may be off by: 3 %, and the hand-over between a task's clock reads and the hooks.
RELATIVE, ABSOLUTE = 0.03, 0.015


def near(seconds: float) -> Any:
    """Equal to a known answer, as nearly as the issue asks for."""
    return pytest.approx(seconds, rel=0, abs=RELATIVE * seconds + ABSOLUTE)


def eventually(condition: Callable[[], Any], *, seconds: float = 20) -> Any:
    """Wait for what another process does; gives the condition's value."""
    until = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < until, f"waited {seconds} s in vain"
        time.sleep(0.01)
    return value


def addresses(client: Client) -> list[str]:
    """The workers' addresses, in the order of their names."""
    workers = client.scheduler_info(n_workers=-1)["workers"]
    return sorted(workers, key=lambda address: str(workers[address]["name"]))


def name_of(client: Client, address: str) -> str:
    return str(client.scheduler_info(n_workers=-1)["workers"][address]["name"])


def kill(client: Client, address: str) -> None:
    """End a worker's process as an out-of-memory killer does."""
    os.kill(client.run(os.getpid, workers=[address])[address], signal.SIGKILL)


def nothing_runs(client: Client) -> bool:
    return not any(client.run(lambda dask_worker: dask_worker.state.all_running_tasks).values())


def payloads(client: Client) -> dict[str, dict[str, Any]]:
    """What each worker's heartbeat would carry now."""
    return client.run(lambda dask_worker: dask_worker.metrics["efficiency"](dask_worker))


def incarnations(client: Client) -> dict[str, str]:
    return {address: payload["incarnation"] for address, payload in payloads(client).items()}


def set_status(dask_worker: Any, status: str) -> float:
    """Pause a worker or let it go on, without the memory monitor's saying; gives the instant."""
    dask_worker.memory_manager.memory_pause_fraction = False
    dask_worker.status = Status.lookup[status]
    return time.monotonic()


def shrunk(then: Mapping[str, Breakdown], now: Mapping[str, Breakdown]) -> list[str]:
    """Every settled bucket of a worker that holds less than before."""
    return [
        f"{name}: {bucket} shrank from {row.ns(bucket)} to {now.get(name, Breakdown()).ns(bucket)} ns"
        for name, row in then.items()
        for bucket in SETTLED
        if now.get(name, Breakdown()).ns(bucket) < row.ns(bucket)
    ]


class Attendance(SchedulerPlugin):
    """When each worker joined and left, by a clock of its own."""

    name = "attendance"

    def __init__(self, scheduler: Any) -> None:
        now = time.monotonic()
        self.joined = dict.fromkeys(scheduler.workers, now)
        #: When those that were there first were metered at the latest: set by whoever registers the plugin.
        self.metered: dict[str, float] = {}
        self.left: dict[str, float] = {}
        #: A worker that closes may outlive its removal; when what it said last arrived.
        self.last_words: dict[str, float] = {}
        self.names = {address: str(ws.name) for address, ws in scheduler.workers.items()}
        self.nthreads = {address: ws.nthreads for address, ws in scheduler.workers.items()}

    def add_worker(self, scheduler: Any, worker: str) -> None:
        self.joined[worker] = time.monotonic()
        self.names[worker] = str(scheduler.workers[worker].name)
        self.nthreads[worker] = scheduler.workers[worker].nthreads

    def remove_worker(self, scheduler: Any, worker: str, **kwargs: Any) -> None:
        self.left[worker] = time.monotonic()

    def log_event(self, topic: str, msg: Any) -> None:
        if topic == LAST_WORDS:
            self.last_words[msg["worker"]] = time.monotonic()

    def thread_seconds(self, name: str, before: float, after: float) -> tuple[float, float]:
        """nthreads integrated over the lives of all workers of this name: at least and at most."""
        least = most = 0.0
        for address, joined in self.joined.items():
            if self.names[address] == name:
                left = self.left.get(address)
                metered = self.metered.get(address, joined)
                least += self.nthreads[address] * ((before if left is None else left) - metered)
                last = after if left is None else max(left, self.last_words.get(address, left))
                most += self.nthreads[address] * (last - joined)
        return least, most


@contextmanager
def process(module: str, *arguments: str, folder: Path, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A process of its own, as an operator would start it; ended when the block is left."""
    started = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        cwd=folder,  # which is the first place where it looks for packages
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield started
    finally:
        if started.poll() is None:
            started.terminate()
        try:
            started.wait(timeout=20)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


@contextmanager
def scheduler_process(folder: Path, *arguments: str, **environment: str) -> Iterator[tuple[Any, str]]:
    """``dask scheduler`` in a process of its own, and the file by which others find it."""
    file = str(folder / "scheduler.json")
    options = ["--host", "127.0.0.1", "--port", "0", "--dashboard-address", ":0", "--scheduler-file", file]
    with process("distributed.cli.dask_scheduler", *options, *arguments, folder=folder, **environment) as scheduler:
        eventually(lambda: os.path.exists(file) and os.path.getsize(file))
        yield scheduler, file


@contextmanager
def worker_process(file: str, name: str, folder: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    """``dask worker`` with two threads and a nanny, in processes of its own, started in a folder."""
    options = ["--scheduler-file", file, "--nthreads", "2", "--name", name, "--dashboard-address", ":0"]
    folder = folder or Path(file).parent
    with process("distributed.cli.dask_worker", *options, folder=folder, PYTHONPATH=str(folder)) as worker:
        yield worker
