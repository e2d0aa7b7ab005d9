"""Messages: what the servers of a process serialize and deserialize, of whose tasks and results, and for how long.

Dask's ``dumps`` and ``loads`` are timed at each call, and so are the tasks in a message that take long to pickle. Of
short messages and small tasks, one in :data:`ONE_IN` is looked at, and stands for as many. Of an object only its type
is read, and sizes that are known at once; none is kept.
"""

from __future__ import annotations

import inspect
import os
import random
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from functools import wraps
from pickle import PickleBuffer
from threading import RLock, get_ident, local
from time import monotonic_ns as clock
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from dask._task_spec import GraphNode
from distributed.utils import nbytes as nbytes_of

from dask_efficiency.accounts.cluster.scheduler_loop import RECEIVING, SENDING, LoopFunction, LoopTime
from dask_efficiency.accounts.intake import fitting
from dask_efficiency.accounts.lines import NOWHERE, Frame
from dask_efficiency.accounts.metered import BYTES, COUNT, ITEMS, MESSAGES, SECONDS, Metered
from dask_efficiency.accounts.rows import MAX_APART, add, growth
from dask_efficiency.accounts.skew import Sketch
from dask_efficiency.plugin import patches
from dask_efficiency.plugin.guard import Guard
from dask_efficiency.plugin.message_contents import (
    GRAPHS,
    OTHER_MESSAGES,
    RESULTS,
    TASKS,
    Parcel,
    content,
    of_results,
    prefix_of_key,
    task_parts,
)
from dask_efficiency.plugin.patches import MESSAGE, OF_DUMPS, OF_LOADS, PICKLE, READ, UNPICKLE, WRITE, Replacements

#: Nanoseconds of pickling or unpickling from which an object counts by its type.
LONG_NS = 500_000
#: Nanoseconds of a message from which it is looked at each time, with all that is in it.
MIN_NS = 100_000
#: Bytes up to which a read or write is not timed, as it takes microseconds: Tornado's own chunk.
CHUNK = 65_536
#: Share of the time of a message from which its results are said to be pickled; and number of objects, each of which
#: takes more time of Dask's own. By judgement.
PICKLED, MANY = 0.25, 1_000
#: Short messages, and tasks that do not take long to pickle, that one stands for.
ONE_IN = 16
#: Long messages that are remembered for the blocks of event loops, which are looked at some seconds later at most.
MAX_LONG = 200
#: Tasks of one message that are noted, the last ones. A guess, to bound memory.
MAX_NOTED = 10_000
#: Sizes that are sketched together.
MAX_BUFFERED = 500

_UNKNOWN = Parcel(SENDING, OTHER_MESSAGES)


class _Row:
    """Sums of one kind of messages so far."""

    __slots__ = ("count", "items", "nbytes", "ns", "on_loops", "sketched", "values")

    def __init__(self) -> None:
        self.ns = self.count = self.nbytes = self.items = 0
        #: Part of the nanoseconds by thread of an event loop.
        self.on_loops: dict[int, int] = {}
        self.sketched = Sketch()
        self.values: list[int] = []

    def sizes(self) -> dict[int, int]:
        if self.values:
            values, self.values = self.values, []
            self.sketched.add(values)
        return dict(self.sketched.bins)


class _PickledTask(NamedTuple):
    """A task that was pickled or unpickled, without the task."""

    at: int
    ns: int
    nbytes: int
    prefix: str
    kind: str
    code: Frame


class Tally:
    """Time of the messages of one event loop."""

    __slots__ = ("bytes_read", "ident", "last", "left_out", "noted", "ns", "ns_read", "streams")

    def __init__(self, ident: int, left_out: int = 0) -> None:
        self.ident = ident
        #: Nanoseconds so far: of all messages, with reading and writing them.
        self.ns = 0
        #: Bytes that were read since the last message came, which may be of another one, and the nanoseconds of that.
        self.bytes_read = self.ns_read = 0
        #: Last message that was serialized, until its writing begins; and what each stream writes.
        self.last: Parcel | None = None
        self.streams: WeakKeyDictionary[Any, Parcel] = WeakKeyDictionary()
        #: Messages until the next one that is looked at, and tasks that were noted since the last one that was.
        self.left_out = left_out
        self.noted: deque[_PickledTask] = deque(maxlen=MAX_NOTED)


