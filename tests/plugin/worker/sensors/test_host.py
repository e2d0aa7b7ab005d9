"""The readings of hosts, from small folders that look like ``/proc`` and ``/sys``."""

from __future__ import annotations

import os
import sys
import time
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

    def write(self, path: str, content: str | int) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{content}\n")

    def sensors(self) -> HostSensors:
        return HostSensors(
            str(self.root / "proc"), str(self.root / "sys"), pauses=lambda name: self.pauses.get(name, {})
        )

    def cpu(self, *, busy: int = 0, idle: int = 0, iowait: int = 0, steal: int = 0) -> None:
        # Interrupts, which a large host has many of, stand in the same file.
        self.write("proc/stat", f"cpu  {busy} 0 0 {idle} {iowait} 0 0 {steal} 0 0\ncpu0 1 2 3\nintr {'0 ' * 5000}")

    def pressure(self, resource: str, seconds: float) -> None:
        micros = round(seconds * 1e6)
        self.write(
            f"proc/pressure/{resource}",
            f"some avg10=1.00 avg60=2.00 avg300=3.00 total={micros}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=9",
        )

    def disks(self, **rows: tuple[int, int, int, int, int]) -> None:
        self.write(
            "proc/diskstats",
            "\n".join(
                f" 254 0 {name} {reads} 0 0 {read_ms} {writes} 0 0 {write_ms} 0 {busy} 0 0 0 0 0 0"
                for name, (reads, read_ms, writes, write_ms, busy) in rows.items()
            ),
        )

    def interfaces(self, **rows: tuple[int, int]) -> None:
        lines = [
            f"{name:>6}: 100 10 {errors} {drops} 0 0 0 0 50 5 {errors} {drops} 0 0 0 0"
            for name, (errors, drops) in rows.items()
        ]
        self.write("proc/net/dev", "\n".join(["Inter-|   Receive", " face |bytes    packets errs drop", *lines]))


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_a_host_without_files_has_no_sensors(tree):
    host = tree.sensors()
    assert host.read(0.0) == {}
    assert host.read(1.0) == {}


def test_sensors_of_this_machine_are_plausible(tree):
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


def test_shares_of_the_cores_are_of_their_time_since_the_reading_before(tree):
    tree.cpu(busy=1_000, idle=5_000, iowait=10, steal=0)
    host = tree.sensors()
    assert host.read(10.0) == {}
    tree.cpu(busy=1_060, idle=5_020, iowait=20, steal=10)
    assert host.read(11.0) == {"host_cpu": 0.6, "steal": 0.1}


def test_a_counter_that_falls_gives_no_share_and_the_next_reading_goes_on(tree):
    host = tree.sensors()
    found = []
    for i, busy in enumerate([1_000, 1_100, 50, 100]):
        tree.cpu(busy=busy, idle=busy)
        found.append(host.read(float(i)))
    assert found == [{}, {"host_cpu": 0.5, "steal": 0.0}, {}, {"host_cpu": 0.5, "steal": 0.0}]


def test_cores_that_wait_are_slow_or_hot_are_noticed(tree):
    for core in range(32):
        tree.write(f"sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq", 2_000_000)
        tree.write(f"sys/devices/system/cpu/cpu{core}/thermal_throttle/core_throttle_count", 5)
    (tree.root / "sys/devices/system/cpu/cpufreq").mkdir()
    tree.write("proc/loadavg", "3.00 1.43 1.99 17/128 19533")
    tree.pressure("cpu", 100)
    host = tree.sensors()
    assert host.read(0.0) == {"cpu_clock": 2e9, "run_queue": 0.5}
    for core in range(32):
        tree.write(f"sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq", 1_000_000)
        tree.write(f"sys/devices/system/cpu/cpu{core}/thermal_throttle/core_throttle_count", 6)
    tree.pressure("cpu", 101)
    # Of 32 cores 8 are read.
    assert host.read(2.0) == {"cpu_clock": 1e9, "run_queue": 0.5, "cpu_pressure": 0.5, "cpu_throttles": 4.0}


def test_shortage_of_memory_is_noticed(tree):
    meminfo = "MemTotal:       24684084 kB\nMemFree:        23186408 kB\nMemAvailable:   {} kB\nBuffers: 1 kB"
    tree.write("proc/meminfo", meminfo.format(1_000))
    tree.write("proc/vmstat", "nr_free_pages 1\npswpin 10\npswpout 20")
    tree.pressure("memory", 0)
    host = tree.sensors()
    assert host.read(0.0) == {"memory_available": 1_024_000}
    tree.write("proc/vmstat", "nr_free_pages 1\npswpin 14\npswpout 20")
    tree.pressure("memory", 0.5)
    page = os.sysconf("SC_PAGE_SIZE")
    rates = {"swap_in": 2 * page, "swap_out": 0, "memory_pressure": 0.25}
    assert host.read(2.0) == {"memory_available": 1_024_000, **rates}


