"""Sensors in heartbeats: all that a host has, told in full each time.

So a lost heartbeat costs nothing, and a sensor that falls silent is absent at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.checks import RefusedPayload, short
from dask_efficiency.accounts.sensors.names import HOST_SENSORS

#: Larger numbers would be infinite as they are kept.
_MAX = float(np.finfo(np.float32).max)


def encode_sensors(readings: Mapping[str, float]) -> list[float | None]:
    """A reading as a heartbeat carries it: by sensor, None where there is nothing, or no number from 0 to 3.4e38."""
    values = map(readings.get, HOST_SENSORS)
    return [value if value is not None and 0 <= value <= _MAX else None for value in values]


def decode_sensors(payload: object) -> NDArray[np.float32]:
    """What :func:`encode_sensors` made.

    Returns
    -------
    array, shape (sensors,)
        In the order of :data:`~dask_efficiency.accounts.sensors.names.HOST_SENSORS`; NaN for what the host does not
        have.

    Raises
    ------
    RefusedPayload
        If it is none.
    """
    if not isinstance(payload, (list, tuple)) or len(payload) != len(HOST_SENSORS):
        raise RefusedPayload(f"sensors are {short(payload)}; expected {len(HOST_SENSORS)} numbers")
    for name, value in zip(HOST_SENSORS, payload, strict=True):
        if value is not None and not (type(value) in (int, float) and 0 <= value <= _MAX):
            raise RefusedPayload(f"sensors[{name!r}] is {short(value)}; expected a number from 0 to {_MAX:.2g}")
    return np.array([math.nan if value is None else value for value in payload], np.float32)
