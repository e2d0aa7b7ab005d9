from __future__ import annotations

import pytest

from dask_efficiency.accounts.cluster.cluster import ClusterLedger
from dask_efficiency.live.last_seconds import Details, LastSeconds, done_since
from dask_efficiency.report.findings import in_a_line
from tests.live.bokeh.meter import SECOND, Meter, busy_gpu


def test_what_was_done_is_the_difference_and_never_negative() -> None:
    did = done_since({"idle": 1, "spill": 5, "gpu": 3}, {"idle": 3, "spill": 5, "gpu": 2})
    assert did.to_nanoseconds() == {"idle": 2}


def test_a_line_says_what_was_useful_and_what_the_largest_loss_is() -> None:
    did = done_since({}, {"thread-cpu": 6 * SECOND, "idle": 3 * SECOND, "spill": SECOND, "no-work": 50 * SECOND})
    nobody = Details.of(ClusterLedger(at=0), at=0)
    last = LastSeconds(seconds=9.0, nthreads=4, did=did, then=None, now=nobody)
    assert in_a_line(last.report) == "60 % efficient; Threads idle: 3.0 s of thread time"


def test_all_parts_are_of_the_time_between_two_instants() -> None:
    """In each second two workers hold one of their two threads each, one of them with half of it on the CPU."""
    meter = Meter()
    meter.gpu = busy_gpu
    meter.run_until(10)
    then = Details.of(meter.cluster, at=10 * SECOND)
    activity = meter.cluster.activity()
    meter.run_until(30)
    last = LastSeconds(
        seconds=20.0,
        nthreads=4,
        did=done_since(activity, meter.cluster.activity()),
        then=then,
        now=Details.of(meter.cluster, at=30 * SECOND),
    )
    assert last.threads == {"thread-cpu": 0.5, "thread-noncpu": 1.5, "idle": 2}
    assert last.workers.nanoseconds.sum() == last.did.total_ns == 80 * SECOND
    assert last.workers.useful.tolist() == [0, 0.25]
    assert last.gpus.nanoseconds.sum() == 40 * SECOND
    assert last.gpus.idle == pytest.approx(0.4)
    assert (last.prefixes.names, last.prefixes.seconds.sum()) == (("inc",), 40)
