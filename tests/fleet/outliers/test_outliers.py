from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_efficiency.accounts.slow_worker import Cause, SlowWorker
from dask_efficiency.fleet.outliers.metric_series import MetricSeries
from dask_efficiency.fleet.outliers.outliers import by_host, find_outliers, independent, onset
from tests.fleet.outliers.jobs import METRICS as JOB
from tests.fleet.outliers.jobs import breathing
from tests.straggler.clusters import METRICS, healthy, with_fault


def _series(values: np.ndarray, metrics: tuple[str, ...] = METRICS) -> MetricSeries:
    return MetricSeries.of(values, metrics=metrics)


def workers_of(found: list[SlowWorker]) -> set[str]:
    return {finding.worker for finding in found}


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def changed(values: np.ndarray, where: tuple[Any, ...], by: Any) -> np.ndarray:
    """Values of which some are larger by so much."""
    values[where] += by
    return values


def halted(seconds: slice) -> np.ndarray:
    """Machines that differ lastingly, of which all do less."""
    values = np.float32(50) + np.float32(0.1) * noise(2, 16, 700)
    values *= 1 + np.linspace(-0.06, 0.06, 16, dtype=np.float32)[None, :, None]
    values[:, :, seconds] *= np.float32(0.05)
    return values


def quiet() -> np.ndarray:
    """Machines of which some are steadier than others, until all of them become quiet."""
    values = noise(2, 64, 900)
    values[:, :8] *= np.float32(0.2)
    values += 10
    values[:, :, 400:] = 0.3 + np.float32(0.001) * noise(2, 64, 500, seed=1)
    return values


def small(onset: int) -> np.ndarray:
    """A change that is too small to matter."""
    values = np.float32(0.1) * (healthy(16) - np.array([50, 8], np.float32)[:, None, None]) + np.float32(50)
    return changed(values, (0, 3, slice(onset, None)), -1)


def missing(values: np.ndarray, *where: tuple[Any, ...]) -> np.ndarray:
    for part in where:
        values[part] = np.nan
    return values


def often_missing() -> np.ndarray:
    values = healthy(8)
    values[:, 2, 150:][:, np.random.default_rng(0).random(450) < 0.4] = np.nan
    return values


ALL = slice(None)

NOBODY: dict[str, np.ndarray] = {
    **{f"healthy {workers} {seed}": healthy(workers, seed=seed) for workers in (4, 64) for seed in range(10)},
    "two workers": with_fault(2, worker=1),
    "a burst of three minutes": changed(healthy(16), (0, 3, slice(200, 380)), -10),
    "a burst at the beginning": changed(healthy(16), (0, 3, slice(0, 150)), -10),
    "a difference for the whole run": with_fault(16, worker=7, onset=0),
    "a small change from the beginning": small(0),
    "a small change": small(300),
    "machines that differ, when all do less": halted(slice(320, None)),
    "machines that were steadier, when all become quiet": quiet(),
    "a machine that differs and joins late": missing(
        changed(healthy(16, seconds=900), (ALL, 5), 4), (ALL, 5, slice(0, 300))
    ),
    "samples that are often missing": often_missing(),
    "missing samples": missing(healthy(8), (ALL, 4, slice(100, None)), (ALL, ALL, slice(250, 300))),
}


@pytest.mark.parametrize("case", NOBODY)
def test_no_worker_is_found_without_a_fault_of_its_own(case):
    assert find_outliers(_series(NOBODY[case])) == []


def errors() -> np.ndarray:
    """Errors of one worker, where nobody else has any."""
    values = np.zeros((2, 8, 600), np.float32)
    values[0, 2, 200:] = np.random.default_rng(0).poisson(2, 400)
    return values


def swinging(values: np.ndarray) -> np.ndarray:
    return changed(values, (1, 5, slice(200, None)), 5 * noise(400, seed=1))


ALL_SWING = healthy(16)
ALL_SWING[1] += 20 * np.sin(np.arange(600) / 3).astype(np.float32)

