"""KernelComparison: compares the time that workers' GPUs take for the same kernels."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import numpy as np

from dask_efficiency.accounts.gpu import KernelTotals
from dask_efficiency.straggler.columns import MAX_COLUMNS, Columns, WorkerArrays
from dask_efficiency.straggler.history import MAX_WAIT_NS
from dask_efficiency.straggler.peers import (
    MIN_ALIKE,
    MIN_PEERS,
    NOISE,
    PIECE,
    WORKERS_AT_ONCE,
    Floats,
    Places,
    WeightedSums,
    in_pieces,
    median_of_others,
    variance_of_difference,
)

#: Kernels of one worker that are compared, those that took most time; a guess.
TOP = 16


class KernelComparison(WorkerArrays):
    """Keeps the totals of kernels, and compares the time of a launch since the last comparison.

    Kernels with one name and prefix do the same work, apart from the size of their input, so they accuse nobody alone.
    As the score of NVIDIA's resiliency extension, with the peers' median in place of the fastest one.
    """

    ARRAYS = (("_now", -1, 0.0), ("_base", -1, 0.0))

    def __init__(self, rows: int) -> None:
        self._columns: Columns[tuple[str, str]] = Columns(MAX_COLUMNS)
        #: Launches and seconds, shape (2, kernels, workers): now, and when they were last compared.
        self._now, self._base = np.zeros((2, 2, MAX_COLUMNS, rows))
        #: By row, totals not read yet and when they came.
        self._latest: dict[int, tuple[Sequence[KernelTotals], int]] = {}

    @property
    def any(self) -> bool:
        """True once there is any kernel."""
        return bool(self._columns or self._latest)

    def reset(self, row: int) -> None:
        """Clear a row, which another worker has now."""
        self._latest.pop(row, None)
        super().reset(row)

    def receive(self, row: int, kernels: Sequence[KernelTotals], *, at: int) -> None:
        """Store a worker's totals, largest first; a total that shrinks has started anew."""
        self._latest[row] = kernels, at

    def _take(self, row: int) -> None:
        kernels, at = self._latest.pop(row, ((), 0))
        for kernel in kernels[:TOP]:
            if kernel.prefix.startswith("(") or kernel.name.startswith("(other"):
                continue  # a total of several kernels, or one that is not final
            column = self._column((kernel.prefix, kernel.name), at)
            if column is None:
                continue
            if kernel.launches < self._base[0, column, row]:
                self._base[:, column, row] = 0.0
            if kernel.launches != self._now[0, column, row]:
                self._columns.used_at[column] = at
                self._now[:, column, row] = kernel.launches, kernel.ns / 1e9

    def compare(self, rows: Places) -> Generator[int, None, tuple[Floats, Floats, Floats]]:
        """Compare the time of a launch: mean residual by time on the peers, its variance, and launches, by row."""
        for number, row in enumerate(rows.tolist(), 1):
            self._take(row)
            if not number % WORKERS_AT_ONCE:
                yield PIECE
        sums = WeightedSums.of(len(rows))
        for some in in_pieces(np.array(sorted(self._columns.values()), np.intp), len(rows)):
            now, base = (sums[:, some[:, None], rows] for sums in (self._now, self._base))
            gained = now - base
            enough = gained[0] >= MIN_ALIKE
            enough &= (enough.sum(axis=1) >= MIN_PEERS)[:, None]
            self._base[:, some[:, None], rows] = np.where(enough, now, base)
            with np.errstate(divide="ignore", invalid="ignore"):
                level = np.where(enough & (gained[1] > 0), np.log(gained[1] / gained[0]), np.nan)
                others = median_of_others(level)
                weight = np.nan_to_num(gained[0] * np.exp(others))
                # Totals do not contain the variance. Disagreement of a worker's kernels and of its intervals is added.
                sums.add(level - others, NOISE / gained[0] * variance_of_difference(enough), weight, *gained)
            yield len(rows) * len(some)
        return sums.mean()

    def _column(self, kernel: tuple[str, str], at: int) -> int | None:
        column = self._columns.get(kernel)
        if column is None and (self._columns.free or at - self._columns.used_at.min() >= MAX_WAIT_NS):
            column = self._columns.add(kernel, at=at)
            self._now[:, column] = self._base[:, column] = 0.0
        return column
