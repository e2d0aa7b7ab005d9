from __future__ import annotations

import subprocess
import sys

import pytest

from dask_efficiency.plugin.worker import gil
from dask_efficiency.plugin.worker.gil import find_gil
from tests.plugin.worker.threads_in_states import needs_threads

pytestmark = needs_threads


@pytest.mark.skipif(not gil.has_gil(), reason="this Python has no GIL")
def test_it_is_found_inside_the_runtime_and_nowhere_else(reader, monkeypatch):
    monkeypatch.setattr(gil, "_known", None)
    is_gil = find_gil(reader)
    assert is_gil is not None
    assert not is_gil(id(reader))  # on the heap


def test_without_one_no_futex_is_the_gils(reader, monkeypatch):
    monkeypatch.setattr(gil, "has_gil", lambda: False)
    assert not find_gil(reader)(0x1000)


def test_where_nothing_is_found_it_says_so(reader, monkeypatch):
    monkeypatch.setattr(gil, "_known", None)
    monkeypatch.setattr(gil, "_addresses", lambda reader: set())
    assert find_gil(reader) is None


def test_it_is_found_while_other_threads_compute():
    code = """
import threading
from dask_efficiency.plugin.worker.gil import find_gil
from dask_efficiency.plugin.worker.thread_clocks import HeldReader
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
