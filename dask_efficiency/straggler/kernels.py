"""KernelBook: how long each worker's GPU takes for the kernels that its peers' GPUs run, too."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.gpu.totals import KernelTotals
from dask_efficiency.straggler.peers import MIN_PEERS, Floats, median_of_others
from dask_efficiency.straggler.weighted import WeightedSums, of_reference

#: Kernels kept apart, by prefix and name, and of one worker those that took most time.
MAX_KERNELS = 64
TOP = 16

#: A new kernel takes the place of one that was quiet for so long; if there is none, it is not compared.
QUIET_NS = 60_000_000_000

#: Launches of a kernel that a worker must have had to be compared by it.
MIN_LAUNCHES = 5

#: Variance of the logarithm of what a launch takes, as totals do not tell it; how a worker's kernels, and its slots,
#: disagree comes on top.
NOISE = 0.04

#: Numbers that are compared in one piece; and to take a kernel's totals in takes as long as to compare so many.
PIECE = 3_000
TOTALS_COST = 2


class KernelBook:
    """Keeps kernels' totals and compares the time a launch of what was added since the last comparison.

    Kernels of one name that tasks of one prefix ask for are the same work, but for the size of their input; so they
    tell why tasks of the same size take longer, and alone they accuse nobody. After the score of NVIDIA's resiliency
    extension, with the median of the peers in place of the fastest, which may be an outlier.

    Parameters
    ----------
    rows
        Workers that there is room for.
    """

    def __init__(self, rows: int) -> None:
        self._columns: dict[tuple[str, str], int] = {}
        self._used_at = np.zeros(MAX_KERNELS, np.int64)
        #: Launches and seconds, of shape (2, kernels, workers).
        self._now = np.zeros((2, MAX_KERNELS, rows))
        self._base = np.zeros((2, MAX_KERNELS, rows))
        #: By row, what came last and when, as long as it has not been looked at.
        self._latest: dict[int, tuple[Sequence[KernelTotals], int]] = {}

    @property
    def any(self) -> bool:
        """Whether there is a kernel."""
        return bool(self._columns or self._latest)

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays."""
        return self._now.nbytes + self._base.nbytes

    def grow(self, rows: int) -> None:
        """Make room for so many workers."""
        more = np.zeros((2, MAX_KERNELS, rows - self._now.shape[2]))
        self._now, self._base = (np.concatenate([sums, more], axis=2) for sums in (self._now, self._base))

    def forget(self, row: int) -> None:
        """The row is another worker's."""
        self._latest.pop(row, None)
        self._now[:, :, row] = self._base[:, :, row] = 0.0

    def receive(self, row: int, kernels: Sequence[KernelTotals], *, at: int) -> None:
        """A worker's totals came, those first that took most time; a total below the last one is of a new beginning."""
        self._latest[row] = kernels, at

    def _take(self, row: int) -> None:
        kernels, at = self._latest.pop(row, ((), 0))
        for kernel in kernels[:TOP]:
            if kernel.prefix.startswith("(") or kernel.name.startswith("(other"):
                continue  # several in one, or not final
            column = self._column((kernel.prefix, kernel.name), at)
            if column is None:
                continue
            if kernel.launches < self._base[0, column, row]:
                self._base[:, column, row] = 0.0
            if kernel.launches != self._now[0, column, row]:
                self._used_at[column] = at
                self._now[:, column, row] = kernel.launches, kernel.ns / 1e9

    def compare(self, rows: NDArray[np.intp]) -> Generator[int, None, tuple[Floats, Floats, Floats]]:
        """By how much a launch takes longer on each of some workers than on the others, piece by piece.

        Returns
        -------
        mean, variance, launches
            Each of shape (rows,); the mean is the logarithm of a ratio, weighted by what the kernels take on the peers.
            NaN where nothing is known.
        """
        for row in rows.tolist():
            self._take(row)
            yield TOTALS_COST * TOP
        sums = WeightedSums.of(len(rows))
        columns = np.array(sorted(self._columns.values()), np.intp)
        width = max(1, PIECE // max(1, len(rows)))
        for first in range(0, len(columns), width):
            some = columns[first : first + width]
            now, base = (sums[:, some[:, None], rows] for sums in (self._now, self._base))
            gained = now - base
            there = gained[0] >= MIN_LAUNCHES
            there &= (there.sum(axis=1) >= MIN_PEERS)[:, None]
            self._base[:, some[:, None], rows] = np.where(there, now, base)
            with np.errstate(divide="ignore", invalid="ignore"):
                level = np.where(there & (gained[1] > 0), np.log(gained[1] / gained[0]), np.nan)
                others = median_of_others(level)
                weight = np.nan_to_num(gained[0] * np.exp(others))
                sums.add(level - others, NOISE / gained[0] * of_reference(there), weight, *gained)
            yield len(rows) * len(some)
        return sums.mean()

    def _column(self, key: tuple[str, str], at: int) -> int | None:
        column = self._columns.get(key)
        if column is not None:
            return column
        if len(self._columns) < MAX_KERNELS:
            column = len(self._columns)
        else:
            column = int(np.argmin(self._used_at))
            if at - self._used_at[column] < QUIET_NS:
                return None
            del self._columns[next(old for old, place in self._columns.items() if place == column)]
        self._columns[key] = column
        self._used_at[column] = at
        self._now[:, column] = self._base[:, column] = 0.0
        return column
