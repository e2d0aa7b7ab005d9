from __future__ import annotations

import ctypes
import os
import platform
import select
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing

import pytest

from dask_efficiency.plugin.thread_clocks import ThreadFiles, cpu_clock
from dask_efficiency.plugin.worker.wait_states import WaitStates, find_gil
from tests.plugin.watch import eventually
from tests.plugin.worker.threads_in_states import in_thread, needs_threads

pytestmark = needs_threads


@pytest.fixture
def states(reader):
    return WaitStates(platform.machine(), reader, is_gil=find_gil(reader))


def comes_to(reader, states, thread, state):
    with closing(ThreadFiles(reader, thread.native_id)) as files:
        eventually(lambda: states.state(files.syscall(), files) == state)


def test_a_thread_that_polls_a_socket_waits_for_the_network(reader, states):
    here, there = socket.socketpair()
    here.settimeout(60)
    with here, there, in_thread(lambda: here.recv(1), lambda: there.send(b"x")) as thread:
        comes_to(reader, states, thread, "network")


@pytest.mark.parametrize("wait", [lambda child: child.wait(), lambda child: child.stdout.read()])
def test_a_thread_that_waits_for_a_child_process_or_its_output(reader, states, wait):
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with in_thread(lambda: wait(process), lambda: process.stdin.close()) as thread:
        comes_to(reader, states, thread, "child-process")
    process.stdout.close()
    process.wait()


def test_a_thread_that_polls_pipes_waits_for_a_child_process(reader, states):
    read, write = os.pipe()
    poll = select.poll()
    poll.register(read, select.POLLIN)
    with in_thread(poll.poll, lambda: os.write(write, b"x")) as thread:
        comes_to(reader, states, thread, "child-process")
    os.close(read)
    os.close(write)


def test_a_named_pipe_is_no_file(reader, states, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    end = os.open(tmp_path / "fifo", os.O_RDWR)
    with in_thread(lambda: os.read(end, 1), lambda: os.write(end, b"x")) as thread:
        with closing(ThreadFiles(reader, thread.native_id)) as files:
            eventually(lambda: files.syscall().strip() not in (b"", b"running"))
            if not files.wait_channel():
                pytest.skip("this kernel does not say where threads wait")
        comes_to(reader, states, thread, "child-process")
    os.close(end)


def test_clocks_of_a_sleeping_thread_stand_still(reader):
    stop = threading.Event()
    with in_thread(stop.wait, stop.set) as thread:
        files = ThreadFiles(reader, thread.native_id)

        def stands_still() -> bool:
            before = files.clocks()
            time.sleep(0.01)
            return files.clocks() == before and cpu_clock(thread.native_id) == before.cpu

        assert eventually(stands_still)
    files.close()


def test_files_of_a_thread_that_ended_are_empty(reader):
    stop = threading.Event()
    with in_thread(stop.wait, stop.set) as thread:
        files = ThreadFiles(reader, thread.native_id)
        assert files.clocks() is not None
    eventually(lambda: files.clocks() is None)
    assert files.syscall() == files.wait_channel().encode() == b""
    assert cpu_clock(thread.native_id) == 0
    files.close()
    files.close()
    with pytest.raises(FileNotFoundError):
        ThreadFiles(reader, thread.native_id)


def test_memory_is_empty_at_an_invalid_address(reader):
    data = ctypes.create_string_buffer(b"hello")
    assert reader.memory(ctypes.addressof(data), 5) == b"hello"
    assert reader.memory(8, 5) == reader.memory(0, 5) == reader.memory(1 << 63, 5) == b""
    reader.close()
    assert reader.memory(ctypes.addressof(data), 5) == b""


def test_links_of_descriptors(reader, tmp_path):
    with open(tmp_path / "x", "w") as file:
        assert reader.link(file.fileno()) == str(tmp_path / "x")
    assert reader.link(100_000) == ""


def test_no_descriptor_is_left(reader):
    before = set(os.listdir("/proc/self/fd"))
    files = ThreadFiles(reader, threading.get_native_id())
    files.wait_channel(), files.is_uninterruptible()
    files.close()
    assert set(os.listdir("/proc/self/fd")) <= before
