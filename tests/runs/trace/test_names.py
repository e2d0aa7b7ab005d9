from __future__ import annotations

from dask_efficiency.runs.trace import names as module
from dask_efficiency.runs.trace.names import MAX_NAME_LENGTH, Names


def test_names_are_numbered_in_the_order_of_their_coming():
    names = Names()
    assert [names.number(name) for name in ("a", "b", "a")] == [0, 1, 0]
    assert names.all() == ["a", "b"]


def test_too_many_names_are_one_and_long_ones_are_cut(monkeypatch):
    monkeypatch.setattr(module, "MAX_NAMES", 2)
    names = Names()
    assert [names.number(str(i)) for i in range(5)] == [0, 1, 2, 2, 2]
    assert names.all() == ["0", "1", "(other)"]
    assert Names().number("x" * 1_000) == 0
    long = Names()
    long.number("x" * 1_000)
    assert long.all() == ["x" * MAX_NAME_LENGTH]
    assert [long.number("x" * 1_000), long.number("y")] == [0, 1]


def test_many_names_are_numbered_as_one_after_the_other() -> None:
    together, one_by_one = Names(), Names()
    for texts in (["b", "a", "b"], ["a", "b"], ["c", "a"], []):
        assert together.numbers(texts) == [one_by_one.number(text) for text in texts]
    assert together.all() == ["b", "a", "c"]
