"""Sketches: every quantile to 1 %, and merged as if nobody had divided the work."""

from __future__ import annotations

import contextlib
import math
import random
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.checks import MAX_NANOSECONDS, RefusedPayload
from dask_efficiency.accounts.sketch import MAX_BINS, MAX_ERROR, MAX_INDEX, Sketch, decode_sketch, encode_sketch
from tests.strategies import plain_data

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


def test_what_is_large_is_still_right_where_the_lowest_bins_became_one():
    sketch = sketch_of(EVERY_SIZE)
    assert len(sketch.bins) == MAX_BINS
    for q in (0.8, 0.95, 1.0):
        exact = EVERY_SIZE[math.floor(q * (len(EVERY_SIZE) - 1))]
        assert sketch.quantile(q) == pytest.approx(exact, rel=MAX_ERROR)
    assert sketch.quantile(0.1) > 2 * EVERY_SIZE[len(EVERY_SIZE) // 10]


def test_the_paper_s_rule_by_hand():
    # g = 1.01 / 0.99: 1 is the end of bin 0, and 100 lies between g**230 = 99.5 and g**231 = 101.5
    sketch = sketch_of([0, 1, 100, 100])
    assert (sketch.zeros, sketch.bins) == (1, {0: 1, 231: 2})
    assert sketch.quantile(0) == 0
    assert sketch.quantile(0.4) == pytest.approx(0.99)
    assert sketch.quantile(1) == pytest.approx(100, rel=MAX_ERROR)


def test_what_no_clock_and_no_size_can_be_is_counted_within_bounds():
    sketch = sketch_of([-5, 1 << 80, MAX_NANOSECONDS])
    assert (sketch.zeros, sketch.bins) == (1, {MAX_INDEX: 2})


def test_of_nothing_nothing_is_known():
    assert math.isnan(Sketch().quantile(0.5))
    assert Sketch() == sketch_of([])
    assert Sketch() != 0
    assert repr(sketch_of([1, 1, 9])) == "<Sketch of 3 numbers in 2 bins>"


@given(st.lists(numbers))
def test_a_sketch_survives_the_wire(found):
    sketch = sketch_of(found)
    sent = msgpack.unpackb(msgpack.packb(encode_sketch(sketch)), use_list=False)
    assert decode_sketch("x", sent) == sketch


@pytest.mark.parametrize(
    "payload",
    [
        None,
        [],
        [-1],
        [0.0],
        [True],
        [0, 1],
        [0, 1, 0],
        [0, -1, 1],
        [0, 1.0, 1],
        [0, 5, 1, 5, 1],
        [0, 5, 1, 4, 1],
        [0, MAX_INDEX + 1, 1],
        [0, *(number for i in range(MAX_BINS + 1) for number in (i, 1))],
    ],
    ids=lambda payload: repr(payload)[:30],
)
def test_what_is_no_sketch_is_refused_by_name(payload: Any):
    with pytest.raises(RefusedPayload, match="^a sketch "):
        decode_sketch("a sketch", payload)


@given(plain_data)
def test_anything_at_all_is_read_or_refused(payload):
    with contextlib.suppress(RefusedPayload):
        decode_sketch("x", payload)
