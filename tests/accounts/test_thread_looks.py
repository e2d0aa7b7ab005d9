from __future__ import annotations

from typing import Any

import pytest

from dask_efficiency.accounts.checks import RefusedPayload
from dask_efficiency.accounts.lines import Frame
from dask_efficiency.accounts.thread_looks import LOOP, TASK, ThreadLook, decode_looks, encode_looks
from tests.payloads import through_msgpack

STACK = (Frame("load", "/home/me/job.py", 12), Frame("recv", "/home/me/client.py", 88))
LOOKS = [
    ThreadLook("0", TASK, "Dask-1", 7, "load", "load-1", 4_000_000_000, "network", False, STACK),
    ThreadLook("0", TASK, "Dask-2", 8, "load", "load-2", 3_000_000_000, "network", True, STACK),
    ThreadLook("", LOOP, "MainThread", 9, "", "", 0, "", False, ()),
]
CODE = {STACK[1]: "data = sock.recv(8)"}


def test_looks_arrive_as_they_were_sent_with_each_stack_and_frame_once() -> None:
    sent = through_msgpack(encode_looks(LOOKS, CODE))
    assert decode_looks(sent) == (LOOKS, CODE)
    assert (len(sent["stacks"]), len(sent["frames"])) == (2, 2)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("threads", [[1, 2]], "a row of threads is"),
        ("threads", [["", "robot", "", 1, "", "", 0, "", False, 0]], "kind of a thread is 'robot'"),
        ("threads", [["", TASK, "", -1, "", "", 0, "", False, 0]], "ident is -1"),
        ("threads", [["", TASK, "", 1, "", "", 0, "", False, 5]], "a number is 5; expected one of 2"),
        ("stacks", [[9]], "a number is 9; expected one of 2"),
        ("stacks", [9], "a row of stacks is 9"),
        ("frames", [["f", "a.py", "x"]], "line is 'x'"),
        ("code", [[0]], "a row of code is"),
        ("code", None, "code is None; expected a list"),
    ],
)
def test_what_is_odd_is_refused_with_its_field(field: str, value: Any, said: str) -> None:
    with pytest.raises(RefusedPayload, match=said.replace("[", r"\[")):
        decode_looks({**encode_looks(LOOKS, CODE), field: value})


def test_no_more_threads_are_read_than_are_expected() -> None:
    with pytest.raises(RefusedPayload, match="at most 2"):
        decode_looks(encode_looks(LOOKS, CODE), most=2)
