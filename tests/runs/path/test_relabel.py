from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency import CriticalPath, RunTrace, critical_path
from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.path.kinds import KINDS, Kind, Segments
from dask_efficiency.runs.path.relabel import loop_causes, relabel, without_workers
from dask_efficiency.runs.trace.schema import BLOCKED_BY, Blocked, Runs, WorkerChange, WorkerEvents
from tests.runs.path.test_walk import tiles
from tests.runs.trace.samples import traces
from tests.simulated_cluster import EPOCH
from tests.simulated_traces import MS, SAMPLES, Graph, simulate

SCHEDULER, SENDER = MISSING, 3
Blocks = list[tuple[int, int, int, str]]


def with_blocks(rows: Blocks, *, moving: int = 0, runs: Runs | None = None) -> RunTrace:
    """A trace of processes that were blocked from an instant to another, by a cause that may be empty."""
    worker, start, stop, cause = zip(*rows, strict=True)
    causes = [BLOCKED_BY.index(name) if name else MISSING for name in cause]
    columns = {"worker": worker, "start": start, "stop": stop, "moving_ns": [moving] * len(rows), "cause": causes}
    return replace(SAMPLES["tree"](), runs=runs or Runs.empty(), blocked=Blocked.from_columns(columns))


def parts(kind: Kind, trace: RunTrace) -> str:
    """Parts of one segment of worker 0 from 100 to 200, each with its end, after processes were blocked."""
    columns = {"kind": [KINDS.index(kind)], "start": [100], "stop": [200], "worker": [0], "sender": [SENDER]}
    found = relabel(Segments.from_columns(columns), trace)
    assert found.start.tolist() == [100, *found.stop.tolist()[:-1]]
    return " ".join(f"{KINDS[k]}-{stop}" for k, stop in zip(found.kind.tolist(), found.stop.tolist(), strict=True))


MESSAGES = (Kind.REPORT, Kind.SCHEDULER_TO_WORKER, Kind.READY_WAIT)
OF_THE_SCHEDULER = (Kind.REPORT, Kind.SCHEDULER_TO_WORKER, Kind.RESULT_GATHER, Kind.SCHEDULER_QUEUE)
TRANSFERS = (Kind.TRANSFER, Kind.TRANSFER_QUEUE)
OTHERS = (Kind.COMPUTE_CPU, Kind.GRAPH_UPDATE, Kind.CLIENT_SUBMIT, Kind.SPILL)

#: Kinds of a segment, when a process was blocked, for how long of that data moved, and the segments after that.
BLOCKED = {
    "a scheduler": (OF_THE_SCHEDULER, [(SCHEDULER, 120, 150)], 0, "{0}-120 scheduler-transition-150 {0}-200"),
    "a worker": ((*MESSAGES, Kind.TRANSFER), [(0, 50, 180)], 0, "worker-loop-180 {0}-200"),
    "another worker": ((*MESSAGES, Kind.TRANSFER), [(2, 90, 210)], 0, "{0}-200"),
    "the sender": ([Kind.TRANSFER], [(SENDER, 90, 210)], 0, "worker-loop-200"),
    # While a loop moves data a transfer stays one, and the rest of that time is the loop's; a message waits for it.
    "a sender that moves data": ([Kind.TRANSFER], [(SENDER, 90, 210)], 120, "{0}-200"),
    "a worker that moves data": (TRANSFERS, [(0, 120, 180)], 60, "{0}-200"),
    "a worker that also moves data": (TRANSFERS, [(0, 120, 180)], 20, "{0}-140 worker-loop-180 {0}-200"),
    "a scheduler that moves data": ([Kind.RESULT_GATHER], [(SCHEDULER, 90, 210)], 120, "{0}-200"),
    "a message to a worker that moves data": (MESSAGES, [(0, 90, 210)], 120, "worker-loop-200"),
    "what waits for no loop": (OTHERS, [(SCHEDULER, 90, 210), (0, 90, 210)], 0, "{0}-200"),
}


@pytest.mark.parametrize(("kinds", "rows", "moving", "expected"), BLOCKED.values(), ids=BLOCKED)
def test_what_was_blocked_is_named_in_the_segments_that_waited_for_it(kinds, rows, moving, expected) -> None:
    for kind in kinds:
        trace = with_blocks([(*row, "") for row in rows], moving=moving)
        assert parts(kind, trace) == expected.format(kind)


def test_a_loop_that_is_blocked_by_the_disk_is_spill_whatever_task_it_is_for() -> None:
    runs = Runs.from_columns({"task": [5], "worker": [0], "ended": [180], "spill_ns": [60]})
    found = parts(Kind.REPORT, with_blocks([(0, 110, 190, "")], runs=runs))
    assert found == "report-110 worker-loop-120 spill-180 worker-loop-190 report-200"


