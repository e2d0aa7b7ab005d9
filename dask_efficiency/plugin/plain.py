"""Plain messages: questions and answers of ours, which are data on both sides and run no code.

Dask unpickles what it reads, so whoever answers a question can run code where it was asked; and an address may come
from a file, a registration or a habit. A question of ours goes through :func:`answer`, in whose context each message,
the first ones of a new connection too, is decoded here: by msgpack, and from the objects that Dask wraps only arrays of
numbers and msgpack's own. Errors are texts. Everything else is refused before it is looked at.

Dask decodes large messages on a thread, with the context of the question and possibly after it has timed out: so the
place in upstream is never left again. A comm within the process passes objects on and decodes nothing; who answers
there runs here already.

Questions are read by Dask's own listeners before a handler of ours sees them, and these do unpickle. So nothing that we
send needs pickle, and :func:`taken` refuses an argument that is not plain.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from math import prod
from typing import Any

import msgpack
import numpy as np
from distributed.comm import CommClosedError
from distributed.protocol import Serialized, register_serialization_family
from numpy.typing import NDArray

from dask_efficiency.accounts.checks import RefusedPayload
from dask_efficiency.plugin.patches import PLAIN, Replacements
from dask_efficiency.show.figures import harmless

#: Name under which arrays travel, as one of Dask's families of serializers.
FAMILY = "dask-efficiency-array"
#: Types of their elements, by numpy's name.
_TYPES = {
    np.dtype(f"{order}{kind}").str
    for order in "<>"
    for kind in ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8")
}
#: Most dimensions of an array.
_MAX_DIMENSIONS = 4
#: Bytes of a frame: Dask's own for websockets, which take no larger ones.
_FRAME_NBYTES = 8 * 2**20
#: Keys by which Dask marks an object in a message.
_MARKS = frozenset({"__Serialized__", "__Pickled__", "__Enum__", "__Set__"})
_MSGPACK: dict[str, Any] = {"use_list": False, "strict_map_key": False, "raw": False}
#: Characters of an error of the other side.
MAX_ERROR_LENGTH = 2_000
#: Errors of the other side whose kind somebody here distinguishes; others are a RuntimeError with their kind's name.
_KINDS: dict[str, type[Exception]] = {
    "ImportError": ImportError,
    "ModuleNotFoundError": ImportError,
    "RuntimeError": RuntimeError,
    "TypeError": TypeError,
    "ValueError": ValueError,
}


class NotPlainError(ValueError):
    """A message held something else than plain data, or cannot be read."""


class BrokenOffError(OSError):
    """The other side closed the connection, or is no part of Dask; names it and the question."""


@dataclass(slots=True)
class _Reading:
    """Messages that were decoded for a question."""

    messages: int = 0
    #: Error of the other side, in the last one.
    error: Exception | None = None


_reading: ContextVar[_Reading | None] = ContextVar("dask_efficiency_reading", default=None)


async def answer(call: Callable[..., Awaitable[Any]], address: str, /, **asked: Any) -> Any:
    """Answer to a question that upstream's ``call`` sends to an address.

    Raises NotPlainError if it is not plain, BrokenOffError if there is none, and an error of the other side as an
    ImportError, RuntimeError, TypeError or ValueError with its text.
    """
    if not _in_place:
        raise NotPlainError("this version of distributed reads messages in a way that dask_efficiency does not know")
    reading = _Reading()
    token = _reading.set(reading)
    try:
        found = await call(**asked)
    except NotPlainError as error:
        raise NotPlainError(f"{address} sent {error}") from None
    except CommClosedError as error:
        question = f" when it was asked for {asked['action']!r}" if "action" in asked else " before it answered"
        raise BrokenOffError(f"{address} closed the connection{question}") from error
    except MemoryError as error:
        # To Dask, the first bytes of any answer are the lengths of its parts.
        another = "speaks another protocol than Dask's, as a dashboard and other web servers do"
        raise BrokenOffError(f"{address} {another}") from error
    except Exception:
        if reading.error is not None:  # upstream makes an Exception of its text
            raise reading.error from None
        raise
    finally:
        _reading.reset(token)
    if not reading.messages and not address.startswith("inproc://"):
        raise NotPlainError(f"{address} was asked by a comm whose messages dask_efficiency does not know how to read")
    return found


def carried(array: NDArray[Any]) -> Serialized:
    """Array of numbers as a part of a message, sent without a copy."""
    if array.dtype.str not in _TYPES or array.ndim > _MAX_DIMENSIONS:
        raise TypeError(f"array of {array.dtype} with {array.ndim} dimensions; expected numbers")
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    frames = [data[start : start + _FRAME_NBYTES] for start in range(0, len(data), _FRAME_NBYTES)]
    return Serialized({"serializer": FAMILY, "dtype": array.dtype.str, "shape": array.shape}, frames)


def taken(asked: Any) -> Any:
    """Arguments of a question, with the arrays that are :func:`carried` in them; RefusedPayload if one is not plain."""
    if asked is None or isinstance(asked, bool | int | float | str | bytes):
        return asked
    if isinstance(asked, Mapping):
        return {taken(key): taken(value) for key, value in asked.items()}
    if isinstance(asked, list):
        return [taken(each) for each in asked]
    if isinstance(asked, tuple):
        return tuple(map(taken, asked))
    if isinstance(asked, Serialized) and asked.header.get("serializer") == FAMILY:
        return _array(asked.header, asked.frames)
    if type(asked) is np.ndarray and asked.dtype.str in _TYPES:
        return asked
    raise RefusedPayload(f"a question holds a {type(asked).__name__:.80}; expected plain data")


def _array(header: Mapping[str, Any], frames: Sequence[Any]) -> NDArray[Any]:
    """Array of the frames of a message; one frame is not copied."""
    name, shape = header.get("dtype"), header.get("shape")
    if not isinstance(name, str) or name not in _TYPES:
        raise NotPlainError("an array of an unknown type")
    if not isinstance(shape, tuple) or len(shape) > _MAX_DIMENSIONS:
        raise NotPlainError("an array of an unknown shape")
    dtype, parts = np.dtype(name), [np.frombuffer(frame, np.uint8) for frame in frames]
    if not all(type(n) is int and n >= 0 for n in shape) or prod(shape) * dtype.itemsize != sum(map(len, parts)):
        raise NotPlainError("an array whose shape is not its size")
    data = parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.uint8), *parts])
    return np.require(data.view(dtype).reshape(shape), requirements="A")


def _msgpack(header: Mapping[str, Any], frames: Sequence[Any]) -> Any:
    """Object that upstream's serializer of the name ``msgpack`` sent: the answer of its ``run``, if asked for it."""
    return msgpack.loads(b"".join(frames), **_MSGPACK)


