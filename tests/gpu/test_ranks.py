"""Ranks of whole numbers."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.gpu.ranks import ranked


@given(st.lists(st.integers(-3, 9) | st.integers(-(1 << 40), 1 << 40)))
def test_they_are_those_of_sorting(numbers: list[int]) -> None:
    found, indices = ranked(np.array(numbers, np.int64))
    assert found.tolist() == sorted(set(numbers))
    assert found[indices].tolist() == numbers
