from __future__ import annotations

import pytest

from dask_efficiency.accounts.slow_worker import Cause
from dask_efficiency.straggler.causes import (
    BY_MEASUREMENT,
    BY_METRIC,
    BY_TASKS,
    BY_WAITING,
    Symptoms,
    cause_of_run,
    cause_of_slow_tasks,
    who_takes_the_cpu,
)
from dask_efficiency.straggler.signals import FINISHED, LIVE

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


def test_pauses_name_the_memory_and_an_event_loop_that_lags_the_gil() -> None:
    high, levels = {"duration": 5.0, "cpu_share": 4.0}, {"duration": 0.4, "cpu_share": 0.4}
    assert cause_of_run(high, levels, lagging=True) is Cause.GIL
    assert cause_of_run(high, levels, lagging=False) is Cause.CONTENTION
    assert cause_of_run({"paused": 3.0, "duration": 9.0}, {"paused": 1.0}, lagging=False) is Cause.MEMORY


def test_less_time_on_the_cpu_that_explains_hardly_any_slowness_is_no_contention() -> None:
    high = {"duration": 9.0, "cpu_share": 2.0}
    assert cause_of_run(high, {"duration": 1.1, "cpu_share": 0.12}, lagging=False) is Cause.SLOW_CPU
    assert cause_of_run(high, {"duration": 1.1, "cpu_share": 0.3}, lagging=False) is Cause.CONTENTION


def test_the_signals_of_tasks_are_those_of_runs_and_heartbeats() -> None:
    assert BY_TASKS.keys() <= FINISHED.keys() | LIVE.keys()


def test_every_cause_has_a_signal_but_those_that_none_shows() -> None:
    by_signals = {*BY_TASKS.values(), *BY_METRIC.values(), *BY_MEASUREMENT.values(), *BY_WAITING.values()}
    assert {*Cause} - by_signals == {Cause.UNKNOWN, Cause.UNRESPONSIVE}
