"""All replacements of functions of Dask, Tornado and zict, and their removal.

Dask has no public hook for what these measure. Each is a :class:`Patch` with its reason, the original that it expects,
and the loss where upstream differs: then the original stays, the report says so (:func:`stays_off`), and nothing
breaks. ``tests/plugin/test_patches.py`` compares each with the installed versions and names what an upgrade broke;
``docs/upstream`` has hooks that would make them needless. Handlers and metrics under names of our own
(:data:`~dask_efficiency.plugin.names.OP`) replace nothing and are not listed.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from types import MemberDescriptorType
from typing import Any
from weakref import ReferenceType, ref

from distributed import __version__, protocol
from distributed.comm import utils as comm_utils
from distributed.protocol import pickle
from tornado.iostream import IOStream, SSLIOStream

#: An object and the name of its attribute, or a dictionary or list and its key.
Target = tuple[Any, Any]

_ABSENT = object()


def parameters_of(function: Any) -> tuple[tuple[str, ...], bool]:
    """Names of a function's parameters, and True if it takes any keyword; empty for a function without a signature."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return (), False
    return tuple(parameters), any(each.kind is each.VAR_KEYWORD for each in parameters.values())


def _takes(*names: str) -> Callable[[Any], bool]:
    """Make a check that a function takes arguments of these names."""

    def fits(original: Any) -> bool:
        taken, anything = parameters_of(original)
        return anything or {*names} <= {*taken}

    return fits


def _takes_only(*names: str) -> Callable[[Any], bool]:
    """Make a check that a function takes arguments of these names, in this order, and no others."""
    return lambda original: parameters_of(original)[0] == names


def _absent(original: Any) -> bool:
    """Check that a class has no such hook of its own."""
    return original is _ABSENT


_DISTRIBUTED = "distributed 2026.8.0"
_TORNADO = "tornado 6.6.1"


@dataclass(frozen=True, slots=True)
class Patch:
    """Function of upstream that is replaced while something is measured."""

    what: str
    why: str
    #: Loss where upstream differs: what is missing, or less exact.
    without: str
    until: str
    places: Callable[[Any], Iterable[Target]]
    fits: Callable[[Any], bool] = callable
    #: True if it may be absent without a change of upstream: another event loop, a server without routes.
    optional: bool = False
    #: Newest versions it was checked with; the oldest supported version is tested as well.
    checked: str = _DISTRIBUTED


_of_scheduler = partial(Patch, until="the meter on the scheduler goes")
_of_recording = partial(Patch, until="the recording ends")
_of_worker = partial(Patch, until="the meter on the worker goes")
_of_messages = partial(Patch, until="the last meter in the process goes")
_of_tasks = partial(Patch, until="the last metered worker of the process goes")
_of_data = partial(
    Patch,
    without="a transfer that keeps the event loop busy is shown as `worker-loop`",
    until="the last recording in the process ends",
)


def _stream_handler(op: str) -> dict[str, Any]:
    return {"what": f"Scheduler.stream_handlers[{op!r}]", "places": lambda scheduler: [(scheduler.stream_handlers, op)]}


def _handler_of_shuffles(op: str) -> dict[str, Any]:
    """Name and place of a handler that a worker has once it takes part in shuffles."""
    places = {"what": f"Worker.handlers[{op!r}]", "places": lambda worker: [(worker.handlers, op)]}
    return {**places, "fits": inspect.iscoroutinefunction, "optional": True}


