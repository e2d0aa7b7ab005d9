from __future__ import annotations

from types import SimpleNamespace

import pytest

from dask_efficiency.accounts.worker.log import MAX_PREFIX_LENGTH
from dask_efficiency.plugin.scheduler import repeats, replies
from dask_efficiency.plugin.scheduler.repeats import RepeatCounter


@pytest.fixture
def counter():
    return RepeatCounter()


def test_nothing_is_computed_again_at_first(counter):
    assert counter.by_prefix() == {}


def test_tasks_and_the_most_times_of_one_key_are_told_by_prefix(counter):
    for number, prefix in [(1, "sum"), (1, "sum"), (1, "sum"), (2, "sum"), (3, "load")]:
        counter.add(number, prefix)
    assert counter.by_prefix() == {"sum": (4, 4), "load": (1, 2)}


def test_prefixes_beyond_the_bound_are_counted_as_one(counter, monkeypatch):
    monkeypatch.setattr(repeats, "MAX_PREFIXES", 2)
    for number, prefix in enumerate(["a", "b", "c", "d", "a"]):
        counter.add(number, prefix)
    assert counter.by_prefix() == {"a": (2, 2), "b": (1, 2), "(other)": (2, 2)}


def test_the_name_of_a_prefix_is_cut(counter):
    for number in range(2):
        counter.add(number, "x" * 100_000)
    assert counter.by_prefix() == {"x" * MAX_PREFIX_LENGTH: (2, 2)}


def test_a_report_says_when_no_more_keys_are_remembered():
    work = SimpleNamespace(full=False)
    accounts = SimpleNamespace(work=work, stays_off=list)
    assert replies._notes(accounts) == []
    work.full = True
    (note,) = replies._notes(accounts)
    assert note.startswith("tasks computed again are counted among the first 500,000 tasks only")
