"""Leads the critical path of a Dask run into the kernels of its tasks, and sums up by prefix, by torch.profiler."""

from __future__ import annotations

import io
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, groupby
from weakref import WeakKeyDictionary

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Bool, Int32, Int64
from dask_efficiency.gpu.intervals import IntervalArrays, length, overlaps, union
from dask_efficiency.report.values import ProfiledOperator
from dask_efficiency.runs.path.kinds import CODES, COMPUTE, KINDS, Kind, SegmentRow, Segments
from dask_efficiency.runs.trace.run_trace import RunTrace, TaskProfile
from dask_efficiency.show.figures import ROWS_ON_A_SCREEN
from dask_efficiency.torch_traces.kineto.errors import KinetoFileError
from dask_efficiency.torch_traces.kineto.load import read_rank
from dask_efficiency.torch_traces.kineto.trace import CALLS, GPU_WORK, Category, Events, RankTrace
from dask_efficiency.torch_traces.path.build import build_graph
from dask_efficiency.torch_traces.path.graph import Region
from dask_efficiency.torch_traces.path.repairs import repaired
from dask_efficiency.torch_traces.path.tiling import tile

#: Categories that are recorded only for the profiled thread, and for autograd's threads on its behalf.
_BY_THREAD = (Category.OPERATOR, Category.ANNOTATION, Category.PYTHON)

_COMPUTE = frozenset(CODES[kind] for kind in COMPUTE)

#: Kinds that are a thread's time. Its CPU clock, not the profile, tells how much of that was computing.
_OF_THREADS = frozenset(CODES[kind] for kind in (Kind.COMPUTE_CPU, Kind.UNATTRIBUTED))
_CPU, _NONCPU = CODES[Kind.COMPUTE_CPU], CODES[Kind.COMPUTE_NONCPU]

#: Kind, start and stop on the trace's clock.
_Stretch = tuple[int, int, int]

