import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.gpu.cupti.clock import STEP_NS, ClockPair, RecordClock

WALL = 1_795_000_000_000_000_000
SECOND = 1_000_000_000


def test_the_wall_clock_is_converted_by_its_distance():
    clock = RecordClock(ClockPair(WALL, 100), wall=WALL + 5)
    assert clock.monotonic(np.array([WALL - 7, WALL + SECOND], np.int64)).tolist() == [93, 100 + SECOND]


def test_times_stay_exact_to_the_nanosecond_after_small_drift():
    clock = RecordClock(ClockPair(WALL, 100), wall=WALL)
    assert not clock.read(ClockPair(WALL + SECOND, 100 + SECOND + 30))
    assert clock.monotonic(np.array([WALL + SECOND - 1], np.int64)).tolist() == [100 + SECOND + 29]


@pytest.mark.parametrize("step", [-3600 * SECOND, -2 * STEP_NS, 2 * STEP_NS, 86400 * SECOND])
def test_a_wall_clock_that_was_set_is_noticed_once(step: int):
    clock = RecordClock(ClockPair(WALL, 0), wall=WALL)
    assert clock.read(ClockPair(WALL + SECOND + step, SECOND))
    assert not clock.read(ClockPair(WALL + 2 * SECOND + step, 2 * SECOND))
    assert clock.monotonic(np.array([WALL + step], np.int64)).tolist() == [0]


@given(
    st.floats(0.2, 6), st.integers(0, 2**60), st.lists(st.integers(SECOND // 10, 10 * SECOND), min_size=2, max_size=9)
)
def test_a_counter_of_ticks_is_converted_whatever_its_rate(ticks: float, begin: int, pauses: list[int]):
    clock = RecordClock(ClockPair(begin, 50), wall=WALL)
    passed = 0
    for pause in pauses:
        passed += pause
        assert not clock.read(ClockPair(begin + round(passed * ticks), 50 + passed))
    middle = passed // 2
    (found,) = clock.monotonic(np.array([begin + round(middle * ticks)], np.int64)).tolist()
    assert abs(found - (50 + middle)) < 1000


def test_a_counter_of_ticks_that_jumps_is_noticed():
    clock = RecordClock(ClockPair(0, 0), wall=WALL)
    clock.read(ClockPair(3 * SECOND, SECOND))
    assert clock.read(ClockPair(3_600 * SECOND, 2 * SECOND))
    assert not clock.read(ClockPair(3_603 * SECOND, 3 * SECOND))
