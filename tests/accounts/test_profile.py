from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.profile import Frame, Place, StackTable

stacks = st.lists(st.builds(Frame, st.sampled_from("fgh"), st.just("x.py"), st.integers(1, 9)), max_size=3).map(tuple)
rows = st.builds(Place, st.just("thread-noncpu"), st.sampled_from(["gil", "lock"]), st.sampled_from("ab"), stacks)


@given(st.lists(st.tuples(rows, st.integers(1, 100))), st.integers(1, 5))
def test_a_full_table_keeps_the_sums_of_causes_and_prefixes(added, max_rows):
    table: StackTable[Place] = StackTable(max_rows)
    for row, ns in added:
        table.add(row, ns)

    def by_cause_and_prefix(rows):
        sums = Counter()
        for row, ns in rows.items() if isinstance(rows, dict) else rows:
            sums[row[:3]] += ns
        return sums

    found = table.rows()
    assert by_cause_and_prefix(found) == by_cause_and_prefix(added)
    assert sum(row.stack != () for row in found) <= max_rows
