from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from dask_efficiency.accounts.checks import MAX_NAME_LENGTH, RefusedPayload, shared_texts
from dask_efficiency.accounts.checks import MAX_NAMES as MAX_ROWS
from dask_efficiency.accounts.wire.tables import TableChange, TableWriter, WireTable, column_sums, read_table
from tests.strategies import plain_data

# A failing state machine is shrunk for up to five minutes before its failure is shown.
pytestmark = pytest.mark.timeout(400)

NUMBERS = st.sampled_from([0, 1, 127, 128, (1 << 49) - 1, 1 << 49, 1 << 62]) | st.integers(0, 1 << 62)


def read(table: WireTable[str] | None, rows: object, names: object, *, columns: int) -> TableChange[str]:
    return read_table("table", table, rows, names, columns=columns, check=shared_texts)


class TableMachine(RuleBasedStateMachine):
    """Rows come, grow, fall and go; payloads are lost: a reader with the state a payload builds on gets the last."""

    def __init__(self) -> None:
        super().__init__()
        self.writer: TableWriter[str] = TableWriter(2)
        self.seq = 0
        self.rows: dict[str, tuple[int, int]] = {}
        self.changed: set[str] = set()
        #: Every state that some reader may have, by its number.
        self.tables: dict[int, WireTable[str]] = {}

    @rule(name=st.sampled_from("abcdefgh"), first=NUMBERS, second=NUMBERS)
    def change(self, name: str, first: int, second: int) -> None:
        self.rows[name] = (first, second)
        self.changed.add(name)

    @rule(name=st.sampled_from("abcdefgh"))
    def drop(self, name: str) -> None:
        self.rows.pop(name, None)

    @rule(lost=st.booleans(), some=st.booleans(), last=st.integers(1, 4))
    def send(self, lost: bool, some: bool, last: int) -> None:
        self.seq += 1
        if some:
            changed = {name: row for name, row in self.rows.items() if name in self.changed}
            self.writer.take(self.seq, changed, dict(self.rows).keys())
        else:
            self.writer.take(self.seq, dict(self.rows))
        self.changed.clear()
        for start in {self.seq - last, -1}:
            written = self.writer.write(start)
            readers = [None] if start < 0 else [self.tables[s] for s in self.tables if s >= start]
            for table in readers:
                change = read(table, *written, columns=2)
                assert change.table.by_name == self.rows
                former = {} if table is None else table.by_name
                kept = table is None or change.table.names[: len(table.names)] == table.names
                assert change.kept or not kept
                if change.kept:
                    for place, gained in zip(change.at.tolist(), change.gained.tolist(), strict=True):
                        name = change.table.names[place]
                        now, then = self.rows.get(name, (0, 0)), former.get(name, (0, 0))  # type: ignore[arg-type] # or None
                        assert gained == [a - b for a, b in zip(now, then, strict=True)]
                if not lost:
                    self.tables[self.seq] = change.table


TestTableMachine = TableMachine.TestCase
TestTableMachine.settings = settings(max_examples=100, stateful_step_count=30)


def test_only_changes_travel_and_a_place_is_given_to_another_name_when_its_own_has_left():
    writer: TableWriter[str] = TableWriter(3)
    rows = {f"name-{i}": (i << 40, 7, 0) for i in range(100)}
    writer.take(1, rows)
    writer.take(2, {**rows, "name-7": (8, 7, 0)})
    assert writer.write(1) == ([7, 8, 7, 0], [])
    assert len(writer) == 100
    assert (writer.place("name-7", -1), writer.place("other", -1)) == (7, -1)
    writer: TableWriter[str] = TableWriter(1)
    writer.take(1, {"a": (1,), "b": (2,)})
    writer.take(2, {"b": (2,)})
    writer.take(3, {"b": (2,), "c": (3,)})
    assert writer.write(1) == ([0, 3], [0, "c"])
    table = read(None, [0, 1, 1, 2], [0, "a", 1, "b"], columns=1).table
    change = read(table, *writer.write(1), columns=1)
    assert change.table.by_name == {"b": (2,), "c": (3,)}
    assert not change.kept


