import os
import sysconfig
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts import lines
from dask_efficiency.accounts.checks import MAX_NAMES as MAX_WANTED
from dask_efficiency.accounts.lines import (
    Frame,
    SampleRow,
    SentGraphs,
    StackTable,
    graph_name,
    has_nothing_to_do,
    is_the_users,
    sending_lines,
)

stacks = st.lists(st.builds(Frame, st.sampled_from("fgh"), st.just("x.py"), st.integers(1, 9)), max_size=3).map(tuple)
rows = st.builds(SampleRow, st.just("thread-noncpu"), st.sampled_from(["gil", "lock"]), st.sampled_from("ab"), stacks)


@given(st.lists(st.tuples(rows, st.integers(1, 100))), st.integers(1, 5))
def test_a_full_table_keeps_the_sums_of_causes_and_prefixes(added, max_rows):
    table: StackTable[SampleRow] = StackTable(max_rows)
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


LOAD = {"etl.py:3": "df.x.mean().compute()"}
MERGE = {"etl.py:9": "df.merge(other).compute()"}
NOBODY = {"": ""}


def sent_graphs(*graphs: tuple[object, list[str]]) -> dict[str, list[str]]:
    sent = SentGraphs()
    for wanted, prefixes in graphs:
        sent.add(wanted, prefixes)
    return sent.to_dict()


def test_a_prefix_was_sent_by_the_lines_whose_graphs_have_its_tasks() -> None:
    sent = sent_graphs(
        ({("mean", 0)}, ["read", "mean"]), ({("merge", 0), ("merge", 1)}, ["read", "merge"]), ("ab", ["f"])
    )
    lines = {
        graph_name([("mean", 0)]): LOAD,
        graph_name([("merge", 1), ("merge", 0)]): MERGE,
        graph_name("a"): {"x.py:1": ""},
    }
    assert sending_lines(sent, lines) == {
        "mean": "`df.x.mean().compute()` in etl.py:3",
        "merge": "`df.merge(other).compute()` in etl.py:9",
        "read": "`df.x.mean().compute()` in etl.py:3 and etl.py:9",
        "f": "x.py:1",
    }


def test_a_graph_of_two_lines_has_both_and_an_unknown_origin_makes_its_prefixes_unknown() -> None:
    sent = sent_graphs(({"a"}, ["read", "f"]), ({"b"}, ["f"]), ({"c"}, ["g"]))
    assert sending_lines(sent, {"a": LOAD | MERGE, "b": NOBODY}) == {
        "read": "`df.x.mean().compute()` in etl.py:3 and etl.py:9"
    }


@pytest.mark.parametrize("wanted", [[], range(MAX_WANTED + 1), iter("a"), None])
def test_a_graph_without_a_name_has_no_line(wanted: object) -> None:
    assert graph_name(wanted) == ""
    assert "f" not in sending_lines(sent_graphs((wanted, ["f"])), {"a": LOAD})


def test_prefixes_beyond_the_bounds_have_no_line_unless_their_graph_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_GRAPHS", 2)
    sent = sent_graphs((["a"], ["f"]), (["b"], ["g"]), (["c"], ["h", "g"]), (["a"], ["i"]))
    assert sent == {"a": ["f", "i"], "b": ["g"], "": ["g", "h"]}
    assert sending_lines(sent, dict.fromkeys("abc", LOAD)).keys() == {"f", "i"}
    monkeypatch.setattr(lines, "MAX_NAMES", 3)
    assert sent_graphs((["a"], ["f", "g"]), (["b"], ["g", "h"])) == {"a": ["f", "g"], "": ["g", "h"]}


SELECT = Frame("EpollSelector.select", "/env/lib/python3.12/selectors.py", 468)
ASYNCIO = (
    Frame("BaseEventLoop.run_forever", "/env/lib/python3.12/asyncio/base_events.py", 608),
    Frame("BaseEventLoop._run_once", "/env/lib/python3.12/asyncio/base_events.py", 1898),
)
#: A library that lets event loops run within each other, on Windows.
NESTED = (Frame("_patch_loop.<locals>._run_once", r"C:\env\Lib\site-packages\nest_asyncio.py", 115),)


@pytest.mark.parametrize(
    ("stack", "idle"),
    [
        ((*ASYNCIO, SELECT), True),
        ((*NESTED, SELECT._replace(file=r"C:\Python312\Lib\selectors.py")), True),
        ((SELECT,), True),  # without what called the loop
        ((*ASYNCIO, Frame("Popen._communicate", "/env/lib/python3.12/subprocess.py", 2115), SELECT), False),
        (ASYNCIO, False),
        ((), False),
    ],
)
def test_an_event_loop_has_nothing_to_do_only_in_its_own_selector(stack, idle):
    assert has_nothing_to_do(stack) is idle


@pytest.mark.parametrize(
    ("file", "own"),
    [
        ("/home/me/etl.py", True),
        ("/home/me/checkout/dask_efficiency/report/demo.py", True),  # a script like any other
        ("/venv/lib/python3.12/site-packages/dask_efficiency/report/demo.py", True),
        ("/venv/lib/python3.12/site-packages/dask_efficiency/report/runner.py", False),
        (f"{sysconfig.get_path('scripts')}/dask-efficiency", False),
        (os.path.relpath(f"{sysconfig.get_path('scripts')}/dask-efficiency"), False),  # as `.venv/bin/dask-efficiency`
    ],
)
def test_the_demo_is_a_users_script_and_a_console_script_is_none(file: str, own: bool) -> None:
    assert is_the_users(file) is own
