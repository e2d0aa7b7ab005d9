from __future__ import annotations

import sys
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.buckets import Bucket
from dask_efficiency.checks import MAX_NAME_LENGTH, MAX_NAMES, MAX_NANOSECONDS, RefusedPayload
from dask_efficiency.ledger import TASK_BUCKETS, Availability, Ledger, Outcome, WindowBalance
from dask_efficiency.wire import (
    NotMeasured,
    Snapshot,
    decode,
    decode_window,
    encode,
    encode_not_measured,
    encode_window,
)
from tests.strategies import idle_payload, plain_data, snapshots, window_balances


def through_msgpack(payload: Any) -> Any:
    """As Dask sends it."""
    return msgpack.unpackb(msgpack.packb(payload, use_bin_type=True), strict_map_key=False, use_list=False)


def ledger_with_everything() -> Ledger:
    """Four slots: one held, one frozen task, tasks settled of two prefixes, a window open."""
    ledger = Ledger(4, at=0)
    ledger.open_window("w", at=10)
    for i, outcome in enumerate(Outcome):
        ledger.reserve(i, f"prefix-{i % 2}", "span", at=20 + 100 * i)
        hold = ledger.release(i, at=120 + 100 * i)
        assert hold is not None
        ledger.finalize(hold, outcome, cpu=40, gpu=10, wall=70, library=5, spill=20)
    ledger.spilled(1, start=425, stop=427)
    ledger.reserve("frozen", "inc", at=430)
    ledger.release("frozen", at=440)
    ledger.reserve("running", "inc", at=450)
    ledger.observe(Availability.RUNNING, 1, 1, at=460)
    return ledger


def payload(**changes: Any) -> dict[str, Any]:
    """A payload of a worker of two threads that did ten nanoseconds of everything."""
    return {
        **encode(Snapshot("a", 1, ledger_with_everything().balance(at=500), {"get-data": 3}, {"io": 4})),
        **changes,
    }


def window_payload(**changes: Any) -> dict[str, Any]:
    window = ledger_with_everything().close_window("w", at=500)
    assert window is not None
    return {**encode_window(window), **changes}


# -- what is in order ------------------------------------------------------------------------------


@given(snapshots())
def test_a_snapshot_survives_the_wire(snapshot):
    assert decode(encode(snapshot)) == snapshot
    assert decode(through_msgpack(encode(snapshot))) == snapshot


@given(window_balances())
def test_a_window_survives_the_wire(window):
    assert decode_window(encode_window(window)) == window
    assert decode_window(through_msgpack(encode_window(window))) == window


def test_a_real_ledger_survives_the_wire():
    ledger = ledger_with_everything()
    snapshot = Snapshot("a", 1, ledger.balance(at=500), {"get-data": 3}, {"io": 4}, final=True)
    assert decode(through_msgpack(encode(snapshot))) == snapshot
    window = ledger.close_window("w", at=500)
    assert window is not None
    assert decode_window(through_msgpack(encode_window(window))) == window


@given(st.text(st.characters(codec="utf-8"), max_size=3 * MAX_NAME_LENGTH))
def test_a_reason_survives_the_wire_cut_to_length(reason):
    assert decode(through_msgpack(encode_not_measured(reason))) == NotMeasured(reason[:MAX_NAME_LENGTH])


def test_an_encoded_snapshot_is_a_fresh_object_that_shares_nothing():
    snapshot = Snapshot("a", 1, ledger_with_everything().balance(at=500), {"get-data": 3}, {"io": 4})
    one, other = encode(snapshot), encode(snapshot)
    assert one == other
    for name, value in one.items():
        if isinstance(value, dict):
            assert value is not other[name]
            value.clear()
    assert encode(snapshot) == other


# -- what is not -----------------------------------------------------------------------------------

NO_NUMBERS = [None, "1", -1, 1.0, float("nan"), float("inf"), True, 1 << 63, MAX_NANOSECONDS + 1, [], {}]


@pytest.mark.parametrize("value", NO_NUMBERS, ids=repr)
@pytest.mark.parametrize("field", ["nthreads", "elapsed", "running", "seq"])
def test_a_number_out_of_order_is_refused_by_name(field, value):
    with pytest.raises(RefusedPayload, match=f"^{field} is "):
        decode(payload(**{field: value}))


