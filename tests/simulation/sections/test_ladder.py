from __future__ import annotations

from dask_efficiency.simulation.model.ladder import IdealLadder
from dask_efficiency.simulation.model.makespan import makespan_seconds
from dask_efficiency.simulation.sections.ladder import MEANINGS, headline, steps, sure
from tests.simulation.fake_engine import recorded
from tests.simulation.model.test_ladder import with_medians


def of(*shares: float) -> IdealLadder:
    """The ladder of a run whose simulations take these shares of it."""
    trace = recorded()
    whole = makespan_seconds(trace)
    return with_medians(trace, *(share * whole for share in shares))


def test_the_part_that_takes_most_is_named() -> None:
    assert headline(of(1.0, 1.0, 0.9, 0.88)) == (
        "Of 434 ms, transfers take 43 ms, the most of all that is not tasks; "
        "without spilling, transfers and scheduling it would be 382 ms"
    )
    assert "scheduling takes 43 ms" in headline(of(1.0, 1.0, 1.0, 0.9))


def test_where_nothing_takes_long_that_is_said() -> None:
    assert headline(of(1.0, 0.999, 0.998, 0.997)) == (
        "Spilling, transfers and scheduling together take 0.3 % of the 434 ms: what is left is tasks, and how they fit "
        "on the slots"
    )


def test_each_step_has_a_row_with_what_it_is_and_what_it_saves() -> None:
    rows = steps(of(1.0, 1.0, 0.9, 0.88)).rows
    assert [row[0] for row in rows] == list(MEANINGS)
    assert rows[0][2:] == ("", "")
    assert rows[3][3] == "10.0"


def test_a_step_that_takes_longer_when_simulated_is_told() -> None:
    assert len(sure(of(1.0, 0.95, 0.9, 0.88)).lines) == 2
    lines = sure(of(1.0, 0.95, 0.99, 0.88)).lines
    assert lines[2].startswith("no transfers: simulated, it takes 430 ms, longer than the step above")