def test_disks_have_the_share_of_the_busiest_and_the_mean_wait_of_all_requests(tree):
    tree.disks(vda=(0, 0, 0, 0, 0), nvme0n1=(7, 7, 7, 7, 7), sda1=(0, 0, 0, 0, 0), loop0=(0, 0, 0, 0, 0))
    host = tree.sensors()
    assert host.read(0.0) == {}
    tree.disks(vda=(1, 30, 3, 50, 500), nvme0n1=(7, 7, 7, 7, 107), sda1=(1, 9_000, 0, 0, 999), loop0=(1, 1, 1, 1, 999))
    assert host.read(1.0) == {"disk_busy": 0.5, "disk_wait": 0.02}
    # Without a request there is no wait.
    assert host.read(2.0) == {"disk_busy": 0.0}


def test_milliseconds_of_a_disk_that_begin_anew_go_on(tree):
    host = tree.sensors()
    tree.disks(sda=(10, 2**32 - 10, 0, 0, 2**32 - 100))
    host.read(0.0)
    tree.disks(sda=(11, 10, 0, 0, 100))
    assert host.read(1.0) == {"disk_busy": 0.2, "disk_wait": 0.02}


def test_lost_packets_are_counted_on_physical_interfaces(tree):
    (tree.root / "sys/class/net/eth0/device").mkdir(parents=True)
    (tree.root / "sys/class/net/lo").mkdir()
    tree.interfaces(lo=(0, 0), eth0=(1, 2), veth9=(0, 0))
    tree.write("proc/net/snmp", "Ip: Forwarding\nIp: 1\nTcp: RtoMin RetransSegs\nTcp: 200 10")
    host = tree.sensors()
    assert host.read(0.0) == {}
    tree.interfaces(lo=(9, 9), eth0=(2, 4), veth9=(9, 9))
    tree.write("proc/net/snmp", "Ip: Forwarding\nIp: 1\nTcp: RtoMin RetransSegs\nTcp: 200 14")
    assert host.read(2.0) == {"net_errors": 1.0, "net_drops": 2.0, "retransmits": 2.0}


def test_in_a_container_all_interfaces_but_the_loopback_count(tree):
    tree.interfaces(lo=(0, 0), eth0=(0, 0))
    host = tree.sensors()
    host.read(0.0)
    tree.interfaces(lo=(5, 5), eth0=(1, 0))
    assert host.read(1.0) == {"net_errors": 2.0, "net_drops": 0.0}


def test_an_interface_that_comes_makes_no_rate_jump(tree):
    tree.interfaces(eth0=(0, 0))
    host = tree.sensors()
    host.read(0.0)
    tree.interfaces(eth0=(0, 0), eth1=(1_000_000, 1_000_000))
    assert host.read(1.0) == {"net_errors": 0.0, "net_drops": 0.0}


def test_pause_frames_of_an_interface_are_a_rate(tree):
    (tree.root / "sys/class/net/eth0/device").mkdir(parents=True)
    host = tree.sensors()
    for i in range(2):
        tree.pauses["eth0"] = {"pfc_sent": 10 * i, "pfc_received": 4 * i}
        found = host.read(2.0 * i)
    assert found == {"pfc_sent": 5.0, "pfc_received": 2.0}


def test_rdma_ports_have_rates_of_data_and_of_congestion(tree):
    port = "sys/class/infiniband/mlx5_0/ports/1"
    names = {
        "counters/port_rcv_data": 100,
        "counters/port_xmit_data": 200,
        "hw_counters/np_ecn_marked_roce_packets": 3,
        "hw_counters/np_cnp_sent": 4,
        "hw_counters/rp_cnp_handled": 5,
    }
    for name in names:
        tree.write(f"{port}/{name}", 7)
    host = tree.sensors()
    assert host.read(0.0) == {}
    for name, more in names.items():
        tree.write(f"{port}/{name}", 7 + more)
    assert host.read(1.0) == {"rdma_read": 400, "rdma_write": 800, "rdma_ecn": 3, "rdma_cnp": 9}


def test_a_port_without_counters_of_congestion_has_none(tree):
    port = "sys/class/infiniband/mlx4_0/ports/1"
    tree.write(f"{port}/counters/port_rcv_data", 1)
    tree.write(f"{port}/counters/port_xmit_data", "N/A")
    host = tree.sensors()
    host.read(0.0)
    assert host.read(1.0) == {"rdma_read": 0.0}


@pytest.mark.parametrize("content", ["", "cpu", "cpu 1 2", "\n\n", "some total=x", "1 2 3 4 5 6 7 8 9 10 11 12 13 14"])
def test_files_of_another_shape_are_absent(tree, content):
    for path in ("stat", "meminfo", "vmstat", "diskstats", "net/dev", "net/snmp", "pressure/cpu"):
        tree.write(f"proc/{path}", content)
    host = tree.sensors()
    host.read(0.0)
    assert host.read(1.0) == {}


def test_a_missing_file_is_not_opened_again(tree, monkeypatch):
    files = KeptFiles(tree.root)
    assert files.read("x") == b""
    tree.write("x", "1")
    assert files.read("x") == b""
    assert files.number("x") is None
    assert files.names("nothing") == []


def test_a_line_that_was_cut_off_is_left_out():
    assert list(words_of(b"a 1\n\nb 2\nc")) == [[b"a", b"1"], [b"b", b"2"]]
