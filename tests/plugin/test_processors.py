from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from dask_efficiency.accounts.processors import cores
from dask_efficiency.plugin import processors
from dask_efficiency.plugin.processors import Throttling, oom_counter, oom_kills, own_processors


@pytest.fixture
def cgroups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty tree of control groups in place of the machine's own."""
    root = tmp_path / "cgroup"
    root.mkdir()
    own = tmp_path / "own"
    monkeypatch.setattr(processors, "_CGROUPS", root)
    monkeypatch.setattr(processors, "_OWN_CGROUPS", own)
    return root


def test_a_process_may_use_the_processors_of_its_affinity() -> None:
    mine = own_processors()
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    assert mine.affinity.bit_count() == len(allowed)
    assert 0 < cores([mine]) <= len(allowed)


STAT = """cpu  100 0 100 1000 0 0 0 0 0 0
cpu0 10 1 20 500 5 2 3 9 4 0
cpu2 30 0 10 400 0 0 0 0 0 0
intr 1 2 3
"""


@pytest.mark.skipif(not hasattr(os, "sysconf"), reason="the system does not say it")
def test_the_time_of_its_own_processors_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processors, "_STAT", tmp_path / "stat")
    monkeypatch.setattr(processors, "_affinity", lambda: 0b101)
    assert own_processors().used is None
    (tmp_path / "stat").write_text(STAT)
    tick = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    before = time.process_time_ns()
    used = own_processors().used
    assert (used.all, used.computed) == (990 * tick, 76 * tick)
    assert before <= used.own <= time.process_time_ns()
    monkeypatch.setattr(processors, "_affinity", lambda: 0b111)
    assert own_processors().used is None


OF_VERSION_1 = "5:cpu,cpuacct:/limited\n0::/"


@pytest.mark.parametrize(
    ("own", "files", "quota"),
    [
        ("0::/pod/app", {"pod/app/cpu.max": "150000 100000"}, 1.5),
        ("0::/pod/app", {"pod/app/cpu.max": "max 100000", "pod/cpu.max": "50000 100000"}, 0.5),
        ("0::/pod/app", {"pod/app/cpu.max": "max 100000"}, None),
        ("0::/pod/app", {"pod/app/cpu.max": "nonsense"}, None),
        # Inside a container its own group is mounted as the root.
        ("0::/pod/app", {"cpu.max": "200000 100000"}, 2.0),
        ("0::/pod/app", {}, None),
        (OF_VERSION_1, {"cpu/limited/cpu.cfs_quota_us": "30000", "cpu/limited/cpu.cfs_period_us": "100000"}, 0.3),
        (OF_VERSION_1, {"cpu/limited/cpu.cfs_quota_us": "-1", "cpu/limited/cpu.cfs_period_us": "100000"}, None),
    ],
)
def test_the_least_limit_counts(cgroups: Path, own: str, files: dict[str, str], quota: float | None) -> None:
    if own != OF_VERSION_1:
        (cgroups / "cgroup.controllers").write_text("cpu")
    processors._OWN_CGROUPS.write_text(f"{own}\n")
    for name, text in files.items():
        (cgroups / name).parent.mkdir(parents=True, exist_ok=True)
        (cgroups / name).write_text(text)
    assert own_processors().quota == quota
    assert bool(own_processors().group) == (quota is not None)


def test_two_processes_that_share_a_limit_share_a_group(cgroups: Path) -> None:
    (cgroups / "cgroup.controllers").write_text("cpu")
    (cgroups / "pod").mkdir()
    (cgroups / "pod" / "cpu.max").write_text("100000 100000")
    found = []
    for container in ("a", "b"):
        processors._OWN_CGROUPS.write_text(f"0::/pod/{container}\n")
        found.append(own_processors())
    assert cores(found) == 1.0


def test_a_system_without_such_files_gives_all_processors(cgroups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(processors, "_NAMESPACE", cgroups / "none")
    monkeypatch.setattr(processors, "_BOOT", cgroups / "none")
    mine = own_processors()
    assert (mine.affinity.bit_count(), mine.quota) == (os.cpu_count() or 1, None)


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("usage_usec 10\nnr_throttled 2\nthrottled_usec {}\n", 7_000),  # version 2 of control groups
        ("nr_periods 3\nthrottled_time {}\n", 7),  # version 1
    ],
)
def test_the_time_since_the_last_reading_is_in_nanoseconds(tmp_path, text, nanoseconds):
    stat = tmp_path / "cpu.stat"
    stat.write_text(text.format(5))
    throttling = Throttling(tmp_path)
    assert throttling.limited
    assert throttling.more() == 0
    stat.write_text(text.format(12))
    assert throttling.more() == nanoseconds
    assert throttling.more() == 0
    throttling.close()
    throttling.close()
    assert not throttling.limited


def test_without_a_limit_nothing_is_read(tmp_path):
    assert not Throttling(None).limited
    assert not Throttling(tmp_path).limited
    assert Throttling(None).more() == 0


EVENTS = "low 0\nhigh 0\nmax 7\noom 5\noom_kill {}\noom_group_kill 1\n"
CONTROL = "oom_kill_disable 0\nunder_oom 1\noom_kill {}\n"


@pytest.mark.parametrize(
    ("own", "counter", "text"),
    [
        ("0::/pod/app", "pod/app/memory.events", EVENTS),
        ("0::/pod/app", "pod/memory.events", EVENTS),  # the group has no memory controller
        ("0::/../host", "memory.events", EVENTS),  # of a container, mounted as the root
        ("8:cpu:/other\n5:memory:/pod", "memory/pod/memory.oom_control", CONTROL),  # version 1
        ("5:memory:/host/pod\n0::/pod", "memory/memory.oom_control", CONTROL),
    ],
)
def test_the_kernels_kills_of_the_own_control_group_are_counted(cgroups, own, counter, text):
    processors._OWN_CGROUPS.write_text(f"{own}\n")
    if counter.endswith("events"):
        (cgroups / "cgroup.controllers").write_text("memory")
    file = cgroups / counter
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text.format(3))
    assert oom_counter() == file
    assert oom_kills(str(file)) == 3
    file.write_text(text.format(4))
    assert oom_kills(file) == 4


def test_without_a_counter_that_can_be_read_there_are_no_kernels_kills(cgroups):
    assert oom_counter() is None  # not even the list of its own groups
    (cgroups / "cgroup.controllers").write_text("memory")
    processors._OWN_CGROUPS.write_text("0::/pod\n")
    assert oom_counter() is None
    (cgroups / "pod" / "memory.events").mkdir(parents=True)  # not readable, for any user
    (cgroups / "memory.events").write_text("oom 5\n")  # of an old kernel
    assert oom_counter() is None
    assert oom_kills(cgroups / "pod" / "memory.events") is None
