from __future__ import annotations

import math
from collections import Counter
from typing import Any

import dask.array as da
import dask.bag as db
import numpy as np
import pytest
from dask._task_spec import Task
from dask.base import collections_to_expr

from dask_efficiency.plugin.scheduler import inner_results
from dask_efficiency.plugin.scheduler.inner_results import InnerResult, InnerResults


def halved(values):
    return values / 2


def doubled(values):
    return values * 2


def graph(collection: Any) -> dict[Any, Any]:
    """Tasks of a collection as a client sends them."""
    return dict(collections_to_expr([collection]).optimize().__dask_graph__())


def array() -> da.Array:
    return da.arange(40, chunks=(10,)).map_blocks(halved)


class Asked:
    """Graphs that are asked for and computed one after the other."""

    def __init__(self) -> None:
        self.results, self.computed, self.opened = InnerResults(), dict[int, int](), 0

    def __call__(self, collection: Any, *, done: bool = True) -> Counter[str]:
        """Results of a graph that others have computed, by prefix."""
        return Counter(one.name for one in self.all(collection, done=done))

    def all(self, collection: Any, *, done: bool = True) -> list[InnerResult]:
        tasks = graph(collection)
        found = [one for _, _, inner in self.results.asked(tasks, self.computed) for one in inner]
        if done:
            self.computed.update(dict.fromkeys(map(hash, tasks), self.opened))
        return found


@pytest.fixture
def again() -> Asked:
    return Asked()


def test_chunks_that_several_reductions_compute_are_known_by_their_steps(again: Asked) -> None:
    x = array()
    assert again(x.mean()) == {}
    assert again(x.min()) == {"arange": 4, "halved": 4}
    assert again((x > 3).sum()) == {"arange": 4, "halved": 4}
    assert again((x > 3).sum()) == {}  # the same tasks: the scheduler knows them by their keys
    assert again(da.arange(40, chunks=(20,)).map_blocks(halved).max()) == {}  # other chunks


