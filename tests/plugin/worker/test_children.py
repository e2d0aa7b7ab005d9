from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

from dask_efficiency.plugin.worker.children import READ_NS, Children
from tests.plugin.worker.threads_in_states import needs_threads

pytestmark = needs_threads

#: Computes for half a second of CPU, says so, and lives on until its input ends.
COMPUTES = """
import sys, time
while time.process_time() < 0.5:
    pass
print("done", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("ends", [False, True])
def test_the_cpu_time_of_a_threads_children_is_counted_once_whether_they_live_or_have_ended(ends: bool) -> None:
    children, own = Children(), threading.get_native_id()
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", COMPUTES], stdin=pipe, stdout=pipe, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "done\n"
        if ends:
            child.stdin.close()
            child.wait()
        used = children.used([own], READ_NS)
        assert 0.4e9 < used < 3e9
        assert children.used([own], READ_NS + 1) == 0  # too soon
        # what has ended is not counted again
        child.stdin.close()
        child.wait()
        assert children.used([own], 2 * READ_NS) < 0.3e9


def test_what_a_child_used_before_anybody_looked_is_not_counted() -> None:
    pipe, own = subprocess.PIPE, threading.get_native_id()
    with subprocess.Popen([sys.executable, "-c", COMPUTES], stdin=pipe, stdout=pipe, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "done\n"
        children = Children()
        time.sleep(0.02)  # a tick of the clock by which the kernel says when a process started
        assert children.used([own], READ_NS) < 0.3e9
        assert children.used([own], 10 * READ_NS) == 0  # too long ago
        child.stdin.close()


def test_children_of_no_thread_are_none() -> None:
    assert Children().used([1 << 30], READ_NS) >= 0