@pytest.mark.parametrize("value", NO_NUMBERS, ids=repr)
@pytest.mark.parametrize("field", ["settled", "tasks", "active", "outside", "details"])
def test_a_number_out_of_order_is_refused_by_the_name_of_its_mapping(field, value):
    key = {"settled": "idle", "tasks": "failed", "active": "spill"}.get(field, "x")
    with pytest.raises(RefusedPayload, match=rf"^{field}\['{key}'\] is "):
        decode(payload(**{field: {key: value}}))


@pytest.mark.parametrize("value", NO_NUMBERS, ids=repr)
def test_a_number_out_of_order_in_a_row_is_refused(value):
    with pytest.raises(RefusedPayload, match="^prefixes is "):
        decode(payload(prefixes={"inc": [0, 0, 0, 0, value, 0, 0, 0, 0]}))
    with pytest.raises(RefusedPayload, match="^rows is "):
        decode_window(window_payload(rows=[["span", "inc", [0, 0, 0, 0, 0, 0, 0, 0, 0, value]]]))


@pytest.mark.parametrize("value", [None, 0, 1, "1", 1.0, True, [1]], ids=repr)
def test_another_schema_is_refused(value):
    for one, read in ((payload, decode), (window_payload, decode_window)):
        with pytest.raises(RefusedPayload, match="^schema is .*; expected 3"):
            read(one(schema=value))


@pytest.mark.parametrize("field", [field for field in payload() if field != "schema"])
def test_a_missing_field_is_refused_by_name(field):
    broken = payload()
    del broken[field]
    with pytest.raises(RefusedPayload, match=f"^{field} is None"):
        decode(broken)


@pytest.mark.parametrize("field", [field for field in window_payload() if field != "schema"])
def test_a_missing_field_of_a_window_is_refused_by_name(field):
    broken = window_payload()
    del broken[field]
    with pytest.raises(RefusedPayload, match=f"^{field} is None"):
        decode_window(broken)


@pytest.mark.parametrize("value", [None, [], "x", 3, float("nan")], ids=repr)
@pytest.mark.parametrize("field", ["settled", "prefixes", "tasks", "active", "outside", "details"])
def test_what_should_be_a_mapping_is_refused_by_name(field, value):
    with pytest.raises(RefusedPayload, match=f"^{field} is .*; expected a mapping"):
        decode(payload(**{field: value}))


@pytest.mark.parametrize("value", [None, [], "x", 3, b"", object()])
def test_a_payload_that_is_no_mapping_is_refused(value):
    with pytest.raises(RefusedPayload, match="^snapshot is .*; expected a mapping"):
        decode(value)
    with pytest.raises(RefusedPayload, match="^window is .*; expected a mapping"):
        decode_window(value)


@pytest.mark.parametrize("value", [None, 1, 0, "True"], ids=repr)
def test_a_last_word_that_is_neither_true_nor_false_is_refused(value):
    with pytest.raises(RefusedPayload, match="^final is "):
        decode(payload(final=value))


@pytest.mark.parametrize("value", [None, 1, b"a", "a" * (MAX_NAME_LENGTH + 1)], ids=lambda v: repr(v)[:20])
def test_a_name_out_of_order_is_refused_by_its_field(value):
    with pytest.raises(RefusedPayload, match="^incarnation is "):
        decode(payload(incarnation=value))
    with pytest.raises(RefusedPayload, match="^off is "):
        decode({"schema": 3, "off": value})
    with pytest.raises(RefusedPayload, match="^outside is "):
        decode(payload(outside={value: 1}))
    with pytest.raises(RefusedPayload, match="^prefixes is "):
        decode(payload(prefixes={value: [0] * 9}))
    with pytest.raises(RefusedPayload, match="^span is "):
        decode_window(window_payload(rows=[[value, "inc", [0] * 10]]))
    with pytest.raises(RefusedPayload, match="^prefix is "):
        decode_window(window_payload(rows=[["span", value, [0] * 10]]))


