"""Loads: tasks, results and graphs that event loops took long to send and receive, and findings of them."""

from __future__ import annotations

import builtins
import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from dask_efficiency.accounts.cluster.scheduler_loop import BY_VALUE, RECEIVING, SENDING
from dask_efficiency.accounts.lines import NOWHERE, Frame, is_import, place_of
from dask_efficiency.accounts.metered import BYTES, COUNT, ITEMS, MESSAGES, SECONDS
from dask_efficiency.report.lost_time import CauseLoss
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.sizes import LARGE_RESULTS
from dask_efficiency.report.values import MeteredRow
from dask_efficiency.show.figures import format_bytes, format_count, format_seconds, name_of, sentence
from dask_efficiency.show.finding import MOST, WORTH_FINDING

#: Prefix of the task that puts the result of a ``compute()`` together.
FINALIZE = "finalize"
#: Bytes of a task from which it carries an object: twenty times what Dask says of a task with its function by value. By
#: judgement.
HEAVY_BYTES = 50_000
#: Bytes of a graph from which it holds data, as of Dask's own warning.
LARGE_GRAPH_BYTES = 10_000_000
#: Bytes of one result, without objects in it, from which its size takes the time: twenty times as long as what is
#: asked for one. By judgement.
LARGE_RESULT_BYTES = 50_000_000
#: Bytes of one result of a class of its own from which it matters that tasks go to where it is. By judgement.
LARGE_OBJECT = 10_000_000
#: Types of libraries whose sizes Dask knows, with those derived from them; of another class it takes `sys.getsizeof`.
_SIZED = re.compile("[Aa]rray|Frame|Series|Index|Table|Batch|Dataset|Tensor|^cs[rc]_|^function$|^method$")
#: Ends of the words for several lines that sent the same.
_MORE_LINES = re.compile(r" and (?:(\d+) more lines|\S+:\d+)$")
#: Part of the largest graph's size from which all are taken for as large. By judgement.
SAME = 0.8
#: Bytes of tasks, as a multiple of those of graphs, up to which they are sent about once. By judgement.
ONCE = 2.0
#: Names of the messages of the scheduler and the workers.
TASKS, RESULTS, GRAPHS, TO_CLIENT = "tasks", "results", "graphs", "results to a client"
#: By label of messages, what they are of; results that workers receive are of workers.
_OF_LABELS = {
    f"{RECEIVING} tasks": TASKS,
    f"{SENDING} results to a worker": RESULTS,
    f"{RECEIVING} results": RESULTS,
    f"{SENDING} results to a client": TO_CLIENT,
}
SCHEDULER = "(scheduler)"


@dataclass(slots=True)
class Load:
    """Tasks, results or graphs of one prefix, as they travelled."""

    what: str
    prefix: str
    #: Seconds of each server's event loop by the type of the objects that took long to pickle.
    seconds: dict[str, defaultdict[str, float]] = field(default_factory=dict)
    nbytes: float = 0.0
    count: float = 0.0
    #: Objects in lists and the like.
    items: float = 0.0
    #: Bytes of one, if its median is known.
    median_bytes: float = 0.0
    function: Frame = NOWHERE
    #: True if the scheduler sends tasks as workers have room for them, not all at once.
    queued: bool = False

    @property
    def longest(self) -> float:
        """Seconds of the event loop that was busy with it most: the others were at the same time, or waited for it.

        Queued tasks are sent when a worker has room, which takes them in then: one after the other.
        """
        whole = {server: sum(types.values()) for server, types in self.seconds.items()}
        before = whole.pop(SCHEDULER, 0.0) if self.what == TASKS and self.queued else 0.0
        return before + max(whole.values(), default=0.0)

    @property
    def whole(self) -> float:
        """Seconds of all event loops."""
        return sum(sum(types.values()) for types in self.seconds.values())

    @property
    def type_name(self) -> str:
        """Type of the objects that took most time to pickle; empty if that took none long."""
        types = defaultdict[str, float](float)
        for row in self.seconds.values():
            for name, seconds in row.items():
                types[name] += seconds
        return max(filter(None, types), key=lambda name: types[name], default="")

    def add_seconds(self, server: str, type_name: str, seconds: float) -> None:
        """Add time of a server's event loop."""
        self.seconds.setdefault(server, defaultdict(float))[type_name] += seconds

    def take_seconds(self, server: str, seconds: float) -> None:
        """Take off time of a server's event loop in which something else was done."""
        types = self.seconds.get(server) or defaultdict[str, float](float)
        for name in sorted(types, key=lambda name: -types[name]):  # a block is of the objects that took longest
            taken = min(seconds, types[name])
            types[name] -= taken
            seconds -= taken

    @property
    def large_objects(self) -> str:
        """Class of large results whose size Dask may not know; empty for those that it knows."""
        known = self.items or self.each < LARGE_OBJECT or hasattr(builtins, self.type_name)
        return "" if self.what != RESULTS or known or _SIZED.search(self.type_name) else self.type_name

    @property
    def each(self) -> float:
        """Bytes of one."""
        return self.median_bytes or (self.nbytes / self.count if self.count else 0.0)


