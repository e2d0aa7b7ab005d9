"""Watch on a client while a report is open: its phases, the graphs it sends, and the workers it asks for."""

from __future__ import annotations

import linecache
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import islice
from types import FrameType
from typing import Any

from distributed.utils import sync
from tornado.ioloop import PeriodicCallback

from dask_efficiency.accounts.cluster.windows import MAX_ARRIVALS, Interval
from dask_efficiency.accounts.intake import fitting
from dask_efficiency.accounts.lines import MAX_GRAPHS, Frame, graph_name, is_the_users, place_of
from dask_efficiency.plugin.patches import CLIENT_CLASS, Replacements
from dask_efficiency.report.loops import needs_last
from dask_efficiency.report.making import MadeLines
from dask_efficiency.report.source_files import cell_of
from dask_efficiency.report.values import PHASES, GraphsSent

#: Lines kept per graph, and lines whose graphs have a span of their own. A guess, to bound memory and the report.
MAX_LINES = 100
#: Newest futures that are looked at to tell if any is outstanding. A guess that bounds the cost of each graph.
MAX_FUTURES = 100
#: Characters kept of a line's source. A guess.
MAX_SOURCE = 200
#: Phases by precedence: of several at an instant, the first counts.
_PRECEDENCE = ("run", "schedule", "seceded", "upload", "optimize", "gather", "calls")


def split_phases(intervals: dict[str, list[Interval]], *, start: int, stop: int) -> dict[str, float]:
    """Seconds of a window in each phase, without overlap, in the order of :data:`PHASES`.

    The intervals, in nanoseconds of one clock, may overlap; they are cut to the window.
    """
    spent: dict[str, int] = {}
    covered: list[Interval] = []
    for phase in _PRECEDENCE:
        cut = ((max(since, start), min(until, stop)) for since, until in intervals.get(phase, ()))
        before, covered = covered, merged((*covered, *cut))
        spent[phase] = _length(covered) - _length(before)
    return {phase: spent[phase] / 1e9 for phase in PHASES}


def _length(pairs: Iterable[Interval]) -> int:
    return sum(stop - start for start, stop in pairs)


def uploads_until_taken_in(sent: Iterable[Interval], taken_in: list[Interval]) -> list[Interval]:
    """Extend each upload until the scheduler starts to take in a graph."""
    starts = sorted(start for start, _ in taken_in)
    return [(start, next((t for t in starts if t >= start), stop)) for start, stop in sent]


