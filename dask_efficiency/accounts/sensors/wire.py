"""Sensors in heartbeats: all that a host has, in three characters each.

A reading is told in full each time, so that a lost heartbeat costs nothing and a sensor that falls silent is absent at
once: a characters' mask of which there are, then a float of 8 bits of exponent and 13 of mantissa for each. A host
without RDMA takes about 50 bytes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.checks import RefusedPayload, short
from dask_efficiency.accounts.sensors.names import HOST_SENSORS

_NAMES = tuple(HOST_SENSORS)
_PLACES = {name: place for place, name in enumerate(_NAMES)}
#: Characters of the mask, and of a number; each has 7 bits.
_MASK = -(-len(_NAMES) // 7)
_DIGITS = 3
#: Bits of a float's mantissa that do not travel, and half of the last one that does.
_CUT = 10
_HALF = 1 << _CUT - 1
#: Larger numbers would be rounded to infinity.
_MAX = float(np.float32(3e38))


def encode_sensors(readings: Mapping[str, float]) -> str:
    """A reading as a heartbeat carries it, exact to a part in 16,384; what is negative or no number is left out."""
    known = {_PLACES[name]: value for name, value in readings.items() if 0 <= value <= _MAX and not math.isnan(value)}
    places = sorted(known)
    mask = sum(1 << place for place in places)
    characters = [mask >> 7 * i & 127 for i in range(_MASK)]
    floats = struct.pack(f"<{len(places)}f", *(known[place] for place in places))
    for (bits,) in struct.iter_unpack("<I", floats):
        digits = bits + _HALF >> _CUT
        characters += (digits & 127, digits >> 7 & 127, digits >> 14)
    return bytes(characters).decode("ascii")


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
        If it is none, or holds infinity.
    """
    if not isinstance(payload, str) or not payload.isascii() or len(payload) < _MASK:
        raise RefusedPayload(f"sensors are {short(payload)}; expected a text of at least {_MASK} ASCII characters")
    content = payload.encode("ascii")
    places = _places(content[:_MASK])
    expected = _MASK + _DIGITS * len(places)
    if len(content) != expected:
        raise RefusedPayload(f"sensors have {len(content)} characters; expected {expected} for {len(places)} sensors")
    found = np.full(len(_NAMES), np.nan, np.float32)
    digits = np.frombuffer(content, np.uint8, offset=_MASK).reshape(-1, _DIGITS).astype(np.uint32)
    values = (digits @ _WEIGHTS).view(np.float32)
    if not np.isfinite(values).all():
        raise RefusedPayload("sensors hold a number that is not finite")
    found[places] = values
    return found


_WEIGHTS = np.array([1 << _CUT + 7 * i for i in range(_DIGITS)], np.uint32)


@lru_cache(maxsize=1024)
def _places(mask: bytes) -> NDArray[np.intp]:
    whole = sum(digit << 7 * i for i, digit in enumerate(mask))
    if whole >> len(_NAMES):
        raise RefusedPayload(f"sensors have a mask of {whole.bit_length()} sensors; expected {len(_NAMES)}")
    return np.array([place for place in range(len(_NAMES)) if whole >> place & 1], np.intp)
