"""The table of kernels: bounded, and its sums whole."""

from __future__ import annotations

import numpy as np
import pytest

from dask_efficiency.gpu import kernels
from dask_efficiency.gpu.kernels import MAX_LISTED, OTHER_KERNELS, KernelTable
from dask_efficiency.gpu.records import OPERATION


def operations(names: list[int]) -> np.ndarray:
    return np.array([(0, 10, 0, 7, 1, 0, name) for name in names], OPERATION)


def test_a_name_that_is_not_in_the_list_is_some_other() -> None:
    found = KernelTable().numbered(operations([0, -1, 2, 1]), ["a", "b"])
    assert found["name"].tolist() == [1, 0, 0, 2]


def test_names_beyond_those_that_are_known_are_some_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "MAX_KERNEL_NAMES", 3)
    table = KernelTable()
    assert table.numbered(operations([0, 1, 2]), ["a", "b", "c"])["name"].tolist() == [1, 2, 0]
    assert table.numbered(operations([0]), ["b"])["name"].tolist() == [2]


def test_pairs_beyond_those_that_are_counted_are_some_other_of_their_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "MAX_PAIRS", 2)
    table = KernelTable()
    table.numbered(operations([]), ["a", "b", "c"])
    for name in (1, 2, 3):
        table.add("x", name, 1, 10 * name)
    found = table.totals()
    assert [(row.name, row.ns) for row in found] == [(OTHER_KERNELS, 30), ("b", 20), ("a", 10)]


def test_the_rest_below_the_top_is_one_sum() -> None:
    table = KernelTable()
    table.numbered(operations([]), [f"k{index}" for index in range(MAX_LISTED + 5)])
    for name in range(1, MAX_LISTED + 6):
        table.add("x", name, 2, name)
    found = table.totals()
    assert len(found) == MAX_LISTED + 1
    assert found[-1] == (OTHER_KERNELS, OTHER_KERNELS, 10, 1 + 2 + 3 + 4 + 5)
    assert found[0].ns == MAX_LISTED + 5
