"""Leads the critical path of a Dask run into the kernels of its tasks, where ``torch.profiler`` saw these."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, groupby
from weakref import WeakKeyDictionary

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Int64
from dask_efficiency.runs.path.kinds import COMPUTE, Kind
from dask_efficiency.runs.path.segments import CODES, Row, Segments
from dask_efficiency.runs.trace.profiles import Profile
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.torch_traces.kineto.errors import KinetoFileError
from dask_efficiency.torch_traces.path.build import build_graph
from dask_efficiency.torch_traces.path.profiled import ProfiledRun, read_profile
from dask_efficiency.torch_traces.path.tiling import tile

_COMPUTE = frozenset(CODES[kind] for kind in COMPUTE)

#: The time of a thread: whether it computed or waited, its clock tells and not the profile.
_OF_THREADS = frozenset(CODES[kind] for kind in (Kind.COMPUTE_CPU, Kind.UNATTRIBUTED))

_CPU, _NONCPU = CODES[Kind.COMPUTE_CPU], CODES[Kind.COMPUTE_NONCPU]

#: A stretch: its kind, and from when to when on the trace's clock.
_Stretch = tuple[int, int, int]

#: What profiles said that were read before, as a trace is asked for many paths.
_READ: WeakKeyDictionary[Profile, list[_Stretch]] = WeakKeyDictionary()


def expand(segments: Segments, trace: RunTrace) -> tuple[Segments, tuple[str, ...]]:
    """The same path, with the computing of profiled runs replaced by what it was spent on, as the profiles say.

    A profile is joined with its run by the native id of the thread and by the clock of the day. The segments tile the
    same time as before, to the nanosecond. What is outside a profile stays as it was; of the time that the profile
    gives to the CPU as much is ``compute-cpu`` as the thread's own clock counted, and the rest ``compute-noncpu``.

    Returns
    -------
    Segments, notes
        The notes say of which runs the profile could not be used, and why.
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

    def profiled(row: Row) -> int:
        return row[4] if row[0] in _COMPUTE and row[4] in stretches else MISSING

    blocks = [(run, list(block)) for run, block in groupby(segments.rows(), key=profiled)]
    expanded = [block if run == MISSING else _expanded(block, stretches[run]) for run, block in blocks]
    return Segments.from_rows(chain.from_iterable(expanded)), tuple(notes)


def with_gpu_times(trace: RunTrace) -> RunTrace:
    """The same trace; of the profiled runs, ``gpu_ns`` is what their profiles say, as the GPU's meter gave way to them.

    Profiles that are damaged say nothing here; :func:`expand` tells of them.
    """
    gpu_ns = trace.runs.gpu_ns.copy()
    for profile in trace.profiles:
        found = _read(trace, profile)
        seen = None if found is None else found.gpu_ns
        if seen is not None:
            gpu_ns[profile.run] = seen
    return replace(trace, runs=replace(trace.runs, gpu_ns=gpu_ns)) if trace.profiles else trace


def _read(trace: RunTrace, profile: Profile) -> ProfiledRun | None:
    try:
        return read_profile(profile, _name(trace, profile))
    except KinetoFileError:
        return None


def _name(trace: RunTrace, profile: Profile) -> str:
    task = int(trace.runs.task[profile.run])
    return f"the profile of {trace.keys[task]!r:.80}" if 0 <= task < len(trace.keys) else "the profile of a task"


def _stretches(trace: RunTrace, profile: Profile) -> list[_Stretch]:
    """What the profiled time was spent on, without gaps, on the trace's clock; empty if torch was not used."""
    stretches = _READ.get(profile)
    if stretches is None:
        found = read_profile(profile, _name(trace, profile))
        stretches = _READ[profile] = [] if found is None else _stretches_of(found)
    return stretches


def _stretches_of(found: ProfiledRun) -> list[_Stretch]:
    tiled = tile(build_graph(found.trace, found.region))
    # There may be one for each operator: those of one kind that follow one another are one.
    first = np.flatnonzero(np.diff(tiled.kind, prepend=np.int8(MISSING)))
    start: Int64 = tiled.start[first] + found.ahead
    stop: Int64 = np.append(tiled.start[first[1:]], tiled.stop[-1:]) + found.ahead
    return list(zip(tiled.kind[first].tolist(), start.tolist(), stop.tolist(), strict=True))


def _expanded(block: list[Row], stretches: list[_Stretch]) -> Iterator[Row]:
    """The consecutive segments of one run's computing, with stretches in their place where there are any."""
    _, _, _, *rest = block[0]
    start, stop = block[0][1], block[-1][2]
    inside = [
        (kind, max(first, start), min(last, stop)) for kind, first, last in stretches if first < stop and last > start
    ]
    if not inside:
        yield from block
        return
    begin, end = inside[0][1], inside[-1][2]
    before = [(row[0], row[1], min(row[2], begin)) for row in block if row[1] < begin]
    after = [(row[0], max(row[1], end), row[2]) for row in block if row[2] > end]
    computed = sum(row[2] - row[1] for row in block if row[0] == _CPU)
    computed -= sum(last - first for kind, first, last in (*before, *after) if kind == _CPU)
    pieces = [*before, *_by_clock(inside, computed), *after]
    for kind, alike in groupby(pieces, key=lambda piece: piece[0]):
        parts = list(alike)
        yield (kind, parts[0][1], parts[-1][2], *rest)


def _by_clock(stretches: list[_Stretch], computed: int) -> Iterator[_Stretch]:
    """Of the stretches that are a thread's time, so many nanoseconds computed, the first ones; the others waited."""
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
