import pytest

from dask_efficiency.show.finding import Basis
from dask_efficiency.simulation.model.ladder import IdealLadder
from dask_efficiency.simulation.model.run_figures import makespan_seconds
from dask_efficiency.simulation.sections.ladder import MEANINGS, certainty, headline, steps
from tests.simulation.fake_engine import recorded
from tests.simulation.model.test_ladder import with_medians


def of(*shares: float) -> IdealLadder:
    """The ladder of a run whose simulations take these shares of it."""
    trace = recorded()
    whole = makespan_seconds(trace)
    return with_medians(trace, *(share * whole for share in shares))


def test_the_part_that_takes_most_is_named() -> None:
    assert headline(of(1.0, 1.0, 0.9, 0.88)) == (
        "434 ms, of which transfers take 43 ms; 382 ms without spill, transfers and scheduling"
    )
    assert "scheduling takes 43 ms" in headline(of(1.0, 1.0, 1.0, 0.9))


def test_each_step_that_is_worth_it_is_a_finding_with_its_basis() -> None:
    found = of(1.0, 1.0, 0.9, 0.86)
    by_kind = {one.kind: one for one in found.findings}
    assert str(by_kind["ladder/transfer"]).startswith("Transfers, once nothing spills: saves 43 ms.\nReturn smaller")
    assert by_kind["ladder/scheduler"].saves_seconds == pytest.approx(found.worth["no scheduling"])
    assert "ladder/spill" not in by_kind
    assert (by_kind["ladder/transfer"].basis, by_kind["ladder/few-slots"].basis) == (Basis.REPLAYED, Basis.BOUNDED)
    assert found.to_dict()["findings"] == [one.to_dict() for one in found.findings]


def test_each_step_has_a_row_and_a_note_if_it_takes_longer_when_simulated() -> None:
    rows = steps(of(1.0, 1.0, 0.9, 0.88)).rows
    assert [row[0] for row in rows] == list(MEANINGS)
    assert rows[0][2:] == ("", "")
    assert rows[3][3] == "10.0"
    assert len(certainty(of(1.0, 0.95, 0.9, 0.88)).lines) == 2
    lines = certainty(of(1.0, 0.95, 0.99, 0.88)).lines
    assert lines[2].startswith("no transfers: simulated, it takes 430 ms, longer than the step above")
