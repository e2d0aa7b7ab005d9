from __future__ import annotations

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


def test_the_fastest_is_named_with_how_much_it_is_ahead() -> None:
    found = Placements((placement("a.hosts", *around(3.0)), placement("b.hosts", *around(4.0))))
    assert headline(found) == "a.hosts: 3.0 s, 25 % less than b.hosts, more than runs differ"


def test_two_that_runs_cannot_tell_apart_are_not_ranked() -> None:
    found = Placements((placement("a.hosts", *around(3.0)), placement("b.hosts", *around(3.01))))
    assert headline(found) == "a.hosts: 3.0 s, but b.hosts may be as fast: runs differ by more"
    assert reason(found, found.ranked[1]) == ""


def test_one_placement_is_just_that() -> None:
    assert headline(Placements((placement("a.hosts", 3.0),))) == "a.hosts: 3.0 s"


@pytest.mark.parametrize("other", [3.01, 4.0])
def test_names_of_any_length_leave_room_for_the_rest(other: float) -> None:
    found = Placements((placement("a" * 60, *around(3.0)), placement("b" * 60, *around(other))))
    assert len(headline(found)) <= MAX_HEADLINE


def test_each_placement_has_a_row() -> None:
    found = placed()
    assert [row[0] for row in ranking(found).rows] == ["near.hosts", "far.hosts"]
    assert [row[1] for row in ranking(found).rows] == ["8", "2"]
    once = Placements((placement("a.hosts", 3.0),))
    assert ranking(once).rows[0][2:4] == ("3.00", "-")


def test_a_placement_is_slower_as_its_path_waits_for_data(monkeypatch: pytest.MonkeyPatch) -> None:
    best, slow = placement("near", *around(3.0), network=TRUNK), placement("far", *around(4.0), network=TRUNK)
    waits = {"near": 0.1, "far": 1.0}
    monkeypatch.setattr(Placement, "moving_seconds", property(lambda self: waits[self.name]))
    said = reason(Placements((best, slow)), slow)
    assert said.startswith("far takes 1.0 s longer: its critical path waits 900 ms longer for inputs from other")
    assert "The fullest link, a - b, moves bytes for" in said


def test_a_smaller_placement_is_slower_for_that() -> None:
    found = placed()
    assert reason(found, found.ranked[1]).endswith(
        "as it is smaller: 2 workers of 2 threads, where near.hosts has 8 workers of 2 threads."
    )


def test_a_placement_can_be_slower_for_other_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    best, slow = placement("near", *around(3.0)), placement("far", *around(4.0))
    monkeypatch.setattr(Placement, "moving_seconds", property(lambda self: 0.2))
    assert reason(Placements((best, slow)), slow) == (
        "far takes 1.0 s longer, mostly not because inputs move: its critical path waits for them no longer."
    )