UPDATE_GRAPH = _of_scheduler(
    **_stream_handler("update-graph"),
    why="no hook says when the scheduler begins to take a graph in",
    without="the time until a graph is taken in counts as without work",
    fits=inspect.iscoroutinefunction,
)
LONG_RUNNING = _of_scheduler(
    **_stream_handler("long-running"),
    why="no hook says when a task secedes",
    without="a seceded task counts as one that holds a slot",
)
CLIENT_RELEASES_KEYS = _of_recording(
    **_stream_handler("client-releases-keys"),
    why="no hook says when a client lets go of its results",
    without="a trace has no releases",
    fits=_takes("keys", "client"),
)
STEAL_RESPONSE = _of_recording(
    **_stream_handler("steal-response"),
    why="a task that is stolen stays in processing, so no hook says that it moved",
    without="a trace shows a stolen task on the worker that it was taken from",
    fits=_takes("key", "stimulus_id"),
)
TICK = Patch(
    what="Server.periodic_callbacks['tick'].callback",
    why="a timer of our own would wake an idle process up, which costs more than all else that is recorded",
    without="nothing says when event loops were blocked",
    until="the recording ends, or the sampler on the worker or the scheduler",
    checked=f"{_DISTRIBUTED}, {_TORNADO}",
    places=lambda server: [(server.periodic_callbacks["tick"], "callback")],
)
HANDLER = _of_scheduler(
    what="each of Scheduler.stream_handlers and Scheduler.handlers",
    why="no hook says when a handler begins and ends",
    without="a report does not say which handlers keep the scheduler's event loop busy",
    places=lambda place: [place],
)
CALLBACK = _of_scheduler(
    what="the callback of each of Scheduler.periodic_callbacks",
    why="no hook says when a periodic callback, such as work stealing, begins and ends",
    without="a report does not say which of them keep the scheduler's event loop busy",
    checked=f"{_DISTRIBUTED}, {_TORNADO}",
    places=lambda periodic: [(periodic, "callback")],
)
HOOK = Patch(
    what="hooks of the objects in Scheduler.plugins; `transition` during some calls of each handler",
    why="nothing else says which plugin takes the scheduler's time",
    without="a report does not say which plugins keep the scheduler's event loop busy",
    until="the meter on the scheduler goes, or the plugin",
    places=lambda place: [place],
)
STEP = _of_scheduler(
    what="asyncio.Handle._run, during some turns of the event loop",
    why="nothing else says which callbacks and coroutines take the time that is no handler's",
    without="a report does not say what else keeps the scheduler's event loop busy",
    checked="CPython 3.11",
    places=lambda _: [(asyncio.Handle, "_run")],
    # As `_takes_only("self")`, which takes longer than the turn that is looked at.
    fits=lambda run: getattr(getattr(run, "__code__", None), "co_argcount", 0) == 1,
)
SELECT = _of_scheduler(
    what="the select() of the asyncio event loop",
    why="nothing else says when an event loop has nothing to do, and how long each of its turns takes",
    without="a report does not say how busy the scheduler's event loop is, and how late",
    checked="CPython 3.11",
    places=lambda loop: [(loop._selector, "select")],
    fits=_takes("timeout"),
    optional=True,  # uvloop has none
)
_WHY_DATA = (
    "nothing else distinguishes a blocked event loop that moves data from one that waits for the GIL during a "
    "transfer: in the recorded transfers both look the same"
)
#: Arguments of Dask's ``loads``.
OF_LOADS = ("frames", "deserialize", "deserializers")
PLAIN = Patch(
    what="distributed.protocol.loads",
    why="Dask unpickles every message that it reads, also the answers to questions of ours, which are plain data",
    without="no question can be asked, so there are no reports",
    until="the process ends: a large answer may be decoded after its question has timed out",
    places=lambda _: [(protocol, "loads")],
    fits=_takes_only(*OF_LOADS),
)
SERIALIZE = _of_data(
    what="distributed.protocol.dumps and .loads",
    why=_WHY_DATA,
    places=lambda _: [(protocol, "dumps"), (protocol, "loads")],
)
#: Arguments of Dask's ``dumps``.
OF_DUMPS = ("msg", "serializers", "on_error", "context", "frame_split_size")
MESSAGE = _of_messages(
    what="distributed.protocol.dumps and .loads, for messages",
    why="no hook says which messages an event loop serializes and deserializes, and for how long",
    without="a report does not say which messages keep event loops busy",
    places=lambda _: [(protocol, "dumps"), (protocol, "loads")],
)
PICKLE = _of_messages(
    what="distributed.protocol.pickle.dumps",
    why="a message holds many tasks, and nothing says which of them takes long to pickle",
    without="a report does not say how large tasks are, and of which objects",
    places=lambda _: [(pickle, "dumps")],
    fits=_takes_only("x", "buffer_callback", "protocol"),
)
UNPICKLE = _of_messages(
    what="distributed.protocol.pickle.loads",
    why="a message holds many tasks, and nothing says which of them takes long to unpickle",
    without="a report does not say which objects take long to unpickle",
    places=lambda _: [(pickle, "loads")],
    fits=_takes_only("x", "buffers"),
)
GET_DATA = _of_worker(
    what="Worker.handlers['get_data']",
    why="no hook says who gets the results that a worker sends",
    without="a report does not say which results went to clients, and which to workers",
    places=lambda worker: [(worker.handlers, "get_data")],
    fits=lambda handler: inspect.iscoroutinefunction(handler) and _takes("who")(handler),
)
OFFLOAD = _of_data(
    what="distributed.comm.utils.offload",
    why="a loop that waits while Dask's thread for large messages (de)serialises moves data, too",
    places=lambda _: [(comm_utils, "offload")],
)
READ = _of_data(
    what="IOStream.read_from_fd and SSLIOStream.read_from_fd",
    why=_WHY_DATA,
    checked=_TORNADO,
    places=lambda _: [(IOStream, "read_from_fd"), (SSLIOStream, "read_from_fd")],
    fits=_takes_only("self", "buf"),
)
WRITE = _of_data(
    what="IOStream.write_to_fd and SSLIOStream.write_to_fd",
    why=_WHY_DATA,
    checked=_TORNADO,
    places=lambda _: [(IOStream, "write_to_fd"), (SSLIOStream, "write_to_fd")],
    fits=_takes_only("self", "data"),
)
SHUFFLE_MESSAGE = _of_data(
    what="ShardsBuffer.process",
    why="no hook says when a P2P shuffle sends parts of its inputs from worker to worker",
    without="a trace has no messages of P2P shuffles",
    places=lambda kind: [(kind, "process")],
    fits=_takes_only("self", "id", "shards", "size"),
)
SHUFFLE_RECEIVE = _of_worker(
    **_handler_of_shuffles("shuffle_receive"),
    why="upstream does not meter how long a worker takes in what a P2P shuffle sends it",
    without="`receive` is missing among the phases of a shuffle",
)
SHUFFLE_INPUTS_DONE = _of_worker(
    **_handler_of_shuffles("shuffle_inputs_done"),
    why="nothing else says for how long each worker still sends when all wait for it at a P2P shuffle's barrier",
    without="a report does not name the worker that sent last",
)
#: Arguments of upstream's functions that run a task, and an actor's method, in a thread.
OF_TASK = ("task", "data", "execution_state", "key", "active_threads", "active_threads_lock", "time_delay")
OF_METHOD = ("func", "args", "kwargs", "execution_state", "key", "active_threads", "active_threads_lock")
RUN_TASK = _of_tasks(
    what="distributed.worker._run_task",
    why="CPU time can only be read inside a task's thread; it is upstream's function that runs each task there",
    without="CPU time of the tasks is not measured, and the report says so",
    places=lambda module: [(module, "_run_task")],
    fits=_takes_only(*OF_TASK),
)
RUN_ACTOR = _of_tasks(
    what="distributed.worker._run_actor",
    why="no hook says when a method of an actor runs",
    without="`actor methods` are missing outside the slots",
    places=lambda module: [(module, "_run_actor")],
    fits=_takes_only(*OF_METHOD),
)
READ_BACK = _of_worker(
    what="zict.Buffer.slow_to_fast",
    why="no hook says when the event loop reads a result back from disk",
    without="what slots wait for meanwhile is not `spill`",
    checked="zict 3.0.0",
    places=lambda buffer: [(buffer, "slow_to_fast")],
    fits=_takes("key"),
)
WRITE_OUT = _of_worker(
    what="zict.Buffer.fast.on_evict",
    why="no hook says when the event loop writes a result to disk",
    without="what slots wait for meanwhile is not `spill`",
    checked="zict 3.0.0",
    places=lambda buffer: [(buffer.fast.on_evict, i) for i in range(len(buffer.fast.on_evict))],
)
EVICT = _of_worker(
    what="SpillBuffer.evict",
    why="what the memory manager evicts must be distinguished from what a task's result pushes out",
    without="`spill by the memory manager` is missing",
    places=lambda data: [(data, "evict")],
)
MEMORY_LOOK = _of_worker(
    what="SystemMonitor.get_process_memory",
    why="the memory by which Dask decides to spill and to pause is that of its own looks",
    without="the memory that would do is that for results alone",
    places=lambda monitor: [(monitor, "get_process_memory")],
)
CLIENT_CLASS = Patch(
    what="the class of one Client: its get, compute, persist, submit, map, sync, _graph_to_futures and _gather",
    why="no hook says when a graph is optimised, sent and gathered, and Dask's `scheduler=` setting is the user's",
    without="phases of the client are missing from a report, and its tasks carry no span of their own",
    until="the last report that is open on the client ends",
    places=lambda client: [(client, "__class__")],
)

