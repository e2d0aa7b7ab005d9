from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.simulation.model.host_names import names_of, pattern_of


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


@given(st.lists(st.from_regex(r"[a-c]{1,2}[0-9]{0,3}", fullmatch=True), unique=True))
def test_what_is_written_short_stands_for_the_same_names(names: list[str]) -> None:
    short = pattern_of(names)

    assert [name for part in short.split(", ") if part for name in names_of(part)] == names


def test_names_that_follow_each_other_are_one_range() -> None:
    assert pattern_of(["pc08", "pc09", "pc10", "pc12", "server"]) == "pc[08-10], pc12, server"
