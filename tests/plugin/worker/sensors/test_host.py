"""The readings of hosts, from small folders that look like ``/proc`` and ``/sys``."""

from __future__ import annotations

import os
import sys
import time
from functools import cached_property
from pathlib import Path

import pytest

from dask_efficiency.accounts.sensors import HOST_SENSORS
from dask_efficiency.plugin.worker.sensors.files import KeptFiles, words_of
from dask_efficiency.plugin.worker.sensors.host import HostSensors

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sensors are read on Linux only")


class Tree:
    """A host's files, which change in place as those of a kernel do."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.pauses: dict[str, dict[str, int]] = {}

    @cached_property
    def sensors(self) -> HostSensors:
        proc, sys = str(self.root / "proc"), str(self.root / "sys")
        return HostSensors(proc, sys, pauses=lambda name: self.pauses.get(name, {}))

    def write(self, **files: object) -> None:
        for path, content in files.items():
            file = self.root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{content}\n")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


Files = dict[str, object]


def cpu(*, busy: int = 0, idle: int = 0, iowait: int = 0, steal: int = 0) -> Files:
    # Interrupts, which a large host has many of, stand in the same file.
    return {"proc/stat": f"cpu  {busy} 0 0 {idle} {iowait} 0 0 {steal} 0 0\ncpu0 1 2 3\nintr {'0 ' * 5000}"}


def pressure(resource: str, seconds: float) -> Files:
    averages = "avg10=1.00 avg60=2.00 avg300=3.00"
    return {f"proc/pressure/{resource}": f"some {averages} total={round(seconds * 1e6)}\nfull {averages} total=9"}


def cores(hertz: int, throttles: int) -> Files:
    files = {"cpufreq/scaling_cur_freq": hertz, "thermal_throttle/core_throttle_count": throttles}
    return {f"sys/devices/system/cpu/cpu{core}/{file}": n for core in range(32) for file, n in files.items()}


def memory(swapped_in: int) -> Files:
    available = "MemTotal:       24684084 kB\nMemFree:        23186408 kB\nMemAvailable:   1000 kB\nBuffers: 1 kB"
    return {"proc/meminfo": available, "proc/vmstat": f"nr_free_pages 1\npswpin {swapped_in}\npswpout 20"}


def disks(**rows: tuple[int, int, int, int, int]) -> Files:
    """Reads, their milliseconds, writes, theirs, and how long each disk was busy."""
    lines = [
        f" 254 0 {name} {reads} 0 0 {read_ms} {writes} 0 0 {write_ms} 0 {busy} 0 0 0 0 0 0"
        for name, (reads, read_ms, writes, write_ms, busy) in rows.items()
    ]
    return {"proc/diskstats": "\n".join(lines)}


def interfaces(**rows: tuple[int, int]) -> Files:
    """Errors and drops of each, in either direction."""
    lines = [f"{name:>6}: 100 10 {e} {d} 0 0 0 0 50 5 {e} {d} 0 0 0 0" for name, (e, d) in rows.items()]
    return {"proc/net/dev": "\n".join(["Inter-|   Receive", " face |bytes    packets errs drop", *lines])}


def tcp(retransmitted: int) -> Files:
    return {"proc/net/snmp": f"Ip: Forwarding\nIp: 1\nTcp: RtoMin RetransSegs\nTcp: 200 {retransmitted}"}


def rdma(received: int, sent: int, *congestion: int) -> Files:
    names = ("np_ecn_marked_roce_packets", "np_cnp_sent", "rp_cnp_handled")
    counters = {"counters/port_rcv_data": received, "counters/port_xmit_data": sent}
    counters |= {f"hw_counters/{name}": n for name, n in zip(names, congestion, strict=True)}
    return {f"sys/class/infiniband/mlx5_0/ports/1/{name}": n for name, n in counters.items()}


LOAD = {"proc/loadavg": "3.00 1.43 1.99 17/128 19533", "sys/devices/system/cpu/cpufreq/policy": 0}
ETHERNET = {"sys/class/net/eth0/device/vendor": "0x1", "sys/class/net/lo/mtu": 65536}
PAGE = os.sysconf("SC_PAGE_SIZE")
#: What is in the files at some seconds, and what is read then.
READINGS: dict[str, list[tuple[float, Files, dict[str, float]]]] = {
    "a host without files has no sensors": [(0, {}, {}), (1, {}, {})],
    "shares of the cores are of their time since the reading before": [
        (10, cpu(busy=1_000, idle=5_000, iowait=10), {}),
        (11, cpu(busy=1_060, idle=5_020, iowait=20, steal=10), {"host_cpu": 0.6, "steal": 0.1}),
    ],
    "a counter that falls gives no share, and the next reading goes on": [
        (0, cpu(busy=1_000, idle=1_000), {}),
        (1, cpu(busy=1_100, idle=1_100), {"host_cpu": 0.5, "steal": 0.0}),
        (2, cpu(busy=50, idle=50), {}),
        (3, cpu(busy=100, idle=100), {"host_cpu": 0.5, "steal": 0.0}),
    ],
    "cores that wait, are slow or hot are noticed, of 32 in 8": [
        (0, cores(2_000_000, 5) | pressure("cpu", 100) | LOAD, {"cpu_clock": 2e9, "run_queue": 0.5}),
        (
            2,
            cores(1_000_000, 6) | pressure("cpu", 101),
            {"cpu_clock": 1e9, "run_queue": 0.5, "cpu_pressure": 0.5, "cpu_throttles": 4.0},
        ),
    ],
    "shortage of memory is noticed": [
        (0, memory(10) | pressure("memory", 0), {"memory_available": 1_024_000}),
        (
            2,
            memory(14) | pressure("memory", 0.5),
            {"memory_available": 1_024_000, "swap_in": 2 * PAGE, "swap_out": 0, "memory_pressure": 0.25},
        ),
    ],
    "disks have the share of the busiest and the mean wait of all requests, if any": [
        (0, disks(vda=(0, 0, 0, 0, 0), nvme0n1=(7, 7, 7, 7, 7), sda1=(0, 0, 0, 0, 0), loop0=(0, 0, 0, 0, 0)), {}),
        (
            1,
            disks(
                vda=(1, 30, 3, 50, 500), nvme0n1=(7, 7, 7, 7, 107), sda1=(1, 9_000, 0, 0, 999), loop0=(1, 1, 1, 1, 9)
            ),
            {"disk_busy": 0.5, "disk_wait": 0.02},
        ),
        (2, {}, {"disk_busy": 0.0}),
    ],
    "milliseconds of a disk that begin anew go on": [
        (0, disks(sda=(10, 2**32 - 10, 0, 0, 2**32 - 100)), {}),
        (1, disks(sda=(11, 10, 0, 0, 100)), {"disk_busy": 0.2, "disk_wait": 0.02}),
    ],
    "lost packets are counted on physical interfaces": [
        (0, ETHERNET | interfaces(lo=(0, 0), eth0=(1, 2), veth9=(0, 0)) | tcp(10), {}),
        (
            2,
            interfaces(lo=(9, 9), eth0=(2, 4), veth9=(9, 9)) | tcp(14),
            {"net_errors": 1.0, "net_drops": 2.0, "retransmits": 2.0},
        ),
    ],
    "in a container all interfaces but the loopback count": [
        (0, interfaces(lo=(0, 0), eth0=(0, 0)), {}),
        (1, interfaces(lo=(5, 5), eth0=(1, 0)), {"net_errors": 2.0, "net_drops": 0.0}),
    ],
    "an interface that comes makes no rate jump": [
        (0, interfaces(eth0=(0, 0)), {}),
        (1, interfaces(eth0=(0, 0), eth1=(1_000_000, 1_000_000)), {"net_errors": 0.0, "net_drops": 0.0}),
    ],
    "RDMA ports have rates of data and of congestion": [
        (0, rdma(7, 7, 7, 7, 7), {}),
        (1, rdma(107, 207, 10, 11, 12), {"rdma_read": 400, "rdma_write": 800, "rdma_ecn": 3, "rdma_cnp": 9}),
    ],
    "a port without counters of congestion has none": [
        (0, {"sys/class/infiniband/mlx4_0/ports/1/counters/port_rcv_data": 1}, {}),
        (1, {"sys/class/infiniband/mlx4_0/ports/1/counters/port_xmit_data": "N/A"}, {"rdma_read": 0.0}),
    ],
}


@pytest.mark.parametrize("readings", READINGS.values(), ids=READINGS)
def test_readings_are_of_the_files_and_of_what_changed_in_them(tree, readings):
    for at, files, reading in readings:
        tree.write(**files)
        assert tree.sensors.read(at) == reading


def test_sensors_of_this_machine_are_plausible():
    host = HostSensors()
    until = time.monotonic() + 60
    found: dict[str, float] = {}
    while "host_cpu" not in found and time.monotonic() < until:  # the kernel counts in hundredths of a second
        found = host.read(time.monotonic())
    assert {"host_cpu", "memory_available", "run_queue"} <= found.keys() <= HOST_SENSORS.keys()
    assert 0 <= found["host_cpu"] <= 1
    assert found["memory_available"] > 1e6
    host.close()
    host.close()


def test_pause_frames_of_an_interface_are_a_rate(tree):
    tree.write(**ETHERNET)
    for i in range(2):
        tree.pauses["eth0"] = {"pfc_sent": 10 * i, "pfc_received": 4 * i}
        found = tree.sensors.read(2.0 * i)
    assert found == {"pfc_sent": 5.0, "pfc_received": 2.0}


@pytest.mark.parametrize("content", ["", "cpu", "cpu 1 2", "\n\n", "some total=x", "1 2 3 4 5 6 7 8 9 10 11 12 13 14"])
def test_files_of_another_shape_are_absent(tree, content):
    for path in ("stat", "meminfo", "vmstat", "diskstats", "net/dev", "net/snmp", "pressure/cpu"):
        tree.write(**{f"proc/{path}": content})
    tree.sensors.read(0.0)
    assert tree.sensors.read(1.0) == {}


def test_a_missing_file_is_not_opened_again(tree):
    files = KeptFiles(tree.root)
    assert files.read("x") == b""
    tree.write(x="1")
    assert files.read("x") == b""
    assert files.number("x") is None
    assert files.names("nothing") == []


def test_a_line_that_was_cut_off_is_left_out():
    assert list(words_of(b"a 1\n\nb 2\nc")) == [[b"a", b"1"], [b"b", b"2"]]
