"""Numbers of processes and threads, also where a trace has text in their place."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dask_efficiency.kineto.numbers import integers
from dask_efficiency.trace.tables import MISSING, Int64

_NUMBER_AT_END = re.compile(r"(?:^|\s)(-?[0-9]{1,18})\s*$")


class Lanes:
    """Numbers processes and threads; texts without a number get ones below -1, each its own."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}

    def of(self, events: Sequence[Mapping[str, Any]]) -> tuple[Int64, Int64]:
        """Process and thread of each event; of ``"stream 7"`` the 7."""
        return self._column([event.get("pid") for event in events]), self._column(
            [event.get("tid") for event in events]
        )

    def _column(self, values: list[Any]) -> Int64:
        if set(map(type, values)) == {int}:
            return integers(values)
        return np.array([self._number(value) for value in values], np.int64)

    def _number(self, value: Any) -> int:
        if not isinstance(value, str):
            return int(integers([value])[0])
        if found := _NUMBER_AT_END.search(value):
            return int(found[1])
        return self._numbers.setdefault(value, MISSING - 1 - len(self._numbers))