@pytest.mark.parametrize("bucket", ["running", "no-work", "lost-worker", "unmeasured", "coffee"])
def test_a_bucket_that_no_worker_books_is_refused(bucket):
    # The first four are booked by the scheduler alone.
    with pytest.raises(RefusedPayload, match=f"^settled has .*{bucket}.*; expected only"):
        decode(payload(settled={bucket: 1}))
    with pytest.raises(RefusedPayload, match=f"^free has .*{bucket}.*; expected only"):
        decode_window(window_payload(free={bucket: 1}))


def test_an_unknown_outcome_is_refused():
    for one, read in ((payload, decode), (window_payload, decode_window)):
        with pytest.raises(RefusedPayload, match="^tasks has .*exploded"):
            read(one(tasks={"exploded": 1}))


@pytest.mark.parametrize("off_by", [-1, 1])
@pytest.mark.parametrize("field", ["running", "elapsed", "nthreads"])
def test_accounts_that_are_off_by_one_are_refused(field, off_by):
    with pytest.raises(RefusedPayload, match="^the buckets hold .* expected nthreads x elapsed = "):
        decode(payload(**{field: payload()[field] + off_by}))


@pytest.mark.parametrize("off_by", [-1, 1])
@pytest.mark.parametrize("bucket", list(payload()["settled"]))
def test_a_bucket_that_is_off_by_one_is_refused(bucket, off_by):
    finalized = payload()["settled"]
    finalized[bucket] = max(0, finalized[bucket] + off_by)
    if finalized != payload()["settled"]:
        with pytest.raises(RefusedPayload, match="^the buckets hold "):
            decode(payload(settled=finalized))


@pytest.mark.parametrize("off_by", [-1, 1])
@pytest.mark.parametrize("bucket", [i for i in range(9) if TASK_BUCKETS[i] != "spill"])
def test_prefixes_that_do_not_add_up_to_the_buckets_are_refused(bucket, off_by):
    prefixes = payload()["prefixes"]
    row = next(row for row in prefixes.values() if row[bucket])
    row[bucket] += off_by
    with pytest.raises(RefusedPayload, match="^prefixes hold "):
        decode(payload(prefixes=prefixes))


def test_prefixes_hold_at_most_the_spilling_for_free_slots_wait_for_it_too():
    balance = ledger_with_everything().balance(at=500)
    i = TASK_BUCKETS.index("spill")
    of_free_slots = balance.finalized["spill"] - sum(row[i] for row in balance.prefixes.values())
    assert of_free_slots == 2
    prefixes = payload()["prefixes"]
    row = next(row for row in prefixes.values() if row[i])
    row[i] += of_free_slots
    assert isinstance(decode(payload(prefixes=prefixes)), Snapshot)
    row[i] += 1
    with pytest.raises(RefusedPayload, match="^prefixes hold "):
        decode(payload(prefixes=prefixes))


@pytest.mark.parametrize("off_by", [-1, 1])
def test_activities_that_do_not_add_up_to_the_time_held_are_refused(off_by):
    active = payload()["active"]
    active["overhead"] += off_by
    with pytest.raises(RefusedPayload, match="^active holds "):
        decode(payload(active=active))


@pytest.mark.parametrize("bucket", ["idle", "failed", "running"])
def test_an_activity_that_no_held_slot_has_is_refused(bucket):
    with pytest.raises(RefusedPayload, match=f"^active has .*{bucket}.*; expected only"):
        decode(payload(active={bucket: 1}))


@pytest.mark.parametrize("off_by", [-1, 1])
def test_a_window_that_is_off_by_one_is_refused(off_by):
    for field in ("elapsed", "nthreads"):
        with pytest.raises(RefusedPayload, match="^the window holds .* expected nthreads x elapsed = "):
            decode_window(window_payload(**{field: window_payload()[field] + off_by}))
    rows = window_payload()["rows"]
    rows[-1][2][-1] += off_by
    with pytest.raises(RefusedPayload, match="^the window holds "):
        decode_window(window_payload(rows=rows))


