from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.buckets import CAUSES, Bucket
from dask_efficiency.accounts.cluster.closed_window import ClosedWindow, by_path, of_spans, share_free_time
from dask_efficiency.accounts.cluster.idle import SEEN
from dask_efficiency.accounts.cluster.span_shares import SpanShares
from dask_efficiency.accounts.facts import Facts
from tests.strategies import nanoseconds

SECOND = 1_000_000_000


def counted(closed: ClosedWindow, worker: str, free: dict[tuple[str, str], int]) -> None:
    """Count free time of a worker, by bucket and cause."""
    for (bucket, cause), ns in free.items():
        closed.facts.add(ns, worker=worker, bucket=bucket, cause=cause)
        if bucket in ("idle", "paused"):
            closed.free[bucket, cause] = closed.free.get((bucket, cause), 0) + ns


def by_span(facts: Facts) -> dict[str, dict[str, int]]:
    return {name: row.to_nanoseconds() for name, row in facts.by_span.items()}


def test_a_span_has_the_time_of_its_tasks_and_its_share_of_free_time():
    closed = ClosedWindow(100, 100)
    for span, prefix, ns in (("a", "inc", 30), ("b", "sum", 10), ("", "old", 5)):
        closed.facts.add(ns, worker="w", span=span, prefix=prefix, bucket="thread-cpu")
    free = {("idle", "parallelism"): 30, ("idle", "unknown"): 20, ("no-work", ""): 10, ("unmeasured", ""): 3}
    counted(closed, "w", free)
    shares = SpanShares()
    shares.accrue((("a",), ("b",)), [int(cause == "parallelism") for cause in SEEN], SECOND, graphs=False)
    share_free_time(closed, shares)
    assert closed.spans == {"a", "b"}
    facts = by_path(closed.facts.build(), {"": "(no span)", "a": "top", "b": "top/inner"})
    assert by_span(facts) == {
        "top": {"thread-cpu": 40, "idle": 50},
        "top/inner": {"thread-cpu": 10, "idle": 25},
        "(no span)": {"thread-cpu": 5, "no-work": 10, "unmeasured": 3},
    }
    assert facts.causes_by_span == {
        "top": {"idle/parallelism": 30, "idle/unknown": 20},
        "top/inner": {"idle/parallelism": 15, "idle/unknown": 10},
    }
    assert facts.by_worker["w"].to_nanoseconds() == {"thread-cpu": 45, "idle": 50, "no-work": 10, "unmeasured": 3}


@st.composite
def windows(draw) -> ClosedWindow:
    """Closed windows: their workers' tasks of spans, and free time."""
    closed = ClosedWindow(0, 0)
    for worker in "vwx"[: draw(st.integers(1, 3))]:
        closed.facts.add(0, worker=worker, bucket="idle")
        for span in ("a", "b", "c", ""):
            for bucket, ns in draw(
                st.dictionaries(st.sampled_from(["thread-cpu", "spill", "running"]), nanoseconds)
            ).items():
                closed.facts.add(ns, worker=worker, span=span, prefix="p", bucket=bucket)
        names = [*(("idle", cause) for cause in CAUSES[Bucket.IDLE]), ("paused", ""), ("no-work", "")]
        counted(closed, worker, draw(st.dictionaries(st.sampled_from(names), nanoseconds)))
    return closed


@given(windows(), st.lists(st.tuples(st.sets(st.sampled_from("abcd")), nanoseconds), max_size=4))
def test_spans_and_the_rest_add_up_to_the_workers_and_own_parts_to_the_own_spans(closed, seen):
    before = closed.facts.build()
    shares = SpanShares()
    for spans, ns in seen:
        shares.accrue(tuple((span,) for span in sorted(spans)), [1] * len(SEEN), ns, graphs=False)
    share_free_time(closed, shares)
    facts, own = closed.facts.build(), of_spans(closed.facts.build(), {"a", "d"})
    assert facts.by_worker == before.by_worker
    assert facts.causes_by_worker == before.causes_by_worker
    paths = dict.fromkeys(facts.names, "") | {name: name for name in "abcd"} | {"": "(no span)"}
    shown = by_path(facts, paths)
    assert sum(row.total_ns for row in shown.by_span.values()) == facts.whole.total_ns
    of_spans_a_and_d = [row for name, row in shown.by_span.items() if name in ("a", "d")]
    assert own.whole.total_ns == sum(row.total_ns for row in of_spans_a_and_d)
    assert own.by_worker.keys() == facts.by_worker.keys()
    for worker, row in own.by_worker.items():
        assert all(row.ns(bucket) <= facts.by_worker[worker].ns(bucket) for bucket in row)
    for span, row in own.by_span.items():
        assert row == shown.by_span[span]
    for rows, causes in ((own.by_worker, own.causes_by_worker), (shown.by_span, shown.causes_by_span)):
        for name, row in causes.items():
            assert sum(row.values()) == rows[name].ns("idle")