@pytest.mark.parametrize("cause", ["spill", "unspill"])
def test_a_loop_that_spills_because_memory_is_full_is_named_so(cause: str) -> None:
    # It does not turn from 110 to 190, and most of that is seen to be at the disk; another worker's is not its own.
    trace = with_blocks([(0, 110, 190, ""), (0, 120, 180, cause), (1, 100, 200, cause)])
    assert parts(Kind.WORKER_LOOP, trace) == f"worker-loop-120 {cause}-180 worker-loop-200"
    for kind in (Kind.REPORT, Kind.SCHEDULER_TO_WORKER, Kind.READY_WAIT):
        assert parts(kind, trace) == f"{kind}-110 worker-loop-120 {cause}-180 worker-loop-190 {kind}-200"


def test_the_causes_of_a_busy_loop_are_counted_where_the_path_waited_for_it() -> None:
    columns = {"kind": [KINDS.index(Kind.WORKER_LOOP)] * 2, "start": [100, 300], "stop": [200, 400], "worker": [0, 1]}
    rows = [(0, 90, 150, "gil"), (0, 150, 170, "computing"), (1, 90, 390, "gil"), (2, 100, 400, "call")]
    found = loop_causes(Segments.from_columns(columns), with_blocks(rows))
    assert found == {"gil": (50 + 90) / 1e9, "computing": 20 / 1e9}


@given(
    st.lists(
        st.tuples(st.integers(-1, 4), st.integers(0, 400), st.integers(-5, 400), st.integers(-1, 500)), max_size=30
    ),
    st.sampled_from(sorted(SAMPLES)),
)
def test_whatever_was_blocked_the_segments_tile(intervals: list[tuple[int, int, int, int]], name: str) -> None:
    trace = SAMPLES[name]()
    worker, start, length, moving = (np.array([row[i] for row in intervals], np.int64) for i in range(4))
    begin = trace.start + start * MS
    causes = moving % (len(BLOCKED_BY) + 1) - 1
    columns = {"worker": worker, "start": begin, "stop": begin + length * MS, "moving_ns": moving * MS, "cause": causes}
    assert tiles(critical_path(replace(trace, blocked=Blocked.from_columns(columns))))


JOINED, LEFT = WorkerChange.JOINED, WorkerChange.LEFT


def with_events(trace: RunTrace, *events: tuple[int, int, WorkerChange]) -> CriticalPath:
    at, worker, change = zip(*events, strict=True)
    columns = {"at": list(at), "worker": list(worker), "change": list(change)}
    return critical_path(replace(trace, worker_events=WorkerEvents.from_columns(columns)))


def one_task() -> RunTrace:
    return simulate(Graph(["a"], [[]], [100 * MS], [1], {0}), workers=2, nthreads=1)


def test_work_that_waits_for_any_worker_is_named_so_and_bounds_do_not_count_it() -> None:
    trace = one_task()
    start = int(trace.runs.start[0])
    before = critical_path(trace)
    path = with_events(trace, (start - MS // 2, 0, JOINED), (start - MS // 2, 1, JOINED))
    waited = path.seconds("kind")["no-workers"]
    assert 0 < waited <= (start - MS // 2 - path.scope.start) / 1e9
    assert sum(path.seconds("kind").values()) == pytest.approx(before.makespan_seconds)
    assert path.slots == 2.0
    assert path.slot_bound_seconds == pytest.approx(0.050)
    # one worker is enough
    assert "no-workers" not in with_events(trace, (start, 1, JOINED)).seconds("kind")


def test_gaps_are_found_between_workers_that_come_and_go() -> None:
    trace = one_task()
    scope = critical_path(trace).scope
    third = (scope.stop - scope.start) // 3
    a, b = scope.start + third, scope.start + 2 * third
    path = with_events(trace, (EPOCH, 0, JOINED), (a, 0, LEFT), (b, 1, JOINED))
    assert without_workers(path.trace, scope) == [(a, b)]


@given(traces(), st.lists(st.tuples(st.floats(0, 1), st.integers(-1, 5), st.sampled_from(WorkerChange)), max_size=8))
def test_whatever_workers_come_and_go_the_segments_tile_the_makespan(trace, events):
    scope = critical_path(trace).scope
    if not events:
        return
    span, number = scope.stop - scope.start, len(trace.workers)
    path = with_events(
        trace, *sorted((scope.start + int(span * share), min(w, number - 1), c) for share, w, c in events)
    )
    assert path.scope == scope
    assert tiles(path)
    assert path.slots >= 0
