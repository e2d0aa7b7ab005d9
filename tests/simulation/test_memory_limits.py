import math
from typing import Any

import numpy as np
import pytest

from dask_efficiency.simulation.memory_limits import parse_memory_limits

GIB = 2**30


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("2GiB..16GiB", [2, 4, 8, 16]),
        ("2 GiB..5 GiB", [2, 4, 5]),
        ("3GiB,1GiB", [1, 3]),
        ("4GiB", [4]),
        ([4 * GIB, "1 GiB"], [1, 4]),
        ("2..16GiB", [2, 4, 8, 16]),
        ("2,4, 8gib", [2, 4, 8]),
        ([float(GIB), np.int64(2 * GIB), "4gib"], [1, 2, 4]),
    ],
)
def test_memory_limits_are_a_range_of_doublings_or_a_list(given: Any, expected: list[int]) -> None:
    assert parse_memory_limits(given) == tuple(gib * GIB for gib in expected)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ("4GiB..2GiB", ValueError, "a range"),
        ("4GiB..", ValueError, "expected 1 MB"),
        ("", TypeError, "memory_limit is ''"),
        ([], TypeError, "expected memory limits"),
        (4 * GIB, TypeError, "expected memory limits"),
        (["-1 GiB"], ValueError, "expected 1 MB"),
        (["0"], ValueError, "expected 1 MB"),
        ("2GiB,4", ValueError, "with a unit"),
        ([math.inf], ValueError, "expected 1 MB"),
        ([None], TypeError, "memory_limit is None"),
        ([2.5], ValueError, "memory_limit is 2.5"),
    ],
)
def test_wrong_memory_limits_are_refused(given: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        parse_memory_limits(given)
