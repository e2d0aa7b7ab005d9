"""A simulated MPI program in the Trace Event Format: a track for each rank, with the critical path marked."""

from __future__ import annotations

import os
from typing import Any

from dask_efficiency.files.storage import writing
from dask_efficiency.mpi.result import MpiPrediction
from dask_efficiency.mpi.timeline import RankActivity
from dask_efficiency.runs.trace.events import TraceEvents, Written, WrittenSlice

#: Colours of the format by activity.
_COLOURS = {
    RankActivity.COMPUTE: "good",
    RankActivity.OVERHEAD: "grey",
    RankActivity.COMMUNICATION: "thread_state_runnable",
    RankActivity.WAITING: "terrible",
}


def save_chrome(run: MpiPrediction, path: str | os.PathLike[str], **storage_options: Any) -> Written:
    """Write the activity of ranks, in processes by host; see :meth:`MpiPrediction.to_chrome`."""
    with writing(path, compression="infer", **storage_options) as file:
        events = TraceEvents(file, 0)
        processes = {host: events.process(host) for host in dict.fromkeys(run.hosts)}
        tracks = [events.track(processes[host], f"rank {rank}") for rank, host in enumerate(run.hosts)]
        for rank, track in enumerate(tracks):
            _write_rank(events, run, rank, processes[run.hosts[rank]], track)
        _write_path(events, run)
        events.close()
        return events.written


def _write_rank(events: TraceEvents, run: MpiPrediction, rank: int, process: int, track: int) -> None:
    timeline = run.timelines[rank]
    for i, kind in enumerate(timeline.kinds):
        call = run.call_of(rank, timeline.actions[i])
        name = call if kind != RankActivity.WAITING else f"{call}: waiting"
        args = {"line": run.program.where(rank, timeline.actions[i])} if call != "finalize" else {}
        if timeline.others[i] >= 0:
            args |= {"with": f"rank {timeline.others[i]}", "bytes": str(timeline.nbytes[i])}
        spent = RankActivity(kind)
        begin, end = timeline.begin(i), timeline.ends[i]
        events.slice(process, track, begin, end, name, spent.name.lower(), colour=_COLOURS[spent], args=args)


def _write_path(events: TraceEvents, run: MpiPrediction) -> None:
    """The critical path on a track of its own, an arrow from each stretch to the next."""
    process = events.process("critical path")
    track = events.track(process, "critical path")
    before: WrittenSlice | None = None
    for stretch in run.path:
        who = f"rank {stretch.rank}" + (f" with {stretch.other}" if stretch.other >= 0 else "")
        name = f"{run.call_of(stretch.rank, stretch.action)}, {who}"
        colour = _COLOURS[stretch.kind]
        place = events.slice(process, track, stretch.start, stretch.end, name, stretch.kind.name.lower(), colour=colour)
        if before is not None:
            events.arrow(before, place, "critical path", "critical")
        before = place
