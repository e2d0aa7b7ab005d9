"""Comparison of traces and paths."""

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np


def assert_same(one: Any, other: Any, name: str = "") -> None:
    """All of two values is equal, and every column of the same type."""
    if isinstance(one, np.ndarray):
        assert one.dtype == other.dtype, name
        np.testing.assert_array_equal(one, other, err_msg=name)
    elif is_dataclass(one):
        for field in fields(one):
            assert_same(getattr(one, field.name), getattr(other, field.name), f"{name}.{field.name}")
    elif isinstance(one, tuple):
        assert len(one) == len(other), name
        for i, (each, its) in enumerate(zip(one, other, strict=True)):
            assert_same(each, its, f"{name}[{i}]")
    else:
        assert one == other, name
