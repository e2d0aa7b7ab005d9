"""SlotWindows: the parts of a worker's accounts that lie in each of some windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dask_efficiency.accounts.buckets import scale_down
from dask_efficiency.accounts.worker.activity import SlotReservation
from dask_efficiency.accounts.worker.balance import OTHER, TASK_BUCKETS, UNHELD_BUCKETS, Outcome, WindowBalance

#: Windows that a worker keeps at once; the oldest goes when one more is opened.
MAX_WINDOWS = 64

#: Pairs of span and prefix that a window keeps apart.
MAX_WINDOW_ROWS = 5_000

Row = list[int]


@dataclass(eq=False, slots=True)
class _Window:
    opened: int
    free: Row
    #: Nanoseconds that each reservation which is not finalized had held its slot before the window opened.
    before: dict[SlotReservation, int]
    rows: dict[tuple[str, str], Row] = field(default_factory=dict)
    tasks: dict[str, int] = field(default_factory=dict)


class SlotWindows:
    """The windows of one ledger that are open.

    Parameters
    ----------
    max_windows
        Windows kept at once; the oldest goes when one more is opened.
    """

    def __init__(self, max_windows: int = MAX_WINDOWS) -> None:
        self._max_windows = max_windows
        self._windows: dict[str, _Window] = {}

    def __bool__(self) -> bool:
        return bool(self._windows)

    def __contains__(self, window_id: str) -> bool:
        return window_id in self._windows

    @property
    def names(self) -> tuple[str, ...]:
        """Windows that are open, oldest first."""
        return tuple(self._windows)

    def open(self, window_id: str, *, at: int, free: Sequence[int], held: dict[SlotReservation, int]) -> None:
        """Begin a window; one that is open under this id begins anew.

        Parameters
        ----------
        free
            Nanoseconds of the free slots so far, by :data:`~dask_efficiency.accounts.worker.balance.UNHELD_BUCKETS`.
        held
            Nanoseconds for which each reservation that is not finalized has held its slot so far.
        """
        self._windows.pop(window_id, None)
        while len(self._windows) >= self._max_windows:
            del self._windows[next(iter(self._windows))]
        self._windows[window_id] = _Window(at, list(free), held)

    def finalize(self, reservation: SlotReservation, outcome: Outcome, row: Row) -> None:
        """Record the part of a reservation that lies in each window.

        Parameters
        ----------
        row
            Nanoseconds of the whole reservation, by the first of
            :data:`~dask_efficiency.accounts.worker.balance.TASK_BUCKETS`.
        """
        for window in self._windows.values():
            window.tasks[outcome] = window.tasks.get(outcome, 0) + 1
            before = window.before.pop(reservation, 0)
            inside = scale_down(row, reservation.ns - before) if before else row
            total = _window_row(window.rows, reservation.span, reservation.prefix)
            for i, ns in enumerate(inside):
                total[i] += ns

    def close(
        self, window_id: str, *, nthreads: int, at: int, free: Sequence[int], held: Mapping[SlotReservation, int]
    ) -> WindowBalance:
        """End a window that is open, and give its accounts; see :meth:`open`."""
        window = self._windows.pop(window_id)
        for reservation, ns in held.items():
            _window_row(window.rows, reservation.span, reservation.prefix)[-1] += ns - window.before.get(reservation, 0)
        meanwhile = [now - then for now, then in zip(free, window.free, strict=True)]
        return WindowBalance(
            nthreads=nthreads,
            elapsed=at - window.opened,
            free={str(b): ns for b, ns in zip(UNHELD_BUCKETS, meanwhile, strict=True)},
            rows={key: tuple(row) for key, row in window.rows.items()},
            tasks={str(outcome): n for outcome, n in window.tasks.items()},
        )


def _window_row(rows: dict[tuple[str, str], Row], span: str, prefix: str) -> Row:
    """The row of a span and prefix; beyond the bound, the one that all others share."""
    key = span, prefix
    if key not in rows and len(rows) >= MAX_WINDOW_ROWS:
        key = "", OTHER
    return rows.setdefault(key, [0] * (len(TASK_BUCKETS) + 1))
