"""Intake: names and numbers of users and libraries, as they may travel.

Whatever is counted or named on a worker passes one of these functions where it is taken in, and fits the checks of
:mod:`~dask_efficiency.accounts.checks` and msgpack from there on. None of them raises.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from decimal import Decimal
from numbers import Real
from typing import Any

from dask_efficiency.accounts.checks import MAX_NAME_LENGTH, MAX_NANOSECONDS

#: Numbers of Python and numpy; not arrays and tensors, which may be converted too, at any cost.
_NUMBERS = (Real, Decimal)


def fitting(value: object, length: int = MAX_NAME_LENGTH) -> str:
    """A name as a text of so many characters at most, with escapes for what UTF-8 cannot hold."""
    if type(value) is not str:
        try:
            value = str(value)
        except Exception:  # of a class of the user's, or of a number with too many digits
            value = f"({type(value).__name__})"
    text = str(value)[:length]
    if text.isascii():
        return text
    # An escape takes more characters than what it stands for.
    return text.encode(errors="backslashreplace").decode()[:length]


def number(value: object, most: float = MAX_NANOSECONDS) -> float | None:
    """A number whose size is at most ``most``, as an int or a float of Python's own; None if it is none."""
    if type(value) is not float and type(value) is not int:
        try:
            if not isinstance(value, _NUMBERS):
                return None
            value = float(value)
        except Exception:  # too large, or a class of the user's
            return None
    return value if -most <= value <= most else None


def as_float(value: object) -> float:
    """A number as a float; NaN for what is none, such as a bool."""
    found = None if isinstance(value, bool) else number(value, sys.float_info.max)
    return math.nan if found is None else float(found)


def finite(value: float | None) -> float | None:
    """A figure as JSON has it: None where it is unknown, NaN or infinite."""
    return value if value is not None and math.isfinite(value) else None


def plain_data(value: object) -> Any:
    """Plain data of what a user's program answered: mappings, lists, names, numbers, and None for all else."""
    if isinstance(value, Mapping):
        return {fitting(key): plain_data(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_data(each) for each in value]
    if isinstance(value, str):
        return fitting(value)
    return value if isinstance(value, (bool, float)) else number(value)


def whole_number(value: object) -> int:
    """A number as a whole one from 0 to 2**62; 0 for what is no finite number, or not known."""
    if type(value) is not int:
        try:
            if not isinstance(value, _NUMBERS):
                return 0
            value = int(float(value))
        except Exception:  # a class of the user's
            return 0
    return 0 if value < 0 else value if value < MAX_NANOSECONDS else MAX_NANOSECONDS
