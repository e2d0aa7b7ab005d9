"""Comparison of traces."""

from dataclasses import fields
from typing import Any

import numpy as np

from dask_efficiency import RunTrace
from dask_efficiency.accounts.tables import ColumnTable


def assert_same(one: RunTrace, other: RunTrace) -> None:
    """Every field is equal, and every column of the same type."""
    for field in fields(RunTrace):
        _assert_same(field.name, getattr(one, field.name), getattr(other, field.name))


def _assert_same(name: str, one: Any, other: Any) -> None:
    if isinstance(one, ColumnTable):
        for column, values in one.columns().items():
            _assert_same(f"{name}.{column}", values, other.columns()[column])
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype, name
        np.testing.assert_array_equal(one, other, err_msg=name)
    else:
        assert one == other, name