def merged(pairs: Iterable[Interval]) -> list[Interval]:
    """Union of intervals, in order."""
    merged: list[Interval] = []
    for start, stop in sorted(pair for pair in pairs if pair[0] < pair[1]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return merged


class ClientObserver:
    """Observes a client object while reports are open on it, and restores it afterwards.

    The process-wide ``scheduler=`` setting is not touched. The class of this one client is replaced by a subclass that
    notes when a graph is asked for (``get`` is looked up before optimisation begins), sent and gathered, and when a
    call waits for the client's event loop, and that tags what is sent with the report's span. Tagging happens after
    fusion, so observing changes no graph. If upstream renames a method, only that phase is missing from the report.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._replacements = Replacements()
        #: Those that are open; another thread may end one while a graph is sent.
        self._reports: tuple[ClientPhases, ...] = ()

    @classmethod
    def of(cls, client: Any) -> ClientObserver:
        """Observer of this client; an existing one is shared."""
        return client.__dict__.get("_dask_efficiency_observer") or cls(client)

    def add(self, phases: ClientPhases) -> None:
        """Start observing for one more report."""
        self._reports += (phases,)
        if len(self._reports) == 1:
            self._client._dask_efficiency_observer = self
            self._replacements.put(CLIENT_CLASS, self._client, self._observed)
        phases.made.open(self._client)

    def remove(self, phases: ClientPhases) -> None:
        """Stop observing for a report; the last one restores the client."""
        self._reports = tuple(other for other in self._reports if other is not phases)
        phases.made.close()
        if not self._reports:
            self._replacements.put_back()
            self._client.__dict__.pop("_dask_efficiency_observer", None)

    def _asked(self) -> None:
        for phases in self._reports:
            phases.asked()

    def _observed(self, base: Any) -> type:
        observer = self

        def get(client: Any) -> Any:
            observer._asked()
            return super(observed, client).get  # type: ignore[misc]  # made below

        def asking(name: str) -> Callable[..., Any]:
            def method(client: Any, *args: Any, **kwargs: Any) -> Any:
                observer._asked()
                return getattr(super(observed, client), name)(*args, **kwargs)

            return method

        def _graph_to_futures(client: Any, *args: Any, **kwargs: Any) -> Any:
            original = super(observed, client)._graph_to_futures  # type: ignore[misc]  # made below
            return observer.send(original, args, kwargs)

        async def _gather(client: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True  # in notebooks: errors of tasks pass here
            began = time.monotonic_ns()
            try:
                return await super(observed, client)._gather(*args, **kwargs)  # type: ignore[misc]  # made below
            finally:
                for phases in observer._reports:
                    phases.intervals["gather"].append((began, time.monotonic_ns()))

        def sync(client: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            began = time.monotonic_ns()
            try:
                return super(observed, client).sync(*args, **kwargs)  # type: ignore[misc]  # made below
            finally:
                for phases in observer._reports:
                    phases.intervals["calls"].append((began, time.monotonic_ns()))

        body: dict[str, Any] = {"get": property(get), "__module__": base.__module__, "__qualname__": base.__qualname__}
        body |= {name: asking(name) for name in ("compute", "persist", "submit", "map")}
        body |= {f.__name__: f for f in (_graph_to_futures, _gather, sync) if hasattr(base, f.__name__)}
        observed: Any = type(base.__name__, (base,), body)
        return observed  # type: ignore[no-any-return]

    def send(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Send a graph with the report's span, and note the times."""
        import dask

        reports = self._reports
        if not reports:
            return original(*args, **kwargs)
        began = time.monotonic_ns()
        frame: FrameType | None = sys._getframe(1)
        line, source = users_line(frame)
        if not line:  # a library may send from the event loop while the main thread waits
            line, source = users_line(frame := waiting_frame())
        graph = graph_name(kwargs.get("keys", args[1] if len(args) > 1 else ()))
        waited = not has_outstanding(self._client)
        for phases in reports:
            phases.rounds += waited
            phases.sending(began, graph, line, source)
            phases.count(line, waited, frame)
        annotations = {}
        if "span" not in dask.get_annotations():  # the user's own spans keep their names
            spans = [(phases.name, phases.span) for phases in reports]
            if span := reports[-1].span_of(line):  # distinguishes one compute() from another
                spans.append((line, span))
            names, ids = zip(*spans, strict=True)
            annotations["span"] = {"name": names, "ids": ids}
        try:
            with dask.annotate(**annotations):
                futures = original(*args, **kwargs)
            for phases in reports:
                phases.sent += 1
            return futures
        finally:
            stop = time.monotonic_ns()
            for phases in reports:
                phases.intervals["upload"].append((began, stop))


def has_outstanding(client: Any) -> bool:
    """Check if a client waits for any of its newest results."""
    try:
        return any(state.status == "pending" for state in islice(reversed(client.futures.values()), MAX_FUTURES))
    except (RuntimeError, AttributeError, TypeError):  # its event loop changed them, or upstream did
        return True


def waiting_frame() -> FrameType | None:
    """Frame of the main thread if it waits for the client's event loop."""
    frame = found = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and frame.f_code is not sync.__code__:
        frame = frame.f_back
    return None if frame is None else found


def users_frame(frame: FrameType | None) -> FrameType | None:
    """Innermost frame of the user's own code in a stack."""
    while frame is not None and not is_the_users(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def users_line(frame: FrameType | None) -> tuple[str, str]:
    """Innermost line of the user's own code in a stack, and its source."""
    frame = users_frame(frame)
    if frame is None:
        return "", ""
    file, lineno = frame.f_code.co_filename, frame.f_lineno
    source = linecache.getline(file, lineno, frame.f_globals).strip()
    if source.startswith(_MAGIC):  # the lines below it are not known
        source = ""
    # The place is the name of a span, which travels with the tasks.
    place = fitting(place_of(Frame(frame.f_code.co_name, cell_of(file), lineno)))
    return place, fitting(source, MAX_SOURCE)


class ClientPhases:
    """Times at which one report's client optimised, uploaded and gathered."""

    def __init__(self, name: str, span: str) -> None:
        self.name, self.span = name, span
        self.intervals: dict[str, list[Interval]] = {phase: [] for phase in PHASES}
        #: Graphs that were sent, and those before which none of the client's results was outstanding.
        self.sent = self.rounds = 0
        #: By graph name, the user's lines that sent it with their source; both are empty for unknown lines.
        self.lines: dict[str, dict[str, str]] = {}
        #: Likewise by line.
        self.sent_by: dict[str, GraphsSent] = {}
        self.made = MadeLines()
        #: File and number of each line.
        self._code: dict[str, tuple[str, int]] = {}
        self._spans: dict[str, str] = {}
        self._asked_at: int | None = None

    def asked(self) -> None:
        """A graph was asked for: optimisation lasts until it is sent."""
        self._asked_at = time.monotonic_ns()

    def sending(self, at: int, graph: str, line: str, source: str) -> None:
        """A graph is ready to be sent from a line."""
        asked, self._asked_at = self._asked_at, None
        if asked is not None:
            self.intervals["optimize"].append((asked, at))
        if graph and (graph in self.lines or len(self.lines) < MAX_GRAPHS):
            lines = self.lines.setdefault(graph, {})
            if len(lines) < MAX_LINES:
                lines[line] = source

    def count(self, line: str, waited: bool, frame: FrameType | None = None) -> None:
        """Count a graph of a line, in a stack; ``waited`` is true if nothing was outstanding before it."""
        if line and (line in self.sent_by or len(self.sent_by) < MAX_LINES):
            sent = self.sent_by.get(line, GraphsSent(0, 0))
            if not sent.graphs and (there := users_frame(frame)) is not None:
                self._code[line] = there.f_code.co_filename, there.f_lineno
            self.sent_by[line] = GraphsSent(sent.graphs + 1, sent.rounds + waited)

    def by_line(self) -> dict[str, GraphsSent]:
        """Graphs by line; of the line that waited for most, it is known if each needs the one before."""
        found = dict(self.sent_by)
        line = max(found, key=lambda line: found[line].rounds, default="")
        if line in self._code and found[line].rounds > 1:
            file, lineno = self._code[line]
            found[line] = replace(found[line], needs_last=needs_last("".join(linecache.getlines(file)), lineno))
        return found

    def span_of(self, line: str) -> str:
        """Id of the span of a line; empty for an unknown line, and beyond :data:`MAX_LINES`."""
        if line and line not in self._spans and len(self._spans) < MAX_LINES:
            self._spans[line] = str(uuid.uuid4())
        return self._spans.get(line, "")


#: Beginning of the call that IPython makes of another cell magic, such as ``%%time``.
_MAGIC = "get_ipython().run_cell_magic("
#: Milliseconds between two looks at the cluster manager, which has no hook for requested workers. A guess.
LOOK_MS = 200


class ScalingWatch:
    """Notes when a worker's name first appears in the plan of a cluster manager, if it has one."""

    def __init__(self, cluster: Any) -> None:
        """Begin to look; called on an event loop."""
        self._cluster = cluster
        #: Name to the first instant at which it was seen, monotonic nanoseconds.
        self._asked: dict[str, int] = {}
        self._before = self._plan()
        self._callback = PeriodicCallback(self._look, LOOK_MS)
        if self._before is not None:
            self._callback.start()

    def stop(self) -> None:
        """Look once more, then stop."""
        self._callback.stop()
        self._look()

    def asked_for(self, worker: str) -> int | None:
        """Time of the request for a worker, monotonic nanoseconds; None if unknown."""
        return self._asked.get(worker)

    def _look(self) -> None:
        now, plan, before = time.monotonic_ns(), self._plan(), self._before
        for name in plan - before - self._asked.keys() if plan is not None and before is not None else ():
            if len(self._asked) < MAX_ARRIVALS:
                self._asked[name] = now

    def _plan(self) -> set[str] | None:
        """Names of the requested workers; None if the manager has no plan."""
        try:
            return {str(name) for name in self._cluster.plan}
        except Exception:  # another library's manager: may have no plan, and raise anything
            return None
