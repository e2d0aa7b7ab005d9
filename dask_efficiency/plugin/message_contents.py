"""Parcel: what a message is about, read from it without any look into objects of users."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import partial, wraps
from itertools import islice
from types import CodeType, FunctionType, MethodType
from typing import Any, NamedTuple, cast

import numpy as np
from dask._task_spec import DataNode
from dask.utils import apply, key_split
from distributed.protocol.serialize import Serialize, Serialized

from dask_efficiency.accounts.cluster.scheduler_loop import BY_VALUE, SENDING
from dask_efficiency.accounts.intake import fitting
from dask_efficiency.accounts.lines import NOWHERE, Frame
from dask_efficiency.accounts.worker.log import prefix_of
from dask_efficiency.show.figures import DETAIL_LENGTH

#: Arguments of a task, results of a message, and messages of a batch that are looked at. A guess, to bound the cost.
MAX_LOOKED_AT = 20
#: What is in messages; of others the operation.
TASKS, RESULTS, GRAPHS, ANSWERS, OTHER_MESSAGES = "tasks", "results", "graphs", "answers", "other messages"
#: Results that a scheduler passes on to a client as they came.
PASSED_ON = "results in passing"
#: Who gets the results that a worker sends.
TO_WORKER, TO_CLIENT = "a worker", "a client"
_PLAIN = (int, float, complex, bool, str, bytes, type(None), type)

#: Receiver of the results that are being sent.
receiver: ContextVar[str] = ContextVar("dask_efficiency_receiver", default="")


class Parcel(NamedTuple):
    """One kind of messages, or of objects in them."""

    #: :data:`SENDING` or :data:`RECEIVING`.
    way: str
    #: :data:`TASKS`, :data:`RESULTS`, :data:`GRAPHS`, or the operation of other messages.
    what: str
    prefix: str = ""
    #: Type of the objects that took long to pickle; of tasks, that of the object which they carry.
    kind: str = ""
    #: Of results that are sent.
    to: str = ""
    #: Function of the tasks.
    code: Frame = NOWHERE

    @property
    def name(self) -> str:
        """Name, such as ``"results to a client"`` or ``"heartbeat_worker"``."""
        return f"{self.what} to {self.to}" if self.to else self.what

    def words(self) -> str:
        """Words, such as ``"sending results of fit to a worker (Forest)"``."""
        of, to = f" of {self.prefix}" if self.prefix else "", f" to {self.to}" if self.to else ""
        return f"{self.way} {self.what}{of}{to}" + (f" ({self.kind})" if self.kind else "")


def content(msg: Any, *, all_of_it: bool) -> tuple[str, dict[Any, Any] | None]:
    """Find what a message is, or a batch by its first one, and its results, if it answers a request for them."""
    batch = msg if type(msg) in (list, tuple) else (msg,)
    what = ANSWERS
    for one in batch[: MAX_LOOKED_AT if all_of_it else 1]:
        if type(one) is not dict:
            continue
        op, data = one.get("op"), one.get("data")
        if type(op) is str and op == "update-graph":
            return GRAPHS, None
        if what is ANSWERS and type(op) is str:
            what = fitting(op, DETAIL_LENGTH)
        elif op is None and type(data) is dict and "status" in one:
            return RESULTS, data
    return what, None


def of_results(way: str, results: Mapping[Any, Any], *, is_pickled: bool) -> tuple[Parcel, int, int]:
    """Kind of messages for results, their number, and that of the objects in lists and the like."""
    key, value = next(iter(results.items()), ("", None))
    if type(value) is Serialized:
        return Parcel(way, PASSED_ON, prefix_of_key(key)), len(results), 0
    parcel, items = Parcel(way, RESULTS, prefix_of_key(key), to=receiver.get() if way == SENDING else ""), 0
    if is_pickled:
        values = [each.data if type(each) is Serialize else each for each in islice(results.values(), MAX_LOOKED_AT)]
        parcel = parcel._replace(kind=type_name(values[0]))
        items = sum(len(each) for each in values if type(each) in (list, tuple, dict, set, frozenset))
    return parcel, len(results), items


def prefix_of_key(key: Any) -> str:
    """Prefix of a key, as it is counted; empty if there is none."""
    return prefix_of(key_split(key)) if key != "" else ""


def task_parts(task: Any, nbytes: int) -> tuple[str, Frame]:
    """Type of the object that a task carries, of its bound method or an argument, and its function.

    Without one it is :data:`BY_VALUE` if the function travels so.
    """
    function, values = getattr(task, "func", None), list(islice(getattr(task, "args", ()), MAX_LOOKED_AT))
    if function is apply and values:
        function = values.pop(0)
    values += islice(getattr(task, "kwargs", {}).values(), MAX_LOOKED_AT)
    while isinstance(function, partial):
        values += (*function.args[:MAX_LOOKED_AT], *islice(function.keywords.values(), MAX_LOOKED_AT))
        function = function.func
    if type(task) is DataNode:
        values = [task.value]
    if isinstance(function, MethodType):
        values.insert(0, function.__self__)
    known = {type_name(each): _bytes_in(each) for each in values if type(each) not in _PLAIN}
    largest = max(known, key=lambda name: known[name], default="")
    if largest and 2 * known[largest] < nbytes:  # an object that does not say how large it is
        largest = next((name for name, size in known.items() if not size), "")
    if not isinstance(function, (FunctionType, MethodType)):
        return largest, NOWHERE
    by_value = not largest and getattr(function, "__module__", "") == "__main__"
    return BY_VALUE if by_value else largest, code_of(function)


def _bytes_in(value: object) -> int:
    """Bytes of arrays and buffers, and 0 of anything else."""
    if issubclass(type(value), np.ndarray):  # not isinstance, which asks a proxy for what it stands for
        return cast("np.ndarray", value).nbytes
    return len(value) if type(value) in (bytearray, memoryview) else 0  # type: ignore[arg-type]


def type_name(value: object) -> str:
    """Name of a value's type."""
    return fitting(type(value).__qualname__, DETAIL_LENGTH)


def code_of(function: Any) -> Frame:
    """Name of a function, with the file and line of its beginning."""
    while isinstance(function, partial):
        function = function.func
    code = function if isinstance(function, CodeType) else getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return Frame(getattr(function, "__qualname__", ""), "", 0)
    return Frame(code.co_qualname, code.co_filename, code.co_firstlineno)


def telling_receivers(get_data: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a worker's handler ``get_data``, so that its answer is known to be for a worker or for a client."""

    @wraps(get_data)
    async def telling(*args: Any, who: Any = None, **kwargs: Any) -> Any:
        receiver.set(TO_CLIENT if who is None else TO_WORKER)
        return await get_data(*args, who=who, **kwargs)

    return telling
