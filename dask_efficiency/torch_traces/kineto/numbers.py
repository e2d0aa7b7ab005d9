"""Columns of numbers: read from JSON, where they may be text, and looked up in one another."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Bool, Int64

#: Stands for an invalid instant or duration.
NO_TIME = np.iinfo(np.int64).min

#: Largest instant in nanoseconds since the epoch, of the year 2116: sums of two instants fit into 64 bits.
MAX_INSTANT = 1 << 62

#: A larger number of ranks, or of those that one file is split into, is damage (a guess: jobs are smaller).
MAX_RANKS = 100_000
#: GPUs of one process that are looked at one by one; more is damage, and would take long (a guess: processes use 16).
MAX_DEVICES = 64

#: Largest number of microseconds, 146 years: the sum of two in nanoseconds fits into 64 bits.
MAX_MICROSECONDS = 1 << 52


def first_with(numbers: NDArray[np.integer], wanted: NDArray[np.integer]) -> Int64:
    """First position of each wanted number among the numbers; missing where it is not one of them."""
    if not len(numbers):
        return np.full(len(wanted), MISSING, np.int64)
    order = np.argsort(numbers, kind="stable")
    place = np.minimum(np.searchsorted(numbers[order], wanted), len(order) - 1)
    position: Int64 = np.where(numbers[order[place]] == wanted, order[place], MISSING).astype(np.int64)
    return position


def mask_of(rows: NDArray[np.integer], length: int) -> Bool:
    """Mask that is true at some positions."""
    mask = np.zeros(length, np.bool_)
    mask[rows] = True
    return mask


def nanoseconds(microseconds: Sequence[Any]) -> Int64:
    """Nanoseconds of microseconds that are int, float or text, half a one rounded to even; NO_TIME for other values."""
    kinds = set(map(type, microseconds))
    try:
        if kinds == {int}:
            whole = np.array(microseconds, np.int64)
            if whole.size and max(int(whole.max()), -int(whole.min())) <= MAX_MICROSECONDS:
                return whole * 1000
        elif kinds == {str}:
            exact = np.array([_thousandths(text) for text in microseconds], np.int64)
            return np.where(np.abs(exact) <= MAX_MICROSECONDS * 1000, exact, NO_TIME)
    except (ValueError, OverflowError):
        pass
    return np.array([_nanoseconds(value) for value in microseconds], np.int64)


def _thousandths(text: str) -> int:
    """A thousand times a number in text with at most three digits after the point and no exponent."""
    if text[-4:-3] == ".":  # Kineto's own form
        return int(text[:-4] + text[-3:])
    whole, _, fraction = text.partition(".")
    if len(fraction) > 3:
        raise ValueError(f"{text!r} has more than three digits after the point")
    if not whole and not fraction:
        raise ValueError(f"{text!r} has no digit")
    return int(whole + fraction.ljust(3, "0"))


def _nanoseconds(microseconds: Any) -> int:
    if isinstance(microseconds, bool) or not isinstance(microseconds, int | float | str):
        return NO_TIME
    try:
        exact = Decimal(microseconds)
        if not exact.is_finite() or abs(exact) > MAX_MICROSECONDS:
            return NO_TIME
        return int((exact * 1000).to_integral_value())
    except ArithmeticError:
        return NO_TIME


def integers(values: Sequence[Any], dtype: type[np.generic] = np.int64) -> NDArray[Any]:
    """Integers from numbers or text; MISSING for other values, and for those that the type cannot hold."""
    try:
        if set(map(type, values)) <= {int}:
            return np.array(values, dtype)
    except OverflowError:
        pass
    limits = np.iinfo(np.dtype(dtype).str)
    numbers = (integer(value) for value in values)
    return np.array([value if limits.min <= value <= limits.max else MISSING for value in numbers], dtype)


def integer(value: Any) -> int:
    """Integer from a number or text; MISSING for other values."""
    if isinstance(value, int):
        return value
    if isinstance(value, str) and re.fullmatch(r"\s*[-+]?[0-9]{1,19}(\.0*)?\s*", value):
        return int(value.partition(".")[0])
    return MISSING
