"""``efficiency_report``: a report of the work inside a ``with`` block."""

from __future__ import annotations

import asyncio
import math
import os
import sys
import threading
import time
import uuid
import warnings
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import Any

from distributed import Client, get_client

from dask_efficiency.accounts.buckets import UNKNOWN, Bucket, cause_name
from dask_efficiency.accounts.cluster.failures import error_text
from dask_efficiency.accounts.cluster.windows import Interval
from dask_efficiency.accounts.intake import fitting
from dask_efficiency.accounts.lines import sending_lines
from dask_efficiency.accounts.slow_worker import SlowWorker
from dask_efficiency.plugin import names, options
from dask_efficiency.plugin.client import NotRegisteredError, ask, clock_offset, register
from dask_efficiency.plugin.environment import of_client
from dask_efficiency.plugin.guard import Decoration, decorate, decoration
from dask_efficiency.plugin.patches import stays_off
from dask_efficiency.plugin.scheduler.plugin import EfficiencyPlugin
from dask_efficiency.plugin.source import block_at, calling_line
from dask_efficiency.plugin.wings import offered
from dask_efficiency.report.client_sampler import SAMPLER, ClientWindow
from dask_efficiency.report.client_watch import (
    ClientObserver,
    ClientPhases,
    ScalingWatch,
    merged,
    split_phases,
    uploads_until_taken_in,
)
from dask_efficiency.report.conditions_of import has_own_threads
from dask_efficiency.report.head import given_labels
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.replies import ask_report, report_of
from dask_efficiency.report.source_files import in_the_script
from dask_efficiency.report.turnover import Arrival
from dask_efficiency.report.values import ClientRow, ProfiledOperator
from dask_efficiency.report.wall_clock import kept_in_bounds
from dask_efficiency.runs.path.parts import PathSummary
from dask_efficiency.runs.path.path import critical_path
from dask_efficiency.runs.recording.recordings import unpack
from dask_efficiency.runs.stragglers.long_tail import long_tail
from dask_efficiency.runs.stragglers.offline import with_cost
from dask_efficiency.runs.trace.build import build
from dask_efficiency.runs.trace.errors import EmptyTraceError
from dask_efficiency.runs.trace.run_trace import RunTrace, cost_note
from dask_efficiency.show.figures import harmless, sentence
from dask_efficiency.show.finding import MOST
from dask_efficiency.show.log import logger
from dask_efficiency.straggler.breakdowns import explained, with_lines

#: Note in the first report of a client whose scheduler has the plugin only while reports are open.
LEASED = "the plugin was registered for this report only; client.register_plugin(EfficiencyPlugin()) keeps it"
_NOTIFIED: set[str] = set()

_OBSERVED, _NO_REPORT = "record of what the client did", "there is no report"
#: Note in a report with a trace if simulation is not installed.
NOT_SIMULATED = "what cures save is not known: dask_efficiency.simulation is not installed"
#: Tasks of the long tail that a report keeps. A guess.
MAX_LONG_TASKS = 20