@pytest.mark.parametrize("shape", [(8,), (20, 40), (1, 80), (80, 1), (4, 6, 20)], ids=str)
def test_steps_are_those_of_their_chunk_wherever_the_task_has_it(again: Asked, shape: tuple[int, ...]) -> None:
    chunks = tuple(max(1, size // 4) for size in shape)
    x = da.random.default_rng(1).random(shape, chunks=chunks)
    steps, n = halved(x) + 1.0, math.prod(map(len, x.chunks))
    assert again(steps.sum()) == {}
    assert again(steps.max(axis=0))["truediv"] == n
    assert again(steps * 3)["truediv"] == n  # elementwise
    assert again(steps.map_blocks(doubled))["truediv"] == n
    # Transposed, its chunks have other positions, and are the same.
    assert again(steps.T.max(axis=0))["truediv"] == n


def test_of_other_chunks_nothing_was_computed_before(again: Asked) -> None:
    for source in (da.from_array(np.ones((4, 40)), chunks=(1, 10)), da.ones((4, 40), chunks=(1, 10))):
        steps = source.map_blocks(halved).map_blocks(doubled)
        for one in (steps[:1].sum(), steps[1:2].mean(), steps[2:].max()):
            assert "halved" not in again(one)
        for one in (steps.blocks[3, 1:].sum(), (steps + 1).blocks[1:3, 0].max()):
            assert again(one)["halved"] <= 3
    y = (da.random.default_rng(2).random((8, 8), chunks=2) / 3).map_blocks(doubled)
    assert again(y.blocks[0, 1:].sum()) == {}
    assert again((y + 1).blocks[1:, 0].sum()) == {}


def test_blocks_that_blockwise_alone_fused_are_apart(again: Asked) -> None:
    ones = da.ones(8, chunks=1).map_blocks(halved)
    for part in ones.to_delayed():
        assert again(part) == {}
    assert again(ones.max())["halved"] == 8


def test_names_of_any_kind_are_taken_as_they_are(again: Asked) -> None:
    ones = da.ones(8, chunks=2)
    for name in ("a_.\u00b2", "b_." + "9" * 5_000, "c_.7", "_."):
        x = ones.map_blocks(halved, name=name)
        assert again((x + 1).sum())[name] == 0


def test_blocks_of_transposed_results_are_not_known(again: Asked) -> None:
    z = da.random.default_rng(1).random((8, 8), chunks=2).map_blocks(halved)
    assert "halved" not in again(da.einsum("ij->ji", z).blocks[:2, 2:])
    assert "halved" not in again(z.blocks[:2, 2:].sum())


def test_items_of_a_bag_are_computed_again(again: Asked) -> None:
    bag = db.from_sequence(range(40), npartitions=4).map(halved)
    assert again(bag.sum()) == {}
    assert again(bag.max()) == {"halved": 4}  # what it is made of is data


def test_windows_know_what_was_computed_before(again: Asked) -> None:
    x = array()
    for again.opened, one, then in ((1, x.mean(), None), (3, x.min(), 1), (3, x.max(), 3), (4, x.min(), 3)):
        assert {found.opened for found in again.all(one)} == ({then} if then is not None else set())
    # What a window runs again as a whole is computed twice within it, as before.
    assert {found.opened for found in again.all(x.max())} == {4}


def test_what_was_asked_for_and_not_computed_is_not_computed_again(again: Asked) -> None:
    x = array()
    assert again(x.mean(), done=False) == {}  # it failed, or was cancelled
    assert again(x.min()) == {}


def test_chunks_that_had_a_task_of_their_own_are_known_by_its_key(again: Asked) -> None:
    x = array()
    (name,) = {key[0] for key in x.__dask_keys__()}
    again.computed = {hash((name, i)): 2 for i in range(3)}
    assert [(one.name, one.opened) for one in again.all(x.min())] == [("halved", 2)] * 3


def test_a_name_that_other_steps_of_the_task_have_tells_nothing(again: Asked) -> None:
    x = da.arange(40, chunks=(10,)).map_blocks(lambda chunk: chunk + 1)
    assert again(x.mean()) == {}
    assert again(x.map_blocks(lambda chunk: chunk * 2).mean()) == {"arange": 4}
    assert again(x.min()) == {"arange": 4, "lambda": 4}


def test_what_is_kept_is_bounded_and_the_oldest_goes(again: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inner_results, "MAX_KEYS", 40)
    x, others = array(), [da.arange(n, chunks=(10,)).map_blocks(halved) for n in range(50, 120, 10)]
    assert again(x.mean()) == {}
    for other in others:
        assert again(other.mean()) == {}
    assert again(x.min()) == {}
    assert again(others[-1].min())["halved"] > 0
    assert len(again.results._holders) + len(again.results._earlier) <= 2 * 40


def test_of_many_tasks_some_stand_for_all(again: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inner_results, "MAX_STEPS", 300)
    x = da.arange(1_000, chunks=1).map_blocks(halved)
    assert again(x[:800].mean()) == {}
    found = list(again.results.asked(graph(x.max()), again.computed))
    assert {alike for _, alike, _ in found} == {16}
    # Those that both graphs look at, of the 800 that both have.
    assert 400 < sum(alike for _, alike, _ in found) < 1_200


def test_other_tasks_and_odd_ones_are_left_alone() -> None:
    fused = next(one for one in graph(array().mean()).values() if getattr(one, "func", None) is inner_results._OF_FUSED)
    odd = [Task(name, fused.func, *args) for name, args in (("d", ()), ("e", (3, "x")))]
    tasks = {"a": None, ("b", 0): 3, "c": graph(da.ones(4, chunks=2)), **{one.key: one for one in odd}}
    assert list(InnerResults().asked(tasks, {})) == []
