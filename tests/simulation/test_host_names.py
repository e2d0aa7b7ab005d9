from __future__ import annotations

import pytest

from dask_efficiency.simulation.host_names import names_of


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("server", ["server"]),
        ("pc[08-11]", ["pc08", "pc09", "pc10", "pc11"]),
        ("pc[8-10,12].lab", ["pc8.lab", "pc9.lab", "pc10.lab", "pc12.lab"]),
    ],
)
def test_a_pattern_stands_for_names(pattern: str, names: list[str]) -> None:
    assert names_of(pattern) == names


@pytest.mark.parametrize(
    "pattern", ["pc[", "pc[]", "pc[a-b]", "pc[3-1]", "pc[1-1000000000]", "r[1-2]pc[1-2]", "pc[1-]"]
)
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        names_of(pattern)
