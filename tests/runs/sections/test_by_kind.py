import pytest

from dask_efficiency.runs.path.kinds import COMPUTE, Kind
from dask_efficiency.runs.sections.by_kind import KIND_COLOURS, MEANINGS, TORCH_MEANINGS
from tests.show.test_drawn_buckets import SIGHTS, smallest_distance


def test_every_kind_has_a_colour_of_its_own_and_a_meaning() -> None:
    assert set(KIND_COLOURS) == set(MEANINGS) == set(Kind)
    assert len(set(KIND_COLOURS.values())) == len(Kind)
    assert len(set(MEANINGS.values())) == len(Kind)


def test_a_program_without_dask_has_meanings_for_every_kind() -> None:
    assert set(TORCH_MEANINGS) == set(Kind)
    assert not any("task" in TORCH_MEANINGS[kind] for kind in COMPUTE)


@pytest.mark.parametrize("sight", SIGHTS)
def test_the_kinds_of_one_program_can_be_distinguished(sight: str) -> None:
    assert smallest_distance((KIND_COLOURS[kind] for kind in (*COMPUTE, Kind.UNATTRIBUTED)), sight) > 0.05
