"""Skew: what the workers say of a prefix, put together; and what they may not say."""

from __future__ import annotations

import contextlib
import copy
from dataclasses import replace
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.checks import MAX_NAME_LENGTH, MAX_NANOSECONDS, RefusedPayload
from dask_efficiency.ledger import OTHER
from dask_efficiency.skew import (
    GAP_NS,
    MAX_PREFIXES,
    MAX_STRETCHES,
    Largest,
    Longest,
    Skew,
    TaskSizes,
    WorkerSizes,
    decode_sizes,
    encode_sizes,
    skew_by_prefix,
)
from tests.strategies import SECOND, plain_data

#: (key, nanoseconds, bytes or -1) of a task.
Task = tuple[str, int, int]

tasks = st.lists(
    st.tuples(
        st.text(max_size=3),
        st.integers(0, 100 * SECOND),
        st.just(-1) | st.integers(0, 1 << 40),
    )
)
prefixes = st.dictionaries(st.sampled_from(["join", "sum", "load"]), tasks)


def sizes_of(found: list[Task], *, stop: int = 0, since: int | None = None) -> TaskSizes:
    """Of these tasks; each stops then, and nothing else ran since then."""
    sizes = TaskSizes()
    sizes.ns.add([ns for _, ns, _ in found])
    sizes.nbytes.add([nbytes for _, _, nbytes in found if nbytes >= 0])
    for key, ns, nbytes in found:
        longest = Longest(ns, key, stop, stop if since is None else since)
        sizes.longest = max(sizes.longest or longest, longest)
        if nbytes >= 0:
            sizes.largest = max(sizes.largest or Largest(nbytes, key), Largest(nbytes, key))
    return sizes


def worker(found: dict[str, list[Task]], **fields: Any) -> WorkerSizes:
    return WorkerSizes({prefix: sizes_of(of_prefix) for prefix, of_prefix in found.items()}, **fields)


@given(st.lists(prefixes, max_size=4))
def test_the_skew_of_all_workers_is_that_of_one_which_did_everything(workers):
    together: dict[str, list[Task]] = {}
    for found in workers:
        for prefix, of_prefix in found.items():
            together.setdefault(prefix, []).extend(of_prefix)
    assert skew_by_prefix(map(worker, workers)) == skew_by_prefix([worker(together)])


