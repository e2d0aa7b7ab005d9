from __future__ import annotations

import pytest

from dask_efficiency.accounts.cluster.cluster import ClusterLedger
from dask_efficiency.accounts.cluster.timeline import TimelineRecorder
from dask_efficiency.accounts.wire.heartbeats import encode
from dask_efficiency.accounts.wire.wire import Snapshot
from dask_efficiency.accounts.worker.ledger import Ledger
from dask_efficiency.plugin.scheduler.timelines import Timelines

SECOND = 1_000_000_000


class OneWorker:
    """A worker of one thread that reports when it is told to."""

    def __init__(self) -> None:
        self.cluster = ClusterLedger(at=0)
        self.presence = self.cluster.worker_joined("tcp://a", "a", 1, at=0)
        self._ledger = Ledger(1, at=0)
        self._seq = 0

    def report(self, at: int) -> None:
        self._seq += 1
        payload = encode(Snapshot("incarnation", self._seq, self._ledger.balance(at=at)))
        self.cluster.receive("tcp://a", payload, at=at)


@pytest.fixture
def worker() -> OneWorker:
    return OneWorker()


def covered(timelines: Timelines, recorder: TimelineRecorder | None = None, *, at: int) -> int:
    return sum(map(sum, timelines.timeline(recorder, at=at).activity.values()))


def test_a_window_has_what_was_done_since_it_began_and_the_life_all(worker):
    timelines = Timelines(at=0)
    worker.report(SECOND)
    timelines.follow([worker.presence], at=SECOND)
    window = timelines.begin(at=SECOND)
    worker.report(2 * SECOND)
    timelines.follow([worker.presence], at=2 * SECOND)
    assert covered(timelines, at=2 * SECOND) == 2 * SECOND
    assert covered(timelines, window, at=2 * SECOND) == SECOND


def test_a_window_that_ended_is_followed_no_more(worker):
    timelines = Timelines(at=0)
    window = timelines.begin(at=0)
    timelines.end(window)
    timelines.end(window)
    worker.report(SECOND)
    timelines.follow([worker.presence], at=SECOND)
    assert not any(map(any, window.timeline(at=SECOND).activity.values()))


def test_once_following_has_failed_there_is_no_timeline_and_nothing_raises(worker, monkeypatch):
    def fail(self: object, stretches: object) -> None:
        raise SystemError("injected")

    timelines = Timelines(at=0)
    with monkeypatch.context() as patch:
        patch.setattr(TimelineRecorder, "add", fail)
        timelines.follow([worker.presence], at=SECOND)
    timelines.follow([worker.presence], at=SECOND)
    with pytest.raises(RuntimeError, match="injected"):
        timelines.timeline(at=SECOND)