_SERIALIZERS: dict[Any, Callable[[Mapping[str, Any], Sequence[Any]], Any]] = {FAMILY: _array, "msgpack": _msgpack}


def decode(frames: Sequence[Any]) -> Any:
    """Read the frames of Dask's ``dumps``, or raise NotPlainError; only the texts of a message about an error."""
    refused: list[str] = []
    left: set[int] = set()

    def object_of(found: dict[Any, Any]) -> Any:
        if _MARKS.isdisjoint(found):
            return found
        at = found.get("__Serialized__")
        # Each is read once: a small message must not become a large one.
        if type(at) is int and at in left:
            left.discard(at)
            header = msgpack.loads(frames[at], **_MSGPACK)
            count, packed = header.get("num-sub-frames"), any(header.get("compression") or ())
            read = _SERIALIZERS.get(header.get("serializer"))
            if read is not None and type(count) is int and 0 <= count < len(frames) - at and not packed:
                return read(header, frames[at + 1 : at + 1 + count])
        refused.append(next(iter(_MARKS & found.keys())).strip("_"))
        return None

    try:
        left.update(range(1, len(frames)))
        message = msgpack.loads(frames[0], object_hook=object_of, **_MSGPACK)
    except NotPlainError:
        raise
    except Exception as error:  # of msgpack, or of a header or key of another type
        raise NotPlainError(f"a message that cannot be read ({type(error).__name__})") from None
    if isinstance(message, dict) and message.get("status") in ("error", "uncaught-error"):
        text = _text(message.get("exception_text"))
        return {"status": message["status"], "exception": text, "traceback": None, "exception_text": text}
    if refused:
        raise NotPlainError(f"an object ({refused[0]}) in place of plain data; it was not read")
    return message


def _text(given: Any) -> str:
    return harmless(given[:MAX_ERROR_LENGTH]) if isinstance(given, str) else "an error without a text"


def _error(text: str) -> Exception:
    """Make an error of the other side's ``repr`` of it."""
    found = re.fullmatch(r"(\w+)\((['\"])(.*?)(?:\2\))?", text)  # it may be cut
    if found is None:
        return RuntimeError(text)
    kind = _KINDS.get(found[1])
    said = re.sub(r"\\(['\"\\n])", lambda escape: escape[1].replace("n", "\n"), found[3])
    return RuntimeError(f"{found[1]}: {said}") if kind is None else kind(said)


def _plainly(loads: Callable[..., Any]) -> Callable[..., Any]:
    def plain_loads(frames: Any, deserialize: bool = True, deserializers: Any = None) -> Any:
        reading = _reading.get()
        if reading is None:
            return loads(frames, deserialize, deserializers)
        reading.messages += 1
        message = decode(frames)
        of_error = isinstance(message, dict) and message.get("status") == "uncaught-error"
        reading.error = _error(message["exception_text"]) if of_error else None
        return message

    return plain_loads


register_serialization_family(FAMILY, None, _array)
# Here and not later, so that it is below what a recording replaces and puts back.
_in_place = bool(Replacements().put(PLAIN, None, _plainly))
