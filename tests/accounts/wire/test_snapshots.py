from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.checks import MAX_NAME_LENGTH, MAX_NANOSECONDS, RefusedPayload
from dask_efficiency.accounts.wire.snapshots import decode_window, encode_window
from dask_efficiency.accounts.worker.balance import WindowBalance
from tests.payloads import ledger_with_everything, through_msgpack
from tests.strategies import plain_data, window_balances


def window_payload(**changes: Any) -> dict[str, Any]:
    window = ledger_with_everything().close_window("w", at=600)
    assert window is not None
    return {**encode_window(window), **changes}


@given(window_balances())
def test_a_window_survives_the_wire(window):
    assert decode_window(encode_window(window)) == window
    assert decode_window(through_msgpack(encode_window(window))) == window


def test_a_window_of_a_real_ledger_survives_the_wire():
    window = ledger_with_everything().close_window("w", at=600)
    assert window is not None
    assert decode_window(through_msgpack(window_payload())) == window


NO_NUMBERS = [None, "1", -1, 1.0, float("nan"), float("inf"), True, 1 << 63, MAX_NANOSECONDS + 1, [], {}]


@pytest.mark.parametrize("value", NO_NUMBERS, ids=repr)
def test_a_number_out_of_order_in_a_row_is_refused(value):
    with pytest.raises(RefusedPayload, match="^rows is "):
        decode_window(window_payload(rows=[["span", "inc", [0, 0, 0, 0, 0, 0, 0, 0, 0, value]]]))


@pytest.mark.parametrize("value", [None, 0, 3, "1", 1.0, True, [1]], ids=repr)
def test_another_schema_is_refused(value):
    with pytest.raises(RefusedPayload, match="^schema is .*; expected 5"):
        decode_window(window_payload(schema=value))


@pytest.mark.parametrize("field", [field for field in window_payload() if field != "schema"])
def test_a_missing_field_of_a_window_is_refused_by_name(field):
    broken = window_payload()
    del broken[field]
    with pytest.raises(RefusedPayload, match=f"^{field} is None"):
        decode_window(broken)


@pytest.mark.parametrize("value", [None, [], "x", 3, b"", object()])
def test_a_payload_that_is_no_mapping_is_refused(value):
    with pytest.raises(RefusedPayload, match="^window is .*; expected a mapping"):
        decode_window(value)


@pytest.mark.parametrize("value", [None, 1, b"a", "a" * (MAX_NAME_LENGTH + 1)], ids=lambda v: repr(v)[:20])
def test_a_name_out_of_order_is_refused_by_its_field(value):
    with pytest.raises(RefusedPayload, match="^span is "):
        decode_window(window_payload(rows=[[value, "inc", [0] * 10]]))
    with pytest.raises(RefusedPayload, match="^prefix is "):
        decode_window(window_payload(rows=[["span", value, [0] * 10]]))


@pytest.mark.parametrize("bucket", ["running", "no-work", "lost-worker", "unmeasured", "coffee"])
def test_a_bucket_or_an_outcome_that_no_worker_has_is_refused(bucket):
    with pytest.raises(RefusedPayload, match=f"^free has .*{bucket}.*; expected only"):
        decode_window(window_payload(free={bucket: 1}))
    with pytest.raises(RefusedPayload, match=f"^tasks has .*{bucket}"):
        decode_window(window_payload(tasks={bucket: 1}))


@pytest.mark.parametrize("off_by", [-1, 1])
def test_a_window_that_is_off_by_one_is_refused(off_by):
    for field in ("elapsed", "nthreads"):
        with pytest.raises(RefusedPayload, match="^the window holds .* expected nthreads x elapsed = "):
            decode_window(window_payload(**{field: window_payload()[field] + off_by}))
    rows = window_payload()["rows"]
    rows[-1][2][-1] += off_by
    with pytest.raises(RefusedPayload, match="^the window holds "):
        decode_window(window_payload(rows=rows))


@pytest.mark.parametrize("rows", [["abc"], [["span", "inc"]], [None], [["span", "inc", [0] * 9]], {}, "rows"], ids=repr)
def test_rows_of_a_window_out_of_shape_are_refused(rows):
    with pytest.raises(RefusedPayload, match="row"):
        decode_window(window_payload(rows=rows))


@given(plain_data)
def test_no_object_makes_decoding_raise_anything_else(garbage):
    for each in (garbage, through_msgpack(garbage)):
        with pytest.raises(RefusedPayload):
            decode_window(each)


@given(st.sampled_from(sorted(window_payload())), plain_data)
def test_garbage_in_a_field_of_a_window_is_read_or_refused(field, garbage):
    try:
        assert isinstance(decode_window(window_payload(**{field: garbage})), WindowBalance)
    except RefusedPayload as refusal:
        assert field.rstrip("s") in str(refusal) or str(refusal).startswith("the window holds")
