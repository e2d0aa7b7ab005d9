from __future__ import annotations

from typing import Any
from weakref import ref

import pytest
from distributed import Client, LocalCluster

from dask_efficiency import EfficiencyPlugin, snapshot
from dask_efficiency.accounts.wire.wire import OWN_WORK
from dask_efficiency.plugin.bootstrap import EfficiencyWorkerPlugin
from dask_efficiency.plugin.worker import cost
from dask_efficiency.plugin.worker.cost import SAMPLE, HookCost, TimedHook
from tests.plugin.watch import eventually


class Clock:
    """Thread time that passes by 10 ns with each reading, and by what a hook takes."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        self.now += 10
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(cost, "thread_time_ns", clock)
    return clock


def test_the_mean_of_the_sample_counts_for_all_tasks_of_the_interval(clock):
    def hook(takes: int) -> None:
        clock.now += takes

    spent = HookCost()
    for takes in (100, 300):
        spent.timed(hook, 10, ends=False)
        spent.timed(hook, takes, ends=True)
    spent.next_interval(50)
    assert spent.spent == 50 * 210


def test_an_interval_without_a_sample_counts_by_the_last_one(clock):
    hooks = HookCost()
    hooks.timed(lambda: setattr(clock, "now", clock.now + 100), ends=True)
    hooks.next_interval(1)
    hooks.next_interval(11)
    assert hooks.spent == 11 * 100


def test_what_was_spent_never_shrinks(clock):
    hooks = HookCost()
    spent = []
    for tasks, takes in ((10, 1_000), (20, 1), (30, -50)):  # less than reading the clock takes
        hooks.timed(lambda takes=takes: setattr(clock, "now", clock.now + takes), ends=True)
        hooks.next_interval(tasks)
        spent.append(hooks.spent)
    assert spent == [10_000, 10_010, 10_010]


def test_a_sample_is_so_many_tasks_however_many_hooks_each_had(clock):
    hooks = HookCost()
    for _ in range(SAMPLE):
        assert not hooks.enough
        hooks.timed(lambda: None, ends=False)
        hooks.timed(lambda: None, ends=True)
    assert hooks.enough
    hooks.next_interval(SAMPLE)
    assert not hooks.enough


def test_a_hook_is_timed_until_there_are_enough_and_the_end_of_executing_is_that_of_a_task(clock):
    calls: list[tuple[Any, ...]] = []

    def hook(key: Any, start: str, finish: str) -> None:
        calls.append((key, start, finish))

    class Plugin:
        transition: Any

    plugin = Plugin()
    plugin.transition = TimedHook(hook, HookCost(), ref(plugin))
    for i in range(SAMPLE):
        assert plugin.transition is not hook
        plugin.transition(i, "waiting", "ready", stimulus_id="s")
        plugin.transition(i, "executing", "memory")
    assert calls[:2] == [(0, "waiting", "ready"), (0, "executing", "memory")]
    assert plugin.transition is hook


@pytest.mark.cluster
def test_a_workers_own_work_is_shown_and_its_hooks_are_timed_only_for_a_sample():
    with LocalCluster(n_workers=1, processes=False, dashboard_address=None) as cluster, Client(cluster) as client:
        client.register_plugin(EfficiencyPlugin())
        (worker,) = cluster.workers.values()
        meter = worker.plugins[EfficiencyWorkerPlugin.name].meter

        plugin = worker.plugins[EfficiencyWorkerPlugin.name]

        def called() -> Any:
            return vars(plugin).get("transition")

        eventually(lambda: isinstance(called(), TimedHook))
        eventually(lambda: client.gather(client.map(abs, range(100), pure=False)) and meter.hooks.cost.spent > 0)
        eventually(lambda: client.gather(client.map(abs, range(50), pure=False)) and called() == meter.hooks.transition)
        own = snapshot(client).outside[OWN_WORK]
        assert 0 < own < 5
        meter._guard.fail(RuntimeError("injected"))
        assert called() is None
