"""RunTrace: a recorded run of a cluster as columns, on the scheduler's clock."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, get_type_hints

from dask_efficiency.accounts.tables import ColumnTable, Int32, Int64, Texts
from dask_efficiency.runs.trace import schema
from dask_efficiency.runs.trace.errors import EmptyTraceError
from dask_efficiency.show.figures import format_number
from dask_efficiency.show.shown import late

if TYPE_CHECKING:
    from dask_efficiency.runs.trace.events import Written


#: Most bytes of a profile, compressed: some 300,000 events. A larger one is left out and counted.
MAX_PROFILE_BYTES = 8 << 20
#: Most bytes of all profiles of a recording, in the scheduler's memory; later ones are left out and counted.
MAX_ALL_PROFILES_BYTES = 256 << 20


@dataclass(frozen=True, slots=True, weakref_slot=True)
class TaskProfile:
    """Profile of a run by ``torch.profiler``; instants are nanoseconds.

    In a trace, instants are since the epoch, on the scheduler's clock, and ``run`` is a position in the trace's runs.
    In a batch, they are by the worker's monotonic clock, and ``run`` is the scheduler's number of the run.
    """

    run: int
    #: Native id of the thread that it began and ended in, as in Kineto's JSON.
    thread: int
    #: Interval that it covers.
    start: int
    stop: int
    #: The worker's wall clock, which Kineto's times are read from, at ``start``.
    started: int
    #: Kineto's JSON, compressed by gzip.
    content: bytes = field(repr=False)


def cost_note(profiles: Sequence[TaskProfile]) -> tuple[str, ...]:
    """Note that profiled runs took longer; empty if none was profiled."""
    if not profiles:
        return ()
    runs = "1 run of a task" if len(profiles) == 1 else f"{len(profiles)} runs of tasks"
    return (f"{runs} took longer, as torch.profiler was asked for: the first in each process most, which sets it up",)


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """Worker of the run; two of one name are two workers."""

    name: str
    address: str
    host: str
    nthreads: int
    memory_limit: int
    resources: Mapping[str, float] = field(default_factory=dict)
    #: Nanoseconds that were added to this worker's clock to get the scheduler's; 0 on the same host.
    clock_offset: int = 0
    #: Error of the offset: half the round trip of the best reading.
    clock_error: int = 0
    #: Cores that the workers of its host may use together; 0 if unknown.
    cores: float = 0.0
    #: Share of these that other processes took while the run was recorded; 0 if unknown, as in older files.
    others: float = 0.0


@dataclass(frozen=True, slots=True)
class RunTrace:
    """A recorded run: every task, transition and transfer, from which its time can be explained.

    Instants are integer nanoseconds since the epoch on the scheduler's clock; durations are integer nanoseconds and end
    in ``_ns``; sizes are bytes. Positions are in range or ``MISSING``: that is checked where a file is read or written.

    Parameters
    ----------
    name
        Name of the run.
    start, stop
        The window that was recorded.
    keys
        By task: its key as text.
    dependency_starts, dependencies
        The tasks that task ``i`` needs are ``dependencies[dependency_starts[i] : dependency_starts[i + 1]]``;
        shapes (tasks + 1,) and (edges,).
    constraints
        By task: ``restrictions`` (host or worker names), ``resources``, ``retries``, ``loose_restrictions``,
        where it has any.
    config
        Dask configuration that affects scheduling, and ``bandwidth``, the scheduler's at the start, in bytes a second.
    dropped
        Rows that did not fit or were lost, by table.
    notes
        Caveats, a sentence each.
    profiles
        Profiles of some of the runs, in the order of their starts.
    core_waits, gil_waits
        By prefix: share of their tasks' time off the CPU in which these waited for a core, and for Python's lock (GIL),
        as a report sampled it; in [0, 1]. Empty if unknown.
    """

    name: str
    start: int
    stop: int
    keys: Texts
    tasks: schema.Tasks
    dependency_starts: Int64
    dependencies: Int32
    runs: schema.Runs
    prefixes: tuple[str, ...] = ()
    spans: tuple[str, ...] = ()
    clients: tuple[str, ...] = ()
    workers: tuple[WorkerSpec, ...] = ()
    stimulus_kinds: tuple[str, ...] = ()
    graphs: schema.Graphs = field(default_factory=schema.Graphs.empty)
    releases: schema.Releases = field(default_factory=schema.Releases.empty)
    transitions: schema.Transitions = field(default_factory=schema.Transitions.empty)
    stimuli: schema.Stimuli = field(default_factory=schema.Stimuli.empty)
    transfers: schema.Transfers = field(default_factory=schema.Transfers.empty)
    shuffled: schema.Shuffled = field(default_factory=schema.Shuffled.empty)
    worker_events: schema.WorkerEvents = field(default_factory=schema.WorkerEvents.empty)
    blocked: schema.Blocked = field(default_factory=schema.Blocked.empty)
    phases: schema.Phases = field(default_factory=schema.Phases.empty)
    series: schema.Series = field(default_factory=schema.Series.empty)
    constraints: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    profiles: tuple[TaskProfile, ...] = ()
    core_waits: Mapping[str, float] = field(default_factory=dict)
    gil_waits: Mapping[str, float] = field(default_factory=dict)

    def __repr__(self) -> str:
        seconds = (self.stop - self.start) / 1e9
        size = f"{len(self.tasks)} tasks on {len(self.workers)} workers"
        return f"<{type(self).__name__} {self.name!r}: {size}, {format_number(seconds)} s>"

    def save(self, path: str | os.PathLike[str], **storage_options: Any) -> None:
        """Write the trace to a local path or any fsspec URL; :func:`~dask_efficiency.load_trace` reads it."""
        late("dask_efficiency.runs.trace.files:save_trace")(self, path, **storage_options)

    def to_chrome(
        self, path: str | os.PathLike[str], *, only_critical: bool = False, **storage_options: Any
    ) -> Written:
        """Write the trace in the Trace Event Format, for ui.perfetto.dev or chrome://tracing.

        Parameters
        ----------
        path
            A local path or any fsspec URL. A name in ``.gz`` is compressed; Perfetto reads it as it is.
        only_critical
            Leave out the runs that are not on the critical path, and the transfers that none of them waited for.
        **storage_options
            For the file system, as in :func:`fsspec.open`.

        Returns
        -------
        Written
            Numbers of slices, arrows and counters in the file.

        Raises
        ------
        EmptyTraceError
            If only the critical path is asked for, and no task ended in the trace.
        """
        written: Written
        try:
            write = late("dask_efficiency.runs.path.path:critical_path")(self).to_chrome
        except EmptyTraceError:
            if only_critical:
                raise
            write = partial(late("dask_efficiency.runs.trace.chrome:save_chrome"), self)
        written = write(path, only_critical=only_critical, **storage_options)
        return written


#: The tables of a trace, by the names of its fields.
TABLES: dict[str, type[ColumnTable]] = {
    name: kind
    for name, kind in get_type_hints(RunTrace).items()
    if isinstance(kind, type) and issubclass(kind, ColumnTable)
}

#: By table and column of positions: the field of the trace, or the enumeration, that it points into.
POINTS_INTO = {
    table: {name: column.points_into for name, column in kind.schema().items() if column.points_into is not None}
    for table, kind in TABLES.items()
}
