"""Operators and kernels of profiled tasks: what the time of each prefix went to, by ``torch.profiler``."""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import suppress

import numpy as np

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.report.values import ProfiledOperator
from dask_efficiency.runs.path.kinds import KINDS
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.torch_traces.kineto.errors import KinetoFileError
from dask_efficiency.torch_traces.path.build import build_graph
from dask_efficiency.torch_traces.path.join import ProfiledRun, name_of_profile, read_profile
from dask_efficiency.torch_traces.path.tiling import tile

#: Profiles read of one prefix. A guess: tasks of a prefix are much alike.
MAX_OF_PREFIX = 4
#: Compressed bytes of profiles, of which reading takes some seconds; no more are read after these.
MAX_BYTES = 2 << 20
#: Rows of one prefix. By eye.
MAX_ROWS = 8

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
    for kind, name, length in zip(tiled.kind.tolist(), whose.tolist(), lengths.tolist(), strict=True):
        times[str(KINDS[kind]), trace.names[name] if name != MISSING else ""] += length
    return times


def _rows(prefix: str, times: Counter[_What], runs: int) -> list[ProfiledOperator]:
    ranked = times.most_common()
    rows = [ProfiledOperator(prefix, name, kind, ns / 1e9, runs) for (kind, name), ns in ranked[:MAX_ROWS]]
    if rest := ranked[MAX_ROWS:]:
        rows.append(ProfiledOperator(prefix, f"{len(rest)} more", "", sum(ns for _, ns in rest) / 1e9, runs))
    return rows
