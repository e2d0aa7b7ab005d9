import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.buckets import Breakdown
from dask_efficiency.accounts.checks import RefusedPayload
from dask_efficiency.accounts.facts import (
    DIMENSIONS,
    Facts,
    FactsBuilder,
    add_extras,
    check_views,
    decode_facts,
    encode_facts,
    facts_from_lists,
    facts_to_lists,
    parents,
    rolled_up,
)
from tests.payloads import through_msgpack
from tests.strategies import names, nanoseconds

_rows = st.lists(
    st.tuples(st.integers(-(1 << 70), 1 << 70), st.fixed_dictionaries({}, optional=dict.fromkeys(DIMENSIONS, names))),
    max_size=20,
)


def built(rows) -> Facts:
    builder = FactsBuilder()
    for value, columns in rows:
        builder.add(value, **columns)
    return builder.build()


@given(_rows, st.lists(st.sampled_from(DIMENSIONS), min_size=1, max_size=4, unique=True))
def test_sums_are_those_of_the_rows_however_large(rows, by):
    expected: dict[tuple[str, ...], int] = {}
    for value, columns in rows:
        key = tuple(columns.get(column, "") for column in by)
        expected[key] = expected.get(key, 0) + value
    found = built(rows).sums(*by)
    assert [*found.items()] == [*expected.items()]  # in the order in which they came


@given(_rows, st.lists(st.sampled_from(DIMENSIONS), min_size=1, max_size=4, unique=True))
def test_merged_rows_have_the_same_sums_and_no_other_names(rows, by):
    facts = built(rows)
    merged, sums = facts.merged(*by), facts.sums(*by)
    assert [*merged.sums(*by).items()] == [*sums.items()]
    assert {*merged.names} == {"", *(name for names in sums for name in names)}
    assert not any(getattr(merged.rows, column).any() for column in {*DIMENSIONS} - {*by})
    if all(abs(value) < 1 << 60 for value in sums.values()):
        assert len(merged) == len(sums)


@given(_rows)
def test_facts_survive_the_wire_and_files(rows):
    facts = built(rows)
    assert decode_facts(through_msgpack(encode_facts(facts))) == facts
    assert facts_from_lists(facts_to_lists(facts)) == facts


@pytest.mark.parametrize(("names", "nbytes"), [(256, 1), (257, 2), (65_536, 2), (65_537, 4)])
def test_positions_in_few_names_are_short_on_the_wire(names, nbytes):
    builder = FactsBuilder()
    for i in range(names - 2):
        builder.add(i, worker=f"w{i}", bucket="idle")
    facts = builder.build()
    sent = encode_facts(facts)
    assert (len(facts.names), len(sent["worker"])) == (names, nbytes * len(facts))
    assert decode_facts(through_msgpack(sent)) == facts


@given(_rows, _rows)
def test_tables_are_joined_whatever_their_names(one, other):
    builder = FactsBuilder()
    builder.append(built(one))
    builder.append(built(other), worker="w")
    moved = [(value, {**columns, "worker": "w"}) for value, columns in other]
    assert builder.build().sums(*DIMENSIONS) == built([*one, *moved]).sums(*DIMENSIONS)


def test_what_is_known_of_a_prefix_alone_is_in_no_worker_s_way():
    facts = Facts.of_views({"v": {"idle": 3, "thread-noncpu": 5}, "w": {}}, {"sum": {"thread-noncpu": 4}})
    assert facts.by_worker == {"v": Breakdown({"idle": 3, "thread-noncpu": 5}), "w": Breakdown()}
    assert facts.by_prefix == {"sum": Breakdown({"thread-noncpu": 4})}
    assert (facts.by_span, facts.causes_by_worker, facts.causes_by_prefix) == ({}, {}, {})
    assert facts.whole == Breakdown({"idle": 3, "thread-noncpu": 5})


def test_causes_add_up_to_their_bucket_where_somebody_looked():
    builder = FactsBuilder()
    builder.add_workers(
        {"v": {"thread-noncpu": 5, "idle": 3, "overhead": 2}, "w": {"thread-noncpu": 7}},
        {"v": {"thread-noncpu/gil": 4, "idle/graph": 9}},
    )
    builder.move(4, {"worker": "v", "bucket": "thread-noncpu", "cause": "gil"}, prefix="sum")
    builder.move(2, {"worker": "w", "bucket": "thread-noncpu", "cause": "unknown"}, prefix="mul")
    facts = builder.build()
    assert facts.causes_by_worker == {
        "v": {"thread-noncpu/gil": 4, "thread-noncpu/unknown": 1, "idle/graph": 3},
        "w": {"thread-noncpu/unknown": 7},
    }
    assert facts.causes_by_prefix == {"sum": {"thread-noncpu/gil": 4}, "mul": {"thread-noncpu/unknown": 2}}


def test_what_has_a_label_is_no_thread_time():
    builder = FactsBuilder()
    builder.add(3, worker="w", bucket="idle")
    add_extras(builder, {"outside": {"get-data": 5}, "amounts": {"made/bytes": 7, "made/count": 1}})
    facts = builder.build()
    assert facts.whole == Breakdown({"idle": 3})
    odd = FactsBuilder()
    add_extras(odd, {"outside": {"": 5}, "details": {"": 1}, "amounts": {"(other)": 5, "/bytes": 2, "": 3}})
    assert len(odd.build().labelled) == 5  # what a worker may call it is no thread time
    assert facts.labelled.sums("bucket", "label", "unit") == {
        ("outside", "get-data", "seconds"): 5,
        ("amounts", "made", "bytes"): 7,
        ("amounts", "made", "count"): 1,
    }


