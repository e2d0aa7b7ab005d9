"""WorkerSensors: a worker's readings of its host, made off the event loop from one heartbeat to the next."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from time import monotonic, thread_time_ns
from typing import TYPE_CHECKING

from dask_efficiency.accounts.sensors.wire import encode_sensors
from dask_efficiency.plugin.worker.sensors.host import HostSensors
from dask_efficiency.show.log import logger

if TYPE_CHECKING:
    from distributed import Worker

#: Seconds between two readings, at least; and the share of a core that they may take: longer ones come less often.
READING_SECONDS = 1.0
MAX_SHARE = 0.001

#: A reading that is older than this, in seconds, is of another time than the heartbeat.
MAX_AGE = 15.0


class WorkerSensors:
    """A worker's sensors. A failure is logged once, and nothing more is told of them.

    A heartbeat carries the last reading and has the next one made, on a thread of its own: a driver that hangs, which
    is one of the faults to be seen, would hold up the event loop, or the thread on which Dask (de)serialises. Where
    heartbeats are seldom, readings are too, and their rates are of all the time between. Each worker of a host reads
    for itself; they say the same, and none depends on another.

    Parameters
    ----------
    worker
        The worker.
    new_host
        Makes what reads the host; called in the other thread.
    """

    def __init__(self, worker: Worker, new_host: Callable[[], HostSensors] = HostSensors) -> None:
        self._worker = worker
        self._new_host = new_host
        self._host: HostSensors | None = None
        self._enabled = False
        #: Held by who reads, or closes.
        self._turn = threading.Lock()
        self._reading = False
        self._due = 0.0
        #: CPU nanoseconds of all readings.
        self.spent = 0
        #: The last reading as it travels, and when it was made.
        self._told: list[float | None] = []
        self._told_at = 0.0

    def start(self, *, enabled: bool) -> None:
        """Read from the next heartbeat on, or not."""
        self._enabled = enabled and sys.platform == "linux"
        if not self._enabled:
            self.stop()

    def stop(self) -> None:
        """Read no more; a reading that is being made is forgotten."""
        self._enabled = False
        self._told = []
        if not self._reading:
            self._close()

    def tell(self) -> list[float | None]:
        """What a heartbeat carries, nothing where nothing is known; has the next reading made, if it is due."""
        at = monotonic()
        if self._enabled and not self._reading and at >= self._due:
            self._due = at + READING_SECONDS
            self._reading = True
            try:
                threading.Thread(target=self._read, name="dask-efficiency-sensors", daemon=True).start()
            except RuntimeError:  # there are too many, or the worker ends
                self._reading = self._enabled = False
        return self._told if self._enabled and at - self._told_at <= MAX_AGE else []

    # -- in the other thread -------------------------------------------------------------------

    def _read(self) -> None:
        began = thread_time_ns()
        try:
            with self._turn:
                if self._host is None:
                    self._host = self._new_host()
                at = monotonic()
                self._told, self._told_at = encode_sensors(self._host.read(at)), at
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