FOUND: dict[str, tuple[np.ndarray, str, str]] = {
    **{f"lower, of {workers}": (with_fault(workers, worker=2), "2", "cpu") for workers in (4, 64, 300)},
    "swings about its usual mean": (swinging(healthy(16)), "5", "rate swings"),
    "swings that no peer shares": (swinging(ALL_SWING), "5", "rate swings"),
    "errors": (errors(), "2", "cpu swings"),
    "on and off within a minute": (
        changed(healthy(32), (1, 5, slice(200, None)), 3 * (np.arange(400) % 60 < 40)), "5", "rate"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FOUND)
def test_a_worker_that_leaves_its_peers_is_found(case):
    values, worker, signal = FOUND[case]
    (finding,) = find_outliers(_series(values))
    (evidence, *_) = finding.evidence
    assert (finding.worker, evidence.signal) == (worker, signal)
    assert 150 <= finding.since <= 250
    if signal == "rate swings":  # those that no peer shares
        assert evidence.value > 2 * evidence.high
    if case.startswith("lower"):
        assert evidence.value < evidence.low


STUCK = {
    "a stuck exporter repeats the mean": lambda values: values.mean(axis=1, keepdims=True) + 0 * values,
    "a process that hangs leaves the noise": lambda values: (
        values.mean(axis=1, keepdims=True) + np.random.default_rng(2).standard_normal(values.shape)
    ),
    "an exporter is refreshed once in 90 s": lambda values: np.repeat(values[:, ::90], 90, axis=1)[
        :, : values.shape[1]
    ],
}


@pytest.mark.parametrize("stuck", STUCK.values(), ids=STUCK)
@pytest.mark.parametrize("history", [True, False])
def test_a_machine_that_stands_still_at_its_own_mean_is_found(stuck, history):
    values = breathing(16)
    values[:2, 5, 400:] = stuck(values[:2, 5, 400:])
    before = _series(breathing(16, seed=1), JOB) if history else None
    (finding,) = find_outliers(_series(values, JOB), history=before)
    assert finding.worker == "5"
    assert {"duty movement", "power movement"} <= {one.signal for one in finding.evidence}
    assert finding.since == pytest.approx(400, abs=60)


def against_before(values: np.ndarray, before: np.ndarray) -> set[str]:
    return workers_of(find_outliers(_series(values, JOB), history=_series(before, JOB)))


def test_a_machine_that_was_noisy_before_must_go_further():
    random, values, before = np.random.default_rng(5), breathing(16), breathing(16, seed=1)
    for rows in (values, before):
        slow = np.repeat(random.standard_normal((3, rows.shape[2] // 60)), 60, axis=1)
        rows[:, 4] += 3 * slow.astype(np.float32)
    values[:, 4, 400:] += 4
    assert against_before(values, before) == set()
    values[:, 7, 400:] += 4
    assert against_before(values, before) == {"7"}


def test_no_machine_is_accused_when_all_pause_or_come_to_wait():
    values = breathing(16)
    values[:, :, 400:] = values[:, :, 400:].mean(axis=2, keepdims=True)
    assert find_outliers(_series(values, JOB)) == []
    values, before = breathing(16), breathing(16, seed=1)
    values[:, :, 400:] = 5 + np.random.default_rng(3).standard_normal(values[:, :, 400:].shape)
    for rows in (values, before):
        rows[:, 4] = 50 + 0.6 * (rows[:, 4] - 50)  # a weaker rhythm
    assert against_before(values, before) == set()


def test_a_third_of_all_machines_is_no_outlier():
    values, before = breathing(18), breathing(18, seed=1)
    values[0, :6, 400:] -= 15
    assert against_before(values, before) == set()
    values[0, 1:6] = breathing(18, seed=4)[0, 1:6]
    assert against_before(values, before) == {"0"}


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_difference_for_the_whole_run_is_new_only_against_a_history(sign):
    run, history = sign * with_fault(16, worker=7, onset=0), sign * healthy(16, seed=1)
    (finding,) = find_outliers(_series(run), history=_series(history))
    assert (finding.worker, finding.since) == ("7", 0.0)
    assert find_outliers(_series(run), history=_series(run)) == []


def test_a_history_of_other_workers_changes_nothing():
    history = replace(_series(with_fault(16, worker=7, onset=0)), workers=tuple("abcdefghijklmnop"))
    assert find_outliers(_series(healthy(16)), history=history) == []
    assert workers_of(find_outliers(_series(with_fault(16, worker=3)), history=history)) == {"3"}


def test_a_metric_with_a_known_worse_direction_finds_no_better_worker():
    better, metrics = with_fault(16, worker=3), ("spill", "rate")
    assert find_outliers(_series(better, metrics)) == []
    (finding,) = find_outliers(_series(-better, metrics))
    assert (finding.worker, finding.cause) == ("3", Cause.DISK)


SHIFTED = healthy(12)
SHIFTED[0, 6:] -= 8


@pytest.mark.parametrize(
    ("values", "size", "found"),
    [(SHIFTED, 6, set()), (np.concatenate([healthy(5), with_fault(5, worker=2, seed=1)], axis=1), 5, {"w7"})],
)
def test_only_workers_of_a_group_are_compared(values, size, found):
    frame = pd.concat(
        pd.DataFrame({"at": np.arange(600.0), "worker": f"w{i}", "group": i // size, "cpu": row})
        for i, row in enumerate(values[0])
    )
    assert workers_of(find_outliers(frame)) == found


@pytest.mark.parametrize(
    ("onset", "height", "seconds", "found"),
    [
        (200, 8, 780, {"3", "9"}),  # together, or long apart
        (420, 8, 780, {"3", "9"}),
        (270, 8, 780, {"3"}),
        (200, 3.5, 600, {"3", "9"}),  # within seconds
        (225, 3.5, 600, {"3"}),
        (225, 12, 600, {"3"}),
        (175, 12, 600, {"9"}),
    ],
)
def test_faults_that_begin_together_are_two_and_one_that_follows_shortly_is_a_consequence(
    onset, height, seconds, found
):
    values = with_fault(32, worker=3)
    values = np.concatenate([values, values[:, :, 600 - (seconds - 600) :]], axis=2) if seconds > 600 else values
    values[0, 9, onset:] -= height
    assert workers_of(find_outliers(_series(values))) == found


@pytest.mark.parametrize(("machines", "others"), [(8, 1), (8, 2), (12, 2), (12, 4), (64, 4)])
def test_effects_of_a_third_of_a_fault_ten_seconds_later_neither_are_named_nor_silence_it(machines, others):
    values = 1 + 0.02 * noise(3, 1, 180) + 0.03 * noise(3, machines, 180, seed=1)
    values[:, 0, 100:] += 1.0
    values[:, 1 : 1 + others, 102:] += 0.35
    series = replace(_series(values, ("x", "y", "z")), step_seconds=5.0)
    assert workers_of(find_outliers(series)) == {"0"}


@pytest.mark.parametrize("step_seconds", [1, 5, 15])
def test_faults_of_four_machines_at_once_are_four(step_seconds):
    values = healthy(64, seconds=900)
    for worker, height in ((3, 10), (20, 7), (41, 5), (60, 9)):
        values[0, worker] -= height * np.clip((np.arange(900) - 400) / (1 + worker / 2), 0, 1)
    whole = values[:, :, : 900 // step_seconds * step_seconds].reshape(2, 64, -1, step_seconds).mean(axis=3)
    series = replace(_series(whole), step_seconds=float(step_seconds))
    assert workers_of(find_outliers(series)) == {"3", "20", "41", "60"}


def test_machines_that_wander_as_most_do_are_not_accused():
    """As where a job's step is sampled at another place for each machine, and these places drift."""
    random = np.random.default_rng(0)
    places = random.uniform(-1, 1, 64)[None, :, None].astype(np.float32)
    past, now = (random.normal(50, 0.5, (2, 64, 90)).astype(np.float32) for _ in range(2))
    history = replace(_series(past - 6 * places), step_seconds=10.0)
    assert find_outliers(replace(_series(now + 6 * places), step_seconds=10.0), history=history) == []
    now[0, 5] -= 40
    assert workers_of(find_outliers(replace(_series(now), step_seconds=10.0), history=history)) == {"5"}


@pytest.mark.parametrize("metric", ["retransmits", "cpu"])
def test_the_sensors_of_a_host_accuse_the_host_and_never_one_of_its_workers(metric):
    values = -with_fault(8, worker=0)
    if metric == "retransmits":
        values[0, 1] = np.roll(values[0, 0], 1)  # another worker reads the sensors of its host a bit later
    series = replace(_series(values, (metric, "rate")), hosts=tuple("aabbccdd"), groups=("",) * 8)
    (finding,) = find_outliers(series)
    expected = ("", "a", ("0", "1")) if metric == "retransmits" else ("0", "a", ())
    assert (finding.worker, finding.host, finding.workers) == expected


def test_on_a_single_host_its_sensors_accuse_nobody():
    series = replace(_series(-with_fault(8, worker=3), ("retransmits", "rate")), hosts=("here",) * 8)
    assert find_outliers(series) == []
    assert workers_of(find_outliers(replace(series, metrics=("loop_interval", "rate")))) == {"3"}


@given(scale=st.floats(1e-3, 1e6), seed=st.integers(0, 50))
@settings(max_examples=15, deadline=None)
def test_units_and_the_order_of_the_workers_do_not_matter(scale, seed):
    values = with_fault(9, worker=4, seed=seed).astype(np.float64)
    order = np.random.default_rng(seed).permutation(9)
    before = find_outliers(_series(values))
    after = find_outliers(_series((values * scale)[:, order]))
    assert [(order[int(f.worker)], f.cause) for f in after] == [(int(f.worker), f.cause) for f in before]
    assert [f.score for f in after] == pytest.approx([f.score for f in before], rel=0.02)


def test_in_a_short_run_nobody_is_found_and_an_option_out_of_range_is_refused():
    values = with_fault(8, worker=1)
    assert [find_outliers(_series(values[:, :, 200 : 200 + seconds])) for seconds in (200, 270, 284)] == [[], [], []]
    with pytest.raises(ValueError, match="share 0"):
        find_outliers(_series(values), share=0)


@pytest.mark.parametrize("seed", range(3))
def test_swings_that_are_hardly_noticed_are_compared_with_the_same_measure_as_before(seed):
    # Their variance is about the least that counts, which follows the level; a machine that was calmer is not faulty.
    random = np.random.default_rng(seed)
    deviations = np.linspace(0.0010, 0.0035, 32)[None, :, None]
    before, now = (level + deviations * random.normal(size=(1, 32, 180)) for level in (0.2, 0.6))
    history, window = (MetricSeries.of(values, metrics=["x"], step_seconds=10.0) for values in (before, now))
    assert not find_outliers(window, history=history)


@pytest.mark.parametrize(("pressure", "named"), [(0.0002, []), (0.2, ["3"])])
def test_a_sensor_that_is_nearly_0_everywhere_accuses_nobody(pressure, named):
    random = np.random.default_rng(0)
    values = np.abs(random.normal(0.002, 0.00002, (1, 4, 180)))
    values[0, 3, 60:] += pressure
    series = MetricSeries.of(values, metrics=["disk_pressure"], step_seconds=5.0)
    assert [found.worker for found in find_outliers(series)] == named


def test_a_host_has_the_mean_of_its_workers_readings_and_a_worker_alone_keeps_all():
    values = np.array([[[1, 2], [3, np.nan], [5, np.nan]], [[7, 7], [8, 8], [9, 9]]], np.float32)
    series = replace(MetricSeries.of(values, metrics=("steal", "memory")), hosts=("a", "a", "b"))
    workers, hosts = by_host(series)
    assert hosts is not None
    assert (workers.metrics, hosts.metrics, hosts.workers) == (("memory",), ("steal",), ("a", "b"))
    np.testing.assert_array_equal(hosts.values, [[[2, 2], [5, np.nan]]])
    np.testing.assert_array_equal(workers.values, values[1:])
    alone = replace(series, hosts=("a", "b", "c"))
    assert by_host(alone) == (alone, None)
    nowhere = replace(series, hosts=("", "", ""))
    assert by_host(nowhere) == (nowhere, None)


def test_hosts_are_compared_that_have_workers_of_the_same_groups():
    values = np.zeros((1, 5, 3), np.float32)
    series = replace(
        MetricSeries.of(values, metrics=("steal",)), hosts=("a", "a", "b", "c", "c"), groups=("x", "y", "x", "y", "x")
    )
    hosts = by_host(series)[1]
    assert hosts is not None
    assert [part.workers for part in hosts.comparable()] == [("a", "c"), ("b",)]


def _of(values: np.ndarray, *, begin: int, kind: str = "level", step_seconds: float = 1.0) -> float:
    series = replace(MetricSeries.of(values, metrics=METRICS), step_seconds=step_seconds)
    return onset(series, np.median(values, axis=1), 3, begin, [("cpu", kind)])


@pytest.mark.parametrize("ramp", [1, 20, 60])
@pytest.mark.parametrize("guess", [270, 300, 345])
def test_an_onset_is_found_to_a_few_seconds_however_slowly_the_fault_comes(ramp, guess):
    values = healthy(16, seconds=900)
    values[0, 3] -= 8 * np.clip((np.arange(900) - 300) / ramp, 0, 1)
    assert _of(values, begin=guess) == pytest.approx(300, abs=11)
    assert _of(values, begin=0) == 0  # there from the beginning


def test_swings_have_an_onset_too():
    values = healthy(16, seconds=900)
    values[0, 3, 300:] += 5 * np.random.default_rng(1).standard_normal(600)
    assert _of(values, begin=270, kind="swings") == pytest.approx(300, abs=21)


def test_the_onset_of_swings_of_a_metric_in_steps_is_mostly_found_within_20_seconds():
    off = []
    for seed in range(20):
        values = 0.5 + 0.05 * noise(2, 8, 180, seed=seed)
        values[0, 3, 90:] = 0.5 + 0.15 * noise(90, seed=100 + seed)
        values = np.round(values / 0.02) * 0.02
        off.append(abs(_of(values, begin=88, kind="swings", step_seconds=5.0) - 450))
    assert np.median(off) < 20


def test_samples_that_are_missing_and_a_window_that_ends_soon_do_no_harm():
    values = healthy(16)
    values[0, 3, 500:] -= 8
    values[0, 3, 380:460] = np.nan
    assert _of(values[:, :, :530], begin=480) == pytest.approx(500, abs=11)
    assert _of(np.full((2, 16, 60), np.nan, np.float32), begin=50, step_seconds=15.0) >= 0


@pytest.mark.parametrize(
    ("begins", "together", "follow", "independents"),
    [
        ([50, 10, 11, 14, 30], 1, 20, [True, True, True, False, False]),
        ([0, 10, 20], 0, 10, [True, False, True]),  # a consequence has no consequences
    ],
)
def test_only_a_fault_that_follows_another_shortly_is_a_consequence(begins, together, follow, independents):
    assert independent(np.array(begins), together=together, follow=follow).tolist() == independents


def of(values: np.ndarray) -> MetricSeries:
    return MetricSeries.of(values, metrics=JOB)


@pytest.mark.parametrize("machines", [8, 40])
def test_a_machine_far_from_its_peers_from_the_start_is_found_with_a_lower_confidence(machines: int) -> None:
    values = breathing(machines)
    values[:2, 3] *= 0.4
    (finding,) = find_outliers(of(values))
    assert (finding.worker, finding.since) == ("3", 0.0)
    later = breathing(machines)
    later[:2, 3, 400:] *= 0.4
    (sure,) = find_outliers(of(later), history=of(breathing(machines, seed=1)))
    assert finding.confidence < sure.confidence


def test_a_machine_that_never_moves_is_found() -> None:
    values = breathing(16)
    values[:2, 5] = values[:2, 5].mean(axis=1, keepdims=True)
    (finding,) = find_outliers(of(values))
    assert (finding.worker, finding.since) == ("5", 0.0)
    assert {one.signal for one in finding.evidence} >= {"duty movement", "power movement"}


def unlike(metrics: slice | int, machines: slice | int, values: Any) -> np.ndarray:
    """Machines of which some do so many times as much, or have so much."""
    made = breathing(16)
    made[metrics, machines] = made[metrics, machines] * values if isinstance(values, float) else values
    return made


def many() -> np.ndarray:
    values = breathing(16)
    values[:2, 2:8] *= np.linspace(0.4, 0.6, 6, dtype=np.float32)[:, None]
    return values


UNLIKE = unlike(slice(2), 3, 0.4)

NOT_UNLIKE: dict[str, tuple[np.ndarray, dict[str, Any]]] = {
    "one metric alone may be other hardware": (unlike(0, 3, 0.4), {}),
    "full disks do not follow the work": (unlike(slice(1, 3), slice(None), np.eye(16)[3][:, None] * 50 + 50), {}),
    "a difference that others have as well is how machines are": (many(), {}),
    "workers that do unlike work are not compared": (UNLIKE, {"same_work": False}),
    "a difference that was there before is how the machine is": (UNLIKE, {"history": of(UNLIKE)}),
}


@pytest.mark.parametrize("case", NOT_UNLIKE)
def test_no_machine_is_accused_from_the_start_without_two_metrics_far_from_those_of_equals(case: str) -> None:
    values, options = NOT_UNLIKE[case]
    assert find_outliers(of(values), **options) == []


def test_a_machine_that_the_history_lacks_is_judged_without() -> None:
    before = breathing(16, seed=1)
    before[:, 3] = np.nan
    assert [found.worker for found in find_outliers(of(UNLIKE), history=of(before))] == ["3"]
