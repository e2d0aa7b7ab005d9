"""Settings of Dask that change a schedule: all that a trace records of a configuration, and all that is taken from one.

Each has a value, never a subtree: a trace that came from elsewhere must not set anything else.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType


class Kind(Enum):
    """The values that a setting may have, as messages name them."""

    SWITCH = "True or False"
    NUMBER = "a number of 0 or more, or False"
    TIME = "a time such as '500ms'"
    SIZE = "a size such as '10MB', or False"
    TIMES = "a time by prefix, such as {'sum': '1s'}"


SETTINGS: Mapping[str, Kind] = MappingProxyType(
    {
        "distributed.scheduler.allowed-failures": Kind.NUMBER,
        "distributed.scheduler.bandwidth": Kind.SIZE,
        "distributed.scheduler.default-data-size": Kind.SIZE,
        "distributed.scheduler.default-task-durations": Kind.TIMES,
        "distributed.scheduler.rootish-taskgroup": Kind.NUMBER,
        "distributed.scheduler.rootish-taskgroup-dependencies": Kind.NUMBER,
        "distributed.scheduler.unknown-task-duration": Kind.TIME,
        "distributed.scheduler.work-stealing": Kind.SWITCH,
        "distributed.scheduler.work-stealing-interval": Kind.TIME,
        "distributed.scheduler.worker-saturation": Kind.NUMBER,
        "distributed.scheduler.worker-ttl": Kind.TIME,
        "distributed.scheduler.active-memory-manager.start": Kind.SWITCH,
        "distributed.scheduler.active-memory-manager.interval": Kind.TIME,
        "distributed.worker.connections.incoming": Kind.NUMBER,
        "distributed.worker.connections.outgoing": Kind.NUMBER,
        "distributed.worker.memory.transfer": Kind.NUMBER,
        "distributed.worker.memory.target": Kind.NUMBER,
        "distributed.worker.memory.spill": Kind.NUMBER,
        "distributed.worker.memory.pause": Kind.NUMBER,
        "distributed.worker.memory.terminate": Kind.NUMBER,
        "distributed.worker.memory.max-spill": Kind.SIZE,
        "distributed.worker.memory.recent-to-old-time": Kind.TIME,
        "distributed.worker.memory.monitor-interval": Kind.TIME,
        "distributed.worker.transfer.message-bytes-limit": Kind.SIZE,
    }
)
