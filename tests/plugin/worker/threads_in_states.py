"""Threads of this process that wait in known ways."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from dask_efficiency.plugin.worker.sampler import why_not

needs_threads = pytest.mark.skipif(why_not() is not None, reason=f"threads cannot be sampled here: {why_not()}")


@contextmanager
def in_thread(target: Callable[[], object], end: Callable[[], object] = lambda: None) -> Iterator[threading.Thread]:
    """A thread that runs this until ``end`` has been called."""
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        end()
        thread.join(60)
