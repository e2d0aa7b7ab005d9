"""How a test looks at a cluster from outside, and what the accounts must come to on a machine however busy."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, protocol
from distributed.core import Status
from distributed.diagnostics.plugin import SchedulerPlugin

from dask_efficiency import EfficiencyPlugin, EfficiencyReport, efficiency_report
from dask_efficiency.accounts.buckets import FINALIZED, Breakdown
from dask_efficiency.accounts.wire.heartbeats import decode
from dask_efficiency.accounts.wire.snapshots import NotMeasured
from dask_efficiency.plugin.names import FINAL_SNAPSHOT

#: What a task's CPU time may be off by: 3 %, and what its thread does just before the task and just after it.
RELATIVE, ABSOLUTE = 0.03, 0.015
#: What two clocks may disagree by over the few seconds of a test: the kernel steers one of them and not the other.
CLOCKS = 0.002
#: By which part the scheduler's clock and its looks may be off from those of the workers.
LOOKS = 0.02
#: What a worker's total may be off an independent clock by: 0.1 %, at least 10 ms.
RELATIVE_TOTAL, ABSOLUTE_TOTAL = 0.001, 0.010
#: Most seconds that one look at a condition counts for.
LONGEST_LOOK = 1.0


def near(cpu_seconds: float) -> Any:
    """Equal to CPU time by the thread's own clock, which stands still while others have the cores."""
    return pytest.approx(cpu_seconds, rel=0, abs=RELATIVE * cpu_seconds + ABSOLUTE)


def between(least: float, most: float) -> Any:
    """At least what was measured inside and at most what was measured around it: so it is however busy a machine is."""
    assert least <= most + CLOCKS
    return pytest.approx((least + most) / 2, rel=0, abs=max(0.0, most - least) / 2 + CLOCKS)


def cpu(results: Iterable[Mapping[str, float]]) -> float:
    """The CPU time that tasks read of their threads' clocks."""
    return sum(task["cpu"] for task in results)


def off_cpu(results: Iterable[Mapping[str, float]]) -> float:
    """The rest of the time that they read."""
    return sum(task["wall"] - task["cpu"] for task in results)


@dataclass
class Window:
    """When a report was asked for, there, over and complete, by a clock of the test's own."""

    opened: float
    entered: float = math.nan
    left: float = math.nan
    closed: float = math.nan

    @property
    def least(self) -> float:
        """Seconds of the block."""
        return self.left - self.entered

    @property
    def most(self) -> float:
        """Seconds from the request to the report."""
        return self.closed - self.opened


def assert_between(seconds: float, low: float, high: float, what: str) -> None:
    slack = max(ABSOLUTE_TOTAL, RELATIVE_TOTAL * high)
    assert low - slack <= seconds <= high + slack, f"{what}: {seconds:.4f} s; expected {low:.4f} to {high:.4f} s"


@contextmanager
def timed_report(client: Client, **options: Any) -> Iterator[tuple[Any, Window]]:
    """A report, and what its window must be between."""
    window = Window(time.monotonic())
    with efficiency_report(client, **options) as report:
        window.entered = time.monotonic()
        yield report, window
        window.left = time.monotonic()
    window.closed = time.monotonic()


def eventually(condition: Callable[[], Any], *, seconds: float = 60) -> Any:
    """Wait for what another process does; gives the condition's value.

    Time for which this process was itself stopped does not count.
    """
    waited, at = 0.0, time.monotonic()
    while not (value := condition()):
        assert waited < seconds, f"waited {seconds} s in vain"
        time.sleep(0.01)
        before, at = at, time.monotonic()
        waited += min(at - before, LONGEST_LOOK)
    return value


def travelled(message: Any) -> Any:
    """A message as it is read by whoever gets it."""
    return protocol.loads(protocol.dumps(message))


def workers(client: Client) -> dict[str, Any]:
    """What the scheduler knows of each worker, by address; ``client.scheduler_info`` may lack workers."""
    found: dict[str, Any] = client.sync(client.scheduler.identity, n_workers=-1)["workers"]
    return found


def addresses(client: Client) -> list[str]:
    """The workers' addresses, in the order of their names."""
    known = workers(client)
    return sorted(known, key=lambda address: str(known[address]["name"]))


def name_of(client: Client, address: str) -> str:
    return str(workers(client)[address]["name"])


def states(client: Client, key: str) -> set[str]:
    """What a task is to the workers that know it."""
    found = client.run(lambda dask_worker: [ts.state for k, ts in dask_worker.state.tasks.items() if k == key])
    return {state for row in found.values() for state in row}


def ahead_ns() -> int:
    """What the clock of the day is ahead of the monotonic one, by the reading that was interrupted for the shortest."""
    readings = [(time.monotonic_ns(), time.time_ns(), time.monotonic_ns()) for _ in range(100)]
    before, day, after = min(readings, key=lambda reading: reading[2] - reading[0])
    return day - (before + after) // 2


def kill(client: Client, address: str) -> float:
    """End a worker's process as an out-of-memory killer does; gives the instant before."""
    pid = client.run(os.getpid, workers=[address])[address]
    before = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    return before


def ahead_of_the_clock(report: EfficiencyReport, name: str) -> float:
    """Seconds by which a worker's accounts may be ahead of the scheduler's clock: the way of its first snapshot."""
    return report.by_worker[name]["unmeasured"] / report.nthreads[name]


