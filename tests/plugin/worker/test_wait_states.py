from __future__ import annotations

import struct
from types import SimpleNamespace

import pytest

from dask_efficiency.plugin.worker.wait_states import CALLS, GIL, WaitStates

LINKS = {0: "pipe:[1]", 3: "socket:[12]", 4: "pipe:[13]", 5: "/data/x.parquet", 6: "anon_inode:[eventfd]"}
LINKS |= {7: "anon_inode:[pidfd]", 8: "anon_inode:[timerfd]", 9: "/dev/pts/0", 10: "/tmp/fifo"}
GIL_AT = 0x5000


def states(machine="x86_64", memory=b"", gil=True):
    return WaitStates(
        machine,
        is_gil=(lambda address: address == GIL_AT) if gil else None,
        link=lambda descriptor: LINKS.get(descriptor, ""),
        memory=lambda address, nbytes: memory[:nbytes],
    )


def sleeper(channel="", disk=False):
    return SimpleNamespace(wait_channel=lambda: channel, is_uninterruptible=lambda: disk)


def sleeping_in(call, *arguments, machine="x86_64"):
    """As the kernel says it: the number, six arguments, stack pointer and instruction pointer."""
    number = {name: number for number, name in CALLS[machine].items()}[call]
    six = [*arguments, *[0] * 6][:6]
    return f"{number} {' '.join(map(hex, six))} 0x7ffd 0x7f01\n".encode()


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize(
    ("call", "arguments", "cause"),
    [
        ("futex", (GIL_AT,), "gil"),
        ("futex", (0x6000,), "lock"),
        ("clock_nanosleep", (), "sleep"),
        ("wait4", (), "child-process"),
        ("waitid", (), "child-process"),
        ("recvfrom", (3,), "network"),
        ("connect", (3,), "network"),
        ("epoll_pwait", (3,), "network"),
        ("read", (3,), "network"),
        ("read", (4,), "child-process"),
        ("read", (5,), "file"),
        ("pread64", (5,), "file"),
        ("write", (5,), "file"),
        ("read", (6,), "lock"),
        ("read", (8,), "sleep"),
        ("read", (9,), "unknown"),
        ("read", (77,), "unknown"),  # closed meanwhile
        ("read", (0,), "unknown"),  # its own input
        ("openat", (), "file"),
        ("fsync", (5,), "file"),
        ("flock", (5,), "lock"),
        ("ppoll", (0x1000, 0), "sleep"),
        ("pselect6", (0, 0, 0, 0), "sleep"),
    ],
)
def test_a_call_tells_what_is_waited_for(machine, call, arguments, cause):
    assert states(machine).state(sleeping_in(call, *arguments, machine=machine), sleeper()) == cause


@pytest.mark.parametrize(
    ("descriptors", "cause"), [([3], "network"), ([4, 4], "child-process"), ([4, 3], "network"), ([7], "child-process")]
)
def test_what_is_polled_is_read_from_memory(descriptors, cause):
    memory = b"".join(struct.pack("=ihh", descriptor, 1, 0) for descriptor in descriptors)
    assert states(memory=memory).state(sleeping_in("poll", 0x1000, len(descriptors)), sleeper()) == cause


def test_what_is_selected_is_read_from_memory():
    memory = (1 << 4).to_bytes(8, "little")
    assert states(memory=memory).state(sleeping_in("select", 5, 0x1000, 0, 0), sleeper()) == "child-process"


def test_a_poll_whose_memory_cannot_be_read_is_taken_for_the_network():
    assert states().state(sleeping_in("poll", 0x1000, 1), sleeper()) == "network"


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
def test_who_sleeps_outside_of_a_call_waits_for_memory(channel, disk, cause):
    assert states().state(b"-1 0x7ffd 0x7f01\n", sleeper(channel, disk)) == cause


def test_a_thread_that_runs_waits_for_nothing():
    assert states().state(b"running\n", sleeper()) == "running"


@pytest.mark.parametrize("said", [b"", b"9999 0x0 0x0 0x0 0x0 0x0 0x0 0x7ffd 0x7f01\n"])
def test_what_is_not_known_is_unknown(said):
    assert states().state(said, sleeper()) == "unknown"


def test_where_the_gil_is_not_known_no_futex_is_named():
    assert states(gil=False).state(sleeping_in("futex", GIL_AT), sleeper()) == "unknown" != GIL


def test_a_machine_whose_calls_are_not_known_is_refused():
    with pytest.raises(KeyError):
        states("s390x")
