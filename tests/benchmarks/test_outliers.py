"""The verdicts of ``benchmarks/studies/outliers.py``, on cases counted by hand."""

import numpy as np
import pytest

from benchmarks.studies import outliers as table
from benchmarks.studies.generator import SEVEN, generate
from benchmarks.studies.outliers import FIRST, SECOND, SEEDS, Judged, windows


def case(faulty: tuple[int, ...], named: tuple[int, ...]) -> Judged:
    return Judged(8, "ECC error" if faulty else "", faulty, named)


def test_rows_count_right_false_and_missed_machines() -> None:
    assert table.rows([case((1, 2), (2, 5)), case((), ())]).tolist() == [[1, 1, 1], [0, 0, 0]]


def test_figures_are_precision_recall_and_their_harmonic_mean() -> None:
    counts = np.array([[1, 1, 0]] * 3 + [[0, 0, 1]])
    assert table.figures(counts).startswith("P 0.500 [0.50, 0.50]  R 0.750 [")
    assert "F1 0.600 [" in table.figures(counts)


def test_alarms_are_counted_in_healthy_windows_alone() -> None:
    assert table.alarms([case((), (3,)), case((), ()), case((1,), (3,))]) == "1/2 (50%)"


def test_a_confidence_is_held_against_the_share_that_is_at_fault() -> None:
    sure = Judged(8, "ECC error", (1,), (1, 2), (0.95, 0.75))
    assert table.calibration([sure, Judged(8, "", (), (4,), (0.92,))]) == [
        " 70% to  80%: 0 of 1 at fault [0%, 79%]",
        " 90% to 100%: 1 of 2 at fault [9%, 91%]",
    ]
    assert table.wilson(8, 10) == pytest.approx((0.490, 0.943), abs=1e-3)


def test_windows_of_the_first_generator_are_those_that_it_draws_itself() -> None:
    seed = next(seed for seed in SEEDS[FIRST, "tune"] if generate(seed).values.shape[1] < 20)
    (window,) = windows(FIRST, [seed], most_machines=20)
    np.testing.assert_array_equal(window.series.values, generate(seed).metrics(SEVEN))


@pytest.mark.parametrize("of", [FIRST, SECOND])
def test_faults_are_as_frequent_in_small_tasks_as_in_large_ones(of: str) -> None:
    judged = list(windows(of, SEEDS[of, "tune"][:60], most_machines=20))
    for few in (True, False):
        those = [bool(window.faulty) for window in judged if (len(window.series.workers) < 20) == few]
        assert 0.4 < sum(those) / len(those) < 0.9