def silence(client: Client, address: str) -> None:
    """Have a worker send no heartbeats any more, and wait until the scheduler lacks a part of its time."""
    client.run(_send_the_last_heartbeat, workers=[address])
    eventually(lambda: client.run_on_scheduler(_unreported_seconds, address=address) > 0.1)


async def _send_the_last_heartbeat(dask_worker: Any) -> None:
    """One that is still on its way is older than this one, and so no news."""
    dask_worker.periodic_callbacks["heartbeat"].stop()
    await dask_worker.heartbeat()


def _unreported_seconds(dask_scheduler: Any, address: str) -> float:
    """The thread-seconds of a worker that no snapshot had yet."""
    worker = dask_scheduler.plugins[EfficiencyPlugin.name]._meter.accounts.cluster.present[address]
    lived = worker.nthreads * (time.monotonic_ns() - worker.joined)
    return float(lived - worker.finalized_ns - worker.running) / 1e9


def way_of_snapshots(client: Client, address: str) -> float:
    """Seconds by which a worker's accounts are ahead of the scheduler's clock, at most: its quickest snapshot's way."""

    async def ask(dask_worker: Any) -> Any:
        return time.monotonic_ns(), (await dask_worker.handlers["efficiency"]("snapshot"))["snapshot"]

    def joined(dask_scheduler: Any) -> int:
        plugin = dask_scheduler.plugins[EfficiencyPlugin.name]
        return int(plugin._meter.accounts.cluster.present[address].joined)

    before, payload = client.run(ask, workers=[address])[address]
    began = before - _shown(payload)["elapsed"]
    return float(max(0, client.run_on_scheduler(joined) - began)) / 1e9


def after_the_scheduler(client: Client) -> float:
    """The instant, once the scheduler has done what it was at."""
    client.run_on_scheduler(bool)
    return time.monotonic()


def nothing_runs(client: Client) -> bool:
    return not any(client.run(lambda dask_worker: dask_worker.state.all_running_tasks).values())


def payloads(client: Client) -> dict[str, dict[str, Any]]:
    """What each worker answers when it is asked for a snapshot, by name; its heartbeats go on."""

    async def ask(dask_worker: Any) -> Any:
        return await dask_worker.handlers["efficiency"]("snapshot")

    return {address: _shown(answer["snapshot"]) for address, answer in client.run(ask).items()}


def _shown(payload: Any) -> dict[str, Any]:
    snapshot = decode(payload)
    if isinstance(snapshot, NotMeasured):
        return {"off": snapshot.reason}
    return {
        "incarnation": snapshot.incarnation,
        "nthreads": snapshot.balance.nthreads,
        "elapsed": snapshot.balance.elapsed,
        "running": snapshot.balance.running,
        "settled": Counter(snapshot.balance.finalized),
        "active": Counter(snapshot.balance.active),
        "prefixes": dict(snapshot.balance.prefixes),
    }


def incarnations(client: Client) -> dict[str, str]:
    return {address: payload["incarnation"] for address, payload in payloads(client).items()}


def set_status(dask_worker: Any, status: str) -> tuple[float, float]:
    """Pause a worker or let it go on, without the memory monitor; gives the instants before and after."""
    dask_worker.memory_manager.memory_pause_fraction = False
    before = time.monotonic()
    dask_worker.status = Status.lookup[status]
    return before, time.monotonic()


def shrunk(then: Mapping[str, Breakdown], now: Mapping[str, Breakdown]) -> list[str]:
    """Every settled bucket of a worker that holds less than before."""
    return [
        f"{name}: {bucket} shrank from {row.ns(bucket)} to {now.get(name, Breakdown()).ns(bucket)} ns"
        for name, row in then.items()
        for bucket in FINALIZED
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
        #: A worker that closes may outlive its removal; when its last message arrived.
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
        if topic == FINAL_SNAPSHOT:
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

    def replaced(self, client: Client, dead: str) -> tuple[float, float]:
        """Wait until a worker was removed, and another one came in its place; when both were known."""
        eventually(lambda: dead in self.left)
        gone = after_the_scheduler(client)
        eventually(lambda: any(joined > self.left[dead] for joined in dict(self.joined).values()))
        return gone, after_the_scheduler(client)

    def assert_lives(self, report: Any, window: Window, *, gone: float, there: float) -> None:
        """Check that a worker that left inside a window, the one in its place, and all others count while they lived.

        It was removed by the instant ``gone``, and the other was metered by ``there``.
        """
        (dead,) = self.left
        (again,) = (address for address, joined in self.joined.items() if joined > self.left[dead])
        for name, row in report.by_worker.items():
            least, most = window.least, window.most
            if name == self.names[dead]:
                least = self.left[dead] - window.entered + window.left - there
                most = gone - window.opened + window.closed - self.joined[again]
            assert_between(row.total / self.nthreads[dead], least, most, name)


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
            started.wait(timeout=60)
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
def worker_process(
    file: str, name: str, folder: Path | None = None, *arguments: str
) -> Iterator[subprocess.Popen[str]]:
    """``dask worker`` with two threads and a nanny, in processes of its own, started in a folder."""
    options = ["--scheduler-file", file, "--nthreads", "2", "--name", name, "--dashboard-address", ":0", *arguments]
    folder = folder or Path(file).parent
    with process("distributed.cli.dask_worker", *options, folder=folder, PYTHONPATH=str(folder)) as worker:
        yield worker
