import pytest

from dask_efficiency.stragglers.causes import Beside, Symptoms, cause_of_slow_tasks
from dask_efficiency.stragglers.finding import Cause

SAME_SHARE, LESS, NO_SHARE = Beside(0.95, 0.95), Beside(0.5, 0.95), Beside(0.02, 0.02)
WAITS, WAITS_NOT = Beside(0.6, 0.1), Beside(0.1, 0.1)
FULL, HALF = Beside(1.0, 1.0), Beside(0.5, 1.0)
LAGS, TURNS = Beside(0.05, 0.02), Beside(0.02, 0.02)


@pytest.mark.parametrize(
    ("symptoms", "cause"),
    [
        (Symptoms(SAME_SHARE), Cause.SLOW_CPU),
        (Symptoms(SAME_SHARE, WAITS, FULL, LAGS), Cause.SLOW_CPU),
        (Symptoms(LESS, WAITS, HALF, LAGS), Cause.CONTENTION),
        (Symptoms(LESS, WAITS_NOT, FULL, LAGS), Cause.GIL),
        (Symptoms(LESS, Beside(), FULL, TURNS), Cause.GIL),
        (Symptoms(LESS, WAITS_NOT, HALF, LAGS), Cause.CONTENTION),
        (Symptoms(LESS, WAITS_NOT, HALF, TURNS), Cause.UNKNOWN),
        (Symptoms(LESS, WAITS_NOT, HALF, TURNS, disk=True), Cause.DISK),
        (Symptoms(LESS, WAITS_NOT, HALF, TURNS, network=True), Cause.NETWORK),
        (Symptoms(NO_SHARE), Cause.UNKNOWN),
        (Symptoms(), Cause.UNKNOWN),
    ],
)
def test_the_pattern_of_the_signals_names_the_cause(symptoms: Symptoms, cause: Cause):
    assert cause_of_slow_tasks(symptoms) == cause
