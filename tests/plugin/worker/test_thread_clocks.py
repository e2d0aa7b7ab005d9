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

import pytest

from dask_efficiency.plugin.worker.thread_clocks import ThreadFiles, cpu_clock
from dask_efficiency.plugin.worker.wait_states import WaitStates, find_gil
from tests.plugin.worker.threads_in_states import in_thread, needs_threads, until

pytestmark = needs_threads


@pytest.fixture
def states(reader):
    return WaitStates(platform.machine(), reader, is_gil=find_gil(reader))


def comes_to(reader, states, thread, state):
    files = ThreadFiles(reader, thread.native_id)
    try:
        until(lambda: states.state(files.syscall(), files) == state)
    finally:
        files.close()


def test_a_thread_that_polls_a_socket(reader, states):
    here, there = socket.socketpair()
    here.settimeout(60)
    with here, there, in_thread(lambda: here.recv(1), lambda: there.send(b"x")) as thread:
        comes_to(reader, states, thread, "network")


def test_a_thread_that_waits_for_a_child_process(reader, states):
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with in_thread(process.wait, lambda: process.stdin.close()) as thread:
        comes_to(reader, states, thread, "child-process")


def test_a_thread_that_takes_the_output_of_a_child_process(reader, states):
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with in_thread(lambda: process.stdout.read(), lambda: process.stdin.close()) as thread:
        comes_to(reader, states, thread, "child-process")
    process.stdout.close()
    process.wait()


def test_a_thread_that_polls_pipes(reader, states):
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
        files = ThreadFiles(reader, thread.native_id)
        until(lambda: files.syscall().strip() not in (b"", b"running"))
        said = files.wait_channel()
        files.close()
        if not said:
            pytest.skip("this kernel does not say where threads wait")
        comes_to(reader, states, thread, "child-process")
    os.close(end)


def test_clocks_tell_cpu_from_sleep(reader):
    stop = threading.Event()
    with in_thread(stop.wait, stop.set) as thread:
        files = ThreadFiles(reader, thread.native_id)
        until(lambda: files.syscall().strip() not in (b"", b"running"))
        before = files.clocks()
        time.sleep(0.01)
        assert files.clocks() == before
        assert cpu_clock(thread.native_id) == before.cpu
    files.close()


def test_a_thread_that_ended_says_nothing_more(reader):
    stop = threading.Event()
    with in_thread(stop.wait, stop.set) as thread:
        files = ThreadFiles(reader, thread.native_id)
        assert files.clocks() is not None
    until(lambda: files.clocks() is None)
    assert files.syscall() == files.wait_channel().encode() == b""
    assert cpu_clock(thread.native_id) == 0
    files.close()
    files.close()
    with pytest.raises(FileNotFoundError):
        ThreadFiles(reader, thread.native_id)


def test_memory_is_read_and_an_address_that_is_not_valid_does_not_crash(reader):
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
