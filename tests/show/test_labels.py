from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.show.labels import NAME_LENGTH, label


@given(st.text(max_size=100))
def test_any_name_can_be_shown(name: str) -> None:
    shown = label(name)
    assert len(shown) <= 2 * NAME_LENGTH
    assert shown == "" or shown.isprintable() or "\u2060" in shown


@pytest.mark.parametrize("name", [r"$$\alpha$$", r"\(x\)", r"\[x\]"])
def test_a_name_is_no_formula(name: str) -> None:
    shown = label(name)
    assert shown.replace("\u2060", "") == name
    assert not any(delimiter in shown for delimiter in ("$$", r"\(", r"\["))
