from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.buckets import CAUSES, Bucket, cause_name
from dask_efficiency.accounts.cluster.idle import SEEN
from dask_efficiency.accounts.cluster.span_shares import NOBODY, SpanShares
from dask_efficiency.accounts.cluster.window_accounts import OwnPart, WindowAccounts, divide, parents, rolled_up
from tests.strategies import nanoseconds

SECOND = 1_000_000_000
IDLE_CAUSES = [cause_name(Bucket.IDLE, cause) for cause in CAUSES[Bucket.IDLE]]


def added(rows) -> dict[str, int]:
    """The sum of rows; what is 0 is left out."""
    total: dict[str, int] = {}
    for row in rows:
        for name, ns in row.items():
            total[name] = total.get(name, 0) + ns
    return {name: ns for name, ns in total.items() if ns}


def test_a_span_has_the_time_of_its_tasks_and_its_share_of_free_time():
    accounts = WindowAccounts(
        100,
        100,
        workers={"w": {"thread-cpu": 40, "idle": 50, "no-work": 10, "unmeasured": 3, "failed": 5}},
        spans={"a": {"thread-cpu": 30}, "b": {"thread-cpu": 10}},
        in_spans={"w": {"thread-cpu": 40}},
        worker_causes={"w": {"idle/parallelism": 30}},
    )
    shares = SpanShares()
    shares.accrue((("a",), ("b",)), [int(cause == "parallelism") for cause in SEEN], SECOND, graphs=False)
    spans, causes, own = divide(accounts, shares, lambda span: False)
    assert spans == {
        "a": {"thread-cpu": 30, "idle": 25},
        "b": {"thread-cpu": 10, "idle": 25},
        NOBODY: {"no-work": 10, "unmeasured": 3, "failed": 5},
    }
    assert causes == {"a": {"idle/parallelism": 15}, "b": {"idle/parallelism": 15}}
    assert own is None


@st.composite
def windows(draw) -> WindowAccounts:
    """Closed windows; their workers' buckets hold what tasks did and what nobody did, and their causes fit."""
    accounts = WindowAccounts(0, 0, own=OwnPart())
    for worker in "vwx"[: draw(st.integers(1, 3))]:
        row = draw(st.dictionaries(st.sampled_from([*map(str, Bucket)]), nanoseconds))
        for span in "abc":
            held = draw(st.dictionaries(st.sampled_from(["thread-cpu", "spill", "running"]), nanoseconds))
            rows = [accounts.spans.setdefault(span, {}), accounts.in_spans.setdefault(worker, {}), row]
            if span == "a":
                rows.append(accounts.own.workers.setdefault(worker, {}))
            for name, ns in held.items():
                for each in rows:
                    each[name] = each.get(name, 0) + ns
        accounts.workers[worker] = row
        accounts.worker_causes[worker] = draw(st.dictionaries(st.sampled_from(IDLE_CAUSES), nanoseconds))
    return accounts


@given(windows(), st.lists(st.tuples(st.sets(st.sampled_from("abcd")), nanoseconds), max_size=4))
def test_spans_and_the_rest_add_up_to_the_workers_and_own_parts_to_the_own_spans(accounts, seen):
    shares = SpanShares()
    for spans, ns in seen:
        shares.accrue(tuple((span,) for span in sorted(spans)), [1] * len(SEEN), ns, graphs=False)
    by_span, causes, own = divide(accounts, shares, lambda span: span in "ad" and span != "")
    assert added(by_span.values()) == added(accounts.workers.values())
    assert added(own.workers.values()) == added(row for span, row in by_span.items() if span in ("a", "d"))
    for worker, row in own.workers.items():
        assert all(0 <= ns <= accounts.workers[worker][name] for name, ns in row.items())
    for span, row in causes.items():
        assert sum(row.values()) <= by_span[span].get("idle", 0)
    assert not accounts.own.worker_causes  # what was given is as it was


# -- the tree --------------------------------------------------------------------------------------


def test_a_span_has_the_time_of_the_spans_in_it():
    assert parents("a/b/c") == ["a/b", "a"]
    paths = {"1": "a", "2": "a/b/c", "3": "d", "4": "a/b/c"}
    rows = rolled_up({"1": {"idle": 1}, "2": {"idle": 1, "spill": 4}, "3": {}, "4": {"idle": 1}}, paths)
    assert rows == {
        "a": {"idle": 3, "spill": 4},
        "a/b": {"idle": 2, "spill": 4},
        "a/b/c": {"idle": 2, "spill": 4},
        "d": {},
    }


@given(
    st.dictionaries(
        st.text("ab/", max_size=5), st.dictionaries(st.sampled_from(["idle", "spill"]), nanoseconds), max_size=6
    )
)
def test_the_spans_at_the_top_add_up_to_all_whatever_their_names(rows):
    found = rolled_up(rows, {path: path for path in rows})
    assert added(row for path, row in found.items() if "/" not in path) == added(rows.values())
    for path, row in found.items():
        below = [other for other in found if other.rpartition("/")[0] == path and "/" in other]
        assert added([row]) == added([rows.get(path, {}), *(found[other] for other in below)])
