from types import SimpleNamespace
from typing import Any

from dask_efficiency.simulation.engine.recording import RunRow
from dask_efficiency.simulation.engine.worker import VirtualWorker
from dask_efficiency.simulation.model.events import EventHeap


def test_a_task_that_waits_for_its_thread_has_run_for_no_time() -> None:
    """A slot is given out some time before the thread begins; a negative time would make Dask steal oddly."""
    now = 10_000_000_000
    running = {"begun": RunRow(1, start=now - 2_000_000_000), "handed over": RunRow(2, start=now + 1_000_000)}
    worker: Any = SimpleNamespace(_clock=EventHeap(now), running=running)
    assert VirtualWorker.executing(worker) == {"begun": 2.0, "handed over": 0.0}
