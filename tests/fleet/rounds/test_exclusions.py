from __future__ import annotations

import numpy as np
import pytest

from dask_efficiency.accounts.slow_worker import Cause, SlowWorker
from dask_efficiency.fleet.outliers.metric_series import MetricSeries
from dask_efficiency.fleet.rounds.exclusions import Detector, failure, judged


def fleet(machines: int = 12, metrics: int = 3) -> MetricSeries:
    return MetricSeries.of(
        np.ones((metrics, machines, 4), np.float32), metrics=[f"m{number}" for number in range(metrics)]
    )


def failing_on(*names: str) -> Detector:
    """A detector that names the first machine that it gets, and fails on machines and metrics of these names."""

    def detector(window: MetricSeries, past: MetricSeries | None) -> list[SlowWorker]:
        assert past is None or (past.workers, past.metrics) == (window.workers, window.metrics)
        if found := sorted({*window.workers, *window.metrics} & {*names}):
            raise IndexError(f"{found[0]} is wrong")
        return [SlowWorker(window.workers[0], "", Cause.DISK, 2.0, 0.9, 0.0, None)]

    return detector


@pytest.mark.parametrize(
    ("wrong", "about", "left"),
    [
        (["7"], "machine", "7"),
        (["0", "11"], "machine", "0 11"),
        (["3", "4", "9"], "machine", "3 4 9"),
        (["m1"], "metric", "m1"),
    ],
)
def test_judging_goes_on_without_what_it_fails_on(wrong: list[str], about: str, left: str) -> None:
    found, without = judged(failing_on(*wrong), fleet(), fleet())
    assert without is not None
    assert (without.about, sorted(without.names, key=lambda name: (len(name), name))) == (about, left.split())
    assert [finding.worker for finding in found] == ["1" if "0" in wrong else "0"]
    assert str(without).startswith(f"goes on without the {about} ")
    assert "IndexError: " in str(without)


def test_what_does_not_fail_is_judged_once_and_whole() -> None:
    calls: list[MetricSeries] = []
    window = fleet()
    assert judged(lambda window, past: calls.append(window) or [], window, None) == ([], None)
    assert calls == [window]


@pytest.mark.parametrize("wrong", [["1", "2", "3", "4"], ["m0", "m1"], ["1", "m1"]])
def test_what_fails_without_any_few_is_raised(wrong: list[str]) -> None:
    with pytest.raises(IndexError, match="is wrong"):
        judged(failing_on(*wrong), fleet(), None)


def test_half_of_a_small_fleet_is_not_left_out() -> None:
    with pytest.raises(IndexError):
        judged(failing_on("0", "1"), fleet(4, 1), None)


@pytest.mark.parametrize("ending", [KeyboardInterrupt, SystemExit])
def test_what_ends_a_program_ends_it(ending: type[BaseException]) -> None:
    def detector(window: MetricSeries, past: MetricSeries | None) -> list[SlowWorker]:
        raise ending

    with pytest.raises(ending):
        judged(detector, fleet(), None)


def test_a_failure_has_its_place() -> None:
    try:
        [].pop()
    except IndexError as error:
        assert failure(error).startswith("IndexError: pop from empty list (test_exclusions.py:")
    assert failure(KeyError()) == "KeyError"
