"""ThreadLook: what one thread does at an instant; and many of them as they travel to whoever asks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from dask_efficiency.accounts.checks import MAX_NAMES, RefusedPayload, flag, listed, mapping, short, text, whole
from dask_efficiency.accounts.details import StackNumbers
from dask_efficiency.accounts.lines import Frame, Stack

#: Kinds of threads: runs a task; is a server's event loop; waits for a task; any other.
TASK, LOOP, FREE, OTHER = "task", "event-loop", "free", "other"
KINDS = (TASK, LOOP, FREE, OTHER)
#: Causes besides those of waiting: it was on a CPU for most of the look; a coroutine, which has no thread.
COMPUTING, AWAITING = "computing", "awaiting"


class ThreadLook(NamedTuple):
    """Thread, and what it did in one look."""

    #: Name of its worker; empty for the scheduler, and while the worker itself tells of it.
    worker: str
    #: One of :data:`KINDS`.
    kind: str
    #: Its own name, and the id by which it is known within its process.
    name: str
    ident: int
    #: Of its task, with the nanoseconds that this has run; empty and 0 without one.
    prefix: str
    key: str
    ns: int
    #: One of the causes of waiting, :data:`COMPUTING` or :data:`AWAITING`; empty if unknown.
    cause: str
    #: True if native frames are among the stack's.
    is_native: bool
    stack: Stack


#: Checks of its fields, but for the stack.
_CHECKS = (text, text, text, whole, text, text, whole, text, flag)


def encode_looks(looks: Iterable[ThreadLook], code: Mapping[Frame, str]) -> dict[str, Any]:
    """Encode as plain data for msgpack, with the source of lines."""
    stacks = StackNumbers()
    threads = [[*look[:-1], stacks.number(look.stack)] for look in looks]
    source = [[stacks.frames[frame], line] for frame, line in code.items() if frame in stacks.frames]
    return {
        "threads": threads,
        "stacks": stacks.rows,
        "frames": [list(frame) for frame in stacks.frames],
        "code": source,
    }


def decode_looks(payload: object, most: int = MAX_NAMES) -> tuple[list[ThreadLook], dict[Frame, str]]:
    """Check and read what :func:`encode_looks` made of ``most`` threads; raises :class:`RefusedPayload`."""
    fields = mapping("looks", payload)
    frames = [
        Frame(text("function", function), text("file", file), whole("line", line))
        for function, file, line in _rows("frames", fields, 3, most)
    ]
    stacks = [tuple(_at(frames, number) for number in listed("stack", row)) for row in _rows("stacks", fields, 0, most)]
    looks = []
    for *values, number in _rows("threads", fields, len(_CHECKS) + 1, most):
        checked = [check(name, one) for check, name, one in zip(_CHECKS, ThreadLook._fields, values, strict=False)]
        look = ThreadLook._make([*checked, _at(stacks, number)])
        if look.kind not in KINDS:
            raise RefusedPayload(f"kind of a thread is {short(look.kind)}; expected one of {', '.join(KINDS)}")
        looks.append(look)
    code = {_at(frames, number): text("code", line) for number, line in _rows("code", fields, 2, most)}
    return looks, code


def _rows(name: str, fields: Mapping[Any, Any], length: int, most: int) -> list[Any]:
    """Rows of a field, each of so many values if that is not 0."""
    rows = listed(name, fields.get(name), most)
    for row in rows:
        if not isinstance(row, list | tuple) or (length and len(row) != length):
            raise RefusedPayload(f"a row of {name} is {short(row)}; expected a list of {length or 'some'} values")
    return list(rows)


def _at(values: list[Any], number: object) -> Any:
    if type(number) is not int or not 0 <= number < len(values):
        raise RefusedPayload(f"a number is {short(number)}; expected one of {len(values)}")
    return values[number]
