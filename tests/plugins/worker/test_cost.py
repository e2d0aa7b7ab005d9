from __future__ import annotations

import pytest
from distributed import Client, LocalCluster

from dask_efficiency import EfficiencyPlugin, snapshot
from dask_efficiency.plugins.bootstrap import EfficiencyWorkerPlugin
from dask_efficiency.plugins.worker import cost
from dask_efficiency.plugins.worker.cost import SAMPLE, HookCost
from dask_efficiency.wire import OWN_WORK
from tests.plugins.watch import eventually


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


def test_the_mean_of_the_sample_counts_for_all_calls_of_the_interval(clock):
    def hook(takes: int) -> None:
        clock.now += takes

    hooks = HookCost(hook)
    for takes in (100, 300):
        hooks.timed(takes)
    hooks.next_interval(50)
    assert hooks.spent == 50 * 200


def test_an_interval_without_a_sample_counts_by_the_last_one(clock):
    hooks = HookCost(lambda: setattr(clock, "now", clock.now + 100))
    hooks.timed()
    hooks.next_interval(1)
    hooks.next_interval(11)
    assert hooks.spent == 11 * 100


def test_what_was_spent_never_shrinks(clock):
    hooks = HookCost(lambda takes: setattr(clock, "now", clock.now + takes))
    spent = []
    for calls, takes in ((10, 1_000), (20, 1), (30, -50)):  # less than reading the clock takes
        hooks.timed(takes)
        hooks.next_interval(calls)
        spent.append(hooks.spent)
    assert spent == [10_000, 10_010, 10_010]


def test_a_sample_is_bounded(clock):
    hooks = HookCost(lambda: None)
    for _ in range(SAMPLE):
        assert not hooks.enough
        hooks.timed()
    assert hooks.enough


@pytest.mark.cluster
def test_a_workers_own_work_is_shown_and_the_plain_hook_is_put_back():
    with LocalCluster(n_workers=1, processes=False, dashboard_address=None) as cluster, Client(cluster) as client:
        client.register_plugin(EfficiencyPlugin())
        (worker,) = cluster.workers.values()
        plugin = worker.plugins[EfficiencyWorkerPlugin.name]
        eventually(lambda: plugin.transition == plugin.meter._timed_transition)
        eventually(lambda: client.gather(client.map(abs, range(100), pure=False)) and plugin.meter._hooks.spent > 0)
        client.gather(client.map(abs, range(SAMPLE), pure=False))
        eventually(lambda: client.gather(client.map(abs, range(50))) and plugin.transition == plugin.meter.transition)
        own = snapshot(client).outside[OWN_WORK]
        assert 0 < own < 5
        plugin.meter._fail(RuntimeError("injected"))
        plugin.meter._timed_transition("key", "waiting", "ready")
        assert "transition" not in plugin.__dict__
