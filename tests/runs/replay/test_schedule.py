from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.simulated_traces import wide
from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.replay.schedule import room
from dask_efficiency.runs.trace.run_causes import RunCauses


@pytest.mark.parametrize(("nthreads", "saturation"), [(1, 1.0), (2, 1.1), (2, 2.0), (4, 1.5)])
def test_a_worker_has_room_for_as_many_tasks_as_the_scheduler_gave_it(nthreads: int, saturation: float) -> None:
    trace = wide(100, nthreads=nthreads, saturation=saturation)
    causes = RunCauses(trace)
    opener = np.where(causes.queued, causes.run, MISSING)
    assert room(trace, opener) == [math.ceil(nthreads * saturation)] * 4


def test_without_a_queue_it_has_room_for_its_threads() -> None:
    trace = wide(4, nthreads=3)
    assert room(trace, np.full(len(trace.runs), MISSING)) == [3] * 4