_of_collections = partial(
    Patch,
    why="a graph says by which line it was sent, not where its arrays were cut, and no hook says when they are made",
    without="findings name the line that computes a collection, and not the one that made it",
    until="the last report that is open in the process ends",
    checked="dask 2026.8.0",
)
MADE = _of_collections(
    what="the __init__ of Bag, Delayed and FrameBase",
    places=lambda kind: [(kind, "__init__")],
    fits=_takes("self"),
)
MADE_ARRAY = _of_collections(
    what="Array.__new__",
    places=lambda kind: [(kind, "__new__")],
    fits=_takes("cls", "chunks"),
)
COLLECTION_CLASS = _of_collections(
    what="DaskMethodsMixin.__init_subclass__, which is absent",
    why="a program may import Dask's arrays, bags or dataframes while a report is open, and no hook says when",
    places=lambda kind: [(kind, "__init_subclass__")],
    fits=_absent,
)


def _of_a_run(name: str) -> Patch:
    return Patch(
        what=f"Client.{name}",
        why="no hook that stays in one process says when a client connects or goes",
        without="nothing was metered: this version of distributed has another Client",
        until="the script of `dask-efficiency run` ends",
        places=lambda kind: [(kind, name)],
        fits=inspect.iscoroutinefunction,
    )


