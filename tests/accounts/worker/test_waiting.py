from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.rows import MAX_ROWS as MAX_KEYS
from dask_efficiency.accounts.rows import OTHER
from dask_efficiency.accounts.worker.waiting import FREE_SLOT_LIBRARY, LIBRARY, UNKNOWN, WaitingSums

SECOND = 1_000_000_000

causes = st.sampled_from(["gil", "core", "lock", "sleep", "file", UNKNOWN, LIBRARY])
prefixes = st.sampled_from(["inc", "sum", "read"])
keys = st.tuples(st.sampled_from(["", "s1"]), prefixes)
samples = st.tuples(keys, causes, st.integers(1, 20 * SECOND))
amounts = st.integers(0, 100 * SECOND)

INC = ("", "inc")


def sums_of(*added):
    sums = WaitingSums()
    for key, cause, ns in added:
        sums.add(key, cause, ns)
    return sums


@given(st.lists(st.one_of(samples, st.dictionaries(prefixes, amounts), amounts)))
def test_causes_add_up_to_their_prefix_and_to_the_view_and_never_fall(steps):
    """Whatever is sampled, and whatever of it is asked for in between."""
    sums = WaitingSums()
    noncpu: Counter[str] = Counter()
    before: dict[str, dict[str, int]] = {}
    active, active_before = 0, dict[str, int]()
    for step in steps:
        if isinstance(step, tuple):
            sums.add(*step)
        elif isinstance(step, dict):
            noncpu.update(step)
            rows = sums.explain(noncpu)
            assert {prefix: sum(row.values()) for prefix, row in rows.items()} == dict(noncpu)
            assert all(ns <= rows[prefix][cause] for prefix, row in before.items() for cause, ns in row.items())
            assert not any(LIBRARY in row for row in rows.values())
            before = rows
        else:
            active += step
            row = sums.explain_activity(active)
            assert sum(row.values()) == active
            assert all(ns <= row[cause] for cause, ns in active_before.items())
            active_before = row


def test_waiting_is_split_like_the_samples_of_its_prefix_and_beyond_them_like_recent_ones():
    sums = sums_of((INC, "gil", 30), (("s1", "inc"), "lock", 10), (("", "sum"), "sleep", 1000))
    assert sums.explain({"inc": 20}) == {"inc": {"gil": 15, "lock": 5}}
    # Tasks that end later are explained by what was sampled later.
    sums = sums_of((INC, "gil", 100))
    assert sums.explain({"inc": 100}) == {"inc": {"gil": 100}}
    sums.add(INC, "sleep", 50)
    assert sums.explain({"inc": 150}) == {"inc": {"gil": 100, "sleep": 50}}
    sums = sums_of((INC, "gil", 75), (INC, "sleep", 25))
    assert sums.explain({"inc": 200}) == {"inc": {"gil": 150, "sleep": 50}}
    # A single sample that is left over is no measure for much time.
    sums.add(INC, "lock", 1)
    row = sums.explain({"inc": 200 + 10_000})["inc"]
    assert row["lock"] < 200
    sums = WaitingSums()
    assert sums.explain({"inc": 7}) == {"inc": {UNKNOWN: 7}}
    sums.add(INC, "gil", 100)
    assert sums.explain({"inc": 8}) == {"inc": {UNKNOWN: 7, "gil": 1}}
    sums = sums_of((INC, UNKNOWN, 10), (INC, "gil", 30))
    assert sums.explain({"inc": 400}) == {"inc": {UNKNOWN: 100, "gil": 300}}
    # Prefixes that the ledger does not keep apart are one here too.
    sums = sums_of((INC, "gil", 10), (("", "sum"), "sleep", 10), (("", "read"), "file", 10))
    assert sums.explain({"inc": 10, OTHER: 20}) == {"inc": {"gil": 10}, OTHER: {"sleep": 10, "file": 10}}


def test_waiting_after_the_end_of_sampling_is_unknown():
    sums = sums_of((INC, "gil", 100))
    mark = sums.mark()
    sums.stop()
    assert sums.explain({"inc": 150}) == {"inc": {"gil": 100, UNKNOWN: 50}}
    assert sums.explain_activity(150) == {"gil": 100, UNKNOWN: 50}
    assert sums.since(mark, {INC: 5}) == {INC: {UNKNOWN: 5}}


def test_the_part_of_a_library_follows_the_samples_meanwhile():
    assert sums_of((INC, "lock", 10)).library(INC, 1000) == 0
    sums = sums_of((INC, LIBRARY, 30), (INC, "lock", 10))
    assert sums.library_so_far(INC, 40) == 30
    assert sums.library(INC, 40) == 30
    sums.add(INC, "lock", 40)
    assert sums.library(INC, 40) == 0
    assert sums.library(("", "sum"), 40) == 0


@given(st.lists(samples), st.lists(st.tuples(keys, amounts)))
def test_the_part_of_a_library_is_at_most_the_waiting(added, waited):
    sums = sums_of(*added)
    for key, ns in waited:
        assert 0 <= sums.library_so_far(key, ns) <= ns
        assert 0 <= sums.library(key, ns) <= ns


def test_a_window_is_split_by_its_own_samples():
    sums = sums_of((INC, "gil", 1000), (("", "sum"), "sleep", 10))
    mark = sums.mark()
    sums.add(INC, "lock", 5)
    assert sums.since(mark, {INC: 10, ("", "sum"): 3, ("s1", "sum"): 4, ("", "read"): 2}) == {
        INC: {"lock": 10},
        ("", "sum"): {"sleep": 3},  # nothing sampled in the window: as before
        ("s1", "sum"): {"sleep": 4},  # as in other spans
        ("", "read"): {UNKNOWN: 2},
    }


@given(st.lists(samples), st.lists(samples), st.dictionaries(keys, amounts))
def test_rows_of_a_window_are_split_exactly(before, during, noncpu):
    sums = sums_of(*before)
    mark = sums.mark()
    for sample in during:
        sums.add(*sample)
    rows = sums.since(mark, noncpu)
    assert {key: sum(row.values()) for key, row in rows.items()} == noncpu


def test_library_time_in_free_slots_is_counted_since_a_mark_and_explains_no_waiting():
    sums = WaitingSums()
    sums.add(INC, FREE_SLOT_LIBRARY, 7)
    mark = sums.mark()
    assert sums.free_slot_library(mark) == {}
    sums.add(INC, FREE_SLOT_LIBRARY, 5)
    sums.add(("span", "new"), FREE_SLOT_LIBRARY, 2)
    assert sums.free_slot_library(mark) == {INC: 5, ("span", "new"): 2}
    assert sums.since(mark, {INC: 10}) == {INC: {"unknown": 10}}
    assert not sums.any_library


def test_memory_is_bounded():
    sums = WaitingSums()
    for i in range(MAX_KEYS + 10):
        sums.add((f"span-{i}", f"prefix-{i}"), "gil", 1)
        sums.add((f"span-{i}", f"prefix-{i}"), LIBRARY, 1)
        sums.add((f"span-{i}", f"prefix-{i}"), FREE_SLOT_LIBRARY, 1)
    assert [len(kept) for kept in sums.mark()] == [MAX_KEYS, MAX_KEYS]  # type: ignore[attr-defined]
    assert sums.explain_activity(2 * MAX_KEYS) == {"gil": 2 * MAX_KEYS}
