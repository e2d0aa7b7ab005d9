"""HostSensors: one reading of all that a host says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from dask_efficiency.plugin.worker.sensors.cores import Cores
from dask_efficiency.plugin.worker.sensors.disks import Disks
from dask_efficiency.plugin.worker.sensors.ethtool import PauseFrames
from dask_efficiency.plugin.worker.sensors.files import MAX_BYTES, KeptFiles
from dask_efficiency.plugin.worker.sensors.memory import Memory
from dask_efficiency.plugin.worker.sensors.network import Network, Pauses
from dask_efficiency.plugin.worker.sensors.rdma import Rdma
from dask_efficiency.plugin.worker.thread_clocks import HeldReader


class _Source(Protocol):
    def read(self, at: float) -> dict[str, float]: ...


class HostSensors:
    """Reads the sensors of a host.

    Parameters
    ----------
    proc, sys
        The kernel's folders, or some that look like them.
    pauses
        Counts the pause frames of an interface; asks its driver by default.

    Raises
    ------
    OSError, AttributeError, TypeError
        Where there is nothing like this on the system.
    """

    def __init__(self, proc: str = "/proc", sys: str = "/sys", pauses: Pauses | None = None) -> None:
        self._closes: list[Callable[[], None]] = []
        reader = HeldReader(MAX_BYTES)
        self._closes.append(reader.close)
        if pauses is None:
            pauses = frames = PauseFrames()
            self._closes.append(frames.close)
        files, drivers = KeptFiles(Path(proc), reader), KeptFiles(Path(sys))
        self._closes += (files.close, drivers.close)
        self._sources: tuple[_Source, ...] = (
            Cores(files, drivers),
            Memory(files),
            Disks(files),
            Network(files, drivers, pauses),
            Rdma(drivers),
        )

    def read(self, at: float) -> dict[str, float]:
        """Values now of the :data:`~dask_efficiency.accounts.sensors.names.HOST_SENSORS` that the host has.

        Parameters
        ----------
        at
            Seconds of a clock that is never set. Rates are since the reading before.
        """
        found: dict[str, float] = {}
        for source in self._sources:
            found |= source.read(at)
        return found

    def close(self) -> None:
        """Give the descriptors back; safe to call twice."""
        for close in self._closes:
            close()
