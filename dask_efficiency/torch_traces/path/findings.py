"""Findings of a torch trace's path: its largest parts, the slow rank, and what helps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dask_efficiency.runs.path.kinds import KINDS, Kind
from dask_efficiency.runs.path.parts import SHARE, PathPart, finding
from dask_efficiency.show.figures import format_share, harmless, lower_first
from dask_efficiency.torch_traces.path.known import MAX_UNKNOWN, mostly_known
from dask_efficiency.torch_traces.path.lateness import LatenessCause
from dask_efficiency.torch_traces.path.roles import has_waits
from dask_efficiency.torch_traces.path.stretches import NOBODY, in_figures

if TYPE_CHECKING:
    from dask_efficiency.torch_traces.path.path import TorchCriticalPath

ON_CPU, COLLECTIVES = "torch/cpu", "torch/collectives"
UNEXPLAINED, LATE_START = "torch/unattributed", "torch/late-start"
NOT_RECORDED, UNKNOWN_EVENTS, UNREADABLE = "torch/not-recorded", "torch/unknown-events", "torch/unreadable"
KERNEL_GAPS, GPU_SYNC, SET_UP = "torch/kernel-gaps", "torch/gpu-sync", "torch/set-up"

#: By kind of finding, the kinds of time that the same measure shortens.
MEMBERS: dict[str, tuple[Kind, ...]] = {
    ON_CPU: (Kind.COMPUTE_CPU,),
    "torch/memory": (Kind.COMPUTE_NONCPU,),
    "torch/gpu-compute": (Kind.GPU_COMPUTE,),
    COLLECTIVES: (Kind.GPU_COMMUNICATION,),
    KERNEL_GAPS: (Kind.KERNEL_LAUNCH, Kind.KERNEL_GAP),
    GPU_SYNC: (Kind.GPU_SYNC,),
    "torch/data-loading": (Kind.DATA_LOADING,),
    UNEXPLAINED: (Kind.UNATTRIBUTED,),
}

MORE_LOADERS = "Use more workers of the data loader, or fetch batches ahead."

#: By kind of finding, its title, which is also used after a share of the window, and the advice.
TITLES = {
    ON_CPU: ("On the CPU, which did not wait for the GPU", "Use larger operators, CUDA graphs or torch.compile."),
    # For a trace without work on a GPU; and for one where the GPU worked, but no call that waits for it was recorded.
    "torch/cpu-only": ("On the CPU", "Make these operators faster."),
    "torch/cpu-unknown": ("On the CPU as far as is known", ""),
    "torch/memory": ("In calls that manage memory", "Take memory once, by torch's allocator or before the loop."),
    "torch/gpu-compute": ("Computing on the GPU", "Make these kernels faster."),
    COLLECTIVES: ("In collectives", "Exchange less, or compute meanwhile."),
    KERNEL_GAPS: ("Between kernels, with the GPU idle", "Use CUDA graphs, torch.compile or larger kernels."),
    GPU_SYNC: ("Waiting for a GPU that had nothing to do", "Call .item(), .cpu() and their like less often."),
    "torch/data-loading": ("Loading data", MORE_LOADERS),
    UNEXPLAINED: ("Time that nothing recorded explains", ""),
    NOT_RECORDED: ("Waiting for work of the GPU that was not recorded", ""),
    UNKNOWN_EVENTS: ("In events of kinds that are not known here", ""),
    UNREADABLE: ("In a trace of which too much cannot be read", ""),
    SET_UP: ("Setting up the GPU and its libraries", "Look at a later step: the first calls of a process do this."),
    LATE_START: ("A rank, or its profiler, began late", "See why it began so late."),
}

#: By what a straggler did more of than its peers, its title and the advice.
SLOW_RANKS = {
    LatenessCause.LATE_START: ("Slow rank, it started late", "See why it, or its profiler, did."),
    LatenessCause.COMPUTE: (
        "Slow rank, it computed for longer",
        "See whether it has more work, or a slower CPU or GPU.",
    ),
    LatenessCause.DATA_LOADING: ("Slow rank, it loaded data for longer", MORE_LOADERS),
    LatenessCause.COMMUNICATION: (
        "Slow rank, it exchanged data for longer",
        "See its links, and what else it exchanges.",
    ),
    LatenessCause.UNKNOWN: (
        "Slow rank, for no reason that was recorded",
        "See its Python code, garbage collection and cores.",
    ),
}

#: Better advice where more is known. The trace of one rank does not show whether it waits for others.
BETTER = {
    "between operators": "Run less Python between operators, or use CUDA graphs or torch.compile.",
    "between operators, no GPU": "Run less Python between operators.",
    "one name": "Spend less time in it.",
    "GPU works": "Use larger operators and faster kernels: a faster CPU alone saves little.",
    "one rank": "Exchange less, compute meanwhile, or bring ranks together: a path over all ranks tells them apart.",
}

#: Shares of the window from which a name is mentioned, and from which it is the main part. Chosen by reading findings
#: of recorded traces; summaries mention idle time at the edges, and changes of a figure, from the same share on.
WORTH_NAMING, MOST = 0.05, 0.5

#: Share of busy time below which a GPU "is idle for nearly all of that" (wording only).
HARDLY_WORKED = 0.01

#: Characters of a name in a finding, so that it stays on one line.
MAX_NAME = 60


def parts(path: TorchCriticalPath) -> list[PathPart]:
    """Parts of the window, and the rank that the others waited for; the largest share first.

    A faster CPU saves little where the GPU was busy, so CPU time then counts only as far as the GPU was idle. A late
    start is one event and a thread's time the sum of many: the late start comes first if no event took longer. A part
    of whose ground more than a tenth is not known is not made; what is not known is a part of its own.
    """
    kinds, window, grounds = path.seconds("kind"), path.window_seconds, path.grounds
    if not grounds.can_be_read:
        where = f"{grounds.unreadable} events cannot be read, {grounds.events} can"
        title = TITLES[UNREADABLE]
        return [(finding(UNREADABLE, title, None, 1.0, where, "torch"), lower_first(title[0]))]
    begins = _late_start(path) if len(path.graphs) > 1 else None
    before = 0.0 if begins is None else begins[0].evidence[SHARE] * window
    seconds_of = {kind: sum(kinds.get(member, 0.0) for member in members) for kind, members in MEMBERS.items()}
    seconds_of |= {NOT_RECORDED: grounds.not_recorded, UNKNOWN_EVENTS: grounds.unknown}
    seconds_of |= {SET_UP: sum(grounds.set_up.values())}
    seconds_of[ON_CPU] -= seconds_of[SET_UP]
    seconds_of[UNEXPLAINED] -= before + grounds.not_recorded + grounds.unknown
    ranked, longest = [], WORTH_NAMING * window
    for kind, seconds in seconds_of.items():
        if round(1e9 * seconds) <= 0 or not _is_known(kind, seconds, path):
            continue
        names = _names(path, kind)
        meanwhile = path.gpu_seconds_during(Kind.COMPUTE_CPU) if kind == ON_CPU and path.has_gpu else None
        part = _part(path, kind, seconds, names, meanwhile)
        without = seconds - (meanwhile or 0.0)
        little = part[0].advice and without < (1 - MOST) * seconds
        ranked.append((max(without, WORTH_NAMING * window) if little else seconds, part))
        longest = max(longest, *names.values(), 0.0)
    if begins is not None:
        ranked.append((window if before > longest else before, begins))
    if len(path.graphs) > 1 and (slow := _slow_rank(path, begins)) is not None:
        ranked.append((slow[0].evidence[SHARE] * window, slow))
    return [part for _, part in sorted(ranked, key=lambda item: -item[0])]


def _is_known(kind: str, seconds: float, path: TorchCriticalPath) -> bool:
    """True unless more than a tenth of a part's ground is not known."""
    grounds = path.grounds
    if kind in (KERNEL_GAPS, GPU_SYNC):
        lost = grounds.lost > MAX_UNKNOWN * grounds.launches
        return not lost and mostly_known(seconds, grounds.not_recorded)
    return kind != ON_CPU or mostly_known(seconds, grounds.unknown)


