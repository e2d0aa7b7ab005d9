"""What heartbeats say of a worker in numbers that a trace's series, and the watch for outliers, have columns for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.checks import RefusedPayload
from dask_efficiency.accounts.sensors.names import HOST_SENSORS
from dask_efficiency.accounts.sensors.wire import decode_sensors
from dask_efficiency.plugin.names import METRIC, SENSORS

#: Where Dask's own metrics stand in a heartbeat, by column.
DASK_METRICS: dict[str, tuple[str, ...]] = {
    "cpu": ("cpu",),
    "memory": ("memory",),
    "managed": ("managed_bytes",),
    "spilled": ("spilled_bytes", "disk"),
    "net_read": ("host_net_io", "read_bps"),
    "net_write": ("host_net_io", "write_bps"),
    "disk_read": ("host_disk_io", "read_bps"),
    "disk_write": ("host_disk_io", "write_bps"),
    "loop_interval": ("event_loop_interval",),
}

_PERCENT = 0.01


def dask_metric(metrics: Mapping[str, Any], name: str) -> float:
    """One of :data:`DASK_METRICS`; NaN where the heartbeat does not say."""
    value: Any = metrics
    for key in DASK_METRICS[name]:
        value = value.get(key) if isinstance(value, dict) else None
    if not isinstance(value, (int, float)):
        return float("nan")
    return value * _PERCENT if name == "cpu" else float(value)


def host_sensors(metrics: Mapping[str, Any]) -> NDArray[np.float32]:
    """The host's sensors in their order; NaN for what it does not have, or could not be read."""
    payload = metrics.get(METRIC)
    told = payload.get(SENSORS) if isinstance(payload, Mapping) else None
    if told is None:
        return _NOTHING
    try:
        return decode_sensors(told)
    except RefusedPayload:
        return _NOTHING


_NOTHING = np.full(len(HOST_SENSORS), np.nan, np.float32)
_NOTHING.setflags(write=False)
