"""ProfiledRun: what ``torch.profiler`` saw of one task's run, told from what else its process did meanwhile."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Bool, Int32
from dask_efficiency.gpu.intervals import Intervals, length, overlaps, union
from dask_efficiency.runs.trace.profiles import Profile
from dask_efficiency.torch_traces.kineto.read import read_rank
from dask_efficiency.torch_traces.kineto.trace import CALLS, GPU_WORK, Category, Events, RankTrace
from dask_efficiency.torch_traces.path.graph import Region

#: What only the profiled thread, and autograd's threads on its behalf, are seen to do.
_BY_THREAD = (Category.OPERATOR, Category.ANNOTATION, Category.PYTHON)


@dataclass(frozen=True, slots=True)
class ProfiledRun:
    """A profile, read.

    Parameters
    ----------
    trace
        Everything that it saw, and one more event: an annotation for the run, from where the profile began to where
        it ended, on the run's thread.
    region
        That window, and the rows of what the run did and asked for.
    ahead
        Nanoseconds that the clock of the run's trace is ahead of this one's.
    """

    trace: RankTrace
    region: Region
    ahead: int

    @property
    def gpu_ns(self) -> int | None:
        """Nanoseconds in which a kernel of its own ran; None where no GPU was watched."""
        events = self.trace.events
        if not np.isin(events.category, (*CALLS, *GPU_WORK)).any():
            return None
        kernels = events.take(self.region.rows[events.category[self.region.rows] == Category.KERNEL])
        window = Intervals(np.array([self.region.start]), np.array([self.region.stop]))
        return length(overlaps(union(kernels.start, kernels.stop), window)[0])


def read_profile(profile: Profile, name: str) -> ProfiledRun | None:
    """Read a run's profile; None where its thread used nothing of torch's.

    Parameters
    ----------
    name
        What messages call it.

    Raises
    ------
    KinetoFileError
        If it is damaged.
    """
    trace = read_rank(io.BytesIO(profile.content), name)
    ahead = profile.start - profile.started
    start, stop = profile.started, profile.stop - ahead
    events = trace.events
    own_thread = (events.thread == profile.thread) & ~events.is_gpu_work
    own_thread &= np.isin(events.category, (*_BY_THREAD, *CALLS))
    if not own_thread.any():
        return None
    rows = _own(events, own_thread, start, stop)
    process = int(events.process[own_thread.argmax()])
    last = {
        "index": int(events.index.max()) + 1,
        "category": Category.ANNOTATION,
        "name": len(trace.names),
        "start": start,
        "stop": stop,
        "process": process,
        "thread": profile.thread,
    }
    columns = {
        column: np.append(values, np.array([last.get(column, MISSING)], values.dtype))
        for column, values in events.columns().items()
    }
    whole = replace(trace, events=Events(**columns), names=(*trace.names, name))
    return ProfiledRun(whole, Region(start, stop, rows, name), ahead)


def _own(events: Events, own_thread: Bool, start: int, stop: int) -> Int32:
    """Rows of what the run did, and of what it asked for.

    Operators are recorded for the profiled thread only, and for autograd's threads while they work for it. Calls of
    CUDA are recorded for all threads of the process: those of another thread are the run's if they are in such an
    operator. Work on a GPU is that of its call; without one, it is the run's if no other thread called.
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
    asked_for = (events.call != MISSING) & on_threads[events.call]
    unasked = begins & (events.call == MISSING) & events.is_gpu_work & (not others)
    return np.flatnonzero(on_threads | asked_for | unasked).astype(np.int32)
