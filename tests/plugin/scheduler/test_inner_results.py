from __future__ import annotations

from collections import Counter
from typing import Any

import dask.array as da
import dask.bag as db
import pytest
from dask.base import collections_to_expr

from dask_efficiency.plugin.scheduler import inner_results
from dask_efficiency.plugin.scheduler.inner_results import InnerResults


def halved(values):
    return values / 2


def graph(collection: Any) -> dict[Any, Any]:
    """Tasks of a collection as a client sends them."""
    return dict(collections_to_expr([collection]).optimize().__dask_graph__())


def array() -> da.Array:
    return da.arange(40, chunks=(10,)).map_blocks(halved)


def again(results: InnerResults, collection: Any) -> Counter[str]:
    """Results of a graph that an earlier one asked for, by prefix."""
    return Counter(one.name for _, _, inner in results.asked(graph(collection), {}, 0) for one in inner)


def test_chunks_that_several_reductions_compute_are_known_by_their_steps() -> None:
    results, x = InnerResults(), array()
    assert again(results, x.mean()) == {}
    assert again(results, x.min()) == {"arange": 4, "halved": 4}
    assert again(results, (x > 3).sum()) == {"arange": 4, "halved": 4}
    assert again(results, x.min()) == {}  # the same tasks: the scheduler knows them by their keys
    assert again(results, da.arange(40, chunks=(20,)).map_blocks(halved).max()) == {}  # other chunks


def test_steps_are_those_of_their_chunk_wherever_the_task_has_it() -> None:
    results = InnerResults()
    x = da.random.default_rng(1).random((20, 40), chunks=(10, 10))
    assert again(results, halved(x).sum(axis=0)) == {}
    # Transposed, its chunks have other positions, and are the same.
    found = again(results, halved(x).T.max(axis=0))
    assert found["truediv"] == 8
    # Of other chunks nothing was computed before.
    other = InnerResults()
    assert again(other, halved(x[:10]).sum()) == {}
    assert "truediv" not in again(other, halved(x[10:]).sum())


def test_items_of_a_bag_are_computed_again() -> None:
    results, bag = InnerResults(), db.from_sequence(range(40), npartitions=4).map(halved)
    assert again(results, bag.sum()) == {}
    assert again(results, bag.max()) == {"halved": 4}  # what it is made of is data


def test_windows_know_what_was_asked_for_before() -> None:
    results, x = InnerResults(), array()
    list(results.asked(graph(x.mean()), {}, 1))
    ((_, _, inner), *_) = results.asked(graph(x.min()), {}, 3)
    assert {one.opened for one in inner} == {1}
    ((_, _, inner), *_) = results.asked(graph(x.max()), {}, 4)
    assert {one.opened for one in inner} == {3}


def test_chunks_that_had_a_task_of_their_own_are_known_by_its_key() -> None:
    x = array()
    (name,) = {key[0] for key in x.__dask_keys__()}
    computed = {hash((name, i)): 2 for i in range(3)}
    found = [one for _, _, inner in InnerResults().asked(graph(x.min()), computed, 2) for one in inner]
    assert [(one.name, one.opened) for one in found] == [("halved", 2)] * 3


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inner_results, "MAX_KEYS", 10)
    results, x = InnerResults(), array()
    assert again(results, x.mean()) == {}
    assert again(results, x.min()) == {}  # 4 tasks with 3 steps each are more


def test_of_many_tasks_some_stand_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inner_results, "MAX_TASKS", 100)
    x = da.arange(1_000, chunks=1).map_blocks(halved)
    results = InnerResults()
    assert list(results.asked(graph(x[:800].mean()), {}, 0)) == []
    found = list(results.asked(graph(x.max()), {}, 0))
    assert {alike for _, alike, _ in found} == {16}
    # Those that both graphs look at, of the 800 that both have.
    assert 400 < sum(alike for _, alike, _ in found) < 1_200


def test_other_tasks_and_odd_ones_are_left_alone() -> None:
    results = InnerResults()
    tasks = {"a": None, ("b", 0): 3, "c": graph(da.ones(4, chunks=2))}
    assert list(results.asked(tasks, {}, 0)) == []
