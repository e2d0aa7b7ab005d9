from __future__ import annotations

import pytest

from dask_efficiency.accounts.worker.log import MAX_PREFIX_LENGTH
from dask_efficiency.plugin.scheduler import registration
from dask_efficiency.plugin.scheduler.registration import RepeatCounter


@pytest.mark.parametrize(
    ("runs", "repeats"),
    [
        ([(1, "sum"), (1, "sum"), (1, "sum"), (2, "sum"), (3, "load")], {"sum": (4, 4), "load": (1, 2)}),
        ([*enumerate(["a", "b", "c", "d", "a"])], {"a": (2, 2), "b": (1, 2), "(other)": (2, 2)}),  # MAX_APART is 2
        ([(number, "x" * 100_000) for number in range(2)], {"x" * MAX_PREFIX_LENGTH: (2, 2)}),
    ],
    ids=["tasks and the most runs of one key", "prefixes beyond the bound are one", "names are cut"],
)
def test_repeats_are_counted_by_prefix(monkeypatch, runs, repeats):
    monkeypatch.setattr(registration, "MAX_APART", 2)
    counter = RepeatCounter()
    for run in runs:
        counter.add(*run)
    assert counter.by_prefix() == repeats


def test_repeats_within_tasks_have_the_prefix_of_both(monkeypatch):
    monkeypatch.setattr(registration, "MAX_APART", 2)
    counter = RepeatCounter()
    counter.add(1, "sum")
    for number in (1, 2, 2):
        counter.add_within(number, "load", "load-sum")
    counter.add_within(2, "load", "load-max", 8)
    counter.add_within(2, "load", "load-min")  # one too many
    assert counter.by_prefix() == {
        "sum": (1, 2),
        "load in load-sum": (3, 3, "load", "load-sum"),
        "load in load-max": (8, 4, "load", "load-max"),
    }


def test_repeats_within_tasks_are_counted_for_so_many_results_each(monkeypatch):
    monkeypatch.setattr(registration, "MAX_WITHIN", 1)
    counter = RepeatCounter()
    for number in (1, 2, 2, 2, 1):
        counter.add_within(number, "load", f"of-{number}")
    assert counter.by_prefix() == {
        "load in of-1": (2, 3, "load", "of-1"),
        "load in of-2": (3, 2, "load", "of-2"),  # it is not known how often
    }
    assert len(counter._times) == 1
