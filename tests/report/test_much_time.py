"""What takes much of all thread time, and the losses that it explains."""

from __future__ import annotations

from typing import Any

from dask_efficiency.accounts.lines import PYTHON
from dask_efficiency.report.findings import find
from dask_efficiency.report.values import ProfileRow
from tests.report.recipe_stacks import stack_of
from tests.report.samples import causes, report_of, seconds, skew

SECOND = 1_000_000_000


def kinds(overhead: float, **fields: Any) -> list[str]:
    """Findings of four threads that compute in Python for 34 of 100 s, and wait for event loops for some."""
    waits = causes(**{"overhead/event-loop": overhead})
    held = seconds(thread_cpu=34.0, overhead=overhead)
    report = report_of(
        seconds(thread_cpu=34.0, overhead=overhead, idle=66.0 - overhead),
        by_prefix={"parse": held},
        causes_by_prefix={"parse": waits},
        causes_by_worker={"w0": waits},
        profile=(ProfileRow("thread-cpu", PYTHON, "parse", stack_of("me/etl.py parse"), 34 * SECOND),),
        tasks={"succeeded": 50},
        skew={"parse": skew(count=50, median_seconds=0.6, p95_seconds=0.7, max_seconds=0.8, alone_seconds=0.0)},
        cluster_seconds=25.0,
        window_seconds=25.0,
        nthreads={"w0": 4},
        cores=4.0,
        **fields,
    )
    return [one.kind for one in find(report)]


def test_event_loops_that_wait_for_longer_than_is_computed_or_as_others_compute_have_a_finding_of_their_own() -> None:
    assert {*kinds(30.0)} == {"computing", "idle"}
    assert "overhead/event-loop" in kinds(45.0)
    assert "overhead/event-loop" in kinds(30.0, others_share=0.5)
