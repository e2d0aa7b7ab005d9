from __future__ import annotations

import math

import numpy as np
import pytest

from dask_efficiency.straggler.observations import Observations, TaskTimes, observations_of, sized, without_giants
from dask_efficiency.straggler.score import score


def observations(value: np.ndarray, size: np.ndarray) -> Observations:
    """Of workers that have as many each, four in all."""
    count = len(value)
    worker, zeros = np.repeat(np.arange(4), count // 4), np.zeros(count, np.int64)
    return Observations(
        "duration", worker, zeros, value, np.ones(count), size, np.arange(float(count)), zeros > 0, ("f",)
    )


def test_size_explains_differences_within_workers_unless_sizes_hardly_differ() -> None:
    size = np.tile(np.log([1.0, 2.0, 4.0, 8.0]), 20)
    level = np.repeat([0.0, 0.0, 0.0, 0.3], 20)
    given_sizes = observations(level + size, size)
    assert np.ptp(sized(given_sizes, 4).value[:20]) == pytest.approx(0.0, abs=1e-9)
    assert score(given_sizes, 4).level[3] == pytest.approx(0.3)
    size = np.tile(np.log([1.0, 1.2]), 40)
    given_sizes = observations(3 * size, size)
    assert sized(given_sizes, 4).value.tolist() == given_sizes.value.tolist()


def test_a_slope_is_no_greater_than_the_power_of_three_halves() -> None:
    size = np.tile(np.log([1.0, 9.0]), 40)
    assert sized(observations(3 * size, size), 4).value == pytest.approx(3 * size - 1.5 * (size - math.log(3)))


def test_a_task_counts_for_no_more_than_one_of_four_times_the_usual_time() -> None:
    seconds, zero, first = np.array([1.0, 1.0, 1.0, 4.0, 9.0]), np.zeros(5), np.zeros(5, np.int64)
    unknown, ended = np.full(5, np.nan), np.zeros(5, np.bool_)
    work = TaskTimes(first, first, ("f",), zero, seconds, ended, seconds, unknown, unknown, unknown, unknown)
    duration = next(one for one in observations_of(work) if one.signal == "duration")
    assert duration.weight.tolist() == [1.0, 1.0, 1.0, 2.0, 2.0]


@pytest.mark.parametrize(("spread", "limit"), [(0.05, 0.6), (0.3, 0.9)])
def test_an_observation_far_from_others_counts_for_three_deviations_in_the_slope_of_size(spread, limit) -> None:
    size, value = np.zeros(80), np.tile([spread, -spread], 40)
    size[:2], value[0] = math.log(3), 9.0
    slope = (limit + 1.5 * math.log(3) - spread) / (2 * math.log(3))
    assert sized(observations(value, size), 4).value[:2] == pytest.approx(value[:2] - slope * math.log(3))


@pytest.mark.parametrize(("times", "giants", "left"), [(3.9, 8, 80), (4.1, 8, 72), (4.1, 9, 80)])
def test_a_few_giants_are_left_out_and_many_are_the_work(times: float, giants: int, left: int) -> None:
    size = np.zeros(80)
    size[:giants] = math.log(times)
    assert len(without_giants(observations(size, size)).value) == left


def of_one_task(seconds: float, cpu: float, io_wait: float = math.nan) -> dict[str, list[float]]:
    """Values of the signals that a task shows."""
    zero, unknown = np.zeros(1), np.full(1, np.nan)
    first, ended = np.zeros(1, np.int64), np.zeros(1, np.bool_)
    times = (zero, np.array([seconds]), ended, np.array([cpu]), unknown, np.array([io_wait]), unknown, unknown)
    return {one.signal: one.value.tolist() for one in observations_of(TaskTimes(first, first, ("f",), *times))}


@pytest.mark.parametrize(("cpu", "shown"), [(0.019, False), (0.021, True)])
def test_a_task_that_hardly_computes_shows_nothing_of_its_cpu(cpu: float, shown: bool) -> None:
    found = of_one_task(1.0, cpu)
    assert ("cpu_share" in found) == ("non_cpu" in found) == shown


@pytest.mark.parametrize(("seconds", "longer"), [(0.0009, 0.001), (0.0011, 0.0011)])
def test_no_time_is_shorter_than_the_clock_can_tell(seconds: float, longer: float) -> None:
    assert of_one_task(seconds, 0.0)["duration"] == pytest.approx([math.log(longer)])


def test_a_tenth_of_a_second_of_waiting_for_the_disk_counts_as_twice_none() -> None:
    (none,), (some,) = (of_one_task(1.0, 0.5, io_wait=seconds)["io_wait"] for seconds in (0.0, 0.1))
    assert some - none == pytest.approx(math.log(2))
