from __future__ import annotations

import numpy as np
import pytest

from dask_efficiency.straggler.history import Interval
from dask_efficiency.straggler.processes import ProcessComparison
from dask_efficiency.straggler.signals import DISK


@pytest.mark.parametrize(("nbytes", "compared"), [(9e5, False), (1.1e6, True)])
def test_disks_are_compared_from_a_megabyte_on_and_count_as_three_tasks(nbytes: float, compared: bool) -> None:
    comparison, rows = ProcessComparison(4), np.arange(4)
    for beat in range(2):
        for row in rows.tolist():
            seconds = 1.0 + (row == 3)
            process = np.array([beat * seconds, beat * nbytes, 0.0, 1.0, 1.0])
            comparison.receive(row, process, beat * 10**9, 0.0, 0.0, 1.0, 0.0)
        gained = comparison.gained()
    interval = Interval.of(4)
    comparison.compare(interval, rows, gained)
    expected = [0.0, 0.0, 0.0, np.log(2)] if compared else [np.nan] * 4
    np.testing.assert_allclose(interval.residual[DISK], expected)
    assert interval.tasks[DISK].tolist() == [3.0 if compared else 0.0] * 4