def _names(path: TorchCriticalPath, kind: str) -> dict[str, float]:
    """Seconds of a part by name, largest first."""
    if kind == SET_UP:
        return dict(sorted(path.grounds.set_up.items(), key=lambda item: -item[1]))
    if kind not in MEMBERS or kind == UNEXPLAINED:
        return {}
    names = path.seconds_of(MEMBERS[kind])
    if kind == ON_CPU:
        names = {name: seconds - path.grounds.set_up.get(name, 0.0) for name, seconds in names.items()}
    return dict(sorted(names.items(), key=lambda item: -item[1]))


def _part(
    path: TorchCriticalPath, kind: str, seconds: float, names: dict[str, float], meanwhile: float | None
) -> PathPart:
    window, works, on_cpu = path.window_seconds, (meanwhile or 0.0) / seconds, kind == ON_CPU
    name, most = next(((name, most) for name, most in names.items() if name != NOBODY), ("", 0.0))
    between, better = names.get(NOBODY, 0.0) if on_cpu else 0.0, ""
    shown = harmless(name[: MAX_NAME + 1])
    shown = shown if len(shown) <= MAX_NAME else shown[: MAX_NAME - 3] + "..."
    where = f"`{shown}` first, {format_share(most / window)} of the window" if most > WORTH_NAMING * window else ""
    gpu_is_known = path.grounds.gpu_is_known(window)
    kind = "torch/cpu-only" if on_cpu and meanwhile is None and gpu_is_known else kind
    if kind in (UNEXPLAINED, NOT_RECORDED, UNKNOWN_EVENTS):
        where = _not_known(kind, seconds, path)
    elif on_cpu and not gpu_is_known:
        kind, where, meanwhile = "torch/cpu-unknown", "not all work of the GPU was recorded", None
    elif works > WORTH_NAMING and not any(has_waits(graph.trace) for graph in path.graphs):
        kind, where = "torch/cpu-unknown", "no call that waits for the GPU was recorded"
    elif between > MOST * window:
        better = "between operators" if path.has_gpu else "between operators, no GPU"
        where = f"{format_share(between / window)} of the window is between operators"
    elif on_cpu and most > MOST * window and "Launch" not in name:
        better = "one name"
    elif works > MOST:
        better = "GPU works"
    elif kind == COLLECTIVES and len(path.graphs) == 1:
        better = "one rank"
    title, advice = TITLES[kind]
    words, advice = lower_first(title), BETTER.get(better, advice)
    if meanwhile is not None:
        where = f"{where}; {_gpu(works)}".removeprefix("; ")
        words = f"{words.partition(',')[0]}, {_gpu(works)}"
    saves = seconds if advice and kind != SET_UP else None
    return finding(kind, (title, advice), saves, seconds / window, where, "torch"), words


