"""MpiPrediction and MpiPlacements: a recorded MPI program on some hosts, and on several choices of hosts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dask_efficiency.files.storage import writing
from dask_efficiency.mpi.machine import INSTRUCTIONS_PER_SECOND, Machine, MpiSettings, check_finished
from dask_efficiency.mpi.program import Op, Program
from dask_efficiency.mpi.timeline import MpiStretch, RankActivity, RankTimeline, critical_path
from dask_efficiency.runs.trace.events import TraceEvents, Written, WrittenSlice
from dask_efficiency.show.progress import progress
from dask_efficiency.show.shown import Shown
from dask_efficiency.simulation.model.placements import LinkLoad, link_loads
from dask_efficiency.simulation.model.topology import Topology
from dask_efficiency.simulation.model.units import note_not_simulated


@dataclass(frozen=True, slots=True, repr=False)
class MpiPrediction(Shown):
    """A recorded MPI program on the hosts of a network.

    Parameters
    ----------
    program
        The program.
    topology
        The network.
    hosts
        Host by rank.
    settings
        Behaviour of the MPI implementation.
    timelines
        Activity by rank.
    messages
        Number of messages, those of collectives included.
    moved
        Bytes by hosts of sender and receiver, which may be the same.
    algorithms
        Number of uses by ranks of each algorithm, by collective.
    name
        Name of the hostfile.
    notes
        Caveats.
    """

    _sections_module: ClassVar[str] = "dask_efficiency.mpi.sections.mpi"

    program: Program
    topology: Topology
    hosts: tuple[str, ...]
    settings: MpiSettings
    timelines: Sequence[RankTimeline]
    messages: int
    moved: Mapping[tuple[str, str], int]
    algorithms: Mapping[str, Mapping[str, int]]
    name: str = ""
    notes: tuple[str, ...] = ()
    path: tuple[MpiStretch, ...] = ()

    @property
    def makespan_seconds(self) -> float:
        """Time from the start to the end of the last rank."""
        return max((timeline.end for timeline in self.timelines), default=0) / 1e9

    def seconds(self, rank: int) -> dict[RankActivity, float]:
        """Seconds of a rank by activity, until the end of the last rank; after its own end it waits."""
        timeline = self.timelines[rank]
        lengths = np.diff(np.array(timeline.ends, np.int64), prepend=0)
        spent = np.bincount(np.array(timeline.kinds, np.intp), lengths, len(RankActivity))
        spent[RankActivity.WAITING] += max(other.end for other in self.timelines) - timeline.end
        return {kind: float(spent[kind]) / 1e9 for kind in RankActivity}

    @property
    def breakdown(self) -> dict[RankActivity, float]:
        """Seconds of all ranks by activity, which add up to ranks x makespan."""
        ranks = [self.seconds(rank) for rank in range(self.program.size)]
        return {kind: sum((rank[kind] for rank in ranks), 0.0) for kind in RankActivity}

    @property
    def efficiency(self) -> float:
        """Share of the ranks' time that computes, 0 to 1."""
        total = self.makespan_seconds * self.program.size
        return self.breakdown[RankActivity.COMPUTE] / total if total else 0.0

    @property
    def path_seconds(self) -> dict[RankActivity, float]:
        """Seconds of the critical path by activity, which add up to the makespan."""
        seconds = dict.fromkeys((RankActivity.COMPUTE, RankActivity.OVERHEAD, RankActivity.COMMUNICATION), 0.0)
        for stretch in self.path:
            seconds[stretch.kind] += (stretch.end - stretch.start) / 1e9
        return seconds

    @property
    def moved_bytes(self) -> int:
        """Bytes that went from one host to another."""
        return sum(nbytes for (source, destination), nbytes in self.moved.items() if source != destination)

    @property
    def links(self) -> tuple[LinkLoad, ...]:
        """Load of each link in its busier direction, the busiest first."""
        return link_loads(self.topology, self.moved)

    def call_of(self, rank: int, action: int) -> str:
        """Name of a rank's call at an action."""
        actions = self.program.ranks[rank]
        if action >= len(actions):
            return "finalize"
        op = Op(actions.ops[action])
        if op == Op.COLLECTIVE:
            return self.program.calls[actions.peers[action]].call.name
        return op.name.lower()

    def to_chrome(self, path: str | os.PathLike[str], **storage_options: Any) -> Written:
        """Write the activity of ranks in the Trace Event Format, for ui.perfetto.dev or chrome://tracing.

        Parameters
        ----------
        path
            A local path or any fsspec URL. A name in ``.gz`` is compressed; Perfetto reads it as it is.
        **storage_options
            For the file system, as in :func:`fsspec.open`.

        Returns
        -------
        Written
            Numbers of slices and arrows in the file.
        """
        return save_chrome(self, path, **storage_options)


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


def run(
    program: Program, topology: Topology, hosts: Sequence[str], settings: MpiSettings | None = None, name: str = ""
) -> MpiPrediction:
    """Run a program on the hosts of its ranks in virtual time; MpiTraceError if ranks deadlock."""
    settings = settings or MpiSettings()
    machine = Machine(program, hosts, topology, settings)
    with progress(f"simulating {name}".strip(), unit="actions", of=sum(map(len, program.ranks))) as report:
        machine.run(report)
    check_finished(program, machine)
    timelines = [rank.timeline for rank in machine.ranks]
    seen = machine.messages, dict(machine.moved), machine.algorithms
    notes, path = _notes(program, machine, settings), critical_path(timelines)
    return MpiPrediction(program, topology, tuple(hosts), settings, timelines, *seen, name, notes, path)


def _notes(program: Program, machine: Machine, settings: MpiSettings) -> tuple[str, ...]:
    notes = list(program.notes)
    if not settings.instructions_per_second and not program.instructions_per_second:
        taken = f"a host of speed 1 is taken to do {INSTRUCTIONS_PER_SECOND:g} instructions a second"
        notes.append(f"the trace lacks the speed of its machine: {taken}")
    if left := sum(len(rank.mailbox.unmatched_messages) for rank in machine.ranks):
        notes.append(f"{left} message{'s were' if left > 1 else ' was'} sent and never received")
    return tuple(notes)


@dataclass(frozen=True, slots=True, repr=False)
class MpiPlacements(Shown):
    """A program on several choices of hosts, the fastest first.

    Parameters
    ----------
    ranked
        By makespan; at least one.
    not_simulated
        Names of the others, if Ctrl-C ended the comparison early.
    """

    _sections_module: ClassVar[str] = "dask_efficiency.mpi.sections.places"

    ranked: tuple[MpiPrediction, ...]
    not_simulated: tuple[str, ...] = ()

    @property
    def best(self) -> MpiPrediction:
        """The fastest placement."""
        return self.ranked[0]

    @property
    def saved_seconds(self) -> float:
        """Seconds between the best placement and the next; 0.0 if there is only one."""
        return self.ranked[1].makespan_seconds - self.best.makespan_seconds if len(self.ranked) > 1 else 0.0

    @property
    def notes(self) -> tuple[str, ...]:
        """Caveats."""
        return (*note_not_simulated(self.not_simulated, "placements"), *self.best.notes)
