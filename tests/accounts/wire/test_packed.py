from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from dask_efficiency.accounts.checks import MAX_NAME_LENGTH, RefusedPayload, shared_texts
from dask_efficiency.accounts.wire.packed import MAX_ROWS, Table, TableWriter, Texts, column_sums, read_table

# A failing state machine is shrunk for up to five minutes before it says how it failed.
pytestmark = pytest.mark.timeout(400)

DEPTH = 3
NUMBERS = st.sampled_from([0, 1, 127, 128, (1 << 49) - 1, 1 << 49, 1 << 62]) | st.integers(0, 1 << 62)


def read(table: Table[str] | None, told: str, names: Sequence[object], *, columns: int, rising: bool) -> Any:
    texts = Texts("b", told)
    change = read_table("table", table, texts, names, columns=columns, rising=rising, check=shared_texts)
    texts.end()
    return change


def by_name(table: Table[str]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(row) for name, row in zip(table.names, table.rows.tolist(), strict=True) if name is not None}


class TableMachine(RuleBasedStateMachine):
    """Rows come, grow, fall and go; payloads are lost: a reader of any state since the marked one gets the last."""

    rising = True

    def __init__(self) -> None:
        super().__init__()
        self.writer: TableWriter[str] = TableWriter(2, rising=self.rising, depth=DEPTH)
        self.seq = 0
        self.rows: dict[str, tuple[int, int]] = {}
        self.marked: list[int] = []
        #: Every state that some reader may have, by its number.
        self.tables: dict[int, Table[str]] = {}

    @rule(name=st.sampled_from("abcdefgh"), first=NUMBERS, second=NUMBERS)
    def change(self, name: str, first: int, second: int) -> None:
        self.rows[name] = (first, second)

    @rule(name=st.sampled_from("abcdefgh"), first=st.integers(0, 300))
    def grow(self, name: str, first: int) -> None:
        before = self.rows.get(name, (0, 0))
        self.rows[name] = (min(before[0] + first, 1 << 62), before[1])

    @rule(name=st.sampled_from("abcdefgh"))
    def drop(self, name: str) -> None:
        self.rows.pop(name, None)

    @rule(marked=st.booleans(), lost=st.booleans())
    def send(self, marked: bool, lost: bool) -> None:
        self.seq += 1
        self.writer.take(dict(self.rows))
        since = self.marked[-DEPTH] if len(self.marked) >= DEPTH else -1
        for start in {since, -1}:
            told, names = self.writer.write(start)
            readers = [None] if start < 0 else [self.tables[s] for s in self.tables if s >= start]
            for table in readers:
                change = read(table, told, names, columns=2, rising=self.rising)
                assert by_name(change.table) == self.rows
                if change.gained is not None and table is not None:
                    rows = np.zeros_like(change.table.rows)
                    rows[change.at] = change.gained
                    rows[: len(table.rows)] += table.rows
                    assert (change.table.rows == rows).all()
                if start < 0 and not lost:
                    self.tables[self.seq] = change.table
        if marked:
            self.marked.append(self.seq)
            self.writer.mark()


class AnyTableMachine(TableMachine):
    """The same of numbers that fall as often as they grow."""

    rising = False


TestTableMachine = TableMachine.TestCase
TestTableMachine.settings = settings(max_examples=80, stateful_step_count=30)
TestAnyTableMachine = AnyTableMachine.TestCase
TestAnyTableMachine.settings = settings(max_examples=40, stateful_step_count=30)


def test_a_row_that_did_not_change_takes_no_room_and_one_that_did_takes_what_it_grew():
    writer: TableWriter[str] = TableWriter(3, rising=True, depth=1)
    rows = {f"name-{i}": (i << 40, 7, 0) for i in range(100)}
    writer.take(rows)
    writer.mark()
    writer.take({**rows, "name-7": ((7 << 40) + 100, 7, 0)})
    told, names = writer.write(1)
    # How many rows, digits of the gap and of three columns, the gap, and one digit.
    assert (len(told), names) == (2 + 4 + 1 + 1, [])


def test_rows_are_as_many_as_two_digits_count():
    writer: TableWriter[str] = TableWriter(1, rising=True, depth=1)
    rows = {str(i): (i,) for i in range(MAX_ROWS)}
    writer.take(rows)
    told, names = writer.write(-1)
    assert by_name(read(None, told, names, columns=1, rising=True).table) == rows


@given(st.lists(st.lists(NUMBERS, min_size=2, max_size=2), min_size=1, max_size=5))
def test_sums_are_exact_however_large(rows):
    expected = [sum(column) for column in zip(*rows, strict=True)]
    assert column_sums(np.array(rows), small=False) == expected


@given(st.text(st.characters(max_codepoint=127), max_size=60), st.integers(0, 3))
def test_any_text_is_read_or_refused(told, names):
    table = Table(("a", "b", "c")[:names], np.zeros((names, 2), np.int64))
    for rising in (True, False):
        try:
            change = read(table, told, (), columns=2, rising=rising)
        except RefusedPayload:
            continue
        assert change.table.rows.min(initial=0) >= 0
        assert len(change.table.names) == names


@pytest.mark.parametrize(
    ("names", "refusal"),
    [
        ([0, "a", 1, 7], "names of table is 7; expected at most 1000 characters"),
        ([0, None, 1, "a" * (MAX_NAME_LENGTH + 1)], "names of table is .*; expected at most 1000 characters"),
        ([0, "a", True, "b"], "names of table is True; expected a whole number"),
        ([0, "a", -1, "b"], "names of table is -1; expected a whole number"),
        ([0, "a", 1, "a"], "table has a name in two places"),
    ],
)
def test_a_name_or_a_place_out_of_order_is_refused_among_good_ones(names, refusal):
    with pytest.raises(RefusedPayload, match=refusal):
        read(None, "\0\0\0\0", names, columns=1, rising=True)


def test_names_that_are_read_are_the_same_objects():
    names = ["".join(("pre", "fix")), None, "".join(("su", "m"))]
    change = read(None, "\0\0\0\0", [each for pair in enumerate(names) for each in pair], columns=1, rising=True)
    assert change.table.names == ("prefix", None, "sum")
    assert all(name is None or name is sys.intern(name) for name in change.table.names)


def test_a_text_that_goes_on_is_refused():
    texts = Texts("b", "x")
    with pytest.raises(RefusedPayload, match="b has 1 characters; expected 0"):
        texts.end()