class efficiency_report:  # noqa: N801  # named as distributed names its context managers
    """Report where the cluster's threads spent the time inside a ``with`` or ``async with`` block.

    After the block, the object is the report: it has every attribute and method of
    :class:`~dask_efficiency.EfficiencyReport`, and its display in a terminal or notebook. If the scheduler lacks the
    plugin, it is registered as long as reports are open.

    Parameters
    ----------
    filename
        Path or fsspec URL of the report, written when the block ends: a page
        (:meth:`~dask_efficiency.EfficiencyReport.to_html`) if the name ends in ``.html`` or ``.htm``, JSON otherwise.
        Both hold the source of the block (see ``source``). May also be given as the first, positional argument.
    client
        Client whose cluster is reported; the current one by default. May also be given first.
    name
        Name of the report, and of the span of tasks submitted in the block outside the user's own spans; each line that
        submits tasks has a span in it ("efficiency_report/etl.py:42"). Upstream gives all tasks of one name that exist
        at the same time (such as ``client.submit(f)`` from two clients) the span of the first one, so spans are
        distinguished only if task names differ.
    storage_options
        Passed to fsspec with ``filename``.
    trace
        True to record every task and transfer in the block as :attr:`trace`.
    savings
        Most seconds that the end of the block takes to simulate cures, with ``trace=True``; 5 by default. Savings of
        cures that are not simulated by then are bounds.
    only
        True to report only this client's work in the block, with its share of the time of free threads
        (:attr:`~dask_efficiency.EfficiencyReport.by_span` explains the share), on a cluster that others use, too. The
        buckets add up to that part of nthreads x elapsed. Figures of all clients together, such as the timeline, are
        left out, and so are ``no-work`` and the results of a trace.
    labels
        Labels of the report by name, such as ``{"branch": "main"}``, by which runs are chosen in a history.
    source
        True to keep source code: that of the block, and of the lines in it that sent tasks. The default is
        ``efficiency.source`` in Dask's configuration; always False if the scheduler's plugin forbids it.

    Raises
    ------
    TypeError
        If the first argument is neither a path nor a client, or is given again by name.
    ValueError
        If ``savings`` is below 0; on entering, if there is no client.
    NotRegisteredError
        On entering, if the scheduler cannot load the plugin.

    Examples
    --------
    >>> with efficiency_report() as report:  # doctest: +SKIP
    ...     df.groupby("name").x.mean().compute()
    >>> report.efficiency  # doctest: +SKIP
    0.62
    """

    def __init__(
        self,
        first: str | os.PathLike[str] | Client | None = None,
        /,
        *,
        filename: str | os.PathLike[str] | None = None,
        client: Client | None = None,
        name: str | None = None,
        storage_options: dict[str, Any] | None = None,
        trace: bool = False,
        savings: float | None = None,
        only: bool = False,
        source: bool | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        self._filename, self._client = _resolve_first(first, filename, client)
        self._storage_options = storage_options or {}
        # It travels with the tasks.
        self._name = fitting(name) if name else "efficiency_report"
        self._traced, self._only, self._source = trace, only, source
        self._labels = given_labels(labels or {})
        if savings is not None and not 0 <= savings < math.inf:
            raise ValueError(f"savings is {savings!r:.80}; expected seconds, 0 or more and finite")
        self._simulated = {} if savings is None else {"seconds": savings}
        self._opened = False
        #: True if the report holds source code, by the option and the scheduler's plugin.
        self.holds_source = True
        self._report: EfficiencyReport | None = None
        self._why_not = "the report is there when its block has ended"

    def __enter__(self) -> efficiency_report:
        client = self._begin(sys._getframe(1))
        if client.asynchronous:
            raise RuntimeError("the client is asynchronous; use `async with efficiency_report()`")
        with self._harmless(_NO_REPORT, but=NotRegisteredError):
            client.sync(self._open)
        return self

    def __exit__(self, *failure: object) -> None:
        if not self._opened:  # opening failed, with a warning
            return
        self._ended_by = error_text(failure[1] if failure[1:] else None)
        with self._sampling_ends(), self._harmless(_NO_REPORT):
            self._client.sync(self._close)  # type: ignore[union-attr]
            with self._harmless(f"the report is here, but not in {self._filename!r}"):
                self._save()

    async def __aenter__(self) -> efficiency_report:
        client = self._begin(sys._getframe(1))
        if getattr(client, "_asynchronous", False):
            self._task = asyncio.current_task()
        else:  # `dask-efficiency run` opens it on the event loop, while the script goes on in the main thread
            self._thread = threading.main_thread().ident or 0
        with self._harmless(_NO_REPORT, but=NotRegisteredError):
            await self._open()
        return self

    async def __aexit__(self, *failure: object) -> None:
        if not self._opened:  # opening failed, with a warning
            return
        self._ended_by = error_text(failure[1] if failure[1:] else None)
        with self._sampling_ends(), self._harmless(_NO_REPORT):
            await self._close()
            with self._harmless(f"the report is here, but not in {self._filename!r}"):
                await asyncio.to_thread(self._save)

    @contextmanager
    def _sampling_ends(self) -> Iterator[None]:
        """End the samples of the client after the block, whatever becomes of the report."""
        try:
            yield
        finally:
            self._phases.made.close()
            if self._sampled is not None:
                SAMPLER.close(self._sampled)

    @contextmanager
    def _harmless(self, outcome: str, but: type[Exception] | tuple[()] = ()) -> Iterator[None]:
        """Warn of a failure, and explain when the report is asked for: the user's results must not be lost with it."""
        try:
            yield
        except but:
            raise
        except Exception as failure:
            why = f"{outcome}: {type(failure).__name__}: {sentence(str(failure))}"
            if self._report is None:
                self._why_not = why
            warnings.warn(f"efficiency_report {self._name!r}: {harmless(why)}", RuntimeWarning, stacklevel=4)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.report, name)

    def __repr__(self) -> str:
        if self._report is None:
            return f"<efficiency_report {self._name!r}: {self._why_not}>"
        return repr(self._report)

    def __str__(self) -> str:
        return repr(self) if self._report is None else str(self._report)

    def __rich_console__(self, console: Any, options: Any) -> Generator[Any, None, None]:
        yield self._report if self._report is not None else repr(self)

    def _repr_html_(self) -> str | None:
        return self._report._repr_html_() if self._report is not None else None

    @property
    def report(self) -> EfficiencyReport:
        """The report itself, a value that outlives the client."""
        if self._report is None:
            raise RuntimeError(self._why_not)
        return self._report

    @property
    def profile(self) -> Any:
        """In the block, a function: ``report.profile("train_step", per_worker=3)``. Afterwards, the report's own rows.

        The function runs the next ``per_worker`` tasks of a prefix under ``torch.profiler`` on each worker, one at a
        time per process. The profiles are in :attr:`trace`, so ``trace=True`` is needed, and
        :func:`~dask_efficiency.critical_path` leads into their kernels. With an asynchronous client it is awaited.
        """
        return self._profile_tasks if self._report is None else self._report.profile

    def _profile_tasks(self, prefix: str, *, per_worker: int = 1) -> Any:
        if not self._traced:
            raise ValueError("profiles are kept with the trace; expected efficiency_report(trace=True)")
        prefixes = options.given({"profile": {prefix: per_worker}})["profile"]
        client = self._client
        if client is None or not self._opened:
            raise RuntimeError("the report is not open: profile tasks inside its block")
        return client.sync(ask, client, names.PROFILE, window=self._window, prefixes=prefixes)

    @property
    def trace(self) -> RunTrace | None:
        """Record of the block, task by task; None without ``trace=True``."""
        self.report  # noqa: B018  # raises before the end of the block
        return self._trace

    # -- the window --------------------------------------------------------------------------

    def _begin(self, caller: FrameType | None) -> Client:
        if self._client is None:
            self._client = get_client()
        self._opened, self._report, self._ended_by = False, None, ""
        self._trace: RunTrace | None = None
        self._observer: ClientObserver | None = None
        self._sampled: ClientWindow | None = None
        self._notes: list[str] = []
        self._window, self._phases = uuid.uuid4().hex, ClientPhases(self._name, str(uuid.uuid4()))
        self._place = calling_line(caller)
        self._thread, self._task = threading.get_ident(), None
        self._started = time.time()
        return self._client

    async def _open(self) -> None:
        client = self._client
        assert client is not None
        source = options.given({"source": self._source}).get("source", True)
        await register(client, EfficiencyPlugin.leased_to(client.id))
        try:
            reply = await ask(
                client,
                names.OPEN,
                window=self._window,
                client=client.id,
                span=self._phases.span,
                trace=bool(self._traced),
                only=bool(self._only),
            )
            self.holds_source = source and reply.get("source", True)
            self._behind = await clock_offset(client)
        except BaseException:
            await ask(client, names.RELEASE, client=client.id, window=self._window)
            raise
        self._scaling = ScalingWatch(client.cluster)
        self._began = time.monotonic_ns()
        if reply["leased"] and client.id not in _NOTIFIED:
            _NOTIFIED.add(client.id)
            self._notes.append(LEASED)
            logger.info("dask_efficiency: %s", LEASED)
        self._opened = True
        with decoration(_OBSERVED, self._notes):
            (observer := ClientObserver.of(client)).add(self._phases)
            self._observer = observer
            self._sampled = ClientWindow(client, self._thread, self._task)
            SAMPLER.open(self._sampled)

    async def _close(self) -> None:
        client = self._client
        assert client is not None
        if self._observer is not None:
            with decoration(_OBSERVED, self._notes):
                self._observer.remove(self._phases)
        stopped, self._task = time.monotonic_ns(), None  # its result is not ours to keep
        if self._sampled is not None:
            SAMPLER.close(self._sampled)
            if self._sampled.off is not None:
                self._notes.append(f"the client was not sampled: {self._sampled.off}")
        self._scaling.stop()
        try:
            payload = await ask_report(client, names.CLOSE, window=self._window, graphs=self._phases.sent)
        finally:
            await ask(client, names.RELEASE, client=client.id)
        self._report = await asyncio.to_thread(self._report_from, payload, stopped)

    def _report_from(self, payload: dict[str, Any], stopped: int) -> EfficiencyReport:
        lines, sent, before = self._phases.lines, payload["sent"], dict(payload["sent_before"])
        if not self.holds_source:
            payload["code"] = ()
            lines = {graph: dict.fromkeys(sources, "") for graph, sources in lines.items()}

        found, missing = decorate(
            [
                Decoration("trace", "trace", lambda: self._trace_of(payload.get("trace"))),
                Decoration("phases", "record of the client's phases", lambda: self._split(payload, stopped)),
                Decoration("arrivals", "list of workers that came", lambda: self._arrivals(payload)),
                Decoration("graphs", "number of graphs", lambda: self._phases.sent),
                Decoration("rounds", "number of rounds", lambda: self._phases.rounds),
                Decoration("client", "profile of the client", lambda: self._client_rows(payload, stopped)),
                Decoration("sent_by", "number of graphs by line", self._phases.by_line),
                Decoration("made", "list of lines that made collections", self._phases.made.by_line),
                Decoration("settings", "list of the client's settings", of_client),
                Decoration("code", "source listing", lambda: block_at(self._place if self.holds_source else None)),
                Decoration(
                    "computed_by", "list of lines that sent graphs", lambda: before | sending_lines(sent, lines)
                ),
            ]
        )
        self._trace = trace = found.pop("trace", None)
        notes = (*self._notes, *self._phases.made.notes(), *stays_off(), *missing)
        report = report_of(payload, name=self._name, started=self._started, notes=notes)
        settings, code = found.pop("settings", {}), report.code or found.pop("code", ())
        found |= {"ended_by": self._ended_by, "labels": self._labels}
        report = replace(report, **{**found, "environment": {**report.environment, **settings}, "code": code})
        if trace is None or self._only:
            return replace(report, trace=trace)
        self._trace = trace = replace(trace, core_waits=_waits(report, "core"), gil_waits=_waits(report, "gil"))
        return _with_trace(report, trace, **self._simulated)

    def _client_rows(self, payload: dict[str, Any], stopped: int) -> tuple[ClientRow, ...]:
        if self._sampled is None or "running" not in payload:
            return ()
        busy = merged(_shifted((*payload.get("graphs", ()), *payload["running"]), -self._behind))
        rows = self._sampled.rows(stopped, busy)
        return tuple(replace(row, stack=tuple(map(in_the_script, row.stack))) for row in rows)

    def _arrivals(self, payload: dict[str, Any]) -> tuple[Arrival, ...]:
        """Workers that joined, with the time at which the cluster's manager was asked for each."""

        def after(at: int | None) -> float:
            return math.nan if at is None else (at - payload["opened"]) / 1e9

        def asked(name: str, joined: int) -> int | None:
            at = self._scaling.asked_for(name)
            # A worker that joins between two looks at the manager's plan is seen there too late.
            return None if at is None else min(at + self._behind, joined)

        return tuple(
            Arrival(name, after(asked(name, joined)), after(joined), after(first_task))
            for name, (joined, first_task) in payload.get("arrivals", {}).items()
        )

    def _save(self) -> None:
        if self._filename is not None:
            report, is_page = self.report, self._filename.lower().endswith((".html", ".htm"))
            (report.to_html if is_page else report.save)(self._filename, **self._storage_options)

    def _trace_of(self, payload: dict[str, Any] | None) -> RunTrace | None:
        if payload is None:
            return None
        assert self._client is not None
        phases = {phase: _shifted(pairs, self._behind) for phase, pairs in self._phases.intervals.items()}
        recording = unpack(payload)
        return build(recording, name=self._name, start=payload["start"], phases=phases, client=self._client.id)

    def _split(self, payload: dict[str, Any], stopped: int) -> dict[str, float]:
        if "graphs" not in payload or "running" not in payload:  # the scheduler says why
            return {}
        graphs, running = (_shifted(payload[name], -self._behind) for name in ("graphs", "running"))
        uploads = uploads_until_taken_in(self._phases.intervals["upload"], graphs)
        seceded = _shifted(payload.get("seceded", ()), -self._behind)
        known = {"upload": uploads, "schedule": graphs, "run": running, "seceded": seceded}
        intervals = {**self._phases.intervals, **known}
        return split_phases(intervals, start=self._began, stop=stopped)


