"""KernelTable: launches and time of kernels by prefix and name, of a bounded number of names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.gpu.totals import KernelTotals
from dask_efficiency.gpu.ranks import ranked
from dask_efficiency.gpu.records import Operations

#: Stands for names beyond the first :data:`MAX_KERNEL_NAMES`, for kernels without a name, and for the name and prefix
#: of the kernels that are not listed.
OTHER_KERNELS = "(other)"
#: Pairs of prefix and name that are counted separately: the first ones seen.
MAX_PAIRS = 2000
#: Names of kernels that are kept, for all tasks together.
MAX_KERNEL_NAMES = 4000
#: Pairs that are listed: those that took most time.
MAX_LISTED = 50

_MAX_NAME = 200


class KernelTable:
    """Launches and nanoseconds of kernels."""

    def __init__(self) -> None:
        self._names: dict[str, int] = {OTHER_KERNELS: 0}
        self._texts = [OTHER_KERNELS]
        self._sums: dict[tuple[str, int], list[int]] = {}

    def numbered(self, operations: Operations, names: Sequence[str]) -> Operations:
        """The operations, with their names replaced by the numbers that this table gives to names."""
        numbers = np.array([*(self._number(name) for name in names), 0], np.int32)
        operations = operations.copy()
        # -1 stands for no name, and so does an index beyond the list.
        operations["name"] = numbers[np.where(operations["name"] < len(names), operations["name"], -1)]
        return operations

    def sums(self, kernels: NDArray[np.void]) -> Iterator[tuple[int, int, int, int]]:
        """Sum up numbered kernels by owner and name, as tuples of owner, name, launches and nanoseconds."""
        durations = kernels["end"] - kernels["start"]
        pairs, rows = ranked(kernels["owner"] * MAX_KERNEL_NAMES + kernels["name"])
        launches = np.bincount(rows, minlength=len(pairs))
        ns = np.bincount(rows, durations, len(pairs)).astype(np.int64)
        owners, names = np.divmod(pairs, MAX_KERNEL_NAMES)
        return zip(owners.tolist(), names.tolist(), launches.tolist(), ns.tolist(), strict=True)

    def add(self, prefix: str, name: int, launches: int, ns: int) -> None:
        """Count kernels of a task."""
        key = prefix, name
        if key not in self._sums and len(self._sums) >= MAX_PAIRS:
            key = prefix, 0
        sums = self._sums.setdefault(key, [0, 0])
        sums[0] += launches
        sums[1] += ns

    def totals(self) -> tuple[KernelTotals, ...]:
        """The kernels that took most time, and the sum of the rest."""
        ordered = sorted(self._sums.items(), key=lambda item: (-item[1][1], item[0]))
        top = [KernelTotals(prefix, self._texts[name], *row) for (prefix, name), row in ordered[:MAX_LISTED]]
        rest = [row for _, row in ordered[MAX_LISTED:]]
        if rest:
            launches, ns = map(sum, zip(*rest, strict=True))
            top.append(KernelTotals(OTHER_KERNELS, OTHER_KERNELS, launches, ns))
        return tuple(top)

    def _number(self, name: str) -> int:
        name = name[:_MAX_NAME]
        number = self._names.get(name)
        if number is None:
            if len(self._texts) >= MAX_KERNEL_NAMES:
                return 0
            number = self._names[name] = len(self._texts)
            self._texts.append(name)
        return number
