"""Rdma: what the ports of RDMA devices moved, and the congestion that they were told of."""

from __future__ import annotations

from dask_efficiency.accounts.sensors.rates import Rates
from dask_efficiency.plugin.worker.sensors.files import KeptFiles
from dask_efficiency.plugin.worker.sensors.network import summed

_FOLDER = "class/infiniband"

#: Files of a port, by the sensor that they count for, and how much one of it is: data are counted in words of four
#: bytes. The last ones are those of Mellanox's cards.
FILES: tuple[tuple[str, str, int], ...] = (
    ("counters/port_rcv_data", "rdma_read", 4),
    ("counters/port_xmit_data", "rdma_write", 4),
    ("hw_counters/np_ecn_marked_roce_packets", "rdma_ecn", 1),
    ("hw_counters/np_cnp_sent", "rdma_cnp", 1),
    ("hw_counters/rp_cnp_handled", "rdma_cnp", 1),
)

#: Ports that are read; of more, the first.
MAX_PORTS = 16


class Rdma:
    """Reads the counters below ``/sys/class/infiniband``."""

    def __init__(self, sys: KeptFiles) -> None:
        self._sys = sys
        self._rates: Rates[tuple[str, str]] = Rates()
        ports = [
            f"{_FOLDER}/{device}/ports/{port}"
            for device in sys.names(_FOLDER)
            for port in sys.names(f"{_FOLDER}/{device}/ports")
        ]
        there = [(f"{port}/{path}", sensor, unit) for port in ports[:MAX_PORTS] for path, sensor, unit in FILES]
        self._files = [file for file in there if (sys.root / file[0]).exists()]

    def read(self, at: float) -> dict[str, float]:
        """The sensors by name; see :mod:`dask_efficiency.accounts.sensors.names`."""
        counters: dict[tuple[str, str], float] = {}
        for path, sensor, unit in self._files:
            count = self._sys.number(path)
            if count is not None:
                counters[sensor, path] = unit * count
        return summed(self._rates.take(counters, at=at))
