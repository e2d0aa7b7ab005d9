from __future__ import annotations

import struct
import sys
from typing import Any

import pytest

from dask_efficiency.plugin.worker.sensors import network
from dask_efficiency.plugin.worker.sensors.network import PauseFrames, pauses_among

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="ethtool is of Linux")


@pytest.mark.parametrize(
    ("names", "sensors"),
    [
        (["rx_packets", "tx_prio3_pause", "rx_prio3_pause", "tx_prio3_pause_duration"], ["pfc_sent", "pfc_received"]),
        (["rx_pfc_ena_frames_pri4", "tx_pfc_ena_frames_pri4"], ["pfc_received", "pfc_sent"]),
        (["tx_priority_3_xoff.nic", "tx_priority_3_xon.nic"], ["pfc_sent"]),
        (["tx_pause", "rx_drops"], []),
    ],
)
def test_pause_frames_of_a_priority_are_known_by_the_names_of_each_driver(names, sensors):
    count, found = pauses_among(names)
    assert count == len(names)
    assert list(found.values()) == sensors


class Driver:
    """Answers ethtool's commands as a kernel does, into the buffer that the request points to."""

    def __init__(self, **statistics: int) -> None:
        self.statistics = statistics
        self.asked: list[int] = []

    def ioctl(self, _: Any, command: int, request: bytes) -> None:
        import ctypes

        assert command == 0x8946
        name, address = struct.unpack_from("16sP", request)
        if name.rstrip(b"\0") != b"eth0":
            raise OSError("no such device")
        (what,) = struct.unpack("=I", ctypes.string_at(address, 4))
        self.asked.append(what)
        names = [key.encode().ljust(32, b"\0") for key in self.statistics]
        answers = {
            0x37: struct.pack("=QI", 2, len(names)),
            0x1B: b"".join(names),
            0x1D: struct.pack(f"=I{len(names)}Q", len(names), *self.statistics.values()),
        }
        at = {0x37: 8, 0x1B: 12, 0x1D: 4}[what]
        ctypes.memmove(address + at, answers[what], len(answers[what]))


@pytest.fixture
def frames():
    frames = PauseFrames()
    yield frames
    frames.close()


def test_pause_frames_are_summed_over_the_priorities(monkeypatch, frames):
    driver = Driver(rx_packets=9, rx_prio0_pause=1, rx_prio3_pause=10, tx_prio3_pause=100)
    monkeypatch.setattr(network.fcntl, "ioctl", driver.ioctl)
    assert frames("eth0") == {"pfc_received": 11, "pfc_sent": 100}
    driver.statistics["tx_prio3_pause"] = 130
    assert frames("eth0") == {"pfc_received": 11, "pfc_sent": 130}
    assert frames("other") == {}
    # Statistics that change are looked up anew, at the next reading.
    driver.statistics = {**{f"rx_queue_{i}": i for i in range(1_000)}, "tx_prio3_pause": 131}
    assert frames("eth0") == {}
    assert frames("eth0") == {"pfc_sent": 131}


def test_a_driver_that_counts_no_pause_frames_is_asked_once(monkeypatch, frames):
    assert frames("lo") == {}  # of this machine
    driver = Driver(rx_packets=9)
    monkeypatch.setattr(network.fcntl, "ioctl", driver.ioctl)
    assert frames("eth0") == frames("eth0") == {}
    assert driver.asked == [0x37, 0x1B]