def loads(report: EfficiencyReport) -> list[Load]:
    """List what travelled; first what kept an event loop busy longest."""
    found: dict[tuple[str, str], Load] = {}
    loop, queued = report.scheduler_loop, math.isfinite(report.worker_saturation or math.inf)
    for part in loop.handlers if loop is not None else ():
        if part.kind in (SENDING, RECEIVING) and part.name in (TASKS, GRAPHS):
            load = found.setdefault((part.name, part.of_prefix), Load(part.name, part.of_prefix, queued=queued))
            load.add_seconds(SCHEDULER, part.carries, part.seconds)
            if (part.name, part.kind) == (GRAPHS, SENDING):  # by a client in the same process, which counts as received
                continue
            load.nbytes += part.total_bytes
            load.count += part.calls
            # Of a large graph among small ones, its own.
            load.median_bytes = max(load.median_bytes, part.largest_bytes if part.name == GRAPHS else part.median_bytes)
            if part.file:
                load.function = part.stack[0]
    for row in report.metered:
        label, _, kind = row.label.partition(": ")
        what = _OF_LABELS.get(label) if row.context == MESSAGES else None
        if what is not None:
            load = found.setdefault((what, row.prefix), Load(what, row.prefix))
            _add(load, row, kind, is_sent=label.startswith(SENDING))
    for block in report.loop_blocks:
        if is_import(block.stack):  # the first object of a library imports it
            for load in found.values():
                if f"{block.doing} ".startswith(f"{RECEIVING} {load.what} of {load.prefix} "):
                    load.take_seconds(block.worker, block.seconds)
    if (graphs := found.get((GRAPHS, ""))) is not None:
        _add_contents(graphs, found)
    return sorted(found.values(), key=lambda load: -load.longest)


def _add_contents(graphs: Load, found: dict[tuple[str, str], Load]) -> None:
    """Add the way of large objects in graphs to that of the graphs: to a worker, and from there to others.

    Tasks that carry far more than graphs have in all share an object, which is pickled for each of them.
    """
    contents = [
        load
        for load in found.values()
        if load.what == TASKS and load.each >= HEAVY_BYTES and load.nbytes <= ONCE * graphs.nbytes
    ]
    graphs.prefix = max(contents, key=lambda load: load.nbytes).prefix if contents else ""
    for load in contents:
        for key in ((TASKS, load.prefix), (RESULTS, load.prefix)):
            for server, types in found.pop(key).seconds.items() if key in found else ():
                for type_name, seconds in types.items():
                    graphs.add_seconds(server, type_name, seconds)


def _add(load: Load, row: MeteredRow, kind: str, *, is_sent: bool) -> None:
    if row.unit == SECONDS:
        load.add_seconds(row.worker, kind, row.value)
    elif is_sent and row.unit in (BYTES, COUNT, ITEMS):
        name = {BYTES: "nbytes", COUNT: "count", ITEMS: "items"}[row.unit]
        setattr(load, name, getattr(load, name) + row.value)


#: Losses that are explained by what travels, by the kind of its finding; so is the GIL if event loops held it.
_WAITING = ("idle/scheduler", "idle/round-trips", "idle/unknown", "idle")
_GIL = "thread-noncpu/gil"
OF_LOOPS = ("overhead", "overhead/unknown", "overhead/hand-over", "overhead/event-loop")
EXPLAINS: Mapping[str, tuple[str, ...]] = {
    "heavy-tasks": (*_WAITING, *OF_LOOPS, "idle/graph", "idle/parallelism"),
    "slow-tasks": (*_WAITING, *OF_LOOPS),
    "pickled-results": ("waiting-on-data", *_WAITING, *OF_LOOPS),
    "large-results": ("waiting-on-data", *_WAITING, *OF_LOOPS),
    "large-graph": (*_WAITING, *OF_LOOPS, "idle/graph", "idle/parallelism", "waiting-on-data"),
}


def kind_of(load: Load) -> str:
    """Kind of the finding of a load; empty if nothing is wrong with it."""
    if load.what == GRAPHS:  # with a prefix, of tasks that carry what came in small graphs
        return "large-graph" if load.each >= LARGE_GRAPH_BYTES or load.prefix else ""
    if load.what == TASKS and load.each:
        return "heavy-tasks" if load.each >= HEAVY_BYTES else "slow-tasks" if load.type_name == BY_VALUE else ""
    if load.what != RESULTS or not load.type_name:
        return ""
    # tables and arrays are pickled as buffers: where one is large, it is its size that takes the time
    of_arrays = load.type_name == "ndarray" and not load.items
    if load.each >= (LARGE_RESULTS if of_arrays else LARGE_RESULT_BYTES) and not load.items:
        return "large-results"
    return "" if of_arrays else "pickled-results"  # small arrays travel as they are: it is their number that takes long


