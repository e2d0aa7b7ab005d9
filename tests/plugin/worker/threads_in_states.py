"""Threads of this process that wait in known ways."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from dask_efficiency.plugin.worker.sampler import _why_not

#: Seconds to wait for a condition: generous, as a machine may be busy.
LIMIT = 60

needs_threads = pytest.mark.skipif(_why_not() is not None, reason=f"threads cannot be sampled here: {_why_not()}")


@contextmanager
def in_thread(target: Callable[[], object], end: Callable[[], object] = lambda: None) -> Iterator[threading.Thread]:
    """A thread that runs this until ``end`` has been called."""
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        end()
        thread.join(LIMIT)


def until(condition: Callable[[], object]) -> None:
    """Wait for a condition."""
    stop = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < stop, "it did not come true"
        time.sleep(0.001)
