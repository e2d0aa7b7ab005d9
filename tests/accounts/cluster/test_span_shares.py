from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.buckets import CAUSES, Bucket, cause_name
from dask_efficiency.accounts.cluster.idle import SEEN, ClusterState, IdleWeights, WorkerSlots
from dask_efficiency.accounts.cluster.span_shares import NOBODY, WHOLE, SpanShares, equal_shares
from dask_efficiency.accounts.rows import MAX_APART as MAX_SPANS
from dask_efficiency.accounts.worker.balance import UNHELD_BUCKETS
from tests.strategies import nanoseconds

SECOND = 1_000_000_000
PARALLELISM = cause_name(Bucket.IDLE, "parallelism")

#: Everything that is divided.
DIVIDED = [*(str(b) for b in UNHELD_BUCKETS), *(cause_name(Bucket.IDLE, cause) for cause in CAUSES[Bucket.IDLE])]

#: Spans in spans, as paths of their ids; each id has one place.
PATHS = [("a",), ("a", "b"), ("a", "c"), ("a", "c", "d"), ("e",), ("f", "g"), ("f", "h")]


def free(**slots: int) -> list[int]:
    """Free slots by cause."""
    return [slots.get(cause, 0) for cause in SEEN]


def seen_of(*looks: tuple[str, int, dict[str, int]]) -> SpanShares:
    """The shares after looks: spans, seconds, and free slots by cause."""
    shares = SpanShares()
    for spans, seconds, slots in looks:
        shares.accrue(tuple((span,) for span in spans), free(**slots), seconds * SECOND, graphs=False)
    return shares


# -- the rule --------------------------------------------------------------------------------------


def test_spans_at_the_top_share_equally_and_so_do_the_spans_in_one_and_its_own_tasks():
    assert equal_shares([("a",)], 12) == {"a": 12}
    assert equal_shares([("a",), ("b",)], 12) == {"a": 6, "b": 6}
    assert equal_shares([("a", "x"), ("b",)], 12) == {"x": 6, "b": 6}
    assert equal_shares([("a",), ("a", "x"), ("a", "y"), ("b",)], 12) == {"a": 2, "x": 2, "y": 2, "b": 6}


@given(st.lists(st.sampled_from(PATHS), unique=True, min_size=1), st.integers(0, WHOLE))
def test_shares_add_up_and_each_top_span_has_its_undivided_share(paths, whole):
    shares = equal_shares(paths, whole)
    assert sum(shares.values()) == whole
    assert shares.keys() == {path[-1] for path in paths}
    tops = [*dict.fromkeys(path[0] for path in paths)]
    for top, ns in equal_shares([(top,) for top in tops], whole).items():
        assert sum(shares[path[-1]] for path in paths if path[0] == top) == ns


def test_idle_time_is_of_the_spans_with_work_outstanding_when_each_cause_was_seen():
    shares = seen_of(("a", 1, {"parallelism": 3}), ("ab", 2, {"parallelism": 2}))
    assert shares.divide(PARALLELISM, 70) == {"a": 50, "b": 20}  # 3 s and half of 4 s; half of 4 s
    shares = seen_of(("a", 1, {"parallelism": 1}), ("b", 1, {"scheduler": 1}))
    assert shares.divide(PARALLELISM, 10) == {"a": 10}
    assert shares.divide("idle/scheduler", 10) == {"b": 10}
    # Of what nobody saw, as all that was seen.
    assert shares.divide("idle/unknown", 10) == {"a": 5, "b": 5}


def test_round_trips_are_of_the_spans_with_work_before_the_report():
    shares = SpanShares()
    shares.report({}, {})
    shares.accrue((("a",),), free(parallelism=3), SECOND, graphs=False)
    shares.report({}, {})
    shares.accrue((("b",),), free(), SECOND, graphs=False)
    shares.report({}, {"idle/scheduler": 10, "idle/round-trips": 30})
    assert shares.divide("idle/round-trips", 30) == {"b": 30}
    assert shares.divide("idle/scheduler", 10) == {"b": 10}


def test_a_graph_that_is_taken_in_counts_as_one_span_until_its_spans_are_known():
    shares = SpanShares(lambda span: span == "mine")
    shares.accrue((("b",),), free(graph=2), 2 * SECOND, graphs=True)
    shares.taken_in([("outer", "mine"), ("other",)])
    assert shares.divide(cause_name(Bucket.IDLE, "graph"), 80) == {"b": 40, "mine": 20, "other": 20}
    assert shares.own_ns == 2 * SECOND
    shares.accrue((), free(graph=2), SECOND, graphs=True)
    assert shares.divide(cause_name(Bucket.IDLE, "graph"), 6)[NOBODY] == 2  # its graph never came


