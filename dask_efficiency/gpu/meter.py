"""GpuMeter: the protocol of all meters of GPU time, and the records that they return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

#: What an operation is, in the field ``activity``.
KERNEL, COPY, FILL = range(3)

#: What a call does to its thread, in the field ``waits``: it returns at once, it waits for the device and leaves the
#: core to others, or it waits and burns CPU meanwhile. The last two begin and end the recording of a graph; nothing
#: that is asked for in between is done.
RETURNS, BLOCKS, SPINS, BEGINS_GRAPH, ENDS_GRAPH = range(5)

#: Work on a device. Times are monotonic nanoseconds, ``name`` an index into the batch's names or -1,
#: ``correlation`` the number that it shares with the call that asked for it.
OPERATION = np.dtype(
    [
        ("start", np.int64),
        ("end", np.int64),
        ("device", np.int32),
        ("stream", np.int64),
        ("correlation", np.uint32),
        ("activity", np.uint8),
        ("name", np.int32),
    ]
)

#: A thread's call into the driver. ``thread`` is the low 32 bits of what :func:`threading.get_ident` gives there.
#: ``correlation`` is 0 where it asks for no operation: it only waits, or it failed.
CALL = np.dtype(
    [
        ("start", np.int64),
        ("end", np.int64),
        ("thread", np.uint32),
        ("correlation", np.uint32),
        ("waits", np.uint8),
    ]
)

Operations = NDArray[np.void]
Calls = NDArray[np.void]


class TaskId(NamedTuple):
    """One run of a task in one thread, as identified by the executor that ran it."""

    #: :func:`threading.get_ident` of its thread.
    thread: int
    #: When it began there, monotonic nanoseconds.
    start: int


class TaskWindow(NamedTuple):
    """From when to when a thread worked for one task."""

    task: TaskId
    #: When it ended, monotonic nanoseconds; -1 while it runs.
    stop: int
    #: The task's key, which tells its prefix.
    key: Any


@dataclass(frozen=True, slots=True)
class Batch:
    """What became known by one flush of a meter."""

    #: Of dtype :data:`OPERATION`, in any order. Their calls may be in an earlier or in a later batch.
    operations: Operations = field(default_factory=lambda: np.empty(0, OPERATION))
    #: Of dtype :data:`CALL`.
    calls: Calls = field(default_factory=lambda: np.empty(0, CALL))
    #: Readable names of kernels.
    names: Sequence[str] = ()
    #: From a meter that sees no operations: an upper bound of each task's time on the device, nanoseconds.
    bounds: Mapping[TaskId, int] = field(default_factory=dict)
    #: Everything that ended before this instant is in this batch or in an earlier one, monotonic nanoseconds; it never
    #: falls from one batch to the next.
    known_until: int = 0


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
