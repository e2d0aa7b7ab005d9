"""PrefixTotals: what the tasks of each prefix took on all workers together, exact however large."""

from __future__ import annotations

from collections.abc import Sequence
from operator import add
from typing import cast

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.balance import OTHER, TASK_BUCKETS

#: What is added up in 64 bits before it goes to whole numbers of any size: a large cluster fills them in a day.
MAX_PENDING = 1 << 62


class PrefixTotals:
    """Finalized nanoseconds by prefix and :data:`~dask_efficiency.balance.TASK_BUCKETS`.

    Parameters
    ----------
    max_prefixes
        Prefixes that are kept apart; later ones are added up under one name.
    """

    def __init__(self, max_prefixes: int) -> None:
        self._max_prefixes = max_prefixes
        self._places: dict[str, int] = {}
        #: What comes on top of ``_whole``, and the most that any of it can be.
        self._pending = np.zeros((0, len(TASK_BUCKETS)), np.int64)
        self._most = 0
        self._whole: list[list[int]] = []

    def places(self, prefixes: Sequence[str | None]) -> NDArray[np.intp]:
        """Where prefixes are added up; new ones begin with nothing."""
        found: list[int | None] = [*map(self._places.get, cast("Sequence[str]", prefixes))]
        if None in found:
            found = [
                self._place(prefix or "") if place is None else place
                for place, prefix in zip(found, prefixes, strict=True)
            ]
        missing = len(self._places) - len(self._pending)
        if missing:
            self._pending = np.concatenate([self._pending, np.zeros((missing, len(TASK_BUCKETS)), np.int64)])
            self._whole += [[0] * len(TASK_BUCKETS) for _ in range(missing)]
        return np.array(found, np.intp)

    def _place(self, prefix: str) -> int:
        if prefix not in self._places and len(self._places) >= self._max_prefixes:
            prefix = OTHER
        return self._places.setdefault(prefix, len(self._places))

    def add(self, places: NDArray[np.intp], gained: NDArray[np.int64], *, most: int) -> None:
        """Add rows, each to a place; no sum of their columns may be more than ``most``."""
        if self._most + most >= MAX_PENDING:
            self._settle()
        if most >= MAX_PENDING:
            for place, row in zip(places.tolist(), gained.tolist(), strict=True):
                self._whole[place] = list(map(add, self._whole[place], row))
            return
        self._most += most
        if len(self._places) <= self._max_prefixes:
            self._pending[places] += gained
        else:  # several prefixes of a worker may have one place
            np.add.at(self._pending, places, gained)

    def _settle(self) -> None:
        """Leave nothing pending."""
        if self._most:
            pending = self._pending.tolist()
            self._whole = [
                [a + b for a, b in zip(*rows, strict=True)] for rows in zip(self._whole, pending, strict=True)
            ]
            self._pending[:] = 0
            self._most = 0

    def by_prefix(self) -> dict[str, tuple[int, ...]]:
        """The totals, of those prefixes that have any place."""
        self._settle()
        return {prefix: tuple(self._whole[place]) for prefix, place in self._places.items()}
