from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="Minder is trained with torch")
from benchmarks import stragglers_outliers as table
from benchmarks.stragglers_generator import SEVEN, generate
from benchmarks.stragglers_methods import CONTINUITIES, OUTLIERS, Judged, by_size, outliers
from benchmarks.stragglers_windows import FIRST, SECOND, SEEDS, windows

pytestmark = pytest.mark.needs("torch")


def _case(machines: int, faulty: tuple[int, ...], **said: tuple[int, ...]) -> Judged:
    return Judged(
        machines, "ECC error" if faulty else "", faulty, {name: {(1.0, 1.0): who} for name, who in said.items()}
    )


def test_rows_count_right_false_and_missed_machines():
    cases = [_case(8, (1, 2), a=(2, 5)), _case(8, (), a=())]
    assert table.rows(cases, lambda case: case.said["a"][1.0, 1.0]).tolist() == [[1, 1, 1], [0, 0, 0]]


def test_figures_are_precision_recall_and_their_harmonic_mean():
    counts = np.array([[1, 1, 0]] * 3 + [[0, 0, 1]])
    assert table.figures(counts).startswith("P 0.500 [0.50, 0.50]  R 0.750 [")
    assert "F1 0.600 [" in table.figures(counts)


def test_alarms_are_counted_in_healthy_windows_alone():
    cases = [_case(8, (), a=(3,)), _case(8, (), a=()), _case(8, (1,), a=(3,))]
    assert table.alarms(cases, lambda case: case.said["a"][1.0, 1.0]) == "1/2 (50%)"


def test_each_task_size_gets_the_continuity_that_serves_it_best():
    small, large = _case(8, (1,), short=(1,), long=()), _case(300, (1,), short=(1, 2, 3), long=(1,))
    answer, _ = table.chosen_by_size([small, large], [("long", (1.0, 1.0)), ("short", (1.0, 1.0))])
    assert answer(small) == (1,)
    assert answer(large) == (1,)


@pytest.mark.parametrize("of", [FIRST, SECOND])
def test_windows_of_both_generators_are_judged(of: str):
    (window,) = windows(of, SEEDS[of, "tune"][:1], most_machines=8, machines=8, faults=True)
    said = outliers(window)
    assert {name for name in said if name != OUTLIERS} == {by_size(OUTLIERS, seconds) for seconds in CONTINUITIES}
    assert all(set(named) <= set(range(8)) for outcomes in said.values() for named in outcomes.values())


def test_a_past_becomes_the_series_just_before():
    (window,) = windows(SECOND, SEEDS[SECOND, "tune"][:1], most_machines=8, machines=8, past_seconds=120)
    assert window.history is not None
    assert window.history.start == -120
    assert window.history.workers == window.series.workers


def test_windows_of_the_first_generator_are_those_that_it_draws_itself():
    seed = next(seed for seed in SEEDS[FIRST, "tune"] if generate(seed).values.shape[1] < 20)
    (window,) = windows(FIRST, [seed], most_machines=20)
    np.testing.assert_array_equal(window.series.values, generate(seed).metrics(SEVEN))


@pytest.mark.parametrize("of", [FIRST, SECOND])
def test_faults_are_as_frequent_in_small_tasks_as_in_large_ones(of: str):
    judged = list(windows(of, SEEDS[of, "tune"][:60], most_machines=20))
    for few in (True, False):
        those = [bool(window.faulty) for window in judged if (len(window.series.workers) < 20) == few]
        assert 0.4 < sum(those) / len(those) < 0.9
