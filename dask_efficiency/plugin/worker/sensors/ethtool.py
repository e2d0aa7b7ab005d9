"""Pause frames by priority (PFC), which drivers count among the statistics that ``ethtool -S`` shows."""

from __future__ import annotations

import ctypes
import fcntl
import re
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress

#: Of ``linux/sockios.h`` and ``linux/ethtool.h``.
_SIOCETHTOOL = 0x8946
_GSTRINGS, _GSTATS, _GSSET_INFO = 0x1B, 0x1D, 0x37
_SS_STATS = 1
_NAME_BYTES = 32

#: Statistics that are read of an interface, at most. The kernel may write as many as a driver has by then, however many
#: were asked for: answers have room for so many always.
MAX_STATISTICS = 1 << 14

#: How drivers call pause frames of a priority: mlx5 ``tx_prio3_pause``, bnxt ``tx_pfc_ena_frames_pri3``, ice
#: ``tx_priority_3_xoff.nic``. How long the pauses were (``_duration``) is another number.
_PAUSE = re.compile(r"(rx|tx)_(?:prio\d_pause|pfc_(?:ena_)?frames_pri(?:o)?\d|priority_\d_xoff(?:\.nic)?)\Z")
_SENSORS = {"rx": "pfc_received", "tx": "pfc_sent"}


class PauseFrames:
    """Counts the pause frames of interfaces; of one whose driver does not, it says nothing and does not ask again."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        #: By interface: how many statistics it has, and which of them count for which sensor.
        self._known: dict[str, tuple[int, dict[int, str]]] = {}

    def __call__(self, interface: str) -> Mapping[str, int]:
        """Pause frames so far, by sensor."""
        known = self._known.get(interface)
        if known is None:
            known = self._known[interface] = pauses_among(self._names(interface))
        count, places = known
        found: dict[str, int] = {}
        if not places:
            return found
        with suppress(OSError):
            content = self._ask(interface, struct.pack("=II", _GSTATS, count), 8 * MAX_STATISTICS)
            if struct.unpack_from("=I", content, 4)[0] != count or self._count(interface) != count:
                del self._known[interface]  # a driver's statistics may change: they are looked up anew the next time
                return found
            for place, sensor in places.items():
                (frames,) = struct.unpack_from("=Q", content, 8 + 8 * place)
                found[sensor] = found.get(sensor, 0) + frames
        return found

    def close(self) -> None:
        """Ask no more; safe to call twice."""
        self._socket.close()

    def _count(self, interface: str) -> int:
        """How many statistics an interface has."""
        content = self._ask(interface, struct.pack("=IIQ", _GSSET_INFO, 0, 1 << _SS_STATS), 4)
        mask, count = struct.unpack_from("=QI", content, 8)
        return int(count) if mask else 0

    def _names(self, interface: str) -> list[str]:
        """The statistics of an interface, in order; none where it has none."""
        with suppress(OSError):
            count = self._count(interface)
            if 0 < count <= MAX_STATISTICS:
                question = struct.pack("=III", _GSTRINGS, _SS_STATS, count)
                content = self._ask(interface, question, _NAME_BYTES * MAX_STATISTICS)
                names = [content[12 + _NAME_BYTES * i :][:_NAME_BYTES] for i in range(count)]
                return [name.partition(b"\0")[0].decode(errors="replace") for name in names]
        return []

    def _ask(self, interface: str, head: bytes, more: int) -> bytes:
        """The answer to an ethtool command, which begins as the question does."""
        buffer = ctypes.create_string_buffer(head, len(head) + more)
        request = struct.pack("16sP16x", interface.encode()[:15], ctypes.addressof(buffer))
        fcntl.ioctl(self._socket, _SIOCETHTOOL, request)
        return buffer.raw


def pauses_among(names: list[str]) -> tuple[int, dict[int, str]]:
    """How many statistics there are, and by place the sensor of those that count pause frames."""
    matches = {place: _PAUSE.match(name) for place, name in enumerate(names)}
    return len(names), {place: _SENSORS[match[1]] for place, match in matches.items() if match}
