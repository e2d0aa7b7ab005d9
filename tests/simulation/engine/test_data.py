from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dask_efficiency.simulation.engine.data import NoWorkerError, put_data
from dask_efficiency.simulation.model.events import EventHeap


def test_results_that_were_there_need_a_worker_at_the_start() -> None:
    workload: Any = SimpleNamespace(data=[0, 1], trace=None)
    scheduler: Any = None
    with pytest.raises(NoWorkerError, match="^2 results were there before the recording, but no worker is there"):
        put_data(workload, scheduler, {}, {}, EventHeap(0))


def test_where_nothing_was_there_no_worker_is_needed() -> None:
    workload: Any = SimpleNamespace(data=[])
    scheduler: Any = None
    put_data(workload, scheduler, {}, {}, EventHeap(0))
