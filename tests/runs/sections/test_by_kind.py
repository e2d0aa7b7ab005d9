from __future__ import annotations

from itertools import combinations

import pytest

from dask_efficiency.runs.path.kinds import COMPUTE, Kind
from dask_efficiency.runs.sections.by_kind import KIND_COLOURS, MEANINGS, TORCH_MEANINGS
from tests.show.test_drawn_buckets import CONES, OKLAB, SIGHTS, linear, times


def test_every_kind_has_a_colour_of_its_own_and_a_meaning() -> None:
    assert set(KIND_COLOURS) == set(MEANINGS) == set(Kind)
    assert len(set(KIND_COLOURS.values())) == len(Kind)
    assert len(set(MEANINGS.values())) == len(Kind)


def test_a_program_without_dask_has_meanings_for_every_kind() -> None:
    assert set(TORCH_MEANINGS) == set(Kind)
    assert not any("task" in TORCH_MEANINGS[kind] for kind in COMPUTE)


@pytest.mark.parametrize("sight", SIGHTS)
def test_the_kinds_of_one_program_can_be_distinguished(sight: str) -> None:
    seen = {}
    for kind in (*COMPUTE, Kind.UNATTRIBUTED):
        light = [min(max(channel, 0.0), 1.0) for channel in times(SIGHTS[sight], linear(KIND_COLOURS[kind]))]
        seen[kind] = times(OKLAB, [cone ** (1 / 3) for cone in times(CONES, light)])
    # as of buckets: in Oklab 0.02 is about the smallest difference that is noticed side by side
    for one, other in combinations(seen, 2):
        distance = sum((a - b) ** 2 for a, b in zip(seen[one], seen[other], strict=True)) ** 0.5
        assert distance > 0.05, (one, other)
