"""Profile: what ``torch.profiler`` recorded of one run of a task, as it travels and is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

#: Bytes of a profile, compressed: some 300,000 events. A larger one is left out and counted.
MAX_PROFILE_BYTES = 8 << 20

#: Bytes of all profiles of a recording; later ones are left out and counted.
MAX_ALL_PROFILES_BYTES = 256 << 20


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Profile:
    """A profile of a run; instants are nanoseconds.

    In a trace they are since the epoch, on the scheduler's clock, and ``run`` is a position in the trace's runs. While
    it travels they are by the worker's monotonic clock, and ``run`` is the scheduler's number of the run.
    """

    run: int
    #: Native id of the thread that it was begun and ended in, as Kineto's JSON numbers threads.
    thread: int
    #: Between which instants it saw everything.
    start: int
    stop: int
    #: What the worker's clock of the day, which Kineto's times are of, showed at ``start``.
    started: int
    #: Kineto's JSON, compressed by gzip.
    content: bytes = field(repr=False)


def cost_note(profiles: Sequence[Profile]) -> tuple[str, ...]:
    """What a reader of figures must know of runs that were profiled, as a sentence; nothing where none was."""
    if not profiles:
        return ()
    runs = "1 run of a task" if len(profiles) == 1 else f"{len(profiles)} runs of tasks"
    return (f"{runs} took longer, as torch.profiler was asked for: the first in each process most, which sets it up",)
