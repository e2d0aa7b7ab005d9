from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.cluster.exact import MAX_PENDING, NamedSums
from dask_efficiency.accounts.worker.balance import OTHER, TASK_BUCKETS

WIDTH = len(TASK_BUCKETS)
MAX_PREFIXES = 3


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from("abcdef"),
            st.lists(st.sampled_from([0, 1, 1 << 40, 1 << 59, 1 << 62]), min_size=WIDTH, max_size=WIDTH),
            max_size=4,
        ),
        max_size=8,
    )
)
def test_no_total_is_ever_off_however_large_and_later_prefixes_share_one(added):
    totals = NamedSums(MAX_PREFIXES, WIDTH)
    expected: dict[str, list[int]] = {}
    for rows in added:
        places = totals.places(list(rows))
        most = max((sum(row[i] for row in rows.values()) for i in range(WIDTH)), default=0)
        totals.add(places, np.array(list(rows.values()), np.int64).reshape(len(rows), WIDTH), most=most)
        for prefix, row in rows.items():
            name = prefix if prefix in expected or len(expected) < MAX_PREFIXES else OTHER
            expected[name] = [a + b for a, b in zip(expected.get(name, [0] * WIDTH), row, strict=True)]
    assert totals.by_name() == {prefix: tuple(row) for prefix, row in expected.items()}
    assert len(totals.by_name()) <= MAX_PREFIXES + 1


def test_what_64_bits_cannot_hold_is_added_up_all_the_same():
    totals = NamedSums(MAX_PREFIXES, WIDTH)
    places = totals.places(["a"])
    for _ in range(10):
        totals.add(places, np.full((1, WIDTH), MAX_PENDING - 1), most=MAX_PENDING - 1)
    assert totals.by_name() == {"a": (10 * (MAX_PENDING - 1),) * WIDTH}
