"""Replay: run a recorded trace again with changes, which makes another trace."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import numpy as np

from dask_efficiency.runs.replay.changes import Changes, changes
from dask_efficiency.runs.replay.constraints import constraints
from dask_efficiency.runs.replay.durations import durations, moved
from dask_efficiency.runs.replay.rebuild import rebuild
from dask_efficiency.runs.replay.schedule import VirtualCluster
from dask_efficiency.runs.replay.task_times import repaired, task_times
from dask_efficiency.runs.trace.causes import Causes
from dask_efficiency.runs.trace.run_trace import RunTrace

#: A replay is of the recorded run's own class.


def replay(
    trace: RunTrace,
    *,
    speed_up: Mapping[str, float] | None = None,
    without: Collection[str] = (),
    repair: Iterable[str] = (),
) -> RunTrace:
    """Run a recorded trace again, with changes. Without changes, everything happens when it did.

    Tasks compute for as long as they did, and all other recorded delays are kept. When a task begins is worked out
    anew: from its inputs, from the slots of its worker, and from the scheduler's queue.

    Parameters
    ----------
    trace
        The recorded run.
    speed_up
        Prefix to how many times as fast its tasks compute; 2.0 is half the time, 0.5 is twice the time.
    without
        Parts that take no time: ``transfer`` (moving results between workers), ``spill`` (disk, both ways),
        ``scheduler`` (messages to and from it, and its own time).
    repair
        Names of workers whose tasks take as long as tasks of the same prefix on the other workers, by the medians.

    Returns
    -------
    RunTrace
        It can be read as any other trace. What cannot follow from the changes is left out: the metric series, and the
        times in which event loops were blocked.

    Raises
    ------
    UnknownNameError
        If a prefix or worker is not in the trace, or a part is none of those.
    ValueError
        If a speed-up is not a positive number.

    Notes
    -----
    Tasks stay on their workers, except those that waited in the scheduler's queue, which go to whichever worker has
    room first. A task that waited for tasks that it submitted itself takes as long as it did. A faster part can make
    the whole run slower, in a replay as on a cluster: tasks become ready in another order, and a long task may get its
    slot late (Graham's anomalies).
    """
    return replay_with(trace, changes(trace, speed_up or {}, without, repair))


def replay_with(trace: RunTrace, changed: Changes, causes: Causes | None = None) -> RunTrace:
    """Run a trace again with changes of any kind; ``causes`` saves working them out anew."""
    if not len(trace.runs):
        return trace
    causes = causes or Causes(trace)
    inputs = causes.inputs(trace)
    transfers = moved(trace, inputs)
    times = durations(trace, causes, transfers, changed)
    limits = constraints(trace, causes, inputs)
    scheduler = changed.part("scheduler")
    lag = limits.lag if scheduler == 1.0 else np.rint(limits.lag * scheduler).astype(np.int64)
    recorded = task_times(trace)
    changed_times = repaired(recorded, [i for i, worker in enumerate(trace.workers) if worker.name in changed.repaired])
    schedule = VirtualCluster(trace, times, limits, lag, recorded, changed_times).run()
    again = rebuild(trace, times, limits, transfers, schedule, changed)
    return replace(again, name=f"{trace.name} (replayed)")
