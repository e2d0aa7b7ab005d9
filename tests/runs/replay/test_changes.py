import math

import pytest

from dask_efficiency import critical_path
from dask_efficiency.runs.replay.changes import REPLAYS, RUNS, Changes, replays, speedups
from tests.simulated_traces import SAMPLES


def makespan(changed: Changes) -> float:
    """10 s as it happened, and one more in any other order; some improvements save what they say."""
    assert changed.seed is not None
    luck = 1.0 + 0.25 * (changed.seed % 2)
    return 10.0 + luck - sum(changed.prefixes.values())


def test_improvements_are_not_measured_against_a_lucky_schedule() -> None:
    found = speedups(makespan, {"little": Changes(prefixes={"a": 0.1}), "much": Changes(prefixes={"a": 3.0})}, 4)
    assert [speedup.what for speedup in found] == ["much", "little"]
    assert [speedup.saved_seconds for speedup in found] == pytest.approx([3.0, 0.1])


def test_luck_of_both_schedules_is_no_error_and_luck_of_one_is() -> None:
    def erratic(changed: Changes) -> float:
        return makespan(changed) + (changed.seed or 0) * len(changed.prefixes)

    (same,) = speedups(makespan, {"a": Changes(prefixes={"a": 1.0})}, 4)
    (other,) = speedups(erratic, {"a": Changes(prefixes={"a": 1.0})}, 4)
    assert same.error_seconds == pytest.approx(0.0)
    # Of 1, 0, -1, -2 the standard deviation is 1.29, and half of that is the error of their mean.
    assert other.error_seconds == pytest.approx(1.291 / 2, abs=0.001)


def test_large_traces_are_replayed_once_without_an_error() -> None:
    assert [replays(runs) for runs in (0, 100, RUNS // 2, RUNS, 50 * RUNS)] == [REPLAYS, REPLAYS, 2, 1, 1]
    (found,) = speedups(makespan, {"a": Changes(prefixes={"a": 1.0})}, 1)
    assert math.isnan(found.error_seconds)


@pytest.mark.parametrize("name", SAMPLES)
def test_the_first_improvement_of_a_sample_saves_time(name: str) -> None:
    path = critical_path(SAMPLES[name]())
    assert path.improvements(50.0)[0].saved_seconds > 0