def test_a_frame_has_all_rows_with_their_names():
    pytest.importorskip("pandas")
    frame = Facts.of_views({"v": {"idle": 3}, "w": {"idle": 4}}, {"sum": {"idle": 2}}).to_frame()
    assert [*frame.columns] == [*DIMENSIONS, "value"]
    assert frame.groupby("prefix", observed=True)["value"].sum().to_dict() == {"": 5, "sum": 2}
    assert frame.groupby("worker", observed=True)["value"].sum().to_dict() == {"v": 3, "w": 4, "": 0}


_ONE = {"names": ["", "w"], **{name: [1] for name in DIMENSIONS}, "value": [5]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"names": ["w"]}, "expected an empty name first"),
        ({"names": ["", "w", "w"]}, "and each once"),
        ({"names": ["", 3]}, "facts.names has 3; expected strings"),
        ({"names": None}, "facts.names is None; expected a list"),
        ({"worker": [2]}, r"facts.worker holds 2; expected 0 to 1"),
        ({"span": [-1]}, r"facts.span holds -1; expected 0 to 1"),
        ({"cause": [1.0]}, r"facts.cause holds 1.0; expected whole numbers"),
        ({"cause": [True]}, r"facts.cause holds True; expected whole numbers"),
        ({"cause": []}, "expected equal numbers"),
        ({"value": [1 << 63]}, "facts.value holds 9223372036854775808; expected whole"),
        ({"value": [(1 << 62) + 1]}, "facts.value holds 4611686018427387905; expected -"),
        ({"value": "5"}, "facts.value is '5'; expected a list"),
        ({"unit": None}, "facts.unit is None"),
    ],
    ids=repr,
)
def test_a_table_out_of_order_is_refused_by_its_column(change, message):
    assert len(facts_from_lists(_ONE)) == 1
    with pytest.raises(RefusedPayload, match=message):
        facts_from_lists(_ONE | change)


@pytest.mark.parametrize("value", [None, [1], "1", b"123"])
def test_a_column_that_is_no_bytes_is_refused(value):
    sent = encode_facts(facts_from_lists(_ONE))
    with pytest.raises(RefusedPayload, match=r"facts.value is .*expected the bytes of <i8 numbers"):
        decode_facts({**sent, "value": value})
    with pytest.raises(RefusedPayload, match="at most 0"):
        decode_facts(sent, max_rows=0)


def test_time_below_zero_or_of_unknown_causes_is_refused():
    for columns, message in (({"bucket": "coffee"}, "coffee"), ({"bucket": "idle", "cause": "gil"}, "idle/gil")):
        with pytest.raises(RefusedPayload, match=message):
            check_views(built([(1, columns)]))
    idle = {"bucket": "idle"}
    with pytest.raises(RefusedPayload, match="-1 ns of 'idle'; expected 0"):
        check_views(built([(3, {**idle, "worker": "w"}), (-4, {**idle, "worker": "w"})]))
    less = built([(-4, {**idle, "worker": "w"}), (5, idle)])
    with pytest.raises(RefusedPayload, match="-4 ns of .*'w', 'idle'.* by worker and bucket"):
        check_views(less)
    waits = {"worker": "w", "bucket": "thread-noncpu"}
    of_v = {"worker": "v", "bucket": "thread-noncpu"}
    with pytest.raises(RefusedPayload, match="cause below 0 in .*'thread-noncpu/gil': -4"):
        check_views(built([(9, waits), (-4, {**waits, "cause": "gil"}), (4, {**of_v, "cause": "gil"})]))
    # Of the overhead, causes are known by worker: they take from rows of no prefix and no span what is in others.
    overhead = {"worker": "w", "bucket": "overhead"}
    moved = [(3, {**overhead, "cause": "hand-over", "span": "(no span)"}), (-3, {**overhead, "span": "(no span)"})]
    check_views(built([(5, {**overhead, "span": "a", "prefix": "inc"}), *moved]))


# -- the tree of spans -----------------------------------------------------------------------------


def added(rows) -> dict[str, int]:
    """The sum of rows; what is 0 is left out."""
    total: dict[str, int] = {}
    for row in rows:
        for name, ns in row.items():
            total[name] = total.get(name, 0) + ns
    return {name: ns for name, ns in total.items() if ns}


def test_a_span_has_the_time_of_the_spans_in_it():
    assert parents("a/b/c") == ["a/b", "a"]
    assert rolled_up({"a": {"idle": 1}, "a/b/c": {"idle": 2, "spill": 4}, "d": {}}) == {
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
    found = rolled_up(rows)
    assert added(row for path, row in found.items() if "/" not in path) == added(rows.values())
    for path, row in found.items():
        below = [other for other in found if other.rpartition("/")[0] == path and "/" in other]
        assert added([row]) == added([rows.get(path, {}), *(found[other] for other in below)])


def test_a_table_of_a_million_rows_is_summed_exactly():
    rows = np.full(1 << 20, (1 << 62) - 1, np.int64)
    one = built([(1, {"worker": "w", "bucket": "idle"})])
    facts = Facts(one.names, type(one.rows).from_columns({"worker": np.full(1 << 20, 1), "value": rows}))
    assert facts.sums("worker") == {("w",): ((1 << 62) - 1) << 20}
