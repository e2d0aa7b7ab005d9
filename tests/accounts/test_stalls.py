from __future__ import annotations

from typing import Any

import pytest

from dask_efficiency.accounts.checks import RefusedPayload
from dask_efficiency.accounts.lines import Frame
from dask_efficiency.accounts.stalls import NO_WORKERS, TASK, StalledWork, decode_stalls, encode_stalls
from tests.payloads import through_msgpack

LOAD = StalledWork(TASK, 1, "load", ("3",), 252.0, 2.0, "network", (Frame("recv", "/home/me/client.py", 88),))
STALLS = (LOAD, StalledWork(NO_WORKERS, 4, "step", seconds=31.0))


def test_stalls_arrive_as_they_were_sent() -> None:
    assert decode_stalls(through_msgpack(encode_stalls(STALLS))) == STALLS


def test_a_function_for_slow_workers_finds_no_worker_and_no_host() -> None:
    assert [(stall.worker, stall.host) for stall in STALLS] == [("", "")] * 2


@pytest.mark.parametrize(
    ("at", "value", "said"),
    [
        (0, 1, "kind is 1"),
        (1, -1, "tasks is -1"),
        (3, "w", "workers is 'w'"),
        (4, "long", "seconds is 'long'"),
        (7, [["f", "a.py", "x"]], "line is 'x'"),
    ],
)
def test_what_is_odd_is_refused(at: int, value: Any, said: str) -> None:
    (row,) = encode_stalls([LOAD])
    row[at] = value
    with pytest.raises(RefusedPayload, match=said):
        decode_stalls([row])
