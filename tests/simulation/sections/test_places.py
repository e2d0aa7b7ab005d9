from typing import Any

import numpy as np
import pytest

from dask_efficiency.show.finding import MAX_HEADLINE
from dask_efficiency.simulation.model.placements import Placement, Placements
from dask_efficiency.simulation.sections.places import headline, ranking, reason
from tests.simulation.model.test_placements import TRUNK, placement
from tests.simulation.simulation_samples import placed


def around(seconds: float) -> Any:
    return np.linspace(0.99 * seconds, 1.01 * seconds, 8).tolist()


def placements(**seconds: float) -> Placements:
    """Placements by their makespans, some percent of which runs differ by."""
    return Placements(tuple(placement(name, *around(makespan), network=TRUNK) for name, makespan in seconds.items()))


def test_the_fastest_is_named_and_by_how_much_it_is_ahead() -> None:
    assert headline(placements(a=3.0, b=4.0)) == "a: 3.0 s, 25 % less than b, more than runs differ"
    assert headline(placements(a=3.0)) == "a: 3.0 s"
    close = placements(a=3.0, b=3.01)
    assert headline(close) == "a: 3.0 s, but b may be as fast: runs differ by more"
    assert reason(close, close.ranked[1]) == ""
    for other in (3.01, 4.0):
        assert len(headline(placements(**{"a" * 60: 3.0, "b" * 60: other}))) <= MAX_HEADLINE


def test_each_placement_has_a_row() -> None:
    found = placed()
    assert [row[0] for row in ranking(found).rows] == ["near.hosts", "far.hosts"]
    assert [row[1] for row in ranking(found).rows] == ["8", "2"]
    once = Placements((placement("a.hosts", 3.0),))
    assert ranking(once).rows[0][2:4] == ("3.00", "-")


def test_the_reason_of_a_slower_placement_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    found = placed()
    assert reason(found, found.ranked[1]).endswith(
        "as it is smaller: 2 workers of 2 threads, where near.hosts has 8 workers of 2 threads."
    )
    found = placements(near=3.0, far=4.0)
    waits = {"near": 0.1, "far": 1.0}
    monkeypatch.setattr(Placement, "moving_seconds", property(lambda self: waits[self.name]))
    text = reason(found, found.ranked[1])
    assert text.startswith("far takes 1.0 s longer: its critical path waits 900 ms longer for inputs from other")
    assert "The fullest link, a - b, moves bytes for" in text
    waits["far"] = 0.1
    assert reason(found, found.ranked[1]) == (
        "far takes 1.0 s longer, mostly not because inputs move: its critical path waits for them no longer."
    )