def heavy_loads(report: EfficiencyReport) -> list[tuple[Load, str, float]]:
    """Loads that are worth a finding, with its kind, and the client's own seconds of it."""
    found = []
    for load in loads(report):
        kind = kind_of(load)
        uploaded = report.phases.get("upload", 0.0) if load.what == GRAPHS else 0.0
        on_client = min(max(uploaded, 0.0), report.client_seconds)
        if kind and load.longest + on_client >= WORTH_FINDING * report.wall_clock_seconds:
            found.append((load, kind, on_client))
    return found


def objects_fetched(report: EfficiencyReport) -> float:
    """Objects in lists and the like that were pickled for clients."""
    return sum(load.items for load in loads(report) if load.what == TO_CLIENT)


def fetched_text(report: EfficiencyReport) -> str:
    """Largest results that came to clients, in words; empty if they are small."""
    fetched = [load for load in loads(report) if load.what == TO_CLIENT]
    most = max(fetched, key=lambda load: load.nbytes, default=None)
    if most is None or most.nbytes < LARGE_RESULTS:
        return ""
    of = "" if most.prefix.startswith(FINALIZE) else f" of {name_of(most.prefix)}"
    items = format_count(round(most.items), "object") if most.items else ""
    what = ", ".join(filter(None, (name_of(most.type_name), items, format_bytes(most.nbytes))))
    return f"{format_count(round(most.count), 'result')}{of} ({what})"


class Told(NamedTuple):
    """Content of the finding of a load."""

    kind: str
    where: str
    large_objects: str
    #: Thread-seconds that it explains; seconds of the wall clock; and of these the client's own.
    lost_seconds: float
    saves_seconds: float
    on_client: float


def told_by_loads(
    report: EfficiencyReport, waited_for: str, worth: Sequence[CauseLoss], *, loops_held_gil: bool
) -> tuple[list[Told], list[CauseLoss]]:
    """Loads that are worth a finding, and the losses that they do not explain.

    A load explains losses if its event loop was busy with it for most of that time; too few tasks at a time only if
    all ``waited_for`` the task in question, and waiting for the GIL only if event loops held it.
    """
    found, left, threads = list[Told](), list(worth), report.mean_threads
    for load, kind, on_client in heavy_loads(report):
        if load.what == RESULTS and waited_for.startswith(FINALIZE):  # they are put together for the client
            continue
        explained = (*EXPLAINS[kind], *((_GIL,) if loops_held_gil else ()))
        parts = [part for part in left if part.kind in explained]
        parts = [part for part in parts if part.cause != "parallelism" or load.prefix == waited_for]
        lost = sum(part.ns for part in parts) / 1e9
        if (load.longest + on_client) * threads < MOST * lost:
            parts, lost = [], load.longest * threads
        left = [part for part in left if part not in parts]
        where = sentence(place_of_load(load, report.computed_by))
        found.append(Told(kind, where, load.large_objects, lost, lost / threads if threads else 0.0, on_client))
    return found, left


def _lines_in(words: str) -> int:
    """Number of lines that these words, of :func:`~dask_efficiency.accounts.lines.sending_lines`, are for."""
    found = _MORE_LINES.search(words)
    return 1 if found is None else 1 + int(found[1] or 1)


def place_of_load(load: Load, lines: Mapping[str, str] = MappingProxyType({})) -> str:
    """Words on the load: how much of it, and whose; ``lines`` sent the tasks of each prefix."""
    size, kind = format_bytes(load.each), name_of(load.type_name)
    if load.what == GRAPHS:
        of = ", ".join(filter(None, (name_of(load.prefix), kind)))
        one = ", the largest of " if load.nbytes < SAME * load.count * load.each else " of "
        sent = f"{format_count(round(load.count), 'graph')}{one}{size}" + (f" ({of})" if of else "")
        senders = [*dict.fromkeys(lines.values())]
        # What is in each of several graphs that are alike was sent by as many lines.
        of_each = [line for line in senders if one == " of " and 1 < _lines_in(line) == round(load.count)]
        by = senders[0] if len(senders) == 1 else lines.get(load.prefix, of_each[0] if len(of_each) == 1 else "")
        return f"{sent}: {by}" if by else sent
    if load.what == RESULTS:
        of = f" of {name_of(load.prefix)}" if load.prefix else ""
        of = f"{format_count(round(load.count), 'result')}{of} ({kind}, {size} each)"
        computed = f", computed by {lines[load.prefix]}" if load.prefix in lines else ""
        return f"{of}, {format_seconds(load.whole)} of pickling and unpickling{computed}"
    where = f": `{name_of(load.function.function)}`, {name_of(place_of(load.function))}" if load.function.file else ""
    carried = f" ({kind})" if kind else ""
    of = f" of {name_of(load.prefix)}" if load.prefix else ""
    sent = f", computed by {sentence(lines[load.prefix])}" if load.prefix in lines else ""
    return f"each task{of} carries {size}{carried}{where}{sent}"
