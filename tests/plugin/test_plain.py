"""Plain messages: what is read of an answer, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import Any

import msgpack
import numpy as np
import pytest
from distributed import protocol
from distributed.comm import CommClosedError, utils
from distributed.core import Server, error_message, rpc
from distributed.protocol import Serialize, ToPickle
from distributed.protocol.serialize import _nested_deserialize
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.checks import RefusedPayload
from dask_efficiency.plugin import plain
from dask_efficiency.plugin.plain import NotPlainError, answer, carried, taken
from tests.damage import damaged_bytes

ADDRESS = "tcp://127.0.0.1:1"


def read(message: Any, *, frames: list[Any] | None = None) -> Any:
    """A message, or frames of one, as the answer to a question is read."""

    async def call() -> Any:
        return await utils.from_frames(protocol.dumps(message) if frames is None else frames)

    return asyncio.run(answer(call, ADDRESS))


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner),
)


@given(PLAIN)
def test_plain_data_is_read_as_dask_reads_it(message: Any) -> None:
    assert read(message) == message == taken(message)


class Colour(Enum):
    RED = 1


@pytest.mark.parametrize("found", [Colour.RED, {1, 2}, Serialize(1), Serialize(b"x"), ToPickle(1), Serialize([1, 2])])
def test_an_object_is_refused_with_the_address_that_sent_it(found: Any) -> None:
    for message in (found, {"x": [found]}):
        with pytest.raises(NotPlainError, match=f"{ADDRESS} sent an object .* in place of plain data; it was not read"):
            read(message)
    with pytest.raises(RefusedPayload, match="expected plain data"):
        taken({"x": [found]})


ARRAYS = [
    np.arange(5),
    np.array([[0.5, np.nan]], np.float32),
    np.zeros((3, 0, 2), np.uint8),
    np.array([True, False]),
    np.array([], np.int64),
    np.arange(24).reshape(2, 3, 4)[:, ::2],
    np.arange(3 * 2**20, dtype=np.int64),  # of several frames
]


def in_a_process(message: Any) -> Any:
    return _nested_deserialize(message)


def of_a_question(message: Any) -> Any:
    """As a worker's listener reads it."""
    return taken(protocol.loads(protocol.dumps(message)))


def of_a_question_to_a_scheduler(message: Any) -> Any:
    return taken(protocol.loads(protocol.dumps(message), deserialize=False))


@pytest.mark.parametrize("travel", [read, in_a_process, of_a_question, of_a_question_to_a_scheduler])
@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}{array.shape}")
def test_an_array_arrives_as_it_was_sent(array: Any, travel: Callable[[Any], Any]) -> None:
    found = travel({"columns": {"x": carried(array)}})["columns"]["x"]
    np.testing.assert_array_equal(found, array)
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert found.flags.aligned


@pytest.mark.parametrize("array", [np.array(["x"]), np.array([None]), np.zeros(1, "i4,f8"), np.zeros((1,) * 5)])
def test_only_numbers_are_carried(array: Any) -> None:
    with pytest.raises(TypeError, match="expected numbers"):
        carried(array)


def test_an_array_of_objects_is_no_plain_data() -> None:
    with pytest.raises(RefusedPayload, match="a question holds a ndarray; expected plain data"):
        taken({"x": np.array([None])})


@pytest.mark.parametrize(
    "header",
    [
        {"dtype": "|O"},
        {"dtype": ["i4"]},
        {"dtype": "V8"},
        {"shape": (3,)},
        {"shape": (-1, -2)},
        {"shape": (2.0,)},
        {"shape": "2"},
        {"shape": (2, 1, 1, 1, 1)},
        {"shape": (0, 2**62, 2**62)},
        {"serializer": "pickle"},
        {"serializer": ["x"]},
        {"compression": ("lz4",)},
        {"num-sub-frames": 2**40},
        {"num-sub-frames": -1},
    ],
    ids=str,
)
def test_a_wrong_header_is_refused(header: dict[str, Any]) -> None:
    right = {"serializer": plain.FAMILY, "dtype": "<i8", "shape": (2,), "num-sub-frames": 1}
    message, data = msgpack.dumps({"__Serialized__": 1}), b"x" * 16
    read(None, frames=[message, msgpack.dumps(right), data])
    with pytest.raises(NotPlainError):
        read(None, frames=[message, msgpack.dumps({**right, **header}), data])


def test_each_frame_is_read_once() -> None:
    sent = {"serializer": plain.FAMILY, "dtype": "<i8", "shape": (2,), "num-sub-frames": 1}
    message = msgpack.dumps([{"__Serialized__": 1}] * 2)
    with pytest.raises(NotPlainError):
        read(None, frames=[message, msgpack.dumps(sent), b"x" * 16])


