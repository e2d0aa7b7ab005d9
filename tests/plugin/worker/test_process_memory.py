"""The memory of this process by the kernel, and by a system of the test's."""

from __future__ import annotations

import subprocess
import sys
from itertools import count
from typing import Any

import pytest

from dask_efficiency.accounts.memory import Worked
from dask_efficiency.plugin.worker import process_memory as module
from dask_efficiency.plugin.worker.process_memory import ProcessMemory

MIB = 2**20
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="the kernel does not tell peaks")


@pytest.fixture
def memory() -> Any:
    """The memory of a process with one worker."""
    found = ProcessMemory()
    readings: list[Any] = []
    found.join("w", lambda: 0, readings.append)
    yield found
    found.leave("w")


ALONE = """
import numpy as np
from dask_efficiency.plugin.worker.process_memory import ProcessMemory

memory = ProcessMemory()
memory.join("w", lambda: 0, lambda reading: None)
before = memory.read()
np.ones(100 << 20, "u1")
now = memory.read()
assert now.peak >= before.resident + (95 << 20)
assert now.resident < before.resident + (50 << 20)
again = memory.read()
assert again.peak < now.peak - (50 << 20)
"""


@on_linux
def test_no_peak_falls_between_two_readings() -> None:
    """In a process of its own, as another worker's readings would reset the peak."""
    subprocess.run([sys.executable, "-c", ALONE], check=True)


class System:
    """Files of a process, whose memory the test sets."""

    def __init__(self, patch: pytest.MonkeyPatch, *, resets: bool = True) -> None:
        self.resident = self.most = 100 * MIB
        self.now = count(1_000)
        self.resets = resets
        self.text = b"Name:\tx\nVmHWM:\t%d kB\nVmRSS:\t%d kB\n"
        patch.setattr(module.os, "open", lambda path, flags: 7 if "status" in path else 8)
        patch.setattr(module.os, "close", lambda descriptor: None)
        patch.setattr(module.os, "pread", lambda *_: self.text % (self.most // 1024, self.resident // 1024))
        patch.setattr(module.os, "write", self.write)
        patch.setattr(module, "monotonic_ns", lambda: next(self.now))
        patch.setattr(module.sys, "platform", "linux")

    def write(self, descriptor: int, data: bytes) -> int:
        assert (descriptor, data) == (8, b"5")
        if not self.resets:
            raise OSError("not permitted")
        self.most = self.resident
        return 1

    def take(self, nbytes: int, *, give_back: int = 0) -> None:
        self.resident += nbytes
        self.most = max(self.most, self.resident)
        self.resident -= give_back


@pytest.fixture
def system(monkeypatch) -> System:
    return System(monkeypatch)


def test_without_a_reset_only_a_new_peak_is_known(monkeypatch, memory) -> None:
    memory.leave("w")
    system = System(monkeypatch, resets=False)
    heard: list[Any] = []
    memory.join("w", lambda: 0, heard.append)
    system.take(50 * MIB, give_back=40 * MIB)
    assert memory.read().peak == 150 * MIB
    system.take(20 * MIB, give_back=20 * MIB)
    assert memory.read().peak == 110 * MIB
    assert [reading.resident for reading in heard] == [110 * MIB] * 2


def worker(system: System, held: int = 0) -> tuple[ProcessMemory, dict[str, int]]:
    memory, now = ProcessMemory(), {"held": held}
    memory.join("w", lambda: now["held"], lambda reading: None)
    return memory, now


def test_a_task_took_the_most_since_its_beginning_without_results(system) -> None:
    memory, now = worker(system)
    begun = memory.begin(0)
    system.take(70 * MIB, give_back=30 * MIB)
    memory.read()  # a heartbeat
    now["held"] = 10 * MIB  # a result that was sent here
    system.take(10 * MIB)
    assert memory.end(begun, 0) == Worked(70 * MIB, begun.beyond, 40 * MIB, True)


def test_what_was_before_a_task_is_not_of_it(system) -> None:
    memory, _ = worker(system)
    memory.end(memory.begin(0), 0)
    system.take(500 * MIB, give_back=500 * MIB)
    begun = memory.begin(0)
    system.take(5 * MIB, give_back=5 * MIB)
    assert memory.end(begun, 0) == Worked(5 * MIB, begun.beyond, 0, True)


@pytest.mark.parametrize(("at_begin", "at_end"), [(1, 0), (0, 1)])
def test_tasks_that_run_together_have_equal_shares(system, at_begin, at_end) -> None:
    memory, _ = worker(system)
    begun = memory.begin(at_begin)
    system.take(60 * MIB)
    assert memory.end(begun, at_end) == Worked(30 * MIB, begun.beyond, 60 * MIB, False)


def test_one_beside_which_another_began_and_ended_or_another_worker_is_there_was_not_alone(system) -> None:
    memory, _ = worker(system)
    begun = memory.begin(0)
    memory.ended = next(system.now)
    assert not memory.end(begun, 0).alone
    assert memory.end(memory.begin(0), 0).alone
    memory.join("other", lambda: 0, lambda reading: None)
    assert not memory.end(memory.begin(0), 0).alone


def test_without_a_status_nothing_is_measured(monkeypatch, system) -> None:
    memory, _ = worker(system)
    begun = memory.begin(0)
    system.text = b"%d%d"
    assert memory.end(begun, 0) is None
    assert memory.begin(0) is None
    assert worker(system)[0].read() is None
    system.text = b"VmHWM: %d kB VmRSS: %d kB"
    assert worker(system)[0].read() is not None
    monkeypatch.setattr(module.sys, "platform", "win32")
    assert worker(system)[0].read() is None


def test_a_failure_of_what_hears_of_readings_may_end_them(system) -> None:
    memory = ProcessMemory()
    memory.join("w", lambda: 0, lambda reading: memory.leave("w"))
    assert memory.read() is not None
    assert memory.read() is None


def test_files_are_closed_when_the_last_worker_leaves(monkeypatch, system) -> None:
    opened: list[int] = []
    monkeypatch.setattr(module.os, "open", lambda path, flags: opened.append(len(opened)) or opened[-1])
    monkeypatch.setattr(module.os, "write", lambda descriptor, data: 1)
    monkeypatch.setattr(module.os, "close", opened.remove)
    memory = ProcessMemory()
    for _ in range(3):
        memory.join("w", lambda: 0, lambda reading: None)
        assert opened == [0, 1]
        memory.leave("w")
        assert opened == []


FORKED = """
import os
import threading
from dask_efficiency.plugin.worker import file_reads
from dask_efficiency.plugin.worker.process_memory import PROCESS_MEMORY as memory

memory.join("w", lambda: 0, lambda reading: None)
files = [one for one in (memory._status, memory._reset) if one >= 0]
assert files
memory.lock.acquire()
file_reads._LOOKING.acquire()
child = os.fork()
if not child:
    thread = threading.Thread(target=lambda: os._exit(memory.read() is not None), daemon=True)
    for one in files:
        try:
            os.fstat(one)
        except OSError:
            continue
        os._exit(2)
    if not file_reads._LOOKING.acquire(blocking=False):
        os._exit(3)
    thread.start()
    thread.join(10.0)
    os._exit(4)
_, status = os.waitpid(child, 0)
assert status == 0, os.waitstatus_to_exitcode(status)
assert memory.read() is not None
"""


@on_linux
def test_a_child_has_none_of_its_parents_files_and_locks() -> None:
    subprocess.run([sys.executable, "-c", FORKED], check=True)
