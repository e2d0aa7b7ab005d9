"""Settings of Dask that change a schedule: the only ones that a trace records, and that a simulation takes from one.

Each has a value, never a subtree: a trace from elsewhere must not set anything else.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType


class SettingKind(Enum):
    """Values that a setting may have, as messages name them."""

    SWITCH = "True or False"
    NUMBER = "a number of 0 or more, or False"
    TIME = "a time such as '500ms'"
    SIZE = "a size such as '10MB', or False"
    TIMES = "a time by prefix, such as {'sum': '1s'}"


SETTINGS: Mapping[str, SettingKind] = MappingProxyType(
    {
        "distributed.scheduler.allowed-failures": SettingKind.NUMBER,
        "distributed.scheduler.bandwidth": SettingKind.SIZE,
        "distributed.scheduler.default-data-size": SettingKind.SIZE,
        "distributed.scheduler.default-task-durations": SettingKind.TIMES,
        "distributed.scheduler.rootish-taskgroup": SettingKind.NUMBER,
        "distributed.scheduler.rootish-taskgroup-dependencies": SettingKind.NUMBER,
        "distributed.scheduler.unknown-task-duration": SettingKind.TIME,
        "distributed.scheduler.work-stealing": SettingKind.SWITCH,
        "distributed.scheduler.work-stealing-interval": SettingKind.TIME,
        "distributed.scheduler.worker-saturation": SettingKind.NUMBER,
        "distributed.scheduler.worker-ttl": SettingKind.TIME,
        "distributed.scheduler.active-memory-manager.start": SettingKind.SWITCH,
        "distributed.scheduler.active-memory-manager.interval": SettingKind.TIME,
        "distributed.worker.connections.incoming": SettingKind.NUMBER,
        "distributed.worker.connections.outgoing": SettingKind.NUMBER,
        "distributed.worker.memory.transfer": SettingKind.NUMBER,
        "distributed.worker.memory.target": SettingKind.NUMBER,
        "distributed.worker.memory.spill": SettingKind.NUMBER,
        "distributed.worker.memory.pause": SettingKind.NUMBER,
        "distributed.worker.memory.terminate": SettingKind.NUMBER,
        "distributed.worker.memory.max-spill": SettingKind.SIZE,
        "distributed.worker.memory.recent-to-old-time": SettingKind.TIME,
        "distributed.worker.memory.monitor-interval": SettingKind.TIME,
        "distributed.worker.transfer.message-bytes-limit": SettingKind.SIZE,
    }
)
