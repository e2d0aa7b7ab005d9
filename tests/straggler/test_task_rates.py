import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.straggler.task_rates import (
    MAX_PREFIXES,
    MAX_SENDERS,
    MAX_TIMES_LONGER,
    MIN_SECONDS_A_BYTE,
    MIN_WALL_SECONDS,
    TASK_SUMS,
    RunningTask,
    TaskRateCounter,
)
from tests.straggler.rates import arrived

MS = 1_000_000
PROCESS = (1.0, 2.0, 3.0, 4.0, 5.0)


def counted(*milliseconds: int) -> TaskRateCounter:
    counter = TaskRateCounter()
    for wall in milliseconds:
        counter.task("f", wall=wall * MS, cpu=wall * MS // 2, nbytes=math.e - 1)
    return counter


def test_the_first_task_of_a_prefix_is_left_out():
    rates = arrived(counted(900, 100, 300), PROCESS)
    sums = dict(zip(TASK_SUMS, rates.tasks[0].tolist(), strict=True))
    assert rates.prefixes == ("f",)
    assert sums["tasks"] == 2
    assert sums["wall"] == pytest.approx(0.4, abs=1e-5)
    assert sums["cpu"] == pytest.approx(0.2, abs=1e-5)
    assert sums["log_wall"] == pytest.approx(
        math.log(0.1 / MIN_WALL_SECONDS) + math.log(0.3 / MIN_WALL_SECONDS), abs=1e-3
    )
    assert sums["log_size"] == pytest.approx(2)
    assert sums["log_product"] == pytest.approx(sums["log_wall"], abs=1e-3)
    assert sums["share"] == pytest.approx(1)


def test_a_task_that_is_far_out_counts_as_a_few():
    rates = arrived(counted(100, *[100] * 5, 100_000), PROCESS)
    assert rates.tasks[0, 1] == pytest.approx(0.5 + MAX_TIMES_LONGER * 0.1, abs=1e-5)


def test_a_task_that_is_far_larger_than_usual_is_left_out_until_that_is_usual():
    counter = counted(*[100] * 11)
    counter.task("f", wall=2_000 * MS, cpu=0, nbytes=20 * math.e)
    assert arrived(counter, PROCESS).tasks[0, 0] == 10
    for _ in range(20):
        counter.task("f", wall=2_000 * MS, cpu=0, nbytes=20 * math.e)
    assert arrived(counter, PROCESS).tasks[0, 0] > 20


def test_tasks_that_measure_the_clock_are_left_out():
    counter = counted(100, 100)
    counter.task("f", wall=50_000, cpu=50_000, nbytes=0)
    assert arrived(counter, PROCESS).tasks[0, 0] == 1


def test_prefixes_and_senders_are_bounded_and_those_used_last_stay():
    counter = TaskRateCounter()
    for i in range(3 * MAX_PREFIXES):
        for name in ("kept", f"p{i}"):
            counter.task(name, wall=MS, cpu=0, nbytes=0)
            counter.transfer(name, seconds=1.0, nbytes=1_000_000)
    rates = arrived(counter, PROCESS)
    assert len(rates.prefixes) == MAX_PREFIXES
    assert len(rates.senders) == MAX_SENDERS
    assert "kept" in rates.prefixes
    assert rates.tasks[rates.prefixes.index("kept"), 0] == 3 * MAX_PREFIXES - 1


def test_small_transfers_tell_of_latency_and_are_left_out():
    counter = TaskRateCounter()
    counter.transfer("tcp://a", seconds=1.0, nbytes=1_000)
    counter.transfer("tcp://b", seconds=1.0, nbytes=1_000_000)
    rates = arrived(counter, PROCESS)
    assert rates.senders == ("tcp://b",)
    cost = math.log(1e-6 / MIN_SECONDS_A_BYTE)
    assert rates.transfers[0].tolist() == pytest.approx([1, cost, cost**2, 1], abs=1e-3)


def test_running_tasks_and_process_sums_arrive():
    rates = arrived(counted(), PROCESS, [RunningTask("f", 3.0, 10.0)])
    assert rates.running == (RunningTask("f", 3.0, 10.0),)
    assert rates.process.tolist() == list(PROCESS)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2**62), st.integers(0, 2**62), st.floats(0, 1e18))),
)
def test_whatever_is_counted_can_be_read(tasks: list[tuple[str, int, int, float]]):
    counter = TaskRateCounter()
    for prefix, wall, cpu, nbytes in tasks:
        counter.task(prefix, wall=wall, cpu=cpu, nbytes=nbytes)
    rates = arrived(counter, PROCESS)
    assert np.isfinite(rates.tasks).all()


@given(st.lists(st.lists(st.tuples(st.integers(50_000, 10**9), st.floats(0, 1.2), st.integers(0, 10**7)), max_size=40)))
def test_tasks_that_are_counted_together_count_like_one_by_one(batches):
    together, single = TaskRateCounter(), TaskRateCounter()
    for batch in batches:
        tasks = [("inc", wall, int(share * wall), float(nbytes)) for wall, share, nbytes in batch]
        together.add(tasks)
        for prefix, wall, cpu, nbytes in tasks:
            single.task(prefix, wall=wall, cpu=cpu, nbytes=nbytes)
        assert together.turn == single.turn
        assert together.cpu_seconds == pytest.approx(single.cpu_seconds)
        if "inc" in single.tasks:
            assert together._usual_size["inc"] == pytest.approx(single._usual_size["inc"])


def test_sums_of_tasks_that_are_counted_together_are_those_of_each():
    together, single = TaskRateCounter(), TaskRateCounter()
    tasks = [("inc", 2_000_000 + 1_000 * i, 1_000_000 + 500 * i, 10_000.0 + i) for i in range(200)]
    for first in range(0, 200, 50):
        together.add(tasks[first : first + 50])
    for prefix, wall, cpu, nbytes in tasks:
        single.task(prefix, wall=wall, cpu=cpu, nbytes=nbytes)
    assert together.tasks["inc"] == pytest.approx(single.tasks["inc"])
