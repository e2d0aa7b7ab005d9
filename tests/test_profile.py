from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.profile import OTHER_STACK, Frame, StackRow, StackTable

stacks = st.lists(st.builds(Frame, st.sampled_from("fgh"), st.just("x.py"), st.integers(1, 9)), max_size=3).map(tuple)
rows = st.builds(StackRow, st.just("thread-noncpu"), st.sampled_from(["gil", "lock"]), st.sampled_from("ab"), stacks)


@given(st.lists(st.tuples(rows, st.integers(1, 100))), st.integers(1, 5))
def test_a_full_table_keeps_the_sums_of_causes_and_prefixes(added, max_rows):
    table: StackTable[StackRow] = StackTable(max_rows)
    for row, ns in added:
        table.add(row, ns)

    def by_cause_and_prefix(rows):
        sums = Counter()
        for row, ns in rows:
            sums[row[:3]] += ns
        return sums

    found = table.rows()
    assert by_cause_and_prefix(found) == by_cause_and_prefix(added)
    assert sum(row.stack != OTHER_STACK for row, _ in found) <= max_rows
    assert [ns for _, ns in found] == sorted((ns for _, ns in found), reverse=True)
