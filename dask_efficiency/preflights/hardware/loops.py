"""Loops: how fast Python runs in this very process, beside what else its threads do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from dask_efficiency.preflights.hardware.measured import REPEATS, spread_of

#: Turns of the loop between two looks at the clock: a quarter of a millisecond.
TURNS = 5_000


def python_loops(
    seconds: float, repeats: int = REPEATS, spent: Callable[[float], object] = lambda seconds: None
) -> dict[str, Any]:
    """Turns a second of a loop in pure Python, in the calling thread.

    Parameters
    ----------
    seconds
        Of one repetition.
    repeats
        How many there are.
    spent
        Called every quarter of a millisecond with the CPU seconds that it took so far.

    Returns
    -------
    dict
        ``value``; ``share``, of the time in which the thread computed; ``others``, CPU seconds a second of all other
        threads of the process; ``count`` and ``range`` of the repetitions.
    """
    found = []
    start = time.thread_time()
    for _ in range(repeats):
        count = 0
        began, thread, process = time.perf_counter(), time.thread_time(), time.process_time()
        while time.perf_counter() < began + seconds:
            for _ in range(TURNS):
                pass
            count += TURNS
            spent(time.thread_time() - start)
        took = time.perf_counter() - began
        own = time.thread_time() - thread
        others = max(0.0, time.process_time() - process - own)
        found.append((count / took, own / took, others / took))
    rate, share, others = max(found)
    spread = spread_of([each[0] for each in found])
    return {"value": rate, "share": share, "others": others, "count": repeats, "range": spread}
