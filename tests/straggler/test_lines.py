from __future__ import annotations

import pytest

from dask_efficiency.accounts.profile import Place
from dask_efficiency.accounts.slow_worker import Cause, SlowWorker
from dask_efficiency.straggler.lines import line_of, with_lines
from tests.report.profile_samples import CLEAN, SPLIT, UPPER

SLOW = SlowWorker("a", "host", Cause.SLEEP, 2.0, 0.9, 0.0, 1.5)
PLACES = {
    Place("thread-noncpu", "sleep", "clean", UPPER): 30,
    Place("thread-noncpu", "sleep", "load", (CLEAN,)): 30,
    Place("thread-noncpu", "sleep", "load", SPLIT): 50,
    Place("thread-noncpu", "sleep", "load", ()): 99,
    Place("thread-noncpu", "lock", "clean", SPLIT): 10,
    Place("thread-cpu", "", "clean", SPLIT): 90,
}


def test_the_line_is_that_of_most_waiting_for_the_cause() -> None:
    assert line_of(Cause.SLEEP, PLACES.items()) == "etl.py:88"
    assert line_of(Cause.LOCK, PLACES.items()) == "etl.py:89"
    assert line_of(Cause.LOCK, []) == ""


@pytest.mark.parametrize("cause", [cause for cause in Cause if cause not in (Cause.SLEEP, Cause.LOCK)])
def test_what_is_in_a_workers_machine_has_no_line(cause: Cause) -> None:
    assert line_of(cause, PLACES.items()) == ""


@pytest.mark.parametrize(("own", "peers", "line"), [(70, 30, "etl.py:88"), (50, 50, ""), (0, 0, "")])
def test_a_report_of_all_workers_has_a_line_where_most_of_the_waiting_was_the_stragglers(
    own: int, peers: int, line: str
) -> None:
    causes = {"a": {"thread-noncpu/sleep": own}, "b": {"thread-noncpu/sleep": peers, "thread-noncpu/lock": 9}}
    (found,) = with_lines([SLOW], causes, PLACES.items())
    assert found.line == line
