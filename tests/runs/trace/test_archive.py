import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.trace.archive import Packing, pack, unpack

EPOCH = 1_700_000_000_000_000_000

values = (
    st.just(MISSING) | st.integers(0, 10) | st.integers(EPOCH, EPOCH + 1000) | st.integers(-(1 << 63), (1 << 63) - 1)
)


@given(st.lists(st.tuples(values, values), max_size=20))
def test_a_column_is_unpacked_as_it_was_packed_whatever_it_holds(rows: list[tuple[int, int]]) -> None:
    first, second = (np.array([row[i] for row in rows], np.int64) for i in (0, 1))
    packing, content, filled = pack(first, {})
    column, filled_again = unpack(packing, content, len(rows), {})
    np.testing.assert_array_equal(column, first)
    np.testing.assert_array_equal(filled_again, filled)

    packing, content, _ = pack(second, {"first": filled})
    column, _ = unpack(packing, content, len(rows), {"first": filled_again})
    np.testing.assert_array_equal(column, second)


def test_an_instant_that_is_missing_makes_no_other_wider_and_too_few_bytes_are_refused() -> None:
    start = EPOCH + np.random.default_rng(0).integers(0, 1 << 40, 5000)
    stop = start + 7
    stop[100] = MISSING
    packing, content, _ = pack(stop, {"start": start})
    assert packing.gaps
    assert len(content) == 5000 + 5000 // 8
    with pytest.raises(ValueError, match="has 3 bytes; expected 4 for 2 rows"):
        unpack(Packing("", False, 0, 0, 2), b"123", 2, {})
