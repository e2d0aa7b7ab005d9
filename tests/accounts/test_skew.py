"""Sketches: every quantile to 1 %, and merged as if nobody had divided the work."""

import contextlib
import math
import random
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.checks import MAX_NAME_LENGTH, MAX_NANOSECONDS, RefusedPayload
from dask_efficiency.accounts.rows import MAX_SENT as MAX_PREFIXES
from dask_efficiency.accounts.rows import OTHER
from dask_efficiency.accounts.skew import (
    MAX_BINS,
    MAX_ERROR,
    MAX_INDEX,
    Sketch,
    Skew,
    TaskSizes,
    decode_sizes,
    decode_sketch,
    encode_sizes,
    encode_sketch,
    key_name,
    merge_sizes,
    skew_by_prefix,
)
from tests.strategies import SECOND, compared_tasks, plain_data, sizes_of

numbers = st.integers(0, MAX_NANOSECONDS) | st.integers(0, 100) | st.sampled_from([0, 1, 2, MAX_NANOSECONDS])
shares = st.floats(0, 1)


def sketch_of(found: list[int]) -> Sketch:
    sketch = Sketch()
    sketch.add(found)
    return sketch


@given(st.lists(numbers, min_size=1), shares)
def test_any_quantile_is_known_to_one_per_cent(found, q):
    exact = sorted(found)[math.floor(q * (len(found) - 1))]
    # floating point adds its own, where a number is the end of its bin
    assert abs(sketch_of(found).quantile(q) - exact) <= (MAX_ERROR + 1e-9) * exact


@given(st.lists(st.lists(numbers)), st.randoms(use_true_random=False))
def test_merged_sketches_are_the_sketch_of_the_union(parts, shuffled: random.Random):
    union = sketch_of([number for part in parts for number in part])
    shuffled.shuffle(parts)
    merged = Sketch()
    for part in parts:
        merged.merge(sketch_of(part))
    assert merged == union
    assert union.count == sum(map(len, parts))


#: One in the middle of each of the bins that are wide enough to hold a whole number.
EVERY_SIZE = [round((1.01 / 0.99) ** (i - 0.5)) for i in range(200, 2100)]


@given(st.lists(st.sampled_from(EVERY_SIZE), min_size=1000, max_size=2000), st.integers(1, 7))
def test_of_too_many_bins_the_lowest_become_one_however_the_work_is_divided(found, parts):
    whole = sketch_of(found)
    merged = Sketch()
    for i in range(parts):
        merged.merge(sketch_of(found[i::parts]))
    assert merged == whole
    assert len(whole.bins) <= MAX_BINS
    assert whole.count == len(found)


