from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.checks import RefusedPayload
from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.trace.batch import BLOCKED, RUN, TRANSFER, decode, encode
from dask_efficiency.runs.trace.schema import BLOCKED_BY
from tests.strategies import plain_data

numbers = st.integers(-(2**63), 2**63 - 1)


def rows(columns: tuple[str, ...]) -> st.SearchStrategy:
    return st.lists(st.lists(numbers, min_size=len(columns), max_size=len(columns)), max_size=5)


def message(**changes: object) -> dict:
    about = {"recording": "r", "worker": "tcp://a", "seq": 1, "wall": 5}
    moved = {"transfers": [[0, 8, 1, 2, 3, 1]], "keys": ["x"], "senders": ["b"]}
    return {**encode(**about, runs=[[1] * len(RUN)], **moved), **changes}


@given(rows(RUN), rows(BLOCKED[:-1]), st.integers(MISSING, len(BLOCKED_BY) - 1), st.integers(0, 2**62))
def test_rows_are_decoded_as_they_were_encoded(runs, blocked, cause, wall):
    blocked = [[*row, cause] for row in blocked]
    batch = decode(encode(recording="r", worker="tcp://a", seq=3, wall=wall, runs=runs, blocked=blocked))
    assert (batch.recording, batch.worker, batch.seq, batch.wall) == ("r", "tcp://a", 3, wall)
    assert batch.runs.tolist() == runs
    assert batch.blocked.tolist() == blocked
    assert batch.transfers.shape == (0, len(TRANSFER))
    batch = decode(message(keys=[("x", 1)]))
    assert (batch.keys, batch.senders) == ((("x", 1),), ("b",))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"schema": 2}, "schema 2; expected 1"),
        ({"runs": b"1234567"}, "runs is 7"),
        ({"runs": [1, 2]}, "runs is list"),
        ({"blocked": None}, "blocked is NoneType"),
        ({"blocked": array("q", [1, 2, 0, len(BLOCKED_BY)]).tobytes()}, "causes are 6 to 6; expected -1 to 5"),
        ({"blocked": array("q", [1, 2, 0, -2]).tobytes()}, "causes are -2"),
        ({"keys": []}, "one for each of 1 transfers"),
        ({"keys": "x"}, "one for each"),
        ({"senders": []}, "senders are 0 to 0; expected -1 to -1"),
        ({"senders": "b"}, "senders is 'b'; expected a list"),
        ({"senders": [3]}, "senders is 3"),
        ({"seq": "one"}, "seq is 'one'"),
        ({"worker": None}, "worker is None"),
        ({"wall": None}, "wall is None"),
    ],
)
def test_a_batch_that_does_not_fit_together_is_refused_with_the_reason(changes, named):
    with pytest.raises(RefusedPayload, match=named):
        decode(message(**changes))


@given(plain_data)
def test_a_message_that_is_no_batch_is_refused_in_the_same_way(value):
    with pytest.raises(RefusedPayload):
        decode(value)
    with pytest.raises(RefusedPayload):
        decode(message(runs=value, schema=value))