CLIENT_STARTS, CLIENT_CLOSES = _of_a_run("_start"), _of_a_run("_close")
CLUSTER_CLOSES = Patch(
    what="the _close of one Cluster",
    why="a script may close its cluster before its client",
    without="then there is no report",
    until="the cluster has closed",
    places=lambda cluster: [(cluster, "_close")],
    fits=inspect.iscoroutinefunction,
)
METRICS = Patch(
    what="the handler of /metrics among the routes of Server.http_application",
    why="prometheus_client takes 4 us to write a line, and there are some 5000 with a hundred workers; and its "
    "registry is the process's, not a worker's",
    without="a scrape takes longer, and workers' own metrics have none of ours",
    until="the meter on the server goes",
    checked=f"{_DISTRIBUTED}, {_TORNADO}, prometheus_client 0.26.0",
    places=lambda application: [
        (route, "target")
        for route in application.wildcard_router.rules
        if getattr(route.target, "__name__", "") == "PrometheusHandler"
    ],
    fits=lambda handler: hasattr(handler, "get"),
    optional=True,
)


#: By name of an original that stays in this process, the loss.
_stays_off: dict[str, str] = {}


def stays_off() -> list[str]:
    """Losses in this process where upstream differs from what the package expects."""
    return [
        f"{without}: {what} is not as dask_efficiency knows it in distributed {__version__}"
        for what, without in list(_stays_off.items())
    ]


class Replacements:
    """Replacements of one part of the package, which are put back together.

    A wrapper that somebody else put over ours since stays, and goes on calling it: ours passes calls on for ever. A
    later :meth:`put_back` removes it if it is on top again by then.
    """

    def __init__(self) -> None:
        #: Owner, name, a reference to our replacement, and the original of the owner itself.
        self._placed: list[tuple[Any, Any, ReferenceType[Any], Any]] = []

    def put(self, patch: Patch, owner: Any, wrap: Callable[[Any], Any]) -> int:
        """Replace each original of an owner by the result of ``wrap``; returns the number of replaced places.

        It is 0 if upstream lacks it, has something else under its name, or does not allow replacing;
        :func:`stays_off` reports that.
        """
        try:
            places = list(patch.places(owner))
        except (AttributeError, LookupError, TypeError):  # upstream renamed it
            places = []
        put = sum(self._put(patch, *place, wrap) for place in places)
        if put:
            _stays_off.pop(patch.what, None)
        elif not patch.optional:
            _stays_off[patch.what] = patch.without
        return put

    def _put(self, patch: Patch, owner: Any, name: Any, wrap: Callable[[Any], Any]) -> bool:
        original = _now(owner, name)
        if original is _ABSENT and patch.fits is not _absent:
            return False
        if not patch.fits(original):
            _stays_off[patch.what] = patch.without
            return False
        try:
            own = _own(owner, name)
        except TypeError:  # an object with slots
            return False
        replacement = wrap(original)
        _set(owner, name, replacement)
        if _now(owner, name) is not replacement:  # a descriptor of its class goes first
            _set(owner, name, own)
            return False
        self._placed.append((owner, name, ref(replacement), own))
        return True

    def put_back(self) -> None:
        """Leave upstream as it was; safe to call twice."""
        kept = []
        for place in reversed(self._placed):
            owner, name, replacement, own = place
            if (placed := replacement()) is None:
                continue  # nobody holds it any more
            if _own(owner, name) is placed:
                _set(owner, name, own)
            else:
                kept.append(place)
        self._placed = kept[::-1]


def _now(owner: Any, name: Any) -> Any:
    """Value at a place; of a class only its own attributes, as inherited ones are replaced where they are defined."""
    if isinstance(owner, (dict, list, type)):
        return _own(owner, name)
    return getattr(owner, name, _ABSENT)


def _own(owner: Any, name: Any) -> Any:
    """Value at a place itself, not in a class above it."""
    if isinstance(owner, (dict, list)):
        try:
            return owner[name]
        except LookupError:
            return _ABSENT
    if name == "__class__":
        return type(owner)
    if _is_slot(owner, name):
        return getattr(owner, name, _ABSENT)
    return vars(owner).get(name, _ABSENT)


def _set(owner: Any, name: Any, value: Any) -> None:
    if isinstance(owner, type) and value is _ABSENT:
        delattr(owner, name)
        return
    if isinstance(owner, type) or name == "__class__" or _is_slot(owner, name):
        setattr(owner, name, value)
        return
    items = owner if isinstance(owner, (dict, list)) else vars(owner)
    if value is _ABSENT:
        del items[name]
    else:
        items[name] = value


def _is_slot(owner: Any, name: Any) -> bool:
    return isinstance(name, str) and isinstance(getattr(type(owner), name, None), MemberDescriptorType)
