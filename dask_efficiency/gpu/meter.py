"""GpuMeter: what all ways to measure GPU time have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from dask_efficiency.gpu.records import Batch


@dataclass(frozen=True, slots=True)
class Device:
    """A device that the process of the meter may use."""

    uuid: str
    #: The model, for a person to read.
    name: str = ""


class GpuMeter(Protocol):
    """Watches the devices of this process. All methods are called from one thread, which runs no tasks."""

    #: ``cupti``, ``torch-events`` or ``none``.
    kind: str
    #: How it measures, with versions; if ``kind`` is ``none``, why nothing is measured.
    description: str

    @property
    def devices(self) -> Mapping[int, Device]:
        """The devices seen so far, by the number that operations carry."""

    @property
    def dropped(self) -> int:
        """Records that were lost so far."""

    @property
    def gaps(self) -> int:
        """Nanoseconds so far during which it gave way to a profiler of the user's."""

    def flush(self) -> Batch:
        """What has become known since the last flush; called about twice a second."""

    def close(self) -> Batch:
        """Flush for the last time and leave the process as it was before. Safe to call twice."""


class NullMeter:
    """Measures nothing, and says why."""

    kind = "none"
    dropped = 0
    gaps = 0

    def __init__(self, reason: str) -> None:
        self.description = reason

    @property
    def devices(self) -> Mapping[int, Device]:
        """None."""
        return {}

    def flush(self) -> Batch:
        """Nothing."""
        return Batch()

    def close(self) -> Batch:
        """Nothing."""
        return Batch()