def test_names_are_the_same_object_while_none_changes():
    names = [0, "".join(("pre", "fix")), 1, None, 2, "".join(("su", "m"))]
    before = read(None, [0, 1, 2, 3], names, columns=1).table
    assert before.names == ("prefix", None, "sum")
    sent_again = [0, "".join(("pre", "fix")), 1, None, 2, "".join(("su", "m"))]
    again = read(None, [0, 1, 2, 3], sent_again, columns=1).table
    assert all(name is same for name, same in zip(before.names, again.names, strict=True))
    assert read(before, [0, 5], [], columns=1).table.names is before.names
    assert read(before, [], [], columns=1).table is before


@pytest.mark.parametrize("largest", [1, 1 << 48, 1 << 62])
def test_sums_are_exact_however_large(largest):
    rows = [[largest - i, i] for i in range(40)] * 400
    assert column_sums(np.array(rows)) == [sum(column) for column in zip(*rows, strict=True)]
    assert column_sums(np.zeros((0, 2), np.int64)) == [0, 0]


ONE_ROW, THREE_NAMES = [0, 5], [0, "a", 1, "b", 2, None]


@pytest.mark.parametrize(
    ("rows", "names", "refusal"),
    [
        (ONE_ROW, [0, "a", 1, 7], "names of table is 7; expected at most 1000 characters"),
        (ONE_ROW, [0, None, 1, "a" * (MAX_NAME_LENGTH + 1)], "names of table is .*; expected at most 1000 characters"),
        (ONE_ROW, [0, "a", True, "b"], "names of table is True; expected a whole number"),
        (ONE_ROW, [0, "a", -1, "b"], "names of table is -1; expected a whole number"),
        (ONE_ROW, [0, "a", 1, "a"], "table has a name in two places"),
        (ONE_ROW, [0, "a", 1], "names of table are .*; expected places and names in turn"),
        (ONE_ROW, [0, "a", MAX_ROWS, "b"], f"table has {MAX_ROWS + 1} entries; expected at most {MAX_ROWS}"),
        (None, THREE_NAMES, "table is None; expected rows of a place and 1 numbers"),
        ([0, 1, 1], THREE_NAMES, "expected rows of a place and 1 numbers"),
        ([0, True], THREE_NAMES, "table is True; expected a whole number"),
        ([0, 1.0], THREE_NAMES, "table is 1.0; expected a whole number"),
        ([0, -1], THREE_NAMES, "table is -1; expected a whole number"),
        ([0, (1 << 62) + 1], THREE_NAMES, r"expected a whole number from 0 to 2\*\*62"),
        ([0, 1 << 70], THREE_NAMES, r"table has 1180591620717411303424; expected at most 2\*\*62"),
        ([1, 1, 0, 1], THREE_NAMES, r"table has rows at \[1, 0\]; expected ascending places"),
        ([3, 1], THREE_NAMES, "table has a row at 3; expected one of 3"),
        ([2, 1], THREE_NAMES, "table has a row without a name"),
        ([0, 1] * (MAX_ROWS + 1), THREE_NAMES, "expected rows of a place"),
    ],
)
def test_a_name_or_a_row_out_of_order_is_refused_among_good_ones(rows, names, refusal):
    with pytest.raises(RefusedPayload, match=refusal):
        read(None, rows, names, columns=1)


@given(st.lists(st.integers(-1, 1 << 63), max_size=12) | plain_data, st.lists(plain_data, max_size=4) | plain_data)
def test_anything_is_read_or_refused(rows: Any, names: Any):
    table = WireTable(("a", "b", None), np.zeros((3, 1), np.int64))
    try:
        change = read(table, rows, names, columns=1)
    except RefusedPayload:
        return
    assert change.table.rows.min(initial=0) >= 0
    assert len(change.table.names) == len(change.table.rows) >= 3
