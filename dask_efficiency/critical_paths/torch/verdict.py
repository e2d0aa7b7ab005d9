"""A torch trace's path in one sentence: what the window was spent on, which rank is to blame, what helps most."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dask_efficiency.critical_paths.kinds import Kind
from dask_efficiency.critical_paths.torch.lateness import Cause
from dask_efficiency.critical_paths.torch.ranks import JobRanks

#: By what a sentence calls it: the kinds that one measure helps against, and that measure. ``{}`` is the name that
#: takes most of it.
CAUSES: dict[str, tuple[tuple[Kind, ...], str]] = {
    "on the CPU, which did not wait for the GPU": (
        (Kind.COMPUTE_CPU,),
        "fewer and larger operators, CUDA graphs or torch.compile{}",
    ),
    "in calls that manage memory": (
        (Kind.COMPUTE_NONCPU,),
        "memory that is taken once and kept, by torch's allocator or before the loop{}",
    ),
    "computing on the GPU": ((Kind.GPU_COMPUTE,), "faster kernels{}"),
    "in collectives": ((Kind.GPU_COMMUNICATION,), "less to exchange, or computing meanwhile{}"),
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

_COMPILED = ": CUDA graphs or torch.compile"

#: From this share of the window on, a name is worth to be said, and what is between operators is.
WORTH_NAMING, BETWEEN = 0.05, 0.5

#: From this share of all ranks' time on, waiting for one rank is said.
WORTH_SAYING = 0.02

#: A single call that takes most of a window, and asks for no work.
_SETS_UP = re.compile(r"(cuda|hip|cu(?=[A-Z]))(?!.*(Launch|Memcpy|Memset|Malloc|Free|Synchronize))")

#: A longer name is cut.
MAX_NAME = 60

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


def verdict(
    *,
    window: float,
    kinds: Mapping[str, float],
    names: Mapping[str, Mapping[str, float]],
    has_gpu: bool = True,
    straggler: Straggler | None = None,
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

    Returns
    -------
    str
        One sentence, without a full stop.
    """
    if not window:
        return "Nothing took any time"
    spent = {name: sum(kinds.get(kind, 0.0) for kind in members) for name, (members, _) in CAUSES.items()}
    cause, seconds = max(spent.items(), key=lambda item: item[1])
    took = f"The window is {_length(window)}"
    if kinds.get(Kind.UNATTRIBUTED, 0.0) >= seconds:
        unknown = _share(kinds[Kind.UNATTRIBUTED], window)
        return f"{took}, {unknown} of it cannot be explained from what was recorded"
    said, advice = cause, CAUSES[cause][1]
    if not has_gpu and CAUSES[cause][0][0] is Kind.COMPUTE_CPU:
        said, advice = ON_CPU_ONLY
    longest, between = _longest(names.get(cause, {}), window), names.get(cause, {}).get(NOBODY, 0.0)
    call = next((name for name, most in names.get(cause, {}).items() if most > BETWEEN * window), "")
    if _SETS_UP.match(call):
        advice = "to look at a later step, as the first calls of a process set the GPU up{}"
    elif between > BETWEEN * window:
        advice = f"less Python, as {_share(between, window)} of the window is between operators{_COMPILED * has_gpu}"
    late = ""
    if straggler is not None and straggler.share >= WORTH_SAYING:
        waited = f"{_length(straggler.seconds)}, {_share(straggler.share, 1.0)} of their time"
        late = f", and rank {straggler.rank} kept the others waiting for {waited} ({straggler.reason})"
    return f"{took}, {_share(seconds, window)} of it {said}{late}: what helps most is {advice.format(longest)}"


def _longest(names: Mapping[str, float], window: float) -> str:
    """What takes most of it, as the end of a sentence."""
    name, most = next(((name, most) for name, most in names.items() if name != NOBODY), ("", 0.0))
    return f", {_cut(name)!r} first ({_share(most, window)} of the window)" if most > WORTH_NAMING * window else ""


def _cut(name: str) -> str:
    return name if len(name) <= MAX_NAME else name[: MAX_NAME - 3] + "..."


def _share(seconds: float, window: float) -> str:
    return f"{100 * seconds / window:.0f} %"


def _length(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"
