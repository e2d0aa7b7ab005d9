from __future__ import annotations

import struct
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from dask_efficiency.plugin.worker import wait_states
from dask_efficiency.plugin.worker.wait_states import CALLS, WaitStates, find_gil
from tests.plugin.worker.threads_in_states import needs_threads

LINKS = {0: "pipe:[1]", 3: "socket:[12]", 4: "pipe:[13]", 5: "/data/x.parquet", 6: "anon_inode:[eventfd]"}
LINKS |= {7: "anon_inode:[pidfd]", 8: "anon_inode:[timerfd]", 9: "/dev/pts/0", 10: "/tmp/fifo"}
GIL_AT = 0x5000


def states(machine="x86_64", memory=b"", gil=True):
    link, read = (lambda descriptor: LINKS.get(descriptor, "")), (lambda address, nbytes: memory[:nbytes])
    reader = SimpleNamespace(link=link, memory=read)
    return WaitStates(machine, reader, is_gil=(lambda address: address == GIL_AT) if gil else None)


def sleeper(channel="", disk=False):
    return SimpleNamespace(wait_channel=lambda: channel, is_uninterruptible=lambda: disk)


def sleeping_in(call, *arguments, machine="x86_64"):
    """Content of ``syscall``: the number, six arguments, stack pointer and instruction pointer."""
    number = {name: number for number, name in CALLS[machine].items()}[call]
    six = [*arguments, *[0] * 6][:6]
    return f"{number} {' '.join(map(hex, six))} 0x7ffd 0x7f01\n".encode()


#: Calls with their first arguments, such as a descriptor of LINKS, by the cause of waiting in them.
WAITS: dict[str, list[tuple[Any, ...]]] = {
    "gil": [("futex", GIL_AT)],
    "lock": [("futex", 0x6000), ("read", 6), ("flock", 5)],
    "sleep": [("clock_nanosleep", 1, 1), ("read", 8), ("ppoll", 0x1000, 0), ("pselect6", 0, 0, 0, 0)],
    # C code that tries a lock again and again
    "polls": [("clock_nanosleep", 0, 0), ("clock_nanosleep", 1, 0), ("nanosleep", 1, 1)],
    "child-process": [("wait4",), ("waitid",), ("read", 4)],
    "network": [("recvfrom", 3), ("connect", 3), ("epoll_pwait", 3), ("read", 3)],
    "file": [("read", 5), ("pread64", 5), ("write", 5), ("openat",), ("fsync", 5)],
    "unknown": [("read", 9), ("read", 77), ("read", 0)],  # a terminal, closed meanwhile, its own input
}


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize(("cause", "call"), [(cause, call) for cause, calls in WAITS.items() for call in calls])
def test_a_call_gives_the_cause_of_waiting(machine, cause, call):
    assert states(machine).state(sleeping_in(*call, machine=machine), sleeper()) == cause


def pollfds(*descriptors):
    return b"".join(struct.pack("=ihh", descriptor, 1, 0) for descriptor in descriptors)


@pytest.mark.parametrize(
    ("memory", "call", "arguments", "cause"),
    [
        (pollfds(3), "poll", (0x1000, 1), "network"),
        (pollfds(4, 4), "poll", (0x1000, 2), "child-process"),
        (pollfds(4, 3), "poll", (0x1000, 2), "network"),
        (pollfds(7), "poll", (0x1000, 1), "child-process"),
        (b"", "poll", (0x1000, 1), "network"),  # it cannot be read
        ((1 << 4).to_bytes(8, "little"), "select", (5, 0x1000, 0, 0), "child-process"),
    ],
)
def test_polled_and_selected_descriptors_are_read_from_memory(memory, call, arguments, cause):
    assert states(memory=memory).state(sleeping_in(call, *arguments), sleeper()) == cause


def test_a_pipe_with_a_name_is_no_file():
    assert states().state(sleeping_in("read", 10), sleeper("pipe_read")) == "child-process"
    assert states().state(sleeping_in("openat"), sleeper("wait_for_partner")) == "child-process"


@pytest.mark.parametrize(
    ("channel", "disk", "cause"),
    [
        ("folio_wait_bit_common", False, "file"),
        ("rwsem_down_read_slowpath", True, "lock"),
        ("something_else", True, "unknown"),
        ("", True, "file"),
        ("", False, "unknown"),
    ],
)
def test_a_thread_that_sleeps_outside_of_a_call_waits_for_memory(channel, disk, cause):
    assert states().state(b"-1 0x7ffd 0x7f01\n", sleeper(channel, disk)) == cause


@pytest.mark.parametrize(
    ("syscall", "state"),
    [
        (b"running\n", "running"),
        (b"", "unknown"),
        (b"9999 0x0 0x0 0x0 0x0 0x0 0x0 0x7ffd 0x7f01\n", "unknown"),
        (sleeping_in("futex", GIL_AT), "unknown"),  # the GIL is not known
    ],
)
def test_a_thread_that_runs_waits_for_nothing_and_other_states_are_unknown(syscall, state):
    assert states(gil=False).state(syscall, sleeper()) == state


def test_a_machine_whose_calls_are_not_known_is_refused():
    with pytest.raises(KeyError):
        states("s390x")


pytestmark = needs_threads


@pytest.mark.skipif(not wait_states.has_gil(), reason="this Python has no GIL")
def test_the_gil_is_found_inside_the_runtime_and_nowhere_else(reader, monkeypatch):
    monkeypatch.setattr(wait_states, "_known", None)
    is_gil = find_gil(reader)
    assert not is_gil(id(reader))  # on the heap


def test_without_a_gil_no_futex_is_the_gils_and_an_unknown_address_is_none(reader, monkeypatch):
    monkeypatch.setattr(wait_states, "_known", None)
    monkeypatch.setattr(wait_states, "_addresses", lambda reader: set())
    if wait_states.has_gil():
        assert find_gil(reader) is None
    monkeypatch.setattr(wait_states, "has_gil", lambda: False)
    assert not find_gil(reader)(0x1000)


def test_the_gil_is_found_while_other_threads_compute():
    code = """
import threading
from dask_efficiency.plugin.worker.wait_states import find_gil
from dask_efficiency.plugin.thread_clocks import HeldReader
stop = False
def spin():
    while not stop:
        pass
threads = [threading.Thread(target=spin) for _ in range(4)]
for thread in threads: thread.start()
found = find_gil(HeldReader())
stop = True
for thread in threads: thread.join()
assert found is not None
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
