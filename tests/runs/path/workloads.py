"""Workloads of the tests of paths on real clusters."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
from dask.delayed import Delayed, delayed
from distributed import worker_client


def nap(*inputs: Any, seconds: float = 0.02) -> int:
    """A task that takes some time."""
    time.sleep(seconds)
    return len(inputs)


def instant(*inputs: Any) -> int:
    """A task that takes none."""
    return len(inputs)


def eight_megabytes(*inputs: Any) -> bytes:
    """A task with a large result."""
    return os.urandom(8_000_000)


def fails(seconds: float) -> None:
    """A task that fails."""
    time.sleep(seconds)
    raise ZeroDivisionError("as it should")


def thirty_two_megabytes(*inputs: Any) -> Any:
    """A task with a large result."""
    return np.ones(32_000_000, "u1")


def dies_at_first(path: str) -> int:
    """A task that takes its worker with it, once."""
    time.sleep(0.5)
    if not os.path.exists(path):
        with open(path, "w"):
            pass
        os._exit(1)
    return 1


def asks_for_more(seconds: float) -> int:
    """A task that has tasks of its own and waits for them."""
    with worker_client() as client:
        return int(client.submit(nap, 1, seconds=seconds, pure=False).result())


def tree(leaves: int, function: Any, **settings: Any) -> Delayed:
    """A reduction two by two."""
    level = [delayed(function, pure=False)(i, **settings) for i in range(leaves)]
    while len(level) > 1:
        level = [delayed(function, pure=False)(*level[i : i + 2], **settings) for i in range(0, len(level), 2)]
    return level[0]


def wide(tasks: int, function: Any, **settings: Any) -> Delayed:
    """Many tasks, and one that needs them all."""
    return delayed(instant, pure=False)(*(delayed(function, pure=False)(i, **settings) for i in range(tasks)))