def test_large_numbers_are_right_where_the_lowest_bins_became_one():
    sketch = sketch_of(EVERY_SIZE)
    assert len(sketch.bins) == MAX_BINS
    for q in (0.8, 0.95, 1.0):
        exact = EVERY_SIZE[math.floor(q * (len(EVERY_SIZE) - 1))]
        assert sketch.quantile(q) == pytest.approx(exact, rel=MAX_ERROR)
    assert sketch.quantile(0.1) > 2 * EVERY_SIZE[len(EVERY_SIZE) // 10]


def test_the_rule_of_the_paper_by_hand():
    # g = 1.01 / 0.99: 1 is the end of bin 0, and 100 lies between g**230 = 99.5 and g**231 = 101.5
    sketch = sketch_of([0, 1, 100, 100])
    assert (sketch.zeros, sketch.bins) == (1, {0: 1, 231: 2})
    assert sketch.quantile(0) == 0
    assert sketch.quantile(0.4) == pytest.approx(0.99)
    assert sketch.quantile(1) == pytest.approx(100, rel=MAX_ERROR)


def test_an_empty_sketch_has_no_quantile_and_absurd_numbers_are_counted_within_bounds():
    assert math.isnan(Sketch().quantile(0.5))
    assert Sketch() == sketch_of([])
    assert Sketch() != 0
    assert repr(sketch_of([1, 1, 9])) == "<Sketch of 3 numbers in 2 bins>"
    sketch = sketch_of([-5, 1 << 80, MAX_NANOSECONDS])
    assert (sketch.zeros, sketch.bins) == (1, {MAX_INDEX: 2})


@given(st.lists(numbers))
def test_a_sketch_survives_the_wire(found):
    sketch = sketch_of(found)
    sent = msgpack.unpackb(msgpack.packb(encode_sketch(sketch)), use_list=False)
    assert decode_sketch("x", sent) == sketch


@pytest.mark.parametrize(
    "payload",
    [
        *(None, [], [-1], [0.0], [True], [0, 1], [0, 1, 0], [0, -1, 1], [0, 1.0, 1]),
        *([0, 5, 1, 5, 1], [0, 5, 1, 4, 1], [0, MAX_INDEX + 1, 1]),
        [0, *(number for i in range(MAX_BINS + 1) for number in (i, 1))],
    ],
    ids=lambda payload: repr(payload)[:30],
)
def test_a_sketch_out_of_order_is_refused(payload: Any):
    with pytest.raises(RefusedPayload, match="^a sketch "):
        decode_sketch("a sketch", payload)


#: (key, nanoseconds, bytes or -1) of a task.
Task = tuple[str, int, int]


def skew_of(*workers: dict[str, list[Task]], **alone: int) -> dict[str, Skew]:
    total: dict[str, TaskSizes] = {}
    for found in workers:
        merge_sizes(total, sizes_of(found))
    return skew_by_prefix(total, alone)


@given(st.lists(compared_tasks, max_size=4))
def test_the_skew_of_all_workers_is_that_of_one_which_did_everything(workers):
    together: dict[str, list[Task]] = {}
    for found in workers:
        for prefix, of_prefix in found.items():
            together.setdefault(prefix, []).extend(of_prefix)
    assert skew_of(*workers) == skew_of(together)


def test_the_skew_of_tasks_by_hand():
    half = [(f"('join', {i})", SECOND // 2, 1000) for i in range(199)]
    first = {"join": half[:100], "empty": []}
    second = {"join": [*half[100:], ("giant", 21 * SECOND, -1), ("wide", SECOND // 2, 9000)]}
    found = skew_of(first, second)
    assert found.keys() == {"join"}
    skew = found["join"]
    assert (skew.count, skew.max_seconds, skew.longest_key) == (201, 21.0, "giant")
    assert (skew.max_bytes, skew.largest_key) == (9000.0, "wide")
    for seconds in (skew.median_seconds, skew.p95_seconds):
        assert seconds == pytest.approx(0.5, rel=0.01)
    for nbytes in (skew.median_bytes, skew.p95_bytes):
        assert nbytes == pytest.approx(1000, rel=0.01)
    assert skew.times_longer == pytest.approx(42, rel=0.011)
    assert skew.times_larger == pytest.approx(9, rel=0.011)


def test_tasks_of_no_time_are_not_compared_and_no_quantile_is_more_than_the_maximum():
    skew = skew_of({"x": [("k", 0, 0), ("l", 0, 0), ("m", 9, 9)]})["x"]
    assert (skew.times_longer, skew.times_larger) == (1.0, 1.0)
    assert skew_of({"x": [("k", 5, -1)]})["x"] == Skew(1, 5e-9, 5e-9, 5e-9, "k")
    for ns in range(1, 2000):
        skew = skew_of({"x": [("k", ns, ns)]})["x"]
        assert skew.median_seconds <= skew.p95_seconds <= skew.max_seconds
        assert skew.median_bytes <= skew.p95_bytes <= skew.max_bytes


def test_the_time_alone_is_that_of_the_key_and_at_most_the_tasks_duration():
    workers = {"join": [("giant", 21 * SECOND, 1), ("x", SECOND, 1)]}, {"join": [("y", 20 * SECOND, 1)]}
    assert skew_of(*workers)["join"].alone_seconds == 0
    assert skew_of(*workers, y=SECOND, x=SECOND)["join"].alone_seconds == 0
    assert skew_of(*workers, y=SECOND, giant=19 * SECOND)["join"].alone_seconds == 19
    assert skew_of(*workers, giant=40 * SECOND)["join"].alone_seconds == 21


def test_merging_does_not_change_the_sizes_of_a_worker():
    given = sizes_of({"join": [("a", 1, 1)]})
    total: dict[str, TaskSizes] = {}
    merge_sizes(total, given)
    merge_sizes(total, given)
    assert total["join"].ns.count == 2
    assert given == sizes_of({"join": [("a", 1, 1)]})


def test_prefixes_beyond_the_bound_are_one_and_keys_are_cut():
    assert key_name(("join", 1)) == "('join', 1)"
    assert key_name("x" * 5000) == "x" * MAX_NAME_LENGTH
    found = skew_of(*({f"w{i}-p{j}": [("k", 1, 1)] for j in range(MAX_PREFIXES)} for i in range(2)))
    assert len(found) == MAX_PREFIXES + 1
    assert found[OTHER].count == MAX_PREFIXES


# -- the wire --------------------------------------------------------------------------------------


@given(compared_tasks)
def test_sizes_survive_the_wire(found):
    sizes = sizes_of(found)
    sent = msgpack.unpackb(msgpack.packb(encode_sizes(sizes)), use_list=False)
    assert decode_sizes(sent) == sizes


def payload() -> list[Any]:
    return encode_sizes(sizes_of({"join": [("a", SECOND, 5), ("b", 2 * SECOND, -1)]}))


TOO_LONG = "x" * (MAX_NAME_LENGTH + 1)
#: By place in the payload, values that are wrong there.
BAD: dict[tuple[int, ...], list[Any]] = {
    (): [None, {}, "join"],
    (0,): [None, ["join"]],
    (0, 0): [7, TOO_LONG],
    (0, 1): [[0], [-2]],
    (0, 2): [[3], [0]],
    (0, 3): [[3], None, [0, 5, 1]],
    (0, 4): [[0, 5, 1]],
    (0, 5): [None, [1, "b", 1, 1]],
    (0, 5, 0): [1.5, -1, MAX_NANOSECONDS + 1],
    (0, 5, 1): [TOO_LONG, b"x"],
    (0, 6): [None, [5]],
    (0, 6, 0): [True],
    (0, 6, 1): [None],
    (0, 7): [[5, "b"]],
    (0, 8): [[5, "b"]],
    (0, 9): [None, 1.5, -MAX_NANOSECONDS - 1],
}


@pytest.mark.parametrize(
    ("place", "value"),
    [(place, value) for place, values in BAD.items() for value in values],
    ids=lambda item: repr(item)[:40],
)
def test_sizes_out_of_order_are_refused(place, value):
    sent: Any = [payload()]
    decode_sizes(sent[0])
    *way, last = 0, *place
    inner = sent
    for step in way:
        inner = inner[step]
    inner[last] = value
    with pytest.raises(RefusedPayload, match="skew"):
        decode_sizes(sent[0])


def test_too_many_prefixes_are_refused():
    one = payload()[0]
    sent = [[f"p{i}", *one[1:]] for i in range(MAX_PREFIXES + 2)]
    with pytest.raises(RefusedPayload, match=f"{MAX_PREFIXES + 2} prefixes"):
        decode_sizes(sent)
    del sent[-1]
    assert len(decode_sizes(sent)) == MAX_PREFIXES + 1


@given(plain_data | st.lists(st.lists(plain_data, min_size=10, max_size=10), max_size=3))
def test_anything_is_read_or_refused(sent):
    with contextlib.suppress(RefusedPayload):
        decode_sizes(sent)
    with contextlib.suppress(RefusedPayload):
        decode_sketch("x", sent)