def test_own_time_is_the_wall_clock_while_any_own_span_had_work():
    shares = SpanShares(lambda span: span in ("a", "b"))
    shares.accrue((("a",), ("b",)), free(), 3, graphs=False)
    shares.accrue((("c",),), free(), 5, graphs=False)
    shares.accrue((("c",), ("b",)), free(), 7, graphs=True)
    assert shares.own_ns == 10


def test_reports_of_workers_are_divided_by_the_time_since_the_last_one():
    shares = SpanShares()
    shares.report({"waiting-on-data": 100}, {})
    shares.accrue((("a",),), free(), SECOND, graphs=False)
    shares.report({"waiting-on-data": 130}, {})
    shares.accrue((("a",), ("b",)), free(), SECOND, graphs=False)
    shares.report({"waiting-on-data": 150}, {})
    shares.report({"waiting-on-data": 160}, {})  # of the same time, later
    assert shares.divide("waiting-on-data", 60) == {"a": 45, "b": 15}
    # Nobody reported any of this: as the time.
    assert shares.divide("paused", 8) == {"a": 6, "b": 2}


def test_idle_slots_that_count_as_in_use_are_of_the_time_since_the_last_report():
    scheduler = cause_name(Bucket.IDLE, "scheduler")
    shares = SpanShares()
    shares.report({}, {scheduler: 1_000})
    shares.accrue((("a",),), free(), SECOND, graphs=False)
    shares.report({}, {scheduler: 1_000 + 6 * SECOND})  # nobody saw them
    shares.accrue((("b",),), free(scheduler=2), SECOND, graphs=False)
    shares.report({}, {scheduler: 1_000 + 7 * SECOND})  # half of what was seen is not reported yet
    assert shares.divide(scheduler, 8) == {"a": 6, "b": 2}
    shares.accrue((("b",),), free(), SECOND, graphs=False)
    shares.report({}, {scheduler: 1_000 + 8 * SECOND})
    assert shares.divide(scheduler, 8) == {"a": 6, "b": 2}


def test_free_time_without_work_and_of_spans_beyond_the_bound_is_of_no_span():
    assert SpanShares().divide("idle", 7) == {NOBODY: 7}
    assert seen_of(("", 1, {"parallelism": 1})).divide(PARALLELISM, 7) == {NOBODY: 7}
    shares = SpanShares()
    for i in range(MAX_SPANS + 5):
        shares.accrue(((f"span-{i}",),), free(parallelism=1), SECOND, graphs=False)
    parts = shares.divide(PARALLELISM, (MAX_SPANS + 5) * 10)
    assert len(parts) == MAX_SPANS + 1
    assert (parts["span-0"], parts[NOBODY]) == (10, 50)


seen = st.tuples(
    st.lists(st.sampled_from(PATHS), unique=True).map(tuple),
    st.lists(st.integers(0, 9), min_size=len(SEEN), max_size=len(SEEN)),
    nanoseconds,
    st.booleans(),
)


@given(
    st.lists(
        seen
        | st.lists(st.sampled_from(PATHS), unique=True, min_size=1)
        | st.dictionaries(st.sampled_from(DIVIDED), nanoseconds),
        max_size=12,
    ),
    st.sampled_from(DIVIDED),
    nanoseconds,
)
def test_free_time_is_always_divided_to_the_nanosecond(steps, name, ns):
    shares = SpanShares(lambda span: span == "a")
    known = set()
    elapsed = 0
    for step in steps:
        if isinstance(step, tuple):
            shares.accrue(step[0], step[1], step[2], graphs=step[3])
            known.update(path[-1] for path in step[0])
            elapsed += step[2]
        elif isinstance(step, list):
            shares.taken_in(step)
            known.update(path[-1] for path in step)
        else:
            shares.report(step, step)
    parts = shares.divide(name, ns)
    assert sum(parts.values()) == ns
    assert all(part > 0 for part in parts.values())
    assert parts.keys() <= known | {NOBODY}
    assert 0 <= shares.own_ns <= elapsed


# -- of the looks ----------------------------------------------------------------------------------


def test_the_weights_of_a_look_reach_the_open_windows():
    weights = IdleWeights(at=0)
    state = ClusterState({"w": WorkerSlots(2, 3)}, 2, queued=1, spans=(("a",), ("b",)))
    weights.accrue(state, at=SECOND)
    window = weights.shares["window"] = SpanShares()
    weights.accrue(state, at=2 * SECOND)
    assert window.divide(cause_name(Bucket.IDLE, "scheduler"), 10) == {"a": 5, "b": 5}
    weights.accrue(None, at=3 * SECOND)
    assert window.own_ns == 0
