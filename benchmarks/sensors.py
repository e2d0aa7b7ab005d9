"""Claims about the cost of sensors and of the workers' series.

A reading takes 1 ms of CPU or less and adds 200 bytes or less to a heartbeat; the scheduler takes 20
microseconds or less of CPU for a heartbeat's metrics, and 60 kB a worker; while it looks for outliers among 1000
workers on another thread, its event loop turns again within 20 ms.

``python -m benchmarks.sensors [--workers N]`` prints medians, and for the pauses the longest. It exits with 1 if a
claim does not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import msgpack
import numpy as np

from benchmarks.figures import figure
from dask_efficiency.accounts.cluster.cluster import ClusterLedger
from dask_efficiency.accounts.sensors import HOST_SENSORS, encode_sensors
from dask_efficiency.fleet.outliers.outliers import find_outliers
from dask_efficiency.fleet.scheduler.worker_series import NAMES, STEP_SECONDS, WorkerSeries
from dask_efficiency.plugin.worker.sensors.host import HostSensors

CLAIMED_READING_MS = 1.0
CLAIMED_BYTES = 200
CLAIMED_HEARTBEAT_US = 20.0
CLAIMED_WORKER_KB = 60.0
CLAIMED_PAUSE_MS = 20.0

SECONDS = 1200.0


def cpu_us(call: Callable[[], object], *, times: int = 500) -> float:
    """Microseconds of CPU of a call, the median."""
    took = []
    for _ in range(times):
        began = time.thread_time_ns()
        call()
        took.append((time.thread_time_ns() - began) / 1e3)
    return statistics.median(took)


def reading() -> tuple[float, int, int]:
    """Milliseconds of CPU of a reading, how many sensors this machine has, and bytes that they add to a heartbeat."""
    host = HostSensors()
    host.read(time.monotonic())
    time.sleep(0.5)
    found = host.read(time.monotonic())
    took = cpu_us(lambda: encode_sensors(host.read(time.monotonic()))) / 1e3
    host.close()
    return took, len(found), len(msgpack.packb({"sensors": encode_sensors(found)})) - 1


def metrics_of(random: np.random.Generator) -> dict[str, Any]:
    say = random.uniform(1, 2, 8).tolist()
    return {
        "cpu": say[0],
        "memory": say[1],
        "managed_bytes": say[2],
        "spilled_bytes": {"disk": say[3]},
        "host_net_io": {"read_bps": say[4], "write_bps": say[5]},
        "host_disk_io": {"read_bps": say[6], "write_bps": say[7]},
        "event_loop_interval": 0.02,
        "efficiency": {"sensors": encode_sensors(dict(zip(HOST_SENSORS, random.uniform(1, 2, 14), strict=False)))},
    }


def filled_series(workers: int) -> tuple[WorkerSeries, float]:
    """Series of twenty minutes, and microseconds of CPU of a heartbeat."""
    cluster = ClusterLedger(at=0)
    accounts: Any = SimpleNamespace(cluster=cluster, stragglers=SimpleNamespace())
    options: Any = SimpleNamespace(worker_series=SECONDS, outliers=False)
    series = WorkerSeries(accounts, lambda: options)
    random = np.random.default_rng(0)
    says = [metrics_of(random) for _ in range(64)]
    spaces = []
    for i in range(workers):
        ws: Any = SimpleNamespace(
            name=str(i), host=f"h{i // 4}", nthreads=2, memory_limit=0, resources={}, extra={}, metrics=says[0]
        )
        cluster.worker_joined(str(i), str(i), 2, at=0)
        series.worker_joined(str(i), ws)
        spaces.append(ws)
    now = time.monotonic_ns()
    took = []
    for step in range(round(SECONDS / STEP_SECONDS), -1, -1):
        at = max(0, now - round(step * STEP_SECONDS * 1e9))
        for i, ws in enumerate(spaces):
            ws.metrics = says[(7 * i + step) % len(says)]
            cluster.present[str(i)].account += 1_000_000
        began = time.thread_time_ns()
        for i, ws in enumerate(spaces):
            series.take_heartbeat(str(i), ws, at)
        took.append((time.thread_time_ns() - began) / 1e3 / workers)
    return series, statistics.median(took)


async def pauses(series: WorkerSeries) -> tuple[float, float, float]:
    """Seconds of a look, and the longest and the mean time in ms by which an event loop is late meanwhile."""
    loop = asyncio.get_running_loop()
    began = time.monotonic()
    read = series.reader(900.0)
    look = loop.run_in_executor(None, lambda: find_outliers(read()))
    late = [1e3 * (time.monotonic() - began)]
    while not look.done():
        at = time.monotonic()
        await asyncio.sleep(0.001)
        late.append(1e3 * (time.monotonic() - at - 0.001))
    look.result()
    return time.monotonic() - began, max(late), statistics.mean(late)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=1000)
    workers = parser.parse_args().workers
    took, sensors, nbytes = reading()
    print(f"a reading of {sensors} sensors: {took:.3f} ms of CPU, {nbytes} bytes in a heartbeat")
    series, heartbeat = filled_series(workers)
    kilobytes = series.nbytes / workers / 1e3
    print(f"the scheduler: {heartbeat:.1f} us of CPU a heartbeat, {kilobytes:.1f} kB a worker for {SECONDS / 60:g} min")
    runs = [asyncio.run(pauses(series)) for _ in range(3)]
    read = cpu_us(partial(_read, series), times=3) / 1e6
    seconds, longest, mean = (statistics.median(column) for column in zip(*runs, strict=True))
    print(
        f"a look at {workers} workers x {len(NAMES)} metrics: {seconds:.2f} s, of which reading {read:.2f} s of CPU; "
        f"the event loop is {longest:.1f} ms late at most, {mean:.2f} ms in the mean"
    )
    held = (
        figure("a reading", took, "ms", at_most=CLAIMED_READING_MS),
        figure("of a heartbeat", nbytes, "bytes", at_most=CLAIMED_BYTES),
        figure("the scheduler's, a heartbeat", heartbeat, "us", at_most=CLAIMED_HEARTBEAT_US),
        figure("the scheduler's, a worker", kilobytes, "kB", at_most=CLAIMED_WORKER_KB),
        figure("the event loop late", [run[1] for run in runs], "ms", at_most=CLAIMED_PAUSE_MS),
    )
    sys.exit(0 if all(held) else 1)


def _read(series: WorkerSeries) -> None:
    series.reader(900.0)()


if __name__ == "__main__":
    main()