def _shifted(pairs: Iterable[Interval], by: int) -> list[Interval]:
    return [(start + by, stop + by) for start, stop in pairs]


def _resolve_first(first: Any, filename: Any, client: Any) -> tuple[str | None, Client | None]:
    """Resolve the first argument, a file as with Dask's ``performance_report``, or a client."""
    if isinstance(first, Client) and client is None:
        first, client = None, first
    if filename is None:
        first, filename = None, first
    if first is not None:
        raise TypeError(f"{first!r:.80} is given first, and again by its name; expected one file and one client")
    if filename is not None and not isinstance(filename, (str, os.PathLike)):
        raise TypeError(f"filename is {filename!r:.80}; expected a path or URL such as 'run.html', or one client")
    if client is not None and not isinstance(client, Client):
        raise TypeError(f"client is {client!r:.80}; expected a distributed.Client")
    return None if filename is None else os.fspath(filename), client


def _waits(report: EfficiencyReport, cause: str) -> dict[str, float]:
    """By prefix: share of the explained time off the CPU in which its tasks waited for it.

    Empty if some were not sampled; prefixes of which most is unexplained are left out.
    """
    if report.not_sampled:
        return {}
    waited = cause_name(Bucket.THREAD_NONCPU, cause)
    whole = {prefix: row.ns(Bucket.THREAD_NONCPU) for prefix, row in report.by_prefix.items()}
    unknown, rows = cause_name(Bucket.THREAD_NONCPU, UNKNOWN), report.causes_by_prefix
    known = {prefix: whole.get(prefix, 0) - causes.get(unknown, 0) for prefix, causes in rows.items()}
    sure = [prefix for prefix, ns in known.items() if ns > MOST * whole.get(prefix, 0)]
    return {prefix: min(rows[prefix].get(waited, 0) / known[prefix], 1.0) for prefix in sure}