def test_the_skew_of_tasks_by_hand():
    half = [(f"('join', {i})", SECOND // 2, 1000) for i in range(199)]
    first = worker({"join": half[:100], "empty": []})
    second = worker({"join": [*half[100:], ("giant", 21 * SECOND, -1), ("wide", SECOND // 2, 9000)]})
    found = skew_by_prefix([first, second])
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


def test_no_quantile_is_more_than_the_maximum():
    for ns in range(1, 2000):
        skew = skew_by_prefix([worker({"x": [("k", ns, ns)]})])["x"]
        assert skew.median_seconds <= skew.p95_seconds <= skew.max_seconds
        assert skew.median_bytes <= skew.p95_bytes <= skew.max_bytes


def test_tasks_of_no_time_and_no_size_are_not_compared():
    skew = skew_by_prefix([worker({"x": [("k", 0, 0), ("l", 0, 0), ("m", 9, 9)]})])["x"]
    assert (skew.times_longer, skew.times_larger) == (1.0, 1.0)
    assert skew_by_prefix([worker({"x": [("k", 5, -1)]})])["x"] == Skew(1, 5e-9, 5e-9, 5e-9, "k")


# -- alone -----------------------------------------------------------------------------------------

#: A task from 10 s to 31 s, beside which nothing ran on its worker from 12 s on.
LONG = WorkerSizes({"join": sizes_of([("giant", 21 * SECOND, 1)], stop=31 * SECOND, since=12 * SECOND)})


def alone(*busy: tuple[float, float], complete: bool = True) -> float:
    """For how long it ran alone, where another worker was busy then."""
    other = WorkerSizes({}, [(round(start * SECOND), round(stop * SECOND)) for start, stop in busy])
    return skew_by_prefix([LONG, other], complete=complete)["join"].alone_seconds


def test_a_task_is_alone_since_the_last_other_task_on_any_worker_stopped():
    assert alone() == 19
    assert alone((0, 5)) == 19
    assert alone((0, 5), (11, 14.5)) == 16.5
    assert alone((0, 5), (11, 14.5), (40, 50)) == 16.5


def test_a_task_is_not_alone_where_another_ran_at_its_end():
    assert alone((0, 5), (20, 40)) == 0
    assert alone((0, 30.95)) == 0


def test_what_follows_from_a_task_may_begin_before_its_end_by_another_clock():
    assert alone((0, 12.5), (31 - GAP_NS / 2 / SECOND, 40)) == 18.5


def test_nobody_is_called_alone_where_a_worker_did_not_say_what_it_did():
    assert alone(complete=False) == 0


def test_a_task_was_alone_at_most_for_as_long_as_it_took():
    sizes = sizes_of([("giant", 3 * SECOND, 1)], stop=31 * SECOND, since=12 * SECOND)
    assert skew_by_prefix([WorkerSizes({"x": sizes})])["x"].alone_seconds == 3


def test_the_longest_of_its_own_worker_is_not_held_against_it():
    busy = [(10 * SECOND, 40 * SECOND)]
    assert skew_by_prefix([replace(LONG, busy=busy)])["join"].alone_seconds == 19


def test_prefixes_beyond_the_bound_are_put_together():
    workers = [worker({f"w{i}-p{j}": [("k", 1, 1)] for j in range(MAX_PREFIXES)}) for i in range(2)]
    found = skew_by_prefix(workers)
    assert len(found) == MAX_PREFIXES + 1
    assert found[OTHER].count == MAX_PREFIXES


# -- the wire --------------------------------------------------------------------------------------


@given(prefixes, st.sets(st.integers(0, 1000), max_size=8))
def test_what_a_worker_says_survives_the_wire(found, instants):
    edges = sorted(instants)
    busy = tuple(zip(edges[::2], edges[1::2], strict=False))
    sizes = worker(found, busy=busy)
    sent = msgpack.unpackb(msgpack.packb(encode_sizes(sizes)), use_list=False)
    assert decode_sizes(sent) == sizes


def payload() -> dict[str, Any]:
    said = worker({"join": [("a", SECOND, 5), ("b", 2 * SECOND, -1)]}, busy=[(1, 2), (5, 7)])
    return encode_sizes(said)


BAD = [
    (("prefixes",), None),
    (("prefixes",), {}),
    (("busy",), "12"),
    (("busy",), [[5, 4]]),
    (("busy",), [[1, 5], [5, 7]]),
    (("busy",), [[1, 5, 7]]),
    (("busy",), [[-1, 5]]),
    (("busy",), [[2 * i, 2 * i + 1] for i in range(MAX_STRETCHES + 1)]),
    (("prefixes", 0), None),
    (("prefixes", 0), ["join"]),
    (("prefixes", 0, 0), 7),
    (("prefixes", 0, 0), "x" * (MAX_NAME_LENGTH + 1)),
    (("prefixes", 0, 1), [0]),
    (("prefixes", 0, 1), [-2]),
    (("prefixes", 0, 2), [3]),
    (("prefixes", 0, 2), [0]),
    (("prefixes", 0, 3), None),
    (("prefixes", 0, 3), [1, "b", 1]),
    (("prefixes", 0, 3, 0), 1.5),
    (("prefixes", 0, 3, 1), "x" * (MAX_NAME_LENGTH + 1)),
    (("prefixes", 0, 3, 1), b"x"),
    (("prefixes", 0, 3, 2), -1),
    (("prefixes", 0, 3, 3), MAX_NANOSECONDS + 1),
    (("prefixes", 0, 4), None),
    (("prefixes", 0, 4), [5]),
    (("prefixes", 0, 4, 0), True),
    (("prefixes", 0, 4, 1), None),
]


@pytest.mark.parametrize(("place", "value"), BAD, ids=lambda item: repr(item)[:40])
def test_what_is_out_of_order_is_refused(place, value):
    sent = copy.deepcopy(payload())
    decode_sizes(sent)
    *way, last = place
    inner: Any = sent
    for step in way:
        inner = inner[step]
    inner[last] = value
    with pytest.raises(RefusedPayload, match="skew"):
        decode_sizes(sent)


def test_too_many_prefixes_are_refused():
    one = payload()["prefixes"][0]
    sent = {"prefixes": [[f"p{i}", *one[1:]] for i in range(MAX_PREFIXES + 2)], "busy": []}
    with pytest.raises(RefusedPayload, match=f"{MAX_PREFIXES + 2} prefixes"):
        decode_sizes(sent)
    del sent["prefixes"][-1]
    assert len(decode_sizes(sent).prefixes) == MAX_PREFIXES + 1


@given(plain_data | st.fixed_dictionaries({"prefixes": plain_data, "busy": plain_data}))
def test_anything_at_all_is_read_or_refused(sent):
    with contextlib.suppress(RefusedPayload):
        decode_sizes(sent)
