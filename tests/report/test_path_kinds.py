from __future__ import annotations

from dask_efficiency.critical_paths.kinds import Kind
from dask_efficiency.report.path_kinds import KIND_COLOURS, MEANINGS


def test_every_kind_has_a_colour_of_its_own_and_a_meaning() -> None:
    assert set(KIND_COLOURS) == set(MEANINGS) == set(Kind)
    assert len(set(KIND_COLOURS.values())) == len(Kind)
    assert len(set(MEANINGS.values())) == len(Kind)
