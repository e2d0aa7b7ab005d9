from typing import Any

import pytest
from hypothesis import given

from dask_efficiency.accounts.checks import MAX_NAME_LENGTH, MAX_NANOSECONDS, RefusedPayload
from dask_efficiency.accounts.wire.snapshots import decode_window, encode_window
from tests.payloads import ledger_with_everything, through_msgpack
from tests.strategies import window_balances


def window_payload(**changes: Any) -> dict[str, Any]:
    window = ledger_with_everything().close_window("w", at=600)
    assert window is not None
    return {**encode_window(window), **changes}


@given(window_balances())
def test_a_window_survives_the_wire(window):
    for each in (window, ledger_with_everything().close_window("w", at=600)):
        assert decode_window(encode_window(each)) == each
        assert decode_window(through_msgpack(encode_window(each))) == each


NO_NUMBERS = [None, "1", -1, 1.0, float("nan"), float("inf"), True, 1 << 63, MAX_NANOSECONDS + 1, [], {}]
NO_NAMES = [None, 1, b"a", "a" * (MAX_NAME_LENGTH + 1)]
NOT_OF_A_WORKER = ["running", "no-work", "lost-worker", "unmeasured", "coffee"]


def row(*, span: Any = "span", prefix: Any = "inc", last: Any = 0) -> list[Any]:
    return [span, prefix, [*[0] * 9, last]]


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        *((value, "^window is .*; expected a mapping") for value in (None, [], "x", 3, b"", frozenset())),
        *((window_payload(schema=value), "^schema is .*; expected 5") for value in (None, 0, 3, "1", 1.0, True, [1])),
        *(
            ({name: value for name, value in window_payload().items() if name != field}, f"^{field} is None")
            for field in [*window_payload()][1:]
        ),
        *((window_payload(rows=[row(last=value)]), "^rows is ") for value in NO_NUMBERS),
        *((window_payload(rows=[row(span=value)]), "^span is ") for value in NO_NAMES),
        *((window_payload(rows=[row(prefix=value)]), "^prefix is ") for value in NO_NAMES),
        *(
            (window_payload(rows=rows), "row")
            for rows in (["abc"], [["span", "inc"]], [None], [["span", "inc", [0] * 9]], {}, "rows")
        ),
        *((window_payload(free={bucket: 1}), f"^free has .*{bucket}.*; expected only") for bucket in NOT_OF_A_WORKER),
        *((window_payload(tasks={bucket: 1}), f"^tasks has .*{bucket}") for bucket in NOT_OF_A_WORKER),
    ],
    ids=lambda item: repr(item)[-40:],
)
def test_a_window_out_of_order_is_refused_by_the_field(broken, message):
    with pytest.raises(RefusedPayload, match=message):
        decode_window(broken)


@pytest.mark.parametrize("off_by", [-1, 1])
def test_a_window_that_is_off_by_one_is_refused(off_by):
    for field in ("elapsed", "nthreads"):
        with pytest.raises(RefusedPayload, match="^the window holds .* expected nthreads x elapsed = "):
            decode_window(window_payload(**{field: window_payload()[field] + off_by}))
    rows = window_payload()["rows"]
    rows[-1][2][-1] += off_by
    with pytest.raises(RefusedPayload, match="^the window holds "):
        decode_window(window_payload(rows=rows))
