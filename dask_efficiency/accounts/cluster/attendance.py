"""Attendance: how many workers were there in a stretch of time, and how many at a time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stay:
    """A worker from joining to leaving, by the cluster's clock in nanoseconds; None where it is still there."""

    joined: int
    left: int | None
    nthreads: int


def attendance(stays: Iterable[Stay], *, start: int, stop: int) -> dict[str, int]:
    """Count the workers that came and went between two instants.

    Returns
    -------
    dict
        ``workers`` that were there at any time, a worker that was started again counted twice; ``most_workers`` and
        ``most_threads`` that were there at a time.
    """
    there = [stay for stay in stays if stay.joined < stop and (stay.left is None or stay.left > start)]
    # of one instant, leaving comes before joining
    turns = [(max(start, stay.joined), 1, stay.nthreads) for stay in there]
    turns += [(stay.left, -1, -stay.nthreads) for stay in there if stay.left is not None]
    workers = threads = most_workers = most_threads = 0
    for _, worker, nthreads in sorted(turns):
        workers += worker
        threads += nthreads
        most_workers = max(most_workers, workers)
        most_threads = max(most_threads, threads)
    return {"workers": len(there), "most_workers": most_workers, "most_threads": most_threads}
