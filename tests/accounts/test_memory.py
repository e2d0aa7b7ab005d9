from __future__ import annotations

from contextlib import suppress

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.checks import MAX_NANOSECONDS, RefusedPayload
from dask_efficiency.accounts.memory import (
    MAX_LEVELS,
    MAX_POINTS,
    MIN_POINTS,
    NOT_MEASURED,
    Kept,
    KeptWindow,
    LowerEnvelope,
    MemoryLevels,
    Why,
    decode_levels,
    encode_levels,
    largest,
)
from dask_efficiency.accounts.rows import MAX_APART as MAX_KEPT
from dask_efficiency.accounts.rows import MAX_ROWS as MAX_PEAKS
from dask_efficiency.accounts.rows import OTHER
from tests.strategies import SECOND, plain_data

_bytes = st.integers(0, MAX_NANOSECONDS)
_levels = st.builds(
    MemoryLevels,
    *(_bytes | st.just(NOT_MEASURED),) * 2,
    *(_bytes,) * 2,
    _bytes | st.just(NOT_MEASURED),
    st.dictionaries(st.text(max_size=20).filter(str.isascii), st.tuples(_bytes, _bytes), max_size=MAX_LEVELS + 1),
    _bytes,
)


@given(_levels)
def test_levels_survive_the_wire(levels) -> None:
    sent = msgpack.unpackb(msgpack.packb(encode_levels(levels, [levels.peak])), use_list=False)
    assert decode_levels(sent) == levels


@given(plain_data | st.lists(plain_data, max_size=10))
def test_any_levels_are_read_or_refused(sent) -> None:
    with suppress(RefusedPayload):
        decode_levels(sent)


@pytest.mark.parametrize(
    "sent",
    [
        [1, [1], 1],
        [1, [1], 1, 1, 1, 1, "x"],
        [1, [1], -2, 1, 1, 1],
        [1, [-2], 1, 1, 1, 1],
        [1, [1] * 9, 1, 1, 1, 1],
        [1, 1, 1, 1, 1, 1],
        [1] * 501,
        [1, [1], 1, -1, 1, 1],
    ],
)
def test_levels_out_of_order_are_refused(sent) -> None:
    with pytest.raises(RefusedPayload, match="memory"):
        decode_levels(sent)


def test_peaks_of_heartbeats_that_were_not_read_count_with_the_next_one() -> None:
    def heard(number: int, last: MemoryLevels | None, *peaks: int) -> MemoryLevels:
        return decode_levels(encode_levels(MemoryLevels(1, 0, 0, 0, 0, number=number), peaks), last)

    first = heard(1, None, 9)
    assert first.peak == 9
    assert [heard(number, first, 9, 7, 8, 5).peak for number in (2, 3, 4, 5)] == [5, 8, 8, 9]
    assert heard(1, heard(70, None, 5), 3).peak == 3, "it is measured anew"
    assert heard(2, first).peak == NOT_MEASURED


def test_unmanaged_memory_may_be_below_0() -> None:
    assert MemoryLevels(process=5, peak=5, held=7, spilled=0, disk=0).unmanaged == -2


def test_the_largest_prefixes_are_told_and_all_add_up() -> None:
    levels = {f"p{i}": (i, 2 * i) for i in range(20)} | {OTHER: (1_000, 1)}
    found = largest(levels)
    assert len(found) == MAX_LEVELS
    assert found["p19"] == (19, 38)
    assert [sum(column) for column in zip(*found.values(), strict=True)] == [1_190, 381]
    assert largest({"x": (1, 0), "y": (0, 0)}) == {"x": (1, 0)}


def test_the_slope_is_that_of_the_least_values_whatever_is_above_them() -> None:
    low = LowerEnvelope(at=0)
    for i in range(2_000):
        at = i * SECOND // 100
        low.add(at, 10**9 + 1_000 * i + (5 * 10**8 if i % 3 else 0))
    slope = low.slope()
    assert slope == pytest.approx(100_000, rel=0.02)
    assert len(low._points) <= MAX_POINTS


def test_memory_that_falls_in_the_end_has_not_grown() -> None:
    low = LowerEnvelope(at=0)
    for i in range(100):
        low.add(i * SECOND, 10**9 + 10**6 * i if i < 90 else 10**9)
    assert low.slope() == 0.0


def test_few_points_have_no_slope() -> None:
    low = LowerEnvelope(at=0)
    for i in range(MIN_POINTS - 1):
        low.add(i * SECOND, i)
    assert low.slope() is None
    low.add(MIN_POINTS * SECOND, 0)
    assert low.slope() is not None


def test_what_a_look_saw_holds_until_the_next_one() -> None:
    window = KeptWindow(at=100)
    one, other = Kept("load", Why.BLOCKED, "sub", "mean"), Kept("load", Why.FUTURE)
    window.accrue({one: (10, 2)}, at=50)  # of before the window
    window.accrue({one: (10, 2)}, at=110)
    window.accrue({one: (5, 1), other: (1, 1)}, at=130)
    assert (window.nbytes, window.results) == ({one: 200, other: 20}, {one: 40, other: 20})


def test_the_peak_has_what_was_kept_then() -> None:
    window = KeptWindow(at=0)
    one = Kept("load", Why.FUTURE)
    for process, nbytes in ((5, 1), (9, 3), (7, 2)):
        window.note("", process, {one: nbytes})
        window.note("a", -process, {one: nbytes})
    assert window.peaks == {"": (9, {one: 3})}


def test_reasons_are_bounded() -> None:
    window = KeptWindow(at=0)
    window.accrue({Kept(str(i), Why.FUTURE): (1, 1) for i in range(2 * MAX_KEPT)}, at=1)
    window.accrue({Kept("0", Why.FUTURE): (1, 1), Kept("x", Why.FUTURE): (1, 1)}, at=2)
    assert len(window.nbytes) == MAX_KEPT + 1
    assert window.nbytes[Kept("0", Why.FUTURE)] == 2
    assert window.nbytes[Kept(OTHER, Why.FUTURE)] == MAX_KEPT + 1  # nothing is lost
    assert sum(window.results.values()) == 2 * MAX_KEPT + 2


def test_peaks_are_bounded_and_that_of_all_is_among_them() -> None:
    window = KeptWindow(at=0)
    for i in range(2 * MAX_PEAKS):
        window.note(f"w{i}", 1, {})
    window.note("", 5, {})
    window.note("w0", 2, {})
    assert len(window.peaks) == MAX_PEAKS + 1
    assert (window.peaks[""][0], window.peaks["w0"][0]) == (5, 2)
