"""A torch trace's path in one sentence: what the window was spent on, which rank is to blame, what helps most."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dask_efficiency.runs.path.kinds import Kind
from dask_efficiency.torch_traces.path.lateness import Cause
from dask_efficiency.torch_traces.path.ranks import JobRanks

#: What a sentence calls the largest cause of most programs.
ON_CPU = "on the CPU, which did not wait for the GPU"
IN_COLLECTIVES = "in collectives"

#: By what a sentence calls it: the kinds that one measure helps against, and that measure. ``{}`` is the name that
#: takes most of it.
CAUSES: dict[str, tuple[tuple[Kind, ...], str]] = {
    ON_CPU: (
        (Kind.COMPUTE_CPU,),
        "fewer and larger operators, CUDA graphs or torch.compile{}",
    ),
    "in calls that manage memory": (
        (Kind.COMPUTE_NONCPU,),
        "memory that is taken once and kept, by torch's allocator or before the loop{}",
    ),
    "computing on the GPU": ((Kind.GPU_COMPUTE,), "faster kernels{}"),
    IN_COLLECTIVES: ((Kind.GPU_COMMUNICATION,), "less to exchange, or computing meanwhile{}"),
    "between kernels, with the GPU idle": (
        (Kind.KERNEL_LAUNCH, Kind.KERNEL_GAP),
        "CUDA graphs, torch.compile, or larger kernels{}",
    ),
    "waiting for a GPU that had nothing to do": (
        (Kind.GPU_SYNC,),
        "fewer calls that wait for the GPU, such as .item() and .cpu(){}",
    ),
    "loading data": ((Kind.DATA_LOADING,), "more workers of the data loader, or batches that are fetched ahead{}"),
}

#: By what a straggler did more of than the others, why it was late.
REASONS = {
    Cause.LATE_START: "it started late",
    Cause.COMPUTE: "it computed for longer",
    Cause.DATA_LOADING: "it loaded data for longer",
    Cause.COMMUNICATION: "it exchanged data for longer",
    Cause.UNKNOWN: "for no reason that was recorded",
}

#: The same of a trace without work on a GPU.
ON_CPU_ONLY = "on the CPU", "faster operators{}"

#: Of one rank alone it is not known how much of a collective was waiting for others.
ALONE = "less to exchange, computing meanwhile, or ranks that come together, which a path over all ranks tells apart"

_COMPILED = ": CUDA graphs or torch.compile"

#: From this share of the window on, a name is worth to be said, and what is between operators is.
WORTH_NAMING, BETWEEN = 0.05, 0.5

#: From this share of all ranks' time on, waiting for one rank is said.
WORTH_SAYING = 0.02

#: A GPU that works for a smaller share was idle nearly all the time.
HARDLY_WORKED = 0.01

#: A single call that takes most of a window, and asks for no work.
_SETS_UP = re.compile(r"(cuda|hip|cu(?=[A-Z]))(?!.*(Launch|Memcpy|Memset|Malloc|Free|Synchronize))")

#: A longer name is cut.
MAX_NAME = 60

#: A single call in which a CPU asks for work, of which there are many.
_ASKS = re.compile("Launch")

#: What rounds to a second, and to a hundred of anything, in three figures.
MIN_SECOND, MIN_WHOLE = 0.9995, 99.95

#: Stands for no event.
NOBODY = "-"


@dataclass(frozen=True, slots=True)
class Straggler:
    """The rank that made the others wait most."""

    rank: int
    #: Why, of :data:`REASONS`.
    reason: str
    #: How long the others waited for it, in sum, as a share of all ranks' time.
    share: float
    seconds: float


def straggler_within(job: JobRanks, start: int, stop: int) -> Straggler | None:
    """The rank that the others waited for most in a window that takes time; None if none waited.

    Parameters
    ----------
    start, stop
        Nanoseconds on the clock of the job; of collectives to which the last rank came in between.
    """
    late = job.late.take((job.late.at >= start) & (job.late.at <= stop))
    caused = np.zeros((len(job.numbers), len(Cause)), np.int64)
    np.add.at(caused, (late.rank, late.cause), late.waits)
    if not caused.any():
        return None
    position = int(caused.sum(axis=1).argmax())
    waited = int(caused[position].sum())
    share = waited / ((stop - start) * (len(job.numbers) - 1))
    return Straggler(job.numbers[position], REASONS[Cause(int(caused[position].argmax()))], share, waited / 1e9)


@dataclass(frozen=True, slots=True)
class Begins:
    """The rank with which a path over several begins, where the window began before it."""

    rank: int
    #: From the start of the window, which nothing on the path explains.
    seconds: float


def headline(
    *,
    window: float,
    kinds: Mapping[str, float],
    names: Mapping[str, Mapping[str, float]],
    has_gpu: bool = True,
    straggler: Straggler | None = None,
    begins: Begins | None = None,
    of_ranks: int = 1,
    gpu_meanwhile: float | None = None,
    has_waits: bool = True,
) -> str:
    """What a window was spent on, and what would help most.

    Parameters
    ----------
    window
        Seconds.
    kinds
        Seconds of the window by kind.
    names
        By a sentence's name of a cause, seconds of it by name of event, largest first.
    has_gpu
        Whether the trace has any work on a GPU.
    straggler
        The rank that the others waited for, where there are several.
    begins
        The rank with which the path begins, if that is later than the window.
    of_ranks
        How many ranks the path runs over.
    gpu_meanwhile
        Seconds of ``compute-cpu`` in which the GPU had work that ran; None if nothing is to be said of that.
    has_waits
        Whether the trace has any call that waits for the GPU.

    Returns
    -------
    str
        One sentence, without a full stop.
    """
    if not window:
        return "Nothing took any time"
    spent = {name: sum(kinds.get(kind, 0.0) for kind in members) for name, (members, _) in CAUSES.items()}
    cause, seconds = max(spent.items(), key=lambda item: item[1])
    took = f"The window is {in_figures(window)}"
    late = ""
    if straggler is not None and straggler.share >= WORTH_SAYING:
        waited = f"{in_figures(straggler.seconds)}, {_share(straggler.share, 1.0)} of their time"
        late = f", and rank {straggler.rank} kept the others waiting for {waited} ({straggler.reason})"
    named = names.get(cause, {})
    unknown = kinds.get(Kind.UNATTRIBUTED, 0.0)
    hides = _not_explained(unknown, begins, window)
    if begins is not None and begins.seconds > max(WORTH_NAMING * window, *named.values(), 0.0):
        # A late start is one thing; what a thread does is the sum of many.
        first = f"why rank {begins.rank}, or its profiler, began {in_figures(begins.seconds)} after the first rank"
        spent_on = f", {_share(seconds, window)} of it {cause}" if seconds >= WORTH_NAMING * window else ""
        return f"{took}{spent_on}{hides}{late}: what to look at first is {first}"
    if unknown >= seconds:
        return f"{took}{hides}{late}"
    said, advice = cause, CAUSES[cause][1]
    if cause == ON_CPU and not has_gpu:
        said, advice = ON_CPU_ONLY
    elif cause == ON_CPU and gpu_meanwhile is not None:
        works = gpu_meanwhile / seconds
        if not has_waits and works > WORTH_NAMING:
            said = "on the CPU as far as is known, as no call that waits for the GPU was recorded"
            worked = f"the GPU worked for {_share(works, 1.0)} of that time"
            return f"{took}, {_share(seconds, window)} of it {said}{hides}{late}: {worked}, so what helps is not known"
        said += f" ({_meanwhile(works)})"
        if works > BETWEEN:
            advice = "a faster CPU and a faster GPU together: fewer and larger operators, and faster kernels{}"
            # A faster CPU saves little where the GPU is busy: what else takes more than the rest comes first.
            other, more = max(
                ((name, most) for name, most in spent.items() if name != ON_CPU), key=lambda item: item[1]
            )
            if more > max(seconds - gpu_meanwhile, WORTH_NAMING * window):
                cause, said = other, f"{said}, {_share(more, window)} {other}"
                advice, named = CAUSES[other][1], names.get(other, {})
    if cause == IN_COLLECTIVES and of_ranks == 1:
        advice = ALONE
    return (
        f"{took}, {_share(seconds, window)} of it {said}{hides}{late}: {_helps(cause, advice, named, window, has_gpu)}"
    )


def _helps(cause: str, advice: str, named: Mapping[str, float], window: float, has_gpu: bool) -> str:
    """The end of the sentence; where one name takes most of a window on the CPU, it is about that."""
    between, longest = named.get(NOBODY, 0.0), _longest(named, window)
    name = next((name for name, most in named.items() if most > BETWEEN * window and name != NOBODY), "")
    if _SETS_UP.match(name):
        advice = "to look at a later step, as the first calls of a process set the GPU up{}"
    elif between > BETWEEN * window:
        advice = f"less Python, as {_share(between, window)} of the window is between operators{_COMPILED * has_gpu}"
        longest = ""
    elif cause == ON_CPU and name and not _ASKS.search(name):
        advice, longest = f"less time in {_cut(name)!r} ({_share(named[name], window)} of the window)", ""
    return f"what helps most is {advice.replace('{}', longest)}"


def _not_explained(unknown: float, begins: Begins | None, window: float) -> str:
    """How much of the window is not explained, as a part of the sentence; nothing of little."""
    before = begins.seconds if begins is not None else 0.0
    said = ""
    if begins is not None and before >= WORTH_NAMING * window:
        said = f", {_share(before, window)} before rank {begins.rank} began"
    if unknown - before >= WORTH_NAMING * window:
        said += f", {_share(unknown - before, window)} of it cannot be explained from what was recorded"
    return said


def _meanwhile(works: float) -> str:
    if works < HARDLY_WORKED:
        return "the GPU was idle for nearly all of that time"
    said, share = ("worked", works) if works > BETWEEN else ("was idle", 1 - works)
    return f"the GPU {said} for {_share(share, 1.0)} of that time"


def _longest(names: Mapping[str, float], window: float) -> str:
    """What takes most of it, as the end of a sentence."""
    name, most = next(((name, most) for name, most in names.items() if name != NOBODY), ("", 0.0))
    return f", {_cut(name)!r} first ({_share(most, window)} of the window)" if most > WORTH_NAMING * window else ""


def _cut(name: str) -> str:
    return name if len(name) <= MAX_NAME else name[: MAX_NAME - 3] + "..."


def _share(seconds: float, window: float) -> str:
    return f"{100 * seconds / window:.0f} %"


def in_figures(seconds: float) -> str:
    """A duration in three figures or more: ``"9.57 ms"``, ``"929 ms"``, ``"1.23 s"``, ``"4321 s"``."""
    value, unit = (seconds, "s") if seconds >= MIN_SECOND else (1e3 * seconds, "ms")
    return f"{value:.0f} {unit}" if value >= MIN_WHOLE else f"{value:.3g} {unit}"
