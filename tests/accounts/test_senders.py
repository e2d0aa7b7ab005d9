from __future__ import annotations

import pytest

from dask_efficiency.accounts import senders
from dask_efficiency.accounts.senders import SentGraphs, by_prefix, graph_name

LOAD = {"etl.py:3": "df.x.mean().compute()"}
MERGE = {"etl.py:9": "df.merge(other).compute()"}
NOBODY = {"": ""}


def taken_in(*graphs: tuple[object, list[str]]) -> dict[str, list[str]]:
    sent = SentGraphs()
    for wanted, prefixes in graphs:
        sent.add(wanted, prefixes)
    return sent.to_dict()


def test_a_prefix_was_sent_by_the_lines_whose_graphs_have_tasks_of_it() -> None:
    sent = taken_in(({("mean", 0)}, ["read", "mean"]), ({("merge", 0), ("merge", 1)}, ["read", "merge"]), ("ab", ["f"]))
    lines = {
        graph_name([("mean", 0)]): LOAD,
        graph_name([("merge", 1), ("merge", 0)]): MERGE,
        graph_name("a"): {"x.py:1": ""},
    }
    assert by_prefix(sent, lines) == {
        "mean": "`df.x.mean().compute()` in etl.py:3",
        "merge": "`df.merge(other).compute()` in etl.py:9",
        "read": "`df.x.mean().compute()` in etl.py:3 and 1 more line",
        "f": "x.py:1",
    }


def test_a_graph_that_two_lines_sent_is_of_both_and_one_of_nobody_knows_where_makes_its_prefixes_unknown() -> None:
    sent = taken_in(({"a"}, ["read", "f"]), ({"b"}, ["f"]), ({"c"}, ["g"]))
    assert by_prefix(sent, {"a": LOAD | MERGE, "b": NOBODY}) == {
        "read": "`df.x.mean().compute()` in etl.py:3 and 1 more line"
    }


@pytest.mark.parametrize("wanted", [[], range(senders.MAX_WANTED + 1), iter("a"), None])
def test_a_graph_without_a_name_is_of_nobody(wanted: object) -> None:
    assert graph_name(wanted) == ""
    assert "f" not in by_prefix(taken_in((wanted, ["f"])), {"a": LOAD})


def test_beyond_the_bounds_prefixes_are_of_nobody_unless_their_graph_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(senders, "MAX_GRAPHS", 2)
    sent = taken_in((["a"], ["f"]), (["b"], ["g"]), (["c"], ["h", "g"]), (["a"], ["i"]))
    assert sent == {"a": ["f", "i"], "b": ["g"], "": ["g", "h"]}
    assert by_prefix(sent, dict.fromkeys("abc", LOAD)).keys() == {"f", "i"}
    monkeypatch.setattr(senders, "MAX_PREFIXES", 3)
    assert taken_in((["a"], ["f", "g"]), (["b"], ["g", "h"])) == {"a": ["f", "g"], "": ["g", "h"]}
