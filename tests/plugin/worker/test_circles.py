"""No object of ours on a worker leads back to itself, so calls can be read from the top to the bottom."""

from __future__ import annotations

import functools
import gc
import types
from collections import deque
from graphlib import CycleError, TopologicalSorter
from typing import Any

import pytest
from distributed import Client, LocalCluster

from dask_efficiency import EfficiencyPlugin, efficiency_report
from dask_efficiency.plugin.bootstrap import EfficiencyWorkerPlugin
from dask_efficiency.plugin.patches import Replacements


def is_ours(value: Any) -> bool:
    return type(value).__module__.startswith("dask_efficiency") and not isinstance(value, type)


def within(value: Any) -> list[Any]:
    """What an object of ours, a container, a bound method or a function with a closure holds itself."""
    if isinstance(value, Replacements):
        return []  # of upstream's places, in which what was put there stands
    if isinstance(value, types.FunctionType):
        return [*(value.__closure__ or ()), *(value.__defaults__ or ())]
    known = (dict, list, tuple, set, frozenset, deque, types.MethodType, types.CellType, functools.partial)
    return gc.get_referents(value) if isinstance(value, known) or is_ours(value) else []


def held_by(value: Any) -> list[Any]:
    """Objects of ours that one of them holds, directly or through others."""
    found, seen, rest = [], {}, within(value)
    while rest:
        each = rest.pop()
        if is_ours(each):
            found.append(each)
        elif id(each) not in seen:
            seen[id(each)] = each
            rest += within(each)
    return found


def circle(root: Any) -> list[str]:
    """Names of the classes on a way from an object back to itself."""
    known, rest, holders = {}, [root], {}
    while rest:
        each = rest.pop()
        if id(each) not in known:
            known[id(each)] = each
            rest += (held := held_by(each))
            holders[id(each)] = [id(one) for one in held]
    assert len(known) > 1
    try:
        TopologicalSorter(holders).prepare()
    except CycleError as error:
        return [type(known[ident]).__name__ for ident in error.args[1]]
    return []


class Node:
    """Of ours, as far as this test is concerned."""

    __module__ = "dask_efficiency.test"

    def __init__(self) -> None:
        self.next: Any = None

    def call(self) -> None:
        """Does nothing."""


@pytest.mark.parametrize(
    "hold",
    [
        lambda node: node,
        lambda node: [{"key": (node,)}],
        lambda node: node.call,
        lambda node: lambda: node,
        lambda node: functools.partial(print, node),
    ],
)
def test_a_circle_is_found_through_any_kind_of_object(hold: Any) -> None:
    first, second = Node(), Node()
    first.next = second
    assert circle(first) == []
    second.next = hold(first)
    assert circle(first) == ["Node", "Node", "Node"]


@pytest.mark.cluster
def test_nothing_of_a_live_meter_leads_back_to_itself() -> None:
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(EfficiencyPlugin())
        (worker,) = cluster.workers.values()
        with efficiency_report(trace=True):
            client.gather(client.map(abs, range(100)))
            plugin = worker.plugins[EfficiencyWorkerPlugin.name]
            assert circle(plugin) == circle(plugin.meter) == []
