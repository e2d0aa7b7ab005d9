from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest

from dask_efficiency import ClusterSpec
from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.simulation.engine.costs import SMALL_MESSAGE, Costs, TaskCosts
from dask_efficiency.simulation.engine.workload import Workload
from dask_efficiency.simulation.model.calibration import calibrate
from dask_efficiency.simulation.model.ensemble import SimulationJob
from dask_efficiency.simulation.model.overheads import AROUND, Overheads
from dask_efficiency.simulation.model.transfer_costs import TransferCosts
from tests.simulated_traces import MS, Graph, simulate

OVERHEADS = Overheads(
    prepare=(np.array([1, 2, 3]), np.array([9])),
    finish=(np.array([10, 20, 30]), np.array([90])),
    switch=np.array([100]),
    to_worker=np.array([1000, 2000]),
    to_scheduler=np.array([3000, 4000]),
    scheduler=500_000,
    transition=50,
    worker=60_000,
    settling=np.array([7, 8]),
    cold=np.array([[0, 900], [0, 0], [0, 500]]),
)
TRANSFERS = TransferCosts(10.0, 20.0, 3.0, 2.0, 1.0, np.array([1.0, 2.0]))


def costs(seed: int = 0, network: bool = False, without: frozenset[str] = frozenset()) -> Costs:
    return Costs(OVERHEADS, TRANSFERS, network=network, without=without, seed=seed)


def test_the_seed_decides_and_all_recorded_values_are_drawn_up_to_the_rare_ones() -> None:
    ways = [[drawn() for _ in range(30)] for drawn in (costs(1).to_worker, costs(1).to_worker, costs(2).to_worker)]
    assert ways[0] == ways[1] != ways[2]
    assert set(ways[0]) == {1000, 2000}
    some = costs()
    assert {some.prepare(0) for _ in range(40)} == {1, 2, 3}
    assert {some.finish(0) for _ in range(40)} == {110, 120, 130}
    assert some.finish(1) == 190
    some = Costs(OVERHEADS, TRANSFERS, network=False, without=(), seed=0, rare=0.5)
    assert {some.prepare(0) for _ in range(40)} == {1, 2}
    assert {some.to_worker() for _ in range(40)} == {1000}


def test_the_loop_waits_less_around_a_task_if_fewer_threads_hold_the_gil() -> None:
    slow = replace(OVERHEADS, prepare=(np.array([AROUND + 6_000_000]),), finish=(np.array([AROUND + 2_000_000]),))
    some = Costs(slow, TRANSFERS, network=False, without=(), seed=0)
    assert [some.prepare(0, crowd) for crowd in (1.0, 0.5, 0.0)] == [6_500_000, 3_500_000, 500_000]
    assert [some.finish(0, crowd) for crowd in (1.0, 0.5, 0.0)] == [2_500_100, 1_500_100, 500_100]
    assert costs().finish(1, 0.0) == 190  # a short time has no waiting in it


def test_the_loop_waits_longer_around_tasks_that_hold_the_gil_beside_more_threads() -> None:
    graph = Graph(["work"] * 8, [[]] * 8, [100 * MS] * 8, [1] * 8, set(range(8)))
    for gil_waits, expected in ((1.0, [0.0, 1.0, 3.0]), (0.0, [1.0, 1.0, 1.0])):
        trace = replace(simulate(graph, workers=1, nthreads=2, cpu_share=0.5), gil_waits={"work": gil_waits})
        own, drawn = ClusterSpec.from_trace(trace), Mock(prepare=Mock(return_value=0), finish=Mock(return_value=0))
        tasks = TaskCosts(Workload(trace), calibrate(trace), SimulationJob(own), drawn)
        for nthreads in (1, 2, 4):
            tasks.of_run(own.with_workers(1, nthreads).workers[0], Workload(trace).keys[0])
        assert [call.args[1] for call in drawn.prepare.call_args_list] == pytest.approx(expected, abs=0.02)


def test_only_messages_that_end_or_begin_a_task_cost_much() -> None:
    some = costs()
    assert some.at_scheduler("task-finished") == 500_000
    assert some.at_scheduler("add-keys") == some.at_worker("free-keys") == SMALL_MESSAGE
    assert some.at_worker("compute-task") == 60_000
    assert some.transitions(3) == 150
    assert some.taking_in(5) + some.settling(1) == 13


@pytest.mark.parametrize(("network", "byte"), [(False, 2), (True, 1)])
def test_a_transfer_costs_by_message_result_and_byte(network: bool, byte: int) -> None:
    some = costs(network=network)
    found = {(latency, sum(taking)) for latency, taking in (some.transfer(2, 100) for _ in range(40))}
    assert found == {(10, 26 + 100 * byte), (20, 52 + 200 * byte)}


def test_a_transfer_waits_for_the_time_beyond_the_computing_of_its_data() -> None:
    slow = replace(TRANSFERS, message=5e6, factors=np.array([2.0]))
    some = Costs(OVERHEADS, slow, network=False, without=(), seed=0)
    _, taking = some.transfer(2, 100_000)
    assert taking.computing == TRANSFERS.computing(2, 100_000) == 700_000 + 2 * 100_000 + 2 * 100_000
    assert sum(taking) == some.refused() - 20 + 2 * (2 * 3 + 2 * 100_000)


def test_the_first_task_of_a_prefix_costs_the_recorded_time_of_that_worker_or_the_median() -> None:
    some = costs()
    assert [some.cold(worker, 1) for worker in (0, 1, 2, MISSING)] == [900, 0, 500, 500]
    assert some.cold(0, 0) == costs(without=frozenset({"scheduler"})).cold(0, 1) == 0


def test_parts_that_are_left_out_cost_nothing() -> None:
    free = costs(without=frozenset({"scheduler", "transfer"}))
    assert free.transfer(5, 5) == (0, (0, 0))
    assert free.to_worker() == free.to_scheduler() == free.at_scheduler("task-finished") == free.at_worker("x") == 0
    assert free.transitions(9) == free.taking_in(9) == free.settling(0) == 0
    assert free.prepare(1) == 9
