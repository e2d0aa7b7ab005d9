from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from dask_efficiency.accounts.sensors import HOST_SENSORS, decode_sensors
from dask_efficiency.plugin.worker.sensors import readings
from dask_efficiency.plugin.worker.sensors.readings import WorkerSensors

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sensors are read on Linux only")


class Bench:
    """A worker whose other thread runs in :meth:`run`, and a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.cpu = 0
        self.takes = 100_000
        self.waiting: list[Callable[[], None]] = []
        self.hosts: list[SimpleNamespace] = []
        self.broken = False
        monkeypatch.setattr(readings, "monotonic", lambda: self.now)
        monkeypatch.setattr(readings, "thread_time_ns", lambda: self.cpu)
        monkeypatch.setattr(readings.threading, "Thread", self.thread)
        worker: Any = SimpleNamespace(address="tcp://w")
        monkeypatch.setattr(readings, "HostSensors", self.new_host)
        self.sensors = WorkerSensors(worker)
        self.sensors.start(enabled=True)

    def thread(self, *, target: Callable[[], None], name: str, daemon: bool) -> Any:
        assert daemon  # a reading that hangs lets the worker end
        return SimpleNamespace(start=lambda: self.waiting.append(target))

    def new_host(self) -> Any:
        host = SimpleNamespace(closed=0)

        def read(at: float) -> dict[str, float]:
            if self.broken:
                raise ValueError("broken")
            self.cpu += self.takes
            return {"steal": at}

        def close() -> None:
            host.closed += 1

        host.read, host.close = read, close
        self.hosts.append(host)
        return host

    def run(self) -> None:
        while self.waiting:
            self.waiting.pop()()

    def latest(self) -> float | None:
        payload = self.sensors.latest()
        return float(decode_sensors(payload)[list(HOST_SENSORS).index("steal")]) if payload else None


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def test_a_heartbeat_carries_the_last_reading_while_it_is_new_and_starts_the_next(bench):
    assert bench.latest() is None
    bench.run()
    bench.now = 102.0
    assert bench.latest() == 100
    bench.run()
    assert bench.latest() == 102
    bench.now += 60
    assert bench.latest() is None


def test_at_most_one_reading_a_second_and_one_at_a_time(bench):
    for _ in range(40):
        bench.latest()
        bench.now += 0.1
    assert len(bench.waiting) == 1
    bench.run()
    asked = 0
    for _ in range(100):
        bench.now += 0.1
        bench.latest()
        asked += len(bench.waiting)
        bench.run()
    assert 9 <= asked <= 11


def test_readings_that_take_long_come_less_often(bench):
    bench.takes = 30_000_000
    bench.latest()
    bench.run()
    bench.now += 29
    bench.latest()
    assert not bench.waiting
    bench.now += 2
    bench.latest()
    assert bench.waiting
    assert bench.sensors.spent == 30_000_000


def test_readings_end_with_a_failure_which_is_logged_once(bench, caplog):
    bench.broken = True
    with caplog.at_level(logging.ERROR, "dask_efficiency"):
        for _ in range(3):
            assert bench.latest() is None
            bench.run()
            bench.now += 5
    assert caplog.text.count("no longer reads the sensors of tcp://w") == 1
    assert [host.closed for host in bench.hosts] == [1]


def test_readings_can_be_switched_off_and_on_again(bench):
    bench.latest()
    bench.run()
    bench.sensors.start(enabled=False)
    bench.now += 5
    assert bench.latest() is None
    assert not bench.waiting
    assert [host.closed for host in bench.hosts] == [1]
    bench.sensors.start(enabled=True)
    bench.latest()
    bench.run()
    assert bench.latest() == 105


def test_a_reading_that_is_under_way_at_the_stop_closes_its_files(bench):
    bench.latest()
    bench.sensors.stop()
    bench.run()
    assert [host.closed for host in bench.hosts] == [1]
    assert bench.latest() is None


def test_readings_end_if_no_thread_can_be_started(bench, monkeypatch):
    def start() -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(readings.threading, "Thread", lambda **_: SimpleNamespace(start=start))
    assert bench.latest() is None
    bench.now += 5
    assert bench.latest() is None
