from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Scheduler

from dask_efficiency.simulation.engine.scheduler import VirtualScheduler


class Result:
    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes

    def get_nbytes(self) -> int:
        return self.nbytes if self.nbytes >= 0 else 1024


@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize("held", [0, 3, 10, 500])
def test_moving_inputs_costs_as_much_as_in_dask(held: int, unknown: bool) -> None:
    inputs = [Result(1000 + i) for i in range(10)] + [Result(-1)] * unknown
    there = dict.fromkeys([*inputs[:held], *(Result(1) for _ in range(held - 10))])
    scheduler: Any = SimpleNamespace(bandwidth=123.0)
    task: Any = SimpleNamespace(dependencies=set(inputs))
    worker: Any = SimpleNamespace(has_what=there.keys(), _has_what=there)
    dask = Scheduler.get_comm_cost(scheduler, task, worker)
    assert VirtualScheduler.get_comm_cost(scheduler, task, worker) == dask