def _not_known(kind: str, seconds: float, path: TorchCriticalPath) -> str:
    """Share of the window that is not known, and why."""
    where, grounds = f"{format_share(seconds / path.window_seconds)} of the window", path.grounds
    if kind == NOT_RECORDED and grounds.lost:
        return f"{where}; {grounds.lost} of {grounds.launches} launches have no work in the trace"
    if kind == NOT_RECORDED:
        return f"{where}; it may be from before the profile, or of a CUDA graph"
    return where


def _late_start(path: TorchCriticalPath) -> PathPart | None:
    """The rank with which the walk over several ranks ends, if it started after the window did."""
    stretches = path.stretches
    starts = [graph.region.start + path.offset[place] for graph, place in zip(path.graphs, path.positions, strict=True)]
    began = starts[path.positions.index(int(stretches.rank[0]))]
    if stretches.kind[0] != KINDS.index(Kind.UNATTRIBUTED) or began < stretches.stop[0]:
        return None
    seconds = (int(stretches.stop[0]) - int(stretches.start[0])) / 1e9
    rank = path.trace.ranks[int(stretches.rank[0])].rank
    where = f"rank {rank}, {in_figures(seconds)} after the first one"
    late = finding(LATE_START, TITLES[LATE_START], seconds, seconds / path.window_seconds, where, "torch")
    return late, f"before rank {rank} began"


def _slow_rank(path: TorchCriticalPath, begins: PathPart | None) -> PathPart | None:
    """Rank that the others waited for most in the window; None if the late start covers that."""
    job, start, stop = path.job, int(path.stretches.start[0]), int(path.stretches.stop[-1])
    late = job.late.take((job.late.at >= start) & (job.late.at <= stop))
    caused = np.zeros((len(job.numbers), len(LatenessCause)), np.int64)
    np.add.at(caused, (late.rank, late.cause), late.waits)
    position = int(caused.sum(axis=1).argmax())
    waited, reason = int(caused[position].sum()), LatenessCause(int(caused[position].argmax()))
    rank = job.numbers[position]
    starts_path = begins is not None and begins[1] == f"before rank {rank} began"
    if not waited or (starts_path and reason is LatenessCause.LATE_START):
        return None
    share = waited / ((stop - start) * (len(job.numbers) - 1))
    where = f"rank {rank}; the others waited {in_figures(waited / 1e9)}, {format_share(share)} of their time"
    saves = min(int(late.behind_second[late.rank == position].sum()), stop - start) / 1e9
    return finding("slow-rank", SLOW_RANKS[reason], saves, share, where, "torch"), f"waiting for rank {rank}"


def _gpu(works: float) -> str:
    """State of the GPU meanwhile."""
    if works < HARDLY_WORKED:
        return "GPU idle for nearly all of that"
    state, share = ("at work", works) if works > MOST else ("idle", 1 - works)
    return f"GPU {state} for {format_share(share)} of that"
