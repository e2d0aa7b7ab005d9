"""WorkerSensors: a worker's readings of its host, made off the event loop between heartbeats."""

from __future__ import annotations

import sys
import threading
from time import monotonic, thread_time_ns

from distributed import Worker

from dask_efficiency.accounts.sensors import encode_sensors
from dask_efficiency.plugin.worker.sensors.host import HostSensors
from dask_efficiency.show.log import logger

#: Seconds between two readings, at least: the rate of heartbeats.
READING_SECONDS = 1.0
#: Share of a core that readings may take, as the option promises: long ones come less often.
MAX_SHARE = 0.001
#: Age, seconds, beyond which a reading is not sent: it would not match the heartbeat's time.
MAX_AGE = 15.0


class WorkerSensors:
    """Sensors of a worker's host. After a failure, which is logged once, heartbeats have no readings.

    A heartbeat carries the last reading and starts the next one, on a thread of its own: a driver that hangs, which is
    one of the faults to find, would block the event loop, or the thread on which Dask (de)serialises. If heartbeats are
    rare, readings are too, and their rates cover all the time between. Each worker of a host reads for itself, so none
    depends on another.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._host: HostSensors | None = None
        self._enabled = False
        self._turn = threading.Lock()
        self._reading = False
        self._due = 0.0
        #: CPU nanoseconds of all readings.
        self.spent = 0
        #: Last reading, encoded, and its time.
        self._encoded: list[float | None] = []
        self._read_at = 0.0

    def start(self, *, enabled: bool) -> None:
        """Read from the next heartbeat on, or stop."""
        self._enabled = enabled and sys.platform == "linux"
        if not self._enabled:
            self.stop()

    def stop(self) -> None:
        """Read no more; a reading under way is dropped."""
        self._enabled = False
        self._encoded = []
        if not self._reading:
            self._close()

    def latest(self) -> list[float | None]:
        """Last reading for a heartbeat, empty if there is none; starts the next one, if it is due."""
        at = monotonic()
        if self._enabled and not self._reading and at >= self._due:
            self._due = at + READING_SECONDS
            self._reading = True
            try:
                threading.Thread(target=self._read, name="dask-efficiency-sensors", daemon=True).start()
            except RuntimeError:  # too many threads, or the worker ends
                self._reading = self._enabled = False
        return self._encoded if self._enabled and at - self._read_at <= MAX_AGE else []

    def _read(self) -> None:
        began = thread_time_ns()
        try:
            with self._turn:
                if self._host is None:
                    self._host = HostSensors()
                at = monotonic()
                self._encoded, self._read_at = encode_sensors(self._host.read(at)), at
        except Exception as error:
            self._enabled = False
            logger.error("dask_efficiency no longer reads the sensors of %s", self._worker.address, exc_info=error)
        took = thread_time_ns() - began
        self.spent += took
        self._due = max(self._due, monotonic() + took / 1e9 / MAX_SHARE)
        self._reading = False
        if not self._enabled:
            self._close()

    def _close(self) -> None:
        with self._turn:
            host, self._host = self._host, None
        if host is not None:
            host.close()