@given(st.data())
def test_a_damaged_message_is_refused_or_read(data: st.DataObject) -> None:
    frames = protocol.dumps({"x": carried(np.arange(4)), "y": [1, "z", {"w": None}], "status": "OK"})
    at = data.draw(st.integers(0, len(frames) - 1))
    frames[at] = data.draw(damaged_bytes(bytes(frames[at])))
    with suppress(NotPlainError):
        read(None, frames=frames)


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (ValueError('it\'s "x"\nno'), ValueError, 'it\'s "x"\nno'),
        (ModuleNotFoundError("No module named 'x'"), ImportError, "No module named 'x'"),
        (RuntimeError(r"a\nb"), RuntimeError, r"a\nb"),
        (KeyError("x"), RuntimeError, "KeyError: x"),
        (OSError(2, "no"), RuntimeError, "FileNotFoundError(2, 'no')"),
        (ValueError("x" * 5_000), ValueError, "x" * (plain.MAX_ERROR_LENGTH - len("ValueError('"))),
    ],
)
def test_an_error_of_the_other_side_is_a_text(error: Exception, kind: type[Exception], text: str) -> None:
    async def check() -> None:
        async def fail() -> None:
            raise error

        async with Server({"fail": fail}) as server:
            await server.listen("tcp://127.0.0.1:0")
            async with rpc(server.address) as asked:
                with pytest.raises(kind) as raised:
                    await answer(asked.fail, server.address)
        assert type(raised.value) is kind
        assert str(raised.value) == text

    asyncio.run(check())


def test_an_error_is_printable_and_bounded() -> None:
    message: Any = {**error_message(RuntimeError("x"), status="error"), "exception_text": "\x1b[2J" + "x" * 10_000}
    found = read(message)
    assert found == {"status": "error", "exception": found["exception_text"], "traceback": None} | {
        "exception_text": found["exception_text"]
    }
    assert found["exception_text"].startswith("\\x1b[2J")
    assert len(found["exception_text"]) < plain.MAX_ERROR_LENGTH + 10
    for wrong in (None, b"x", 1):
        assert read({**message, "exception_text": wrong})["exception_text"] == "an error without a text"


def test_an_answer_that_was_not_decoded_here_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def call() -> dict[str, Any]:
        return {}

    with pytest.raises(NotPlainError, match="does not know how to read"):
        asyncio.run(answer(call, ADDRESS))
    assert asyncio.run(answer(call, "inproc://1/2/3")) == {}
    monkeypatch.setattr(plain, "_in_place", False)
    with pytest.raises(NotPlainError, match="this version of distributed"):
        asyncio.run(answer(call, "inproc://1/2/3"))


def test_a_large_answer_that_is_decoded_after_its_question_timed_out_is_not_unpickled(monkeypatch) -> None:
    monkeypatch.setattr(utils, "OFFLOAD_THRESHOLD", 1)
    frames = protocol.dumps(ToPickle(object()))

    async def check() -> Any:
        late: list[asyncio.Future[Any]] = []

        async def call() -> None:
            late.append(asyncio.ensure_future(utils.from_frames(frames)))  # as on Dask's thread
            raise TimeoutError

        with pytest.raises(TimeoutError):
            await answer(call, ADDRESS)
        return await late[0]

    with pytest.raises(NotPlainError):
        asyncio.run(check())


def test_what_others_ask_is_read_as_ever() -> None:
    message = {"x": Serialize({1, 2}), "y": ToPickle(Colour.RED)}
    assert protocol.loads(protocol.dumps(message)) == {"x": {1, 2}, "y": Colour.RED}


def test_the_serializer_that_upstreams_run_is_asked_for_is_plain() -> None:
    frames = protocol.dumps({"status": "OK", "result": Serialize(3)}, serializers=("msgpack",))
    assert read(None, frames=frames) == {"status": "OK", "result": 3}


@pytest.mark.parametrize(
    ("asked", "question"), [({"action": "snapshot"}, " when it was asked for 'snapshot'"), ({}, " before it answered")]
)
def test_a_connection_that_is_closed_is_named_with_the_question(asked: dict[str, Any], question: str) -> None:
    async def closed(**_: Any) -> None:
        raise CommClosedError("Stream is closed")

    with pytest.raises(plain.BrokenOffError) as raised:
        asyncio.run(answer(closed, "tcp://host:8786", **asked))
    assert str(raised.value) == f"tcp://host:8786 closed the connection{question}"