@pytest.mark.parametrize("length", [0, 8, 10])
def test_a_row_of_another_length_is_refused(length):
    with pytest.raises(RefusedPayload, match="^a row of prefixes is .*; expected 9 numbers"):
        decode(payload(prefixes={"inc": [0] * length}))


@pytest.mark.parametrize("rows", [["abc"], [["span", "inc"]], [None], [["span", "inc", [0] * 9]], {}, "rows"], ids=repr)
def test_rows_of_a_window_out_of_shape_are_refused(rows):
    with pytest.raises(RefusedPayload, match="row"):
        decode_window(window_payload(rows=rows))


@pytest.mark.parametrize("field", ["outside", "details", "prefixes"])
def test_too_many_names_are_refused(field):
    value: Any = [0] * 9 if field == "prefixes" else 0
    assert decode(payload_with_names(field, MAX_NAMES, value))
    with pytest.raises(RefusedPayload, match=f"^{field} has {MAX_NAMES + 1} entries; expected at most {MAX_NAMES}"):
        decode(payload_with_names(field, MAX_NAMES + 1, value))


def payload_with_names(field: str, number: int, value: Any) -> dict[str, Any]:
    return idle_payload(1, 5, **{field: {str(i): value for i in range(number)}})


def test_a_name_may_be_as_long_as_the_limit():
    assert decode(payload(outside={"a" * MAX_NAME_LENGTH: 1}))


def test_a_refusal_stays_short_whatever_it_refuses():
    longest = {"x" * 900 + str(i): 1 for i in range(MAX_NAMES)}
    for broken in (payload(settled=longest), payload(running="y" * 10**6), payload(running=[0] * 10**6)):
        with pytest.raises(RefusedPayload) as refusal:
            decode(broken)
        assert len(str(refusal.value)) < 1_000


def test_a_payload_nested_too_deeply_to_print_is_refused():
    nested: Any = []
    for _ in range(2 * sys.getrecursionlimit()):
        nested = [nested]
    for broken in (payload(running=nested), payload(schema=nested), payload(incarnation=nested)):
        with pytest.raises(RefusedPayload, match="too large to show"):
            decode(broken)


def test_a_number_of_too_many_digits_to_print_is_refused():
    with pytest.raises(RefusedPayload, match="too large to show"):
        decode(payload(running=1 << 100_000))


@given(plain_data)
def test_no_object_makes_decoding_raise_anything_else(garbage):
    for read in (decode, decode_window):
        with pytest.raises(RefusedPayload):
            read(garbage)
        with pytest.raises(RefusedPayload):
            read(through_msgpack(garbage))


@given(st.sampled_from(sorted(payload())), plain_data)
def test_garbage_in_a_field_is_read_or_refused(field, garbage):
    try:
        assert isinstance(decode(payload(**{field: garbage})), Snapshot)
    except RefusedPayload as refusal:
        assert field in str(refusal) or str(refusal).startswith("the buckets hold")


@given(st.sampled_from(sorted(window_payload())), plain_data)
def test_garbage_in_a_field_of_a_window_is_read_or_refused(field, garbage):
    try:
        assert isinstance(decode_window(window_payload(**{field: garbage})), WindowBalance)
    except RefusedPayload as refusal:
        assert field.rstrip("s") in str(refusal) or str(refusal).startswith("the window holds")


@given(snapshots(), st.data())
def test_a_changed_number_anywhere_in_the_accounts_is_noticed(snapshot, data):
    sent = encode(snapshot)
    places: list[tuple[Any, Any]] = [(sent, "running"), (sent, "elapsed")]
    places += [(sent["settled"], bucket) for bucket in sent["settled"]]
    places += [(sent["active"], bucket) for bucket in sent["active"]]
    # What a prefix spilled cannot be told from what free slots did, whose spilling is of no prefix.
    kept = [i for i, bucket in enumerate(TASK_BUCKETS) if bucket is not Bucket.SPILL]
    places += [(row, i) for row in sent["prefixes"].values() for i in kept]
    holder, key = data.draw(st.sampled_from(places))
    holder[key] += data.draw(st.integers(-(1 << 40), 1 << 40).filter(bool))
    with pytest.raises(RefusedPayload):
        decode(sent)
