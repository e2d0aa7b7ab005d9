"""Placements: a run under several placements on the same machines, ranked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from dask_efficiency.runs.path.kinds import Kind
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.show.shown import Shown
from dask_efficiency.simulation.model.result import Prediction
from dask_efficiency.simulation.model.topology import Topology
from dask_efficiency.simulation.model.units import note_not_simulated


@dataclass(frozen=True, slots=True)
class Placement:
    """Placement of workers on hosts, by the name of its hostfile, with the prediction of a run."""

    name: str
    prediction: Prediction

    @property
    def makespan_seconds(self) -> float:
        """Median of the simulated makespans."""
        return self.prediction.makespan_seconds

    @property
    def moving_seconds(self) -> float:
        """Seconds of the critical path that wait for inputs from other workers."""
        kinds = self.prediction.breakdown
        return sum(kinds.get(kind, 0.0) for kind in (Kind.TRANSFER, Kind.TRANSFER_QUEUE))

    @property
    def moved_bytes(self) -> int:
        """Bytes that went from one host to another."""
        return sum(moved_between_hosts(self.prediction.trace).values())

    @property
    def fullest_link(self) -> tuple[str, float] | None:
        """Link that moves bytes for the largest share of the makespan, and that share; None without a topology."""
        topology, seconds = self.prediction.cluster.network, self.makespan_seconds
        if not isinstance(topology, Topology):
            return None
        loads = link_loads(topology, moved_between_hosts(self.prediction.trace))
        return (loads[0].name, loads[0].seconds / seconds) if loads and seconds else None


def moved_between_hosts(trace: RunTrace) -> dict[tuple[str, str], int]:
    """Sum the bytes of all transfers between different hosts, by source and destination."""
    transfers, workers = trace.transfers, len(trace.workers)
    hosts = list(dict.fromkeys(worker.host for worker in trace.workers))
    number = np.array([hosts.index(worker.host) for worker in trace.workers], np.int64)
    known = transfers.arrived & (transfers.sender >= 0) & (transfers.sender < workers)
    known &= (transfers.receiver >= 0) & (transfers.receiver < workers)
    moved = np.zeros((len(hosts), len(hosts)), np.int64)
    np.add.at(moved, (number[transfers.sender[known]], number[transfers.receiver[known]]), transfers.nbytes[known])
    pairs = zip(*(rows.tolist() for rows in np.nonzero(moved)), strict=True)
    return {
        (hosts[source], hosts[destination]): int(moved[source, destination])
        for source, destination in pairs
        if source != destination
    }


class LinkLoad(NamedTuple):
    """Load of a link, named by its ends, in its busier direction."""

    name: str
    nbytes: int
    #: For which the bytes fill it.
    seconds: float


def link_loads(topology: Topology, moved: Mapping[tuple[str, str], int]) -> tuple[LinkLoad, ...]:
    """Compute the load of each link that is used, the busiest first, from bytes by source and destination host."""
    crossing: dict[tuple[int, bool], int] = {}
    for (source, destination), nbytes in moved.items():
        for way in topology.route(source, destination).links:
            crossing[way] = crossing.get(way, 0) + nbytes
    loads: dict[int, LinkLoad] = {}
    for (i, forth), nbytes in crossing.items():
        link = topology.links[i]
        load = LinkLoad(link.name, nbytes, nbytes / ((link.bandwidth if forth else link.back) * topology.payload))
        loads[i] = max(loads.get(i, load), load, key=lambda direction: direction.seconds)
    return tuple(sorted(loads.values(), key=lambda load: (-load.seconds, load.name)))


@dataclass(frozen=True, slots=True, repr=False)
class Placements(Shown):
    """Recorded run under several placements of its workers, the fastest first.

    Parameters
    ----------
    ranked
        By makespan; at least one.
    not_simulated
        Names of the others, if Ctrl-C ended it early.
    """

    _sections_module: ClassVar[str] = "dask_efficiency.simulation.sections.places"

    ranked: tuple[Placement, ...]
    not_simulated: tuple[str, ...] = ()

    @property
    def best(self) -> Placement:
        """Fastest placement."""
        return self.ranked[0]

    @property
    def saved_seconds(self) -> float:
        """Seconds by which the best is faster than the next best; 0.0 if there is only one."""
        return self.ranked[1].makespan_seconds - self.best.makespan_seconds if len(self.ranked) > 1 else 0.0

    @property
    def is_clear(self) -> bool:
        """True if the best is faster than the next best by more than runs differ."""
        return len(self.ranked) > 1 and self.is_clearly_slower(self.ranked[1])

    def is_clearly_slower(self, placement: Placement) -> bool:
        """True if a placement is slower than the best by more than runs differ: their spreads do not overlap.

        The error of the model is common to both, so it is not in the spreads.
        """
        return placement.prediction.runs.spread[0] > self.best.prediction.runs.spread[1]

    @property
    def notes(self) -> tuple[str, ...]:
        """Caveats of the predictions, a sentence each."""
        return (*note_not_simulated(self.not_simulated, "placements"), *self.best.prediction.notes)


def ranked(placements: list[Placement], not_simulated: tuple[str, ...] = ()) -> Placements:
    """Sort placements, the fastest first."""
    return Placements(tuple(sorted(placements, key=lambda placement: placement.makespan_seconds)), not_simulated)
