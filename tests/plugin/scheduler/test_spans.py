from __future__ import annotations

from types import SimpleNamespace

from dask_efficiency.accounts.cluster.windows import OwnPart
from dask_efficiency.plugin.names import NO_SPAN, OTHER_WORK
from dask_efficiency.plugin.scheduler.spans import is_own, notes, only_own


def scheduler(*paths):
    """A scheduler with these spans, by their paths as ids."""
    spans = {}
    for path in paths:
        parent = spans.get(path.rpartition("/")[0])
        spans[path] = SimpleNamespace(id=path, name=tuple(path.split("/")), parent=parent)
    return SimpleNamespace(extensions={"spans": SimpleNamespace(spans=spans)})


def test_a_span_is_own_by_itself_or_by_one_that_it_is_in():
    known = scheduler("a", "a/b", "a/b/c", "d")
    assert [is_own(known, {"a/b"}, path) for path in ("a", "a/b", "a/b/c", "d", "?")] == [
        False,
        True,
        True,
        False,
        False,
    ]
    assert is_own(SimpleNamespace(extensions={}), {"?"}, "?")


def test_the_time_of_others_is_said_whatever_they_did():
    opened = SimpleNamespace(shared=set(), only=False)
    held = {"thread-cpu": 2_000_000_000, "running": 500_000_000, "idle": 250_000_000, "paused": 250_000_000}
    (note,) = notes(scheduler("a", "d"), opened, {"a": held, OTHER_WORK: held})
    assert note == (
        "other work ran on the cluster in this window: its tasks held threads for 2.5 thread-seconds, and 0.5 of free "
        "threads is its share; efficiency_report(only=True) leaves it out"
    )
    (waiting,) = notes(scheduler("a", "d"), opened, {OTHER_WORK: {"idle": 1_000_000_000}})
    assert "for 0 thread-seconds, and 1 of free" in waiting
    assert notes(scheduler("a", "d"), opened, {"a": held, NO_SPAN: held}) == []


def test_spans_that_several_share_are_named():
    opened = SimpleNamespace(shared={"a", "b", "gone"}, only=True)
    (note,) = notes(scheduler("a", "b", "d"), opened, {"a": {"idle": 1}})
    assert "in the span 'a' and 1 more, and count" in note


def test_of_one_client_only_what_is_known_of_all_is_left_out():
    reply = {
        "outstanding": 50,
        "no_workers": 30,
        "workers": {"w": {"idle": 90}, "v": {"idle": 10}},
        "spans": {"a": {"idle": 40}, OTHER_WORK: {"idle": 60}, f"{OTHER_WORK}/d": {"idle": 60}, NO_SPAN: {}},
        "tasks": {"succeeded": 9},
        "timeline": {"bin": 1},
        "price": 3,
        "notes": ["before"],
    }
    own = OwnPart(workers={"w": {"idle": 40}}, worker_causes={"w": {"idle/graph": 7}})
    found = only_own(reply, own, 20)
    assert found["spans"] == {"a": {"idle": 40}}
    assert found["workers"] == {"w": {"idle": 40}, "v": {}}
    assert (found["outstanding"], found["no_workers"], found["price"]) == (20, 20, 3)
    assert found.keys() & {"tasks", "timeline"} == set()
    assert found["notes"][0] == "before"
    assert "4e-08 of the cluster's 1e-07 thread-seconds" in found["notes"][1]
    assert only_own(reply, own, None)["outstanding"] == 50
