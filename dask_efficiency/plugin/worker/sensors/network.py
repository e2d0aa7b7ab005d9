"""Network: packets of the host that were lost, and pauses that its links were sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dask_efficiency.accounts.sensors.rates import Rates
from dask_efficiency.plugin.worker.sensors.files import KeptFiles, words_of

#: In ``/proc/net/dev`` after the name: errors and drops of what was received, and of what was sent.
_ERRORS, _DROPS = (2, 10), (3, 11)
_COLUMNS = 16

#: Readings after which it is looked again which interfaces there are.
LOOK_AGAIN = 60

#: Interfaces that are read; of more, the first.
MAX_INTERFACES = 32

#: Says an interface's statistics by name that tell of pauses, or nothing.
Pauses = Callable[[str], Mapping[str, int]]


class Network:
    """Reads ``/proc/net/dev`` and ``snmp``; bytes come with Dask's own heartbeat.

    Physical interfaces count where there are any; else, as in a container, all but the loopback.
    """

    def __init__(self, proc: KeptFiles, sys: KeptFiles, pauses: Pauses = lambda interface: {}) -> None:
        self._proc, self._sys = proc, sys
        self._pauses = pauses
        self._rates: Rates[tuple[str, str]] = Rates()
        self._physical: Sequence[str] = ()
        self._readings = 0

    def read(self, at: float) -> dict[str, float]:
        """The sensors by name; see :mod:`dask_efficiency.accounts.sensors.names`."""
        if self._readings % LOOK_AGAIN == 0:
            net = "class/net"
            names = self._sys.names(net)
            physical = [name for name in names if (self._sys.root / net / name / "device").exists()]
            self._physical = physical[:MAX_INTERFACES]
        self._readings += 1
        counters: dict[tuple[str, str], float] = {}
        self._read_interfaces(counters)
        again = self._retransmitted()
        if again is not None:
            counters["retransmits", ""] = again
        for interface in self._physical:
            for sensor, count in self._pauses(interface).items():
                counters[sensor, interface] = count
        return summed(self._rates.take(counters, at=at))

    def _read_interfaces(self, counters: dict[tuple[str, str], float]) -> None:
        rows = {}
        for line in self._proc.read("net/dev").decode(errors="replace").split("\n"):
            name, colon, numbers = line.partition(":")
            row = numbers.split()
            if colon and len(row) >= _COLUMNS:
                rows[name.strip()] = row
        chosen = [name for name in self._physical if name in rows] or [name for name in rows if name != "lo"]
        for name in chosen[:MAX_INTERFACES]:
            counters["net_errors", name] = sum(int(rows[name][column]) for column in _ERRORS)
            counters["net_drops", name] = sum(int(rows[name][column]) for column in _DROPS)

    def _retransmitted(self) -> int | None:
        names: list[bytes] = []
        for words in words_of(self._proc.read("net/snmp")):
            if words[0] != b"Tcp:":
                continue
            if not names:
                names = words
            elif b"RetransSegs" in names and len(words) == len(names):
                return int(words[names.index(b"RetransSegs")])
        return None


def summed(rates: Mapping[tuple[str, str], float]) -> dict[str, float]:
    """Rates by sensor and device as sums by sensor."""
    found: dict[str, float] = {}
    for (sensor, _), rate in rates.items():
        found[sensor] = found.get(sensor, 0.0) + rate
    return found
