"""GpuMeter: the protocol of all meters of GPU time, and the records that they return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

#: Kinds of operations, in the field ``activity``.
KERNEL, COPY, FILL = range(3)
#: Effects of a call on its thread, in the field ``waits``: returns at once; waits for the device and leaves the core to
#: others; waits and burns CPU. The last two begin and end the recording of a graph: launches in between run nothing.
RETURNS, BLOCKS, SPINS, BEGINS_GRAPH, ENDS_GRAPH = range(5)
#: Work on a device. Times are monotonic nanoseconds, ``name`` is an index into the batch's names or -1,
#: ``correlation`` the number that it shares with the call that launched it.
OPERATION = np.dtype(
    [
        *(("start", np.int64), ("end", np.int64), ("device", np.int32), ("stream", np.int64)),
        *(("correlation", np.uint32), ("activity", np.uint8), ("name", np.int32)),
    ]
)

#: A thread's call into the driver. ``thread`` is the low 32 bits of what :func:`threading.get_ident` gives there.
#: ``correlation`` is 0 where it launches no operation: it only waits, or it failed.
CALL = np.dtype(
    [("start", np.int64), ("end", np.int64), ("thread", np.uint32), ("correlation", np.uint32), ("waits", np.uint8)]
)

Operations = NDArray[np.void]
Calls = NDArray[np.void]


class TaskId(NamedTuple):
    """One run of a task in one thread."""

    #: :func:`threading.get_ident` of its thread.
    thread: int
    #: Start there, monotonic nanoseconds.
    start: int


class TaskWindow(NamedTuple):
    """Stretch of time in which a thread ran one task."""

    task: TaskId
    #: End, monotonic nanoseconds; -1 while it runs.
    stop: int
    key: Any


@dataclass(frozen=True, slots=True)
class GpuBatch:
    """Operations, calls and bounds that one flush of a meter returns."""

    #: Of dtype :data:`OPERATION`, in any order. Their calls may be in an earlier or a later batch.
    operations: Operations = field(default_factory=lambda: np.empty(0, OPERATION))
    #: Of dtype :data:`CALL`.
    calls: Calls = field(default_factory=lambda: np.empty(0, CALL))
    names: Sequence[str] = ()
    #: From a meter that sees no operations: an upper bound of each task's time on the device, nanoseconds.
    bounds: Mapping[TaskId, int] = field(default_factory=dict)
    #: All that ended before this instant, monotonic nanoseconds, is in this batch or an earlier one; never falls.
    known_until: int = 0


@dataclass(frozen=True, slots=True)
class Device:
    """Device that the process of the meter may use."""

    uuid: str
    #: Model, for display.
    name: str = ""


class MeterRefused(RuntimeError):
    """A meter cannot be used in this process; the text gives the reason, for a report."""


class GpuMeter:
    """Meter of the devices of this process. All methods are called from one thread, which runs no tasks.

    This base measures nothing: its description is the reason.
    """

    #: ``cupti``, ``torch-events`` or ``none``.
    kind = "none"
    #: Devices seen so far, by the number that operations carry.
    devices: Mapping[int, Device] = {}
    #: Records, or tasks, lost so far.
    dropped = 0

    def __init__(self, description: str) -> None:
        #: Method, with versions.
        self.description = description

    @property
    def gaps(self) -> int:
        """Nanoseconds so far in which it gave way to a profiler of the user."""
        return 0

    def flush(self) -> GpuBatch:
        """Batch of what became known since the last flush; called about twice a second."""
        return GpuBatch()

    def close(self) -> GpuBatch:
        """Flush for the last time and leave the process as it was before. Safe to call twice."""
        return GpuBatch()
