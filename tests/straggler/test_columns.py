from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.straggler.columns import Columns

SIZE = 4


@given(st.lists(st.sampled_from("abcdefgh"), max_size=40))
def test_the_names_that_were_used_last_have_a_column_each(names: list[str]) -> None:
    columns: Columns[str] = Columns(SIZE)
    for at, name in enumerate(names):
        column = columns.get(name)
        if column is None:
            column = columns.add(name, at=at)
        columns.used_at[column] = at
    last = list(dict.fromkeys(reversed(names)))[:SIZE]
    assert sorted(columns.get(name) for name in last) == sorted(columns.values()) == list(range(len(last)))
    assert len(columns) == len(last)


def test_a_column_that_was_taken_away_is_nobodys_until_it_is_put_back() -> None:
    columns: Columns[str] = Columns(2)
    assert [columns.add("a", at=5), columns.add("b", at=7)] == [0, 1]
    assert columns.quiet(before=7) == ["a"]
    assert columns.pop("a") == 0
    assert (columns.get("a"), columns.free) == (None, [])
    columns.free.append(0)
    assert columns.add("c", at=9) == 0
    assert columns.quiet(before=100) == ["b", "c"]
