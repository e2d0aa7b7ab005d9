"""Numbers of processes and threads, also where a trace has text in their place."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from dask_efficiency.accounts.tables import MISSING, Int64
from dask_efficiency.torch_traces.kineto.numbers import integers

_NUMBER_AT_END = re.compile(r"(?:^|\s)(-?[0-9]{1,18})\s*$")


class Lanes:
    """Numbers processes and threads; texts without a number get ones below -1, each its own."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def of(self, events: Sequence[Mapping[str, Any]]) -> tuple[Int64, Int64]:
        """Process and thread of each event; of ``"stream 7"`` the 7."""
        process, thread = ([event.get(key) for event in events] for key in ("pid", "tid"))
        return self._column(process), self._column(thread)

    def _column(self, values: list[Any]) -> Int64:
        if set(map(type, values)) == {int}:
            return integers(values)
        texts = {text: self._number(text) for text in dict.fromkeys(value for value in values if type(value) is str)}
        return integers([texts[value] if type(value) is str else value for value in values])

    def _number(self, text: str) -> int:
        if found := _NUMBER_AT_END.search(text):
            return int(found[1])
        return self._numbers.setdefault(text, MISSING - 1 - len(self._numbers))
