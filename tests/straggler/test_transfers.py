from __future__ import annotations

import math

import numpy as np
import pytest

from dask_efficiency.straggler.history import MAX_WAIT_NS, Interval
from dask_efficiency.straggler.signals import RECEIVE, SEND
from dask_efficiency.straggler.task_rates import TaskRateCounter, TaskRates
from dask_efficiency.straggler.transfers import TransferComparison
from tests.straggler.rates import arrived

WORKERS = [f"w{i}" for i in range(5)]
SECOND = 1_000_000_000


def rates(receiver: str, times: int, cost: dict[tuple[str, str], float]) -> TaskRates:
    """Rates of a receiver: so many transfers of a megabyte from each other worker, of 10 ns a byte."""
    counter = TaskRateCounter()
    for sender in WORKERS:
        for _ in range(times if sender != receiver else 0):
            counter.transfer(sender, seconds=1e-2 * cost.get((sender, receiver), 1.0), nbytes=1_000_000)
    return arrived(counter, (0.0,) * 5)


def compared(comparison: TransferComparison, *, at: int) -> Interval:
    interval = Interval.of(len(WORKERS))
    list(comparison.compare(interval, at=at))
    return interval


@pytest.fixture
def comparison() -> TransferComparison:
    made = TransferComparison()
    for row, worker in enumerate(WORKERS):
        made.joined(worker, row)
    return made


@pytest.mark.parametrize(("signal", "other", "end"), [(RECEIVE, SEND, 1), (SEND, RECEIVE, 0)])
def test_time_that_one_end_adds_to_a_byte_is_not_put_down_to_the_other(comparison, signal, other, end) -> None:
    slow = {(s, r): 4.0 for s in WORKERS for r in WORKERS if (s, r)[end] == "w3"}
    for worker in WORKERS:
        comparison.receive(worker, rates(worker, 3, slow))
    interval = compared(comparison, at=SECOND)
    assert interval.residual[signal].tolist() == pytest.approx([0, 0, 0, math.log(4), 0], abs=0.01)
    assert interval.residual[other].tolist() == pytest.approx([0] * 5, abs=0.01)
    assert (interval.tasks[signal] == 12).all()
    assert np.isnan(compared(comparison, at=2 * SECOND).residual[signal]).all()  # they do not count again


def test_few_transfers_wait_for_more_but_not_for_ever(comparison: TransferComparison) -> None:
    for worker, sender in zip(WORKERS, WORKERS[1:] + WORKERS[:1], strict=True):
        counter = TaskRateCounter()
        counter.transfer(sender, seconds=1.0, nbytes=1_000_000)
        comparison.receive(worker, arrived(counter, (0.0,) * 5))
    assert np.isnan(compared(comparison, at=SECOND).residual).all()
    assert np.isfinite(compared(comparison, at=MAX_WAIT_NS + SECOND).residual[RECEIVE]).all()