class Messages:
    """Measures the messages of a process while anybody wants to know; a failure ends it."""

    def __init__(self) -> None:
        self._replacements = Replacements()
        consequence = "dask_efficiency does not say what event loops send"
        self.guard = Guard("the meter of messages", consequence, self._replacements.put_back)
        self.forked()
        self._users: dict[object, Tally] = {}
        self._tallies: dict[int, Tally] = {}
        #: Tally of each thread without an event loop that is known.
        self._elsewhere = local()
        #: Of several workers in a process, the one that reports.
        self._reporter: object = None
        self._rows: dict[Parcel, _Row] = {}
        #: Time of all objects that were pickled and unpickled, their numbers, and that at which the next one is noted.
        self._pickled, self._due = _Row(), 0
        self._long: deque[tuple[int, int, int, Parcel]] = deque(maxlen=MAX_LONG)
        self._one_in = random.Random()
        #: Changes whenever it begins and ends: somebody else's wrapper may keep one of ours in place.
        self._generation = 0
        #: By user: totals when it started, or when another one ended that reported.
        self._before: dict[object, dict[Metered, int]] = {}

    def forked(self) -> None:
        """Begin with a lock that nobody holds; of users and sums, and a finalizer may send a message meanwhile."""
        self._lock = RLock()

    # -- who wants to know ---------------------------------------------------------------------

    def start(self, user: object) -> Tally:
        """Measure for a user, whose event loop's thread calls this."""
        ident = get_ident()
        with self._lock:
            if not self._users and self.guard.off is None:
                self._generation += 1
                self._replacements.put(MESSAGE, None, self._serializing)
                self._replacements.put(PICKLE, None, self._pickling)
                self._replacements.put(UNPICKLE, None, self._unpickling)
                self._replacements.put(READ, None, self._reading)
                self._replacements.put(WRITE, None, self._writing)
            self._users[user] = self._tallies.setdefault(ident, Tally(ident, self._some()))
            self._before[user] = self._totals()
            return self._users[user]

    def stop(self, user: object) -> None:
        """Measure no more for a user; safe to call twice."""
        with self._lock:
            tally = self._users.pop(user, None)
            self._before.pop(user, None)
            if self._reporter is user:
                self._reporter = None
                self._before = dict.fromkeys(self._users, self._totals())
            if tally is not None and tally not in self._users.values():
                self._tallies.pop(tally.ident, None)
            if not self._users:
                self._generation += 1
                self._replacements.put_back()

    # -- what was replaced ---------------------------------------------------------------------

    def _serializing(self, call: Callable[..., Any]) -> Callable[..., Any]:
        wrap = {OF_DUMPS: self._dumping, OF_LOADS: self._loading}.get(patches.parameters_of(call)[0])
        if wrap is None:
            return call
        timed: Any = wrap(call)
        # Of the signature: others' wrappers have no ``__defaults__``.
        given = [each.default for each in inspect.signature(call).parameters.values()]
        timed.__defaults__ = tuple(each for each in given if each is not inspect.Parameter.empty) or None
        return timed  # type: ignore[no-any-return]

    def _dumping(self, dumps: Callable[..., Any]) -> Callable[..., Any]:
        pickled, tally_of, generation = self._pickled, self._here, self._generation

        def timed(msg: Any, serializers: Any, on_error: Any, context: Any, frame_split_size: Any) -> Any:
            if generation != self._generation:
                return dumps(msg, serializers, on_error, context, frame_split_size)
            here, ns, count = tally_of(), pickled.ns, pickled.count
            began = clock()
            try:
                frames = dumps(msg, serializers, on_error, context, frame_split_size)
            finally:
                here.ns += (took := clock() - began)
            here.left_out -= 1
            try:
                alone = took >= MIN_NS or len(frames[-1]) > CHUNK  # large, but quick: its frames were there already
            except (LookupError, TypeError):
                alone = False
            if alone or here.left_out < 0 or here.noted:
                inside = pickled.ns - ns, pickled.count - count
                self.guard(self._count, SENDING, msg, frames, inside, began, took, here, alone)
            return frames

        return timed

    def _loading(self, loads: Callable[..., Any]) -> Callable[..., Any]:
        pickled, tally_of, generation = self._pickled, self._here, self._generation

        def timed(frames: Any, deserialize: Any, deserializers: Any) -> Any:
            if generation != self._generation:
                return loads(frames, deserialize, deserializers)
            here, ns, count = tally_of(), pickled.ns, pickled.items
            began = clock()
            try:
                msg = loads(frames, deserialize, deserializers)
            finally:
                here.ns += (took := clock() - began)
            here.left_out -= 1
            try:
                alone = took >= MIN_NS or len(frames[-1]) > CHUNK
            except (LookupError, TypeError):
                alone = False
            if alone or here.left_out < 0 or here.noted:
                inside = pickled.ns - ns, pickled.items - count
                self.guard(self._count, RECEIVING, msg, frames, inside, began, took, here, alone)
            return msg

        return timed

    def _pickling(self, dumps: Callable[..., Any]) -> Callable[..., Any]:
        sums, generation = self._pickled, self._generation

        @wraps(dumps)
        def timed(x: Any, *, buffer_callback: Any = None, protocol: Any = None) -> Any:
            buffers: list[Any] = []
            began = clock()
            pickled = dumps(x, buffer_callback=buffer_callback and buffers.append, protocol=protocol)
            took = clock() - began
            sums.ns += took
            sums.count += 1
            if (took >= LONG_NS or sums.count >= self._due) and generation == self._generation:
                self.guard(self._note, x, took, pickled, *buffers)
            for buffer in buffers:
                buffer_callback(buffer)
            return pickled

        return timed

    def _unpickling(self, loads: Callable[..., Any]) -> Callable[..., Any]:
        sums, generation = self._pickled, self._generation

        @wraps(loads)
        def timed(x: Any, *, buffers: Any = ()) -> Any:
            began = clock()
            found = loads(x, buffers=buffers)
            took = clock() - began
            sums.ns += took
            sums.items += 1
            if took >= LONG_NS and generation == self._generation:
                self.guard(self._note, found, took, x, *buffers)
            return found

        return timed

    def _reading(self, read: Callable[..., Any]) -> Callable[..., Any]:
        tallies, generation = self._tallies, self._generation

        @wraps(read)
        def timed(stream: Any, buf: Any) -> Any:
            began = clock() if len(buf) > CHUNK else 0
            try:
                found = read(stream, buf)
            finally:
                del buf  # the traceback of an error, which streams keep, would keep it as well
            if began and generation == self._generation and (tally := tallies.get(get_ident())) is not None:
                took = clock() - began
                tally.ns += took
                tally.ns_read += took
                tally.bytes_read += found or 0
            return found

        return timed

    def _writing(self, write: Callable[..., Any]) -> Callable[..., Any]:
        tallies, generation = self._tallies, self._generation

        @wraps(write)
        def timed(stream: Any, data: Any) -> Any:
            began = clock() if len(data) > CHUNK else 0
            try:
                return write(stream, data)
            finally:
                del data  # as of a read
                if began and generation == self._generation and (tally := tallies.get(get_ident())) is not None:
                    self.guard(self._wrote, tally, stream, clock() - began)

        return timed

    # -- what is counted -----------------------------------------------------------------------

    def _wrote(self, tally: Tally, stream: Any, took: int) -> None:
        """Count the writing of a message, which goes on in later turns if it is long."""
        tally.ns += took
        if tally.last is not None:
            tally.streams[stream], tally.last = tally.last, None
        self._add(tally.streams.get(stream, _UNKNOWN), took, 0, 0, tally.ident)

    def _note(self, task: Any, took: int, *pickled: Any) -> None:
        """Note a task in a message that took long to pickle, or that stands for others."""
        if self._pickled.count >= self._due:
            self._due = self._pickled.count + 1 + self._some()
        if issubclass(type(task), GraphNode):
            nbytes = _bytes_of(memoryview(one) if type(one) is PickleBuffer else one for one in pickled)
            parts = task_parts(task, nbytes) if took >= LONG_NS else ("", NOWHERE)
            self._here().noted.append(_PickledTask(clock(), took, nbytes, prefix_of_key(task.key), *parts))

    def _here(self) -> Tally:
        """Tally of this thread; that of one without an event loop goes with the thread."""
        tally = self._tallies.get(get_ident())
        if tally is None:
            tally = self._elsewhere.__dict__.get("tally")
            if tally is None:
                tally = self._elsewhere.tally = Tally(0, self._some())
        return tally

    def _some(self) -> int:
        """Number that is left out before the next one is looked at."""
        return int(self._one_in.random() * (2 * ONE_IN - 1))

    def _count(
        self, way: str, msg: Any, frames: Any, inside: tuple[int, int], began: int, took: int, tally: Tally, alone: bool
    ) -> None:
        """Count a message: tasks that took long to pickle by the objects in them, and what is left by its operation.

        It counts ``alone``, for several or, if it is not its turn, with the tasks in it only. ``inside`` are
        nanoseconds and number of the objects that were pickled in it.
        """
        weight = 1 if alone else ONE_IN if tally.left_out < 0 else 0
        if tally.left_out < 0:
            tally.left_out = self._some()
        tasks = [one for one in tally.noted if one.at >= began]
        tally.noted.clear()
        (ns, pickled), thread = inside, tally.ident
        left, of_tasks, most, most_ns = took, 0, _UNKNOWN, 0
        for one in tasks:
            of = Parcel(way, TASKS, one.prefix, one.kind, code=one.code)
            if one.ns < LONG_NS:
                self._add(of, 0, ONE_IN, one.nbytes * ONE_IN, thread, sizes=[one.nbytes] * ONE_IN)
                continue
            self._add(of, one.ns, 1, one.nbytes, thread, sizes=[one.nbytes])
            left, of_tasks = left - one.ns, of_tasks + one.nbytes
            if one.ns > most_ns:
                most, most_ns = of, one.ns
        if not weight:
            tally.last = None if way == SENDING else tally.last
            return
        nbytes, (what, results) = _bytes_of(frames), content(msg, all_of_it=took >= MIN_NS)
        whole, count, items = Parcel(way, what), 1, 0
        if results is not None:
            is_pickled = took >= LONG_NS and (ns > PICKLED * took or pickled > MANY)
            whole, count, items = of_results(way, results, is_pickled=is_pickled)
        sizes = [nbytes] if what == GRAPHS else []
        left, rest = weight * max(0, left), weight * max(0, nbytes - of_tasks)
        self._add(whole, left, weight * count, rest, thread, items=weight * items, sizes=sizes * weight)
        most = most if most_ns > left else whole
        if thread and took >= LONG_NS:
            self._long.append((thread, began, began + took, most))
        if not thread and len(self._tallies) == 1:  # in Dask's thread for large messages
            (tally,) = self._tallies.values()
        if way == SENDING:
            tally.last = most
        elif tally.bytes_read:
            read = min(1.0, nbytes / tally.bytes_read)
            ns = round(read * tally.ns_read)
            tally.bytes_read, tally.ns_read = round((1 - read) * tally.bytes_read), tally.ns_read - ns
            self._add(most, ns, 0, 0, tally.ident)

    def _add(
        self, of: Parcel, ns: int, count: int, nbytes: int, thread: int, *, items: int = 0, sizes: Sequence[int] = ()
    ) -> None:
        with self._lock:
            row = self._rows.get(of)
            if row is None:
                if len(self._rows) >= MAX_APART:
                    of = Parcel(of.way, of.what if of.what in (TASKS, RESULTS, GRAPHS) else OTHER_MESSAGES)
                row = self._rows.setdefault(of, _Row())
            row.count, row.nbytes, row.items = row.count + count, row.nbytes + nbytes, row.items + items
            row.ns += ns
            if ns and thread in self._tallies:
                row.on_loops[thread] = row.on_loops.get(thread, 0) + ns
            if sizes:
                row.values += sizes
                if len(row.values) >= MAX_BUFFERED:
                    row.sizes()

    # -- what is known -------------------------------------------------------------------------

    def on_loop(self, ident: int) -> dict[LoopFunction, LoopTime]:
        """Time and bytes of the messages of one event loop so far."""
        with self._lock:
            return {
                LoopFunction(of.way, of.name, of.code, of.prefix, of.kind): LoopTime(
                    row.on_loops.get(ident, 0), row.count, total_bytes=row.nbytes, sizes=row.sizes()
                )
                for of, row in self._rows.copy().items()
                if ident in row.on_loops or of.what == TASKS
            }

    def metered(self, user: object) -> dict[Metered, int]:
        """Time, bytes and counts so far of tasks and results, with those of all other messages together.

        Of several users in one process that ask, one gets them: what came since it was the one.
        """
        with self._lock:
            if user not in self._users or self._reporter not in (None, user):
                return {}
            self._reporter = user
            return growth(self._totals(), self._before[user])

    def _totals(self) -> dict[Metered, int]:
        found: dict[Metered, int] = {}
        for of, row in self._rows.copy().items():
            known = of if of.what in (TASKS, RESULTS, GRAPHS) else Parcel(of.way, OTHER_MESSAGES)
            label = f"{known.way} {known.name}" + (f": {known.kind}" if known.kind else "")
            amounts = {SECONDS: row.ns, BYTES: row.nbytes, COUNT: row.count, ITEMS: row.items}
            add(found, {Metered(MESSAGES, "", known.prefix, label, unit): n for unit, n in amounts.items() if n})
        return found

    def during(self, ident: int, since: float, until: float) -> str:
        """Find what took more than half of an interval of an event loop, in words; empty if no kind of message did."""
        start, stop = round(since * 1e9), round(until * 1e9)
        took = defaultdict[Parcel, int](int)
        for thread, began, ended, of in list(self._long):
            took[of] += max(0, min(ended, stop) - max(began, start)) if thread == ident else 0
        most = max(took, key=lambda of: took[of], default=None)
        return fitting(most.words()) if most is not None and 2 * took[most] > stop - start else ""


#: Of the process.
MESSAGES_HERE = Messages()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=MESSAGES_HERE.forked)


def _bytes_of(frames: Any) -> int:
    return sum(map(nbytes_of, frames))
