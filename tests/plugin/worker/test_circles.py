"""No object of ours on a worker leads back to itself, so calls can be read from the top to the bottom."""

from __future__ import annotations

import functools
import types
from collections import deque
from collections.abc import Iterable
from typing import Any

import pytest
from distributed import Client, LocalCluster

from dask_efficiency import EfficiencyPlugin, efficiency_report
from dask_efficiency.plugin.bootstrap import EfficiencyWorkerPlugin
from dask_efficiency.plugin.patches import Replacements


def is_ours(value: Any) -> bool:
    return type(value).__module__.startswith("dask_efficiency") and not isinstance(value, type)


def attributes(value: Any) -> Iterable[Any]:
    if isinstance(value, Replacements):
        return []  # of upstream's places, in which what was put there stands
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    named = [getattr(value, name) for name in slots if hasattr(value, name)]
    return [*getattr(value, "__dict__", {}).values(), *named, *within(value)]


def within(value: Any) -> Iterable[Any]:
    """Contents of a container, a bound method, a function with a closure, or a partial one."""
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    if isinstance(value, (list, tuple, set, frozenset, deque)):
        return list(value)
    if isinstance(value, types.MethodType):
        return [value.__self__]
    if isinstance(value, types.FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or () if cell != types.CellType()]
        return [*cells, *(value.__defaults__ or ())]
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    return []


def leads_to(value: Any) -> list[Any]:
    """Objects of ours that a value holds, directly or through others."""
    found, seen, rest = [], {id(value)}, list(attributes(value))
    while rest:
        each = rest.pop()
        if id(each) in seen and each is not value:
            continue
        seen.add(id(each))
        if is_ours(each):
            found.append(each)
        else:
            rest += within(each)
    return found


def circles(root: Any) -> list[list[str]]:
    """Names of the classes on each way from an object back to itself, by a walk in depth."""
    found: list[list[str]] = []
    done: set[int] = set()
    kept: list[Any] = []  # so that no two objects have one id

    def walk(value: Any, way: dict[int, str]) -> None:
        if id(value) in way:
            places = list(way)
            found.append([*list(way.values())[places.index(id(value)) :], type(value).__name__])
            return
        if id(value) in done:
            return
        kept.append(value)
        for each in leads_to(value):
            walk(each, {**way, id(value): type(value).__name__})
        done.add(id(value))

    walk(root, {})
    assert len(kept) > 1
    return found


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
    assert circles(first) == []
    second.next = hold(first)
    assert circles(first) == [["Node", "Node", "Node"]]


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
            for hold in (
                worker.plugins[EfficiencyWorkerPlugin.name],
                worker.plugins[EfficiencyWorkerPlugin.name].meter,
            ):
                assert circles(hold) == []
