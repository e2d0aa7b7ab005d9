"""Network sensors: lost packets, retransmissions, pause frames by priority (PFC), and the ports of RDMA devices."""

from __future__ import annotations

import ctypes
import fcntl
import re
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from dask_efficiency.plugin.worker.sensors.files import MAX_DEVICES, Counters, KeptFiles, words_of

#: Columns of ``/proc/net/dev`` after the name: errors and drops, received and sent.
_ERRORS, _DROPS = (2, 10), (3, 11)
_COLUMNS = 16
#: Readings between two searches for interfaces: a minute or more.
LOOK_AGAIN = 60
#: Gives the pause frames of an interface by sensor; empty if its driver does not count them.
Pauses = Callable[[str], Mapping[str, int]]


class NetworkSensors:
    """Reads ``/proc/net/dev`` and ``snmp``: of physical interfaces or, as in a container, of all but the loopback."""

    def __init__(self, proc: KeptFiles, sys: KeptFiles, pauses: Pauses) -> None:
        self._proc, self._sys = proc, sys
        self._pauses = pauses
        self._physical: Sequence[str] = ()
        self._readings = 0

    def read(self, counters: Counters) -> dict[str, float]:
        """Add to the counters; no other sensor is read here."""
        if self._readings % LOOK_AGAIN == 0:
            found = self._sys.root.glob("class/net/*/device")
            self._physical = sorted(device.parent.name for device in found)[:MAX_DEVICES]
        self._readings += 1
        self._read_interfaces(counters)
        if (again := self._retransmitted()) is not None:
            counters["retransmits", ""] = again
        for interface in self._physical:
            for sensor, count in self._pauses(interface).items():
                counters[sensor, interface] = count
        return {}

    def _read_interfaces(self, counters: Counters) -> None:
        rows = {}
        for line in self._proc.read("net/dev").decode(errors="replace").split("\n"):
            name, colon, numbers = line.partition(":")
            row = numbers.split()
            if colon and len(row) >= _COLUMNS:
                rows[name.strip()] = row
        chosen = [name for name in self._physical if name in rows] or [name for name in rows if name != "lo"]
        for name in chosen[:MAX_DEVICES]:
            counters["net_errors", name] = sum(int(rows[name][column]) for column in _ERRORS)
            counters["net_drops", name] = sum(int(rows[name][column]) for column in _DROPS)

    def _retransmitted(self) -> int | None:
        # Two lines: the names, and the numbers.
        rows = [words for words in words_of(self._proc.read("net/snmp")) if words[0] == b"Tcp:"]
        if len(rows) == 2 and len(rows[0]) == len(rows[1]) and b"RetransSegs" in rows[0]:
            return int(rows[1][rows[0].index(b"RetransSegs")])
        return None


#: Files of a port, their sensors, and units: data is counted in words of four bytes. The last ones are Mellanox's.
FILES: tuple[tuple[str, str, int], ...] = (
    ("counters/port_rcv_data", "rdma_read", 4),
    ("counters/port_xmit_data", "rdma_write", 4),
    ("hw_counters/np_ecn_marked_roce_packets", "rdma_ecn", 1),
    ("hw_counters/np_cnp_sent", "rdma_cnp", 1),
    ("hw_counters/rp_cnp_handled", "rdma_cnp", 1),
)


class RdmaSensors:
    """Reads the counters below ``/sys/class/infiniband``."""

    def __init__(self, sys: KeptFiles) -> None:
        self._sys = sys
        ports = sorted(port.relative_to(sys.root) for port in sys.root.glob("class/infiniband/*/ports/*"))[:MAX_DEVICES]
        there = [(f"{port}/{path}", sensor, unit) for port in ports for path, sensor, unit in FILES]
        self._files = [file for file in there if (sys.root / file[0]).exists()]

    def read(self, counters: Counters) -> dict[str, float]:
        """Add to the counters; no other sensor is read here."""
        for path, sensor, unit in self._files:
            if (count := self._sys.number(path)) is not None:
                counters[sensor, path] = unit * count
        return {}


#: Of ``linux/sockios.h`` and ``linux/ethtool.h``.
_SIOCETHTOOL = 0x8946
_GSTRINGS, _GSTATS, _GSSET_INFO = 0x1B, 0x1D, 0x37
_SS_STATS = 1
_NAME_BYTES = 32
#: Room for statistics of an interface: the kernel writes as many as the driver has by then, not as many as were asked.
MAX_STATISTICS = 1 << 14
#: Drivers' names for pause frames of a priority: mlx5 ``tx_prio3_pause``, bnxt ``tx_pfc_ena_frames_pri3``, ice
#: ``tx_priority_3_xoff.nic``. Durations of pauses (``_duration``) do not match.
_PAUSE = re.compile(r"(rx|tx)_(?:prio\d_pause|pfc_(?:ena_)?frames_pri(?:o)?\d|priority_\d_xoff(?:\.nic)?)\Z")
_SENSORS = {"rx": "pfc_received", "tx": "pfc_sent"}


class PauseFrames:
    """Counts the pause frames of interfaces; a driver that does not count them is not asked again."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        #: By interface: number of statistics, and sensors by index of those that count pause frames.
        self._known: dict[str, tuple[int, dict[int, str]]] = {}

    def __call__(self, interface: str) -> Mapping[str, int]:
        """Pause frames of an interface so far, by sensor."""
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
                del self._known[interface]  # a driver's statistics may change: look them up anew next time
                return found
            for place, sensor in places.items():
                (frames,) = struct.unpack_from("=Q", content, 8 + 8 * place)
                found[sensor] = found.get(sensor, 0) + frames
        return found

    def close(self) -> None:
        """Ask no more; safe to call twice."""
        self._socket.close()

    def _count(self, interface: str) -> int:
        """Number of statistics of an interface."""
        content = self._ask(interface, struct.pack("=IIQ", _GSSET_INFO, 0, 1 << _SS_STATS), 4)
        mask, count = struct.unpack_from("=QI", content, 8)
        return int(count) if mask else 0

    def _names(self, interface: str) -> list[str]:
        """Names of the statistics of an interface, in order."""
        with suppress(OSError):
            count = self._count(interface)
            if 0 < count <= MAX_STATISTICS:
                question = struct.pack("=III", _GSTRINGS, _SS_STATS, count)
                content = self._ask(interface, question, _NAME_BYTES * MAX_STATISTICS)
                names = [content[12 + _NAME_BYTES * i :][:_NAME_BYTES] for i in range(count)]
                return [name.partition(b"\0")[0].decode(errors="replace") for name in names]
        return []

    def _ask(self, interface: str, head: bytes, more: int) -> bytes:
        """Answer to an ethtool command; it begins with the question."""
        buffer = ctypes.create_string_buffer(head, len(head) + more)
        request = struct.pack("16sP16x", interface.encode()[:15], ctypes.addressof(buffer))
        fcntl.ioctl(self._socket, _SIOCETHTOOL, request)
        return buffer.raw


def pauses_among(names: list[str]) -> tuple[int, dict[int, str]]:
    """Number of statistics, and sensors by index of those that count pause frames."""
    matches = {place: _PAUSE.match(name) for place, name in enumerate(names)}
    return len(names), {place: _SENSORS[match[1]] for place, match in matches.items() if match}
