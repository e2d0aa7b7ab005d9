from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

from dask_efficiency.accounts.cluster.span_shares import MAX_DEPTH
from dask_efficiency.accounts.facts import Facts, FactsBuilder
from dask_efficiency.plugin.names import NO_SPAN, OTHER_WORK
from dask_efficiency.plugin.scheduler.outstanding import OutstandingSpans
from dask_efficiency.plugin.scheduler.spans import (
    is_own,
    only_own,
    only_own_note,
    other_work_note,
    paths,
    shared_note,
)


class FakeGroup:
    """As much of a group of tasks as is looked at; counts how often that is."""

    looks = 0

    def __init__(self, span_id, **states):
        self.span_id = span_id
        self._states = Counter({state.replace("_", "-"): n for state, n in states.items()})

    @property
    def states(self):
        FakeGroup.looks += 1
        return self._states

    def become(self, **states):
        self._states = Counter(states)


def scheduler(*paths):
    """A scheduler with these spans, by their paths as ids."""
    spans = {}
    for path in paths:
        parent = spans.get(path.rpartition("/")[0])
        spans[path] = SimpleNamespace(id=path, name=tuple(path.split("/")), parent=parent)
    return SimpleNamespace(extensions={"spans": SimpleNamespace(spans=spans)})


def following(*groups, spans=("a", "a/b", "c")):
    found = OutstandingSpans(scheduler(*spans))
    found.follow(groups)
    return found


def test_a_span_has_work_while_any_of_its_groups_has_a_task_to_do():
    groups = [FakeGroup("a", memory=3, waiting=1), FakeGroup("a/b", erred=2, released=1), FakeGroup("c", queued=1)]
    spans = following(*groups)
    assert spans.outstanding() == (("a",), ("c",))
    groups[0].become(memory=4)
    groups[2].become(**{"no-worker": 1})
    assert spans.outstanding() == (("c",),)
    # A result was lost: the group begins again.
    groups[0].become(memory=3, waiting=1)
    assert spans.outstanding() == (("c",),)
    spans.add(groups[:1])
    assert set(spans.outstanding()) == {("a",), ("c",)}


def test_tasks_that_are_long_running_are_not_outstanding():
    group = FakeGroup("c", processing=2)
    away = SimpleNamespace(group=group)
    spans = following(group)
    assert spans.outstanding([[away]]) == (("c",),)
    assert spans.outstanding([[away], [away]]) == ()


def test_a_look_checks_one_group_of_a_span_with_work_and_drops_finished_ones():
    groups = [FakeGroup("a", processing=1), *(FakeGroup("a", memory=1) for _ in range(5_000))]
    spans = following(*groups)
    FakeGroup.looks = 0
    spans.outstanding()
    assert FakeGroup.looks == 5_001
    FakeGroup.looks = 0
    for _ in range(10):
        assert spans.outstanding() == (("a",),)
    assert FakeGroup.looks == 10


def test_spans_are_listed_with_their_parents():
    spans = following(FakeGroup("a/b", waiting=1))
    assert spans.outstanding() == (("a", "a/b"),)
    spans.taken_in([FakeGroup("c", waiting=1), FakeGroup("c", waiting=1)])
    assert spans.take_newest() == (("c",),)
    assert spans.take_newest() == ()


def test_the_deepest_spans_count_at_the_last_level_kept():
    names = ["/".join("x" * depth) for depth in range(1, 3 * MAX_DEPTH)]
    spans = following(FakeGroup(names[-1], waiting=1), spans=names)
    (path,) = spans.outstanding()
    assert len(path) == MAX_DEPTH
    assert (path[0], path[-1]) == (names[0], names[-1])


def test_tasks_without_a_span_or_with_an_unknown_one():
    spans = OutstandingSpans(SimpleNamespace(extensions={}))
    spans.follow([FakeGroup(None, waiting=1), FakeGroup("a", waiting=1)])
    assert spans.outstanding() == (("",), ("a",))


def test_no_groups_are_kept_unless_spans_are_followed():
    spans = OutstandingSpans(scheduler("a"))
    spans.taken_in([FakeGroup("a", waiting=1)])
    assert (spans.outstanding(), spans.take_newest()) == ((), ())
    spans.follow([])
    spans.taken_in([FakeGroup("a", waiting=1)])
    spans.forget()  # the scheduler was restarted
    assert (spans.outstanding(), spans.take_newest()) == ((), ())
    spans.taken_in([FakeGroup("a", waiting=1)])
    assert spans.outstanding() == (("a",),)
    spans.stop()
    assert (spans.outstanding(), spans.take_newest()) == ((), ())


def test_a_span_is_own_by_itself_or_by_one_that_it_is_in():
    known = scheduler("a", "a/b", "a/b/c", "d")
    assert [path for path in ("a", "a/b", "a/b/c", "d", "?") if is_own(known, {"a/b"}, path)] == ["a/b", "a/b/c"]
    assert is_own(SimpleNamespace(extensions={}), {"?"}, "?")


def spans_of(rows: dict[str, dict[str, int]]) -> Facts:
    builder = FactsBuilder()
    for span, row in rows.items():
        builder.add_time(row, {}, worker="w", span=span)
    return builder.build()


def test_a_note_has_the_time_of_other_clients():
    held = {"thread-cpu": 2_000_000_000, "running": 500_000_000, "idle": 250_000_000, "paused": 250_000_000}
    (note,) = other_work_note(spans_of({"a": held, f"{OTHER_WORK}/d": held}), only=False)
    assert note == (
        "other work ran on the cluster in this window: its tasks held threads for 2.5 thread-seconds, and 0.5 of free "
        "threads is its share; efficiency_report(only=True) leaves it out"
    )
    (waiting,) = other_work_note(spans_of({OTHER_WORK: {"idle": 1_000_000_000}}), only=True)
    assert "for 0 thread-seconds, and 1 of free threads is its share; left out here" in waiting
    assert other_work_note(spans_of({"a": held, NO_SPAN: held}), only=False) == []


def test_a_note_names_spans_that_clients_share():
    opened = SimpleNamespace(shared={"a", "b", "gone"}, only=True)
    (note,) = shared_note(scheduler("a", "b", "d"), opened)
    assert "in the span 'a' and 1 more, and count" in note
    assert shared_note(scheduler("d"), opened) == []


def test_paths_are_those_of_own_spans_and_of_other_work():
    opened = SimpleNamespace(spans={"a"})
    found = paths(scheduler("a", "a/b", "d"), opened, ["a", "a/b", "d", "gone", ""])
    assert found == {"a": "a", "a/b": "a/b", "d": f"{OTHER_WORK}/d", "gone": NO_SPAN, "": NO_SPAN}


def test_a_clients_part_leaves_out_fields_of_all_clients():
    reply = {"outstanding": 50, "no_workers": 30, "tasks": {"succeeded": 9}, "timeline": {"bin": 1}, "price": 3}
    found = only_own(reply, 20)
    assert found == {"outstanding": 20, "no_workers": 20, "price": 3}
    assert only_own(reply, None)["outstanding"] == 50
    note = only_own_note(spans_of({"a": {"idle": 40}}), spans_of({"a": {"idle": 40}, "d": {"idle": 60}}))
    assert "4e-08 of the cluster's 1e-07 thread-seconds" in note