def _path_summary(trace: RunTrace, report: EfficiencyReport) -> PathSummary | None:
    try:
        return critical_path(trace).to_summary({name for name, row in report.by_prefix.items() if has_own_threads(row)})
    except EmptyTraceError:
        return None


def _operators(trace: RunTrace) -> tuple[ProfiledOperator, ...]:
    if not trace.profiles or (operators := offered("operators/torch")) is None:
        return ()
    found: tuple[ProfiledOperator, ...] = operators(trace)
    return found


def _with_trace(report: EfficiencyReport, trace: RunTrace, **simulated: float) -> EfficiencyReport:
    more, missing = decorate(
        [
            Decoration("path", "critical path", lambda: _path_summary(trace, report)),
            Decoration("operators", "reading of torch's profiles", lambda: _operators(trace)),
            Decoration("long_tail", "search for long tasks", lambda: long_tail(trace)[:MAX_LONG_TASKS]),
            Decoration("stragglers", "search for stragglers in the trace", lambda: _all_stragglers(trace, report)),
        ]
    )
    known = replace(report, trace=trace, notes=(*report.notes, *cost_note(trace.profiles), *missing), **more)
    return _with_savings(replace(known, stragglers=kept_in_bounds(known)), **simulated)


def _with_savings(report: EfficiencyReport, **simulated: float) -> EfficiencyReport:
    notes: list[str] = []
    with decoration("simulation of cures", notes):
        if (savings := offered("savings/simulation")) is None:
            notes.append(NOT_SIMULATED)
        else:
            report = replace(report, savings=savings(report, notes=notes, **simulated))
    return replace(report, notes=(*report.notes, *notes))


def _all_stragglers(trace: RunTrace, report: EfficiencyReport) -> tuple[SlowWorker, ...]:
    """Live findings with their cost, then those that only the whole run shows."""
    from dask_efficiency.runs.stragglers.offline import find_stragglers

    known = {(finding.worker, finding.host) for finding in report.stragglers}
    found = [finding for finding in find_stragglers(trace) if (finding.worker, finding.host) not in known]
    more = explained(found, report.causes_by_worker, report.by_worker)
    return (
        *with_cost(trace, report.stragglers),
        *with_lines(more, report.causes_by_worker, ((row.place, row.ns) for row in report.profile)),
    )
