from __future__ import annotations

import pytest

from dask_efficiency.accounts.slow_worker import Cause
from dask_efficiency.straggler.diagnosis import Symptoms, cause_of_slow_tasks, who_takes_the_cpu

SAME_SHARE, LESS, NO_SHARE = (0.95, 0.95), (0.5, 0.95), (0.02, 0.02)
LAGS, TURNS = (0.05, 0.02), (0.02, 0.02)


@pytest.mark.parametrize(
    ("symptoms", "cause"),
    [
        (Symptoms(SAME_SHARE), Cause.SLOW_CPU),
        (Symptoms((0.93, 1.0)), Cause.SLOW_CPU),
        (Symptoms((0.91, 1.0)), Cause.UNKNOWN),
        (Symptoms(SAME_SHARE, LAGS, core_wait=0.5, beside_tasks=0.5), Cause.SLOW_CPU),
        (Symptoms(LESS, LAGS, core_wait=0.5, beside_tasks=0.0), Cause.CONTENTION),
        (Symptoms(LESS, LAGS, core_wait=0.0, beside_tasks=0.5), Cause.GIL),
        (Symptoms(LESS, TURNS, beside_tasks=0.5), Cause.GIL),
        (Symptoms((0.2, 0.3), TURNS, beside_tasks=0.5), Cause.GIL),
        (Symptoms(LESS, LAGS, core_wait=0.0, beside_tasks=0.0), Cause.CONTENTION),
        (Symptoms(LESS, TURNS), Cause.UNKNOWN),
        (Symptoms(LESS, TURNS, disk=True), Cause.DISK),
        (Symptoms(LESS, TURNS, network=True), Cause.NETWORK),
        (Symptoms(NO_SHARE), Cause.UNKNOWN),
        (Symptoms(), Cause.UNKNOWN),
    ],
)
def test_the_pattern_of_the_signals_names_the_cause(symptoms: Symptoms, cause: Cause):
    assert cause_of_slow_tasks(symptoms) == cause


def test_the_cause_that_takes_the_cpu_is_known_without_tasks():
    assert who_takes_the_cpu(Symptoms(core_wait=0.3)) == Cause.CONTENTION
    assert who_takes_the_cpu(Symptoms(beside_tasks=0.3)) == Cause.GIL
    assert who_takes_the_cpu(Symptoms()) is None
