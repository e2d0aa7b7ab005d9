from __future__ import annotations

import math

import numpy as np
import pytest

from dask_efficiency.accounts.slow_worker import Cause
from dask_efficiency.straggler.causes import (
    BY_MEASUREMENT,
    BY_METRIC,
    BY_TASKS,
    BY_WAITING,
    Symptoms,
    cause_by_heartbeats,
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
    assert cause_of_run(high, {"duration": 1.1, "cpu_share": 0.36}, lagging=False) is Cause.SLOW_CPU
    assert cause_of_run(high, {"duration": 1.1, "cpu_share": 0.37}, lagging=False) is Cause.CONTENTION
    assert cause_of_run(high, {"duration": 0.1, "cpu_share": 0.047}, lagging=False) is Cause.SLOW_CPU
    assert cause_of_run(high, {"duration": 0.1, "cpu_share": 0.048}, lagging=False) is Cause.CONTENTION
    assert cause_of_run(high, {"duration": 0.1, "cpu_share": 0.048}, lagging=True) is Cause.GIL


@pytest.mark.parametrize("signal", ["staging", "whole"])
def test_a_signal_that_shows_no_cause_is_no_harm(signal: str) -> None:
    assert cause_of_run({signal: 5.0}, {}, lagging=False) is Cause.UNKNOWN


STOLEN, HELD, ALIKE = Symptoms(LESS, core_wait=0.5), Symptoms(LESS, beside_tasks=0.7), Symptoms(SAME_SHARE)


@pytest.mark.parametrize(
    ("symptoms", "times", "cause"),
    [
        (STOLEN, {"duration": 2.0, "disk": 4.9}, Cause.CONTENTION),
        (STOLEN, {"duration": 2.0, "disk": 5.1}, Cause.DISK),
        (Symptoms(LESS, LAGS), {"duration": 2.0, "disk": 10.0}, Cause.DISK),
        (STOLEN, {"duration": 1.15, "disk": 2.2}, Cause.CONTENTION),
        (ALIKE, {"duration": 1.3, "disk": 3.0}, Cause.SLOW_CPU),
        (ALIKE, {"duration": 1.3, "disk": 3.3}, Cause.DISK),
        (HELD, {"duration": 1.15, "disk": 10.0}, Cause.GIL),
        (HELD, {"receive": 5.0}, Cause.GIL),
        (STOLEN, {"receive": 2.4}, Cause.CONTENTION),
        (STOLEN, {"receive": 2.6}, Cause.NETWORK),
    ],
)
def test_lack_of_the_cpu_slows_disk_and_network_2_5_times_more_than_tasks_and_a_held_gil_without_bounds(
    symptoms: Symptoms, times: dict[str, float], cause: Cause
) -> None:
    names = tuple(LIVE)
    above, level = np.full(len(names), -math.inf), np.zeros(len(names))
    for signal, ratio in times.items():
        above[names.index(signal)], level[names.index(signal)] = 1.0, math.log(ratio)
    assert cause_by_heartbeats(above, level, symptoms, ease=0.5)[1] is cause


def test_the_signals_of_tasks_are_those_of_runs_and_heartbeats() -> None:
    assert BY_TASKS.keys() <= FINISHED.keys() | LIVE.keys()


def test_every_cause_has_a_signal_but_those_that_none_shows() -> None:
    by_signals = {*BY_TASKS.values(), *BY_METRIC.values(), *BY_MEASUREMENT.values(), *BY_WAITING.values()}
    assert {*Cause} - by_signals == {Cause.UNKNOWN, Cause.UNRESPONSIVE}
