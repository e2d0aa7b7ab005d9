"""Upstream calls a worker's hooks by its own table of transitions, and is as it was after the last worker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from distributed.worker_state_machine import TaskState, WorkerState

from dask_efficiency.plugin.worker.transitions import Transitions, matters, noted

TABLE = WorkerState._TRANSITIONS_TABLE


class Plugin:
    """A plugin without a hook of its own."""


class Hooks:
    """Remembers what it was called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def taken(self, ts: Any) -> None:
        self.calls.append(("taken", ts.key))

    def succeeded(self, ts: Any) -> None:
        self.calls.append(("succeeded", ts.key))

    def transition(self, key: Any, start: str, finish: str) -> None:
        self.calls.append((key, start, finish))

    def every_transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:
        self.calls.append((key, start, finish, "as a plugin's"))


class Other:
    """Somebody else's plugin."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, str, str]] = []

    def transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:
        self.seen.append((key, start, finish))


class Worker:
    """A worker, of which only its state machine is real."""

    def __init__(self) -> None:
        self.state = WorkerState(nthreads=1)
        self.plugins: dict[str, Any] = self.state.plugins
        self.plugin = Plugin()
        self.plugins["ours"] = self.plugin
        self.transitions = Transitions(self)  # type: ignore[arg-type]
        self.hooks = Hooks()

    def attach(self, note: Any = None) -> None:
        self.transitions.attach(self.plugin, self.hooks, note=note)

    def run(self, key: str, *finishes: str) -> None:
        """A task goes through states; what upstream does in each is left out."""
        ts = TaskState(key)
        for finish in finishes:
            self.move(ts, finish)

    def move(self, ts: TaskState, finish: str) -> None:
        self.state._transition(ts, finish, stimulus_id="s")


@pytest.fixture
def upstream(monkeypatch: pytest.MonkeyPatch) -> dict[Any, Any]:
    """A table of transitions that only change the state of a task."""

    def function_to(finish: str) -> Any:
        def transition(state: Any, ts: Any, *args: Any, stimulus_id: str) -> Any:
            ts.state = finish
            return {}, []

        return transition

    table = {states: function_to(states[1]) for states in TABLE}
    monkeypatch.setattr(WorkerState, "_TRANSITIONS_TABLE", table)
    return table


@pytest.fixture
def worker(upstream: dict[Any, Any]) -> Any:
    worker = Worker()
    yield worker
    worker.transitions.detach()


def table(worker: Any = None) -> Any:
    return (WorkerState if worker is None else worker.state)._TRANSITIONS_TABLE


def test_a_task_s_slot_is_told_of_by_one_hook_each_and_what_is_none_of_its_matter_by_none(worker):
    worker.attach()
    worker.run("x", "waiting", "ready", "executing", "memory", "released", "forgotten")
    assert worker.hooks.calls == [("taken", "x"), ("succeeded", "x")]
    worker.run("y", "waiting", "ready", "executing", "long-running", "memory")
    worker.run("z", "waiting", "ready", "executing", "error")
    assert worker.hooks.calls[2:] == [
        ("taken", "y"),
        ("y", "executing", "long-running"),
        ("y", "long-running", "memory"),
        ("taken", "z"),
        ("z", "executing", "error"),
    ]


def test_upstream_s_functions_are_given_what_they_would_be_without(worker, upstream):
    given = []

    def function_to(finish: str) -> Any:
        def transition(*args: Any, **kwargs: Any) -> Any:
            given.append((args, kwargs))
            args[1].state = finish
            return {}, []

        return transition

    upstream.update({states: function_to(states[1]) for states in upstream})
    worker.attach(note=lambda key, start, finish: None)
    assert all(
        table(worker)[states] is not upstream[states] for states in upstream if matters(*states) or noted(*states)
    )
    for start, finish in upstream:
        for more in ((), (1,), (1, 2), (1, 2, 3)):
            ts = TaskState("x")
            ts.state = start
            worker.state._transition(ts, finish, *more, stimulus_id="s")
            assert given.pop() == ((worker.state, ts, *more), {"stimulus_id": "s"})
    assert not given


def test_a_task_that_has_to_wait_for_data_is_told_of(worker):
    worker.attach()
    ts = TaskState("x")
    ts.waiting_for_data.add(TaskState("input"))
    worker.move(ts, "waiting")
    assert worker.hooks.calls == [("x", "released", "waiting")]


def test_hooks_see_a_task_as_it_is_after_the_transition(worker):
    states = []
    worker.hooks.taken = lambda ts: states.append(ts.state)
    worker.attach()
    worker.run("x", "waiting", "ready", "executing")
    assert states == ["executing"]


def test_every_transition_of_upstream_s_is_still_there_and_those_that_do_not_matter_are_its_own(worker, upstream):
    worker.attach()
    assert list(table(worker)) == list(upstream)
    own = {states for states, function in table(worker).items() if function is upstream[states]}
    assert own == {states for states in upstream if not matters(*states)}


def test_each_worker_s_table_is_its_own_and_put_back_with_its_meter(worker, upstream):
    second, stranger = Worker(), Worker()
    worker.attach()
    second.attach()
    assert table() is table(stranger) is upstream
    second.run("x", "waiting", "ready", "executing")
    stranger.run("x", "waiting", "ready", "executing")
    assert worker.hooks.calls == stranger.hooks.calls == []
    assert second.hooks.calls == [("taken", "x")]
    worker.transitions.detach()
    worker.transitions.detach()
    assert table(worker) is upstream
    second.run("y", "waiting", "ready", "executing")
    worker.run("y", "waiting", "ready", "executing")
    assert worker.hooks.calls == []
    assert second.hooks.calls[1:] == [("taken", "y")]


def test_what_somebody_else_put_over_the_class_stays_and_calls_each_hook_once_or_not_at_all(worker):
    notes: list[tuple[Any, str, str]] = []
    worker.attach()
    theirs = type("Theirs", (type(worker.state),), {"__slots__": ()})
    worker.state.__class__ = theirs
    worker.attach(lambda *note: notes.append(note))
    worker.run("x", "waiting", "ready", "executing")
    assert worker.hooks.calls == [("taken", "x")]
    assert notes == [("x", "released", "waiting"), ("x", "waiting", "ready")]
    worker.transitions.detach()
    assert type(worker.state) is theirs
    worker.run("y", "waiting", "ready", "executing")
    assert len(worker.hooks.calls) == 1
    assert len(notes) == 2


def test_other_hooks_take_the_place_of_the_first_ones(worker):
    worker.attach()
    first, worker.hooks = worker.hooks, Hooks()
    worker.attach()
    worker.run("x", "waiting", "ready", "executing")
    assert (first.calls, worker.hooks.calls) == ([], [("taken", "x")])


# -- plugins -----------------------------------------------------------------------------------


def test_our_plugin_is_not_among_those_that_the_state_machine_calls_and_others_are(worker):
    before, later = Other(), Other()
    worker.plugins["before"] = before
    worker.attach()
    assert "ours" in worker.plugins
    assert worker.plugins["ours"] is worker.plugin
    assert dict(worker.state.plugins) == {"before": before}
    worker.plugins["later"] = later
    worker.run("x", "waiting")
    assert before.seen == later.seen == [("x", "released", "waiting")]
    assert worker.plugins.pop("before") is before
    with pytest.raises(KeyError):
        worker.plugins.pop("before")
    assert worker.plugins.pop("before", None) is None
    worker.run("y", "waiting")
    assert len(before.seen) == 1
    assert later.seen[1:] == [("y", "released", "waiting")]
    del worker.plugins["later"]
    assert worker.state.plugins == {}


def test_the_plugins_are_the_same_object_again_with_all_that_came_and_went_meanwhile(worker):
    original = worker.plugins
    gone, came = Other(), Other()
    worker.plugins["gone"] = gone
    worker.attach()
    assert worker.plugins is not original
    worker.plugins["came"] = came
    del worker.plugins["gone"]
    # Whoever took hold of them before sees the same, too.
    assert original == {"ours": worker.plugin, "came": came}
    worker.transitions.detach()
    assert worker.plugins is original
    assert worker.state.plugins is original
    assert list(original.items()) == [("ours", worker.plugin), ("came", came)]
    worker.run("x", "waiting")
    assert came.seen == [("x", "released", "waiting")]


def test_however_the_plugins_are_changed_the_state_machine_sees_all_but_ours(worker):
    original = worker.plugins
    worker.attach()
    plugins = worker.plugins
    a, b, c = Other(), Other(), Other()
    plugins.update({"a": a}, b=b)
    assert plugins.setdefault("c", c) is c
    assert worker.state.plugins == {"a": a, "b": b, "c": c}
    assert plugins.popitem() == ("c", c)
    plugins |= {"b": c}
    assert plugins is worker.plugins
    assert worker.state.plugins == {"a": a, "b": c}
    assert original == {"ours": worker.plugin, "a": a, "b": c}
    plugins.clear()
    assert worker.state.plugins == original == {}


def test_what_somebody_else_put_over_the_plugins_stays_and_has_all_of_them(worker):
    worker.attach()
    others = worker.state.plugins
    worker.plugins = theirs = dict(worker.plugins)
    worker.transitions.detach()
    assert worker.plugins is theirs
    # And so has whoever took hold of those that the state machine saw.
    assert others == theirs == {"ours": worker.plugin}


def test_another_plugin_of_ours_takes_the_place_of_the_first(worker):
    worker.attach()
    first, worker.plugin = worker.plugin, Plugin()
    worker.plugins["ours"] = worker.plugin
    worker.attach()
    assert worker.state.plugins == {}
    assert worker.plugins["ours"] is worker.plugin
    assert worker.transitions._plugin is not first


# -- recordings --------------------------------------------------------------------------------


def test_while_a_trace_is_recorded_its_transitions_are_noted(worker, upstream):
    notes: list[tuple[Any, str, str]] = []
    worker.attach()
    worker.attach(lambda *note: notes.append(note))
    worker.run("x", "waiting", "ready", "executing", "memory")
    assert notes == [("x", "released", "waiting"), ("x", "waiting", "ready")]
    assert all(noted(start, finish) for _, start, finish in notes)
    assert worker.hooks.calls == [("taken", "x"), ("succeeded", "x")]
    worker.attach()
    worker.run("y", "waiting")
    assert len(notes) == 2
    worker.transitions.detach()
    assert table(worker) is upstream


def test_of_two_workers_one_may_be_recorded(worker):
    notes: list[tuple[Any, str, str]] = []
    second = Worker()
    second.attach()
    worker.attach(lambda *note: notes.append(note))
    second.run("x", "waiting")
    assert notes == []
    worker.run("x", "waiting")
    assert notes == [("x", "released", "waiting")]


# -- where upstream has no such table ----------------------------------------------------------


@pytest.mark.parametrize(
    "namespace",
    [{}, {"_TRANSITIONS_TABLE": TABLE, "_transition": lambda self, ts, finish, *args, **what_is_new: None}],
    ids=["no table", "other arguments"],
)
def test_where_upstream_is_not_as_known_the_hook_is_the_plugin_s_own(namespace):
    without = type("WorkerState", (), namespace)
    worker: Any = SimpleNamespace(state=without(), plugins={})
    worker.state.plugins = worker.plugins
    plugin, hooks = Plugin(), Hooks()
    worker.plugins["ours"] = plugin
    called = Transitions(worker)
    called.attach(plugin, hooks, note=None)
    assert called.attached
    assert worker.state.plugins["ours"] is plugin
    plugin.transition("x", "waiting", "ready", stimulus_id="s")  # type: ignore[attr-defined]
    assert hooks.calls == [("x", "waiting", "ready", "as a plugin's")]
    called.detach()
    assert not called.attached
    assert vars(plugin) == {}


def test_what_matters_to_slots_are_all_transitions_that_may_move_one():
    with_slot = {"executing", "long-running", "cancelled", "resumed"}
    moving = {states for states in TABLE if with_slot & set(states)}
    told = {states for states in TABLE if matters(*states)}
    assert moving <= told
    assert not {("waiting", "ready"), ("memory", "released"), ("released", "forgotten"), ("fetch", "flight")} & told