#: Stretches of profiles that were read before, as one trace may be asked for many paths.
_READ: WeakKeyDictionary[TaskProfile, list[_Stretch]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class ProfiledRun:
    """A profile, read, with an annotation of its window on the run's thread; the region has the run's own events."""

    trace: RankTrace
    region: Region
    ahead: int

    @property
    def gpu_ns(self) -> int | None:
        """Nanoseconds in which a kernel of the run was active; None if no GPU was profiled."""
        events = self.trace.events
        if not np.isin(events.category, (*CALLS, *GPU_WORK)).any():
            return None
        kernels = events.take(self.region.rows[events.category[self.region.rows] == Category.KERNEL])
        window = IntervalArrays(np.array([self.region.start]), np.array([self.region.stop]))
        return length(overlaps(union(kernels.start, kernels.stop), window)[0])


def read_profile(profile: TaskProfile, name: str) -> ProfiledRun | None:
    """Read a run's profile; None if its thread did not use torch. Raises :class:`KinetoFileError` if it is damaged."""
    trace = repaired(read_rank(io.BytesIO(profile.content), name))
    ahead = profile.start - profile.started
    start, stop = profile.started, profile.stop - ahead
    events = trace.events
    own_thread = (events.thread == profile.thread) & ~events.is_gpu_work
    own_thread &= np.isin(events.category, (*_BY_THREAD, *CALLS))
    if not own_thread.any():
        return None
    rows = _own(events, own_thread, start, stop)
    last = {"index": events.index.max() + 1, "category": Category.ANNOTATION, "name": len(trace.names), "start": start}
    last |= {"stop": stop, "process": events.process[own_thread.argmax()], "thread": profile.thread}
    columns = events.columns()
    for column, values in columns.items():
        columns[column] = np.append(values, np.array([last.get(column, MISSING)], values.dtype))
    whole = replace(trace, events=Events(**columns), names=(*trace.names, name))
    return ProfiledRun(whole, Region(start, stop, rows, name), ahead)


def _own(events: Events, own_thread: Bool, start: int, stop: int) -> Int32:
    """Rows of the run's own events.

    Operators are recorded for the profiled thread only, and for autograd's threads while they work for it. Calls of
    CUDA are recorded for all threads of the process: those of another thread belong to the run if they are in such an
    operator. Work on a GPU belongs to its call; without a call, it is the run's if no other thread made calls.
    """
    begins = (events.start >= start) & (events.start <= stop) & (events.stop > events.start)
    category = events.category
    on_threads: Bool = begins & (own_thread | np.isin(category, _BY_THREAD))
    foreign = begins & ~own_thread & events.is_call
    for thread in np.unique(events.thread[on_threads & ~own_thread]).tolist():
        operators = events.take(on_threads & (events.thread == thread))
        busy = union(operators.start, operators.stop)
        calls = np.flatnonzero(foreign & (events.thread == thread))
        at = np.searchsorted(busy.start, events.start[calls], side="right") - 1
        inside = (at >= 0) & (events.stop[calls] <= np.append(busy.stop, 0)[at])
        on_threads[calls[inside]] = True
    others = bool((foreign & ~on_threads).any())
    asked_for = events.has_call & on_threads[events.call]
    without_call = begins & ~events.has_call & events.is_gpu_work & (not others)
    return np.flatnonzero(on_threads | asked_for | without_call).astype(np.int32)


def expand(segments: Segments, trace: RunTrace) -> tuple[Segments, tuple[str, ...]]:
    """Replace the computing of profiled runs on a path by the stretches of their profiles; and notes on unusable ones.

    A profile is joined with its run by the native id of the thread and by the clock of the day. The segments tile the
    same time as before, to the nanosecond, and time outside of profiles stays as it was. Of the CPU time in a profile,
    as much is ``compute-cpu`` as the thread's own clock counted; the rest is ``compute-noncpu``.
    """
    profiles = {profile.run: profile for profile in trace.profiles}
    runs = np.unique(segments.run[np.isin(segments.kind, list(_COMPUTE))]).tolist()
    stretches, notes = {}, []
    for run in runs:
        if run in profiles:
            try:
                stretches[run] = _stretches(trace, profiles[run])
            except KinetoFileError as error:
                notes.append(f"what a task's profile says is not on the path: {error}")
    if not stretches:
        return segments, tuple(notes)

    def profiled(row: SegmentRow) -> int:
        return row[4] if row[0] in _COMPUTE and row[4] in stretches else MISSING

    blocks = [(run, list(block)) for run, block in groupby(segments.rows(), key=profiled)]
    expanded = [block if run == MISSING else _expanded(block, stretches[run]) for run, block in blocks]
    return Segments.from_rows(chain.from_iterable(expanded)), tuple(notes)


def with_gpu_times(trace: RunTrace) -> RunTrace:
    """Fill in ``gpu_ns`` of runs from their profiles, during which the GPU's meter is off; damaged ones are skipped."""
    gpu_ns = trace.runs.gpu_ns.copy()
    for profile in trace.profiles:
        with suppress(KinetoFileError):
            run = read_profile(profile, name_of_profile(trace, profile))
            if run is not None and (seen := run.gpu_ns) is not None:
                gpu_ns[profile.run] = seen
    return replace(trace, runs=replace(trace.runs, gpu_ns=gpu_ns)) if trace.profiles else trace


def name_of_profile(trace: RunTrace, profile: TaskProfile) -> str:
    """Name of a profile for errors: its task's key."""
    task = int(trace.runs.task[profile.run])
    return f"the profile of {trace.keys[task]!r:.80}" if 0 <= task < len(trace.keys) else "the profile of a task"


def _stretches(trace: RunTrace, profile: TaskProfile) -> list[_Stretch]:
    """Stretches of the profiled time on the trace's clock, without gaps; empty if torch was not used."""
    stretches = _READ.get(profile)
    if stretches is None:
        profiled = read_profile(profile, name_of_profile(trace, profile))
        stretches = _READ[profile] = []
        if profiled is not None:
            tiled = tile(build_graph(profiled.trace, profiled.region))
            # One for each operator: neighbours of one kind are joined.
            first = np.flatnonzero(np.diff(tiled.kind, prepend=np.int8(MISSING)))
            start: Int64 = tiled.start[first] + profiled.ahead
            stop: Int64 = np.append(tiled.start[first[1:]], tiled.stop[-1:]) + profiled.ahead
            stretches += zip(tiled.kind[first].tolist(), start.tolist(), stop.tolist(), strict=True)
    return stretches


def _expanded(block: list[SegmentRow], stretches: list[_Stretch]) -> Iterator[SegmentRow]:
    """Consecutive segments of one run's computing, replaced by stretches where there are any."""
    _, _, _, *rest = block[0]
    start, stop = block[0][1], block[-1][2]
    some = (stretch for stretch in stretches if stretch[1] < stop and stretch[2] > start)
    inside = [(kind, max(first, start), min(last, stop)) for kind, first, last in some]
    if not inside:
        yield from block
        return
    begin, end = inside[0][1], inside[-1][2]
    before = [(row[0], row[1], min(row[2], begin)) for row in block if row[1] < begin]
    after = [(row[0], max(row[1], end), row[2]) for row in block if row[2] > end]
    computed = sum(row[2] - row[1] for row in block if row[0] == _CPU)
    computed -= sum(last - first for kind, first, last in (*before, *after) if kind == _CPU)
    pieces = [*before, *_by_clock(inside, computed), *after]
    for kind, alike in groupby(pieces, key=lambda stretch: stretch[0]):
        parts = list(alike)
        yield (kind, parts[0][1], parts[-1][2], *rest)


def _by_clock(stretches: list[_Stretch], computed: int) -> Iterator[_Stretch]:
    """Split stretches of a thread's time: its first ``computed`` nanoseconds were on the CPU, the rest waited."""
    for kind, first, last in stretches:
        if kind not in _OF_THREADS:
            yield kind, first, last
            continue
        until = min(last, first + max(computed, 0))
        computed -= until - first
        if until > first:
            yield _CPU, first, until
        if last > until:
            yield _NONCPU, until, last


#: Profiles read of one prefix. A guess: tasks of a prefix are much alike.
MAX_OF_PREFIX = 4
#: Compressed bytes of profiles, of which reading takes some seconds; no more are read after these.
MAX_BYTES = 2 << 20

#: Kind and name of an operator or kernel.
_What = tuple[str, str]


def operators(trace: RunTrace) -> tuple[ProfiledOperator, ...]:
    """Operators and kernels on the critical path through each prefix's profiles, the largest first.

    Rows of a prefix add up to the time of its first :data:`MAX_OF_PREFIX` profiles; time in no operator has no name,
    and the smallest are together under the name of their number. Damaged profiles are left out.
    """
    runs: Counter[str] = Counter()
    nbytes = 0
    added: defaultdict[str, Counter[_What]] = defaultdict(Counter)
    for profile in trace.profiles:
        task = int(trace.runs.task[profile.run])
        prefix = trace.prefixes[trace.tasks.prefix[task]] if task != MISSING else ""
        if runs[prefix] >= MAX_OF_PREFIX or nbytes > MAX_BYTES:
            continue
        nbytes += len(profile.content)
        with suppress(KinetoFileError):
            profiled = read_profile(profile, name_of_profile(trace, profile))
            added[prefix] += Counter({("", ""): profile.stop - profile.start}) if profiled is None else _times(profiled)
            runs[prefix] += 1
    return tuple(row for prefix, times in added.items() for row in _rows(prefix, times, runs[prefix]))


def _times(profiled: ProfiledRun) -> Counter[_What]:
    """Nanoseconds on the path through a profile by kind and name; its own annotation is no operator."""
    trace = profiled.trace
    tiled = tile(build_graph(trace, profiled.region))
    names = trace.events.name[tiled.event]
    is_named = (tiled.event != MISSING) & (names != len(trace.names) - 1)
    times: Counter[_What] = Counter()
    lengths, whose = tiled.stop - tiled.start, np.where(is_named, names, MISSING)
    for kind, name, ns in zip(tiled.kind.tolist(), whose.tolist(), lengths.tolist(), strict=True):
        times[str(KINDS[kind]), trace.names[name] if name != MISSING else ""] += ns
    return times


def _rows(prefix: str, times: Counter[_What], runs: int) -> list[ProfiledOperator]:
    ranked = times.most_common()
    rows = [ProfiledOperator(prefix, name, kind, ns / 1e9, runs) for (kind, name), ns in ranked[:ROWS_ON_A_SCREEN]]
    if rest := ranked[ROWS_ON_A_SCREEN:]:
        rows.append(ProfiledOperator(prefix, f"{len(rest)} more", "", sum(ns for _, ns in rest) / 1e9, runs))
    return rows
