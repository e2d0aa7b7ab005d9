"""TransferCosts: time to move results to a worker, fitted to the recorded transfers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Float64, Int64
from dask_efficiency.runs.trace.run_trace import RunTrace, WorkerSpec
from dask_efficiency.simulation.model.events import EventHeap
from dask_efficiency.simulation.model.topology import NetworkSpec, Topology


def has_hosts(network: NetworkSpec | None, workers: Sequence[WorkerSpec]) -> bool:
    """True if a network has the hosts of all workers, by name or address."""
    return isinstance(network, Topology) and all(network.host(worker.host) is not None for worker in workers)


def arrivals_on(
    network: NetworkSpec, workers: Sequence[WorkerSpec], sender: Int64, receiver: Int64, start: Int64, nbytes: Int64
) -> Int64:
    """Send recorded messages over a network in virtual time; returns their instants of arrival in nanoseconds."""
    clock = EventHeap(int(start.min()))
    model = network.model(clock)
    arrivals = np.zeros(len(start), np.int64)

    def arrived(i: int) -> None:
        arrivals[i] = clock.now

    hosts = [worker.host for worker in workers]
    for i, (a, b, at, size) in enumerate(
        zip(sender.tolist(), receiver.tolist(), start.tolist(), nbytes.tolist(), strict=True)
    ):
        clock.at(at, model.transfer, hosts[a], hosts[b], size, lambda i=i: arrived(i))
    clock.run()
    return arrivals


#: Assumed nanoseconds for a result and for a byte; until the first byte, for a message, and for these: Dask 2026.8
#: between processes of one machine.
RESULT_NS, BYTE_NS = 100_000.0, 2.0
_ASSUMED = np.array([1_000_000.0, 700_000.0, RESULT_NS, BYTE_NS])
#: Weight of the assumed costs in a fit, as a number of observations: a guess.
_TRUST = 4.0
#: Smallest share of an observation that is left for costs other than the network's: a guess, however wrong that is.
MIN_PART = 0.02
#: Rounds of the fit, each with less weight for outliers: it hardly changes after these.
_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class TransferCosts:
    """A message takes ``latency + message + results * result + nbytes * byte`` nanoseconds.

    A worker takes in one after the other, except for the latency.
    """

    latency: float
    message: float
    result: float
    byte: float
    #: Cost of a byte in addition to a simulated network.
    byte_with_network: float
    #: Recorded times divided by the fitted ones: a sample, not empty.
    factors: Float64

    @staticmethod
    def computing(results: int, nbytes: int) -> float:
        """Nanoseconds of a core that a message needs: the assumed costs, without waiting."""
        _, message, result, byte = _ASSUMED.tolist()
        return float(message + results * result + nbytes * byte)


def transfer_costs(trace: RunTrace, network: NetworkSpec | None = None) -> TransferCosts:
    """Fit the costs of a recorded run's transfers; without the network's, if the run was recorded on this network."""
    took, parts, moving = _observations(trace, network)
    # Even if the network's description is wrong, something else took time, too.
    took = np.maximum(took - moving, MIN_PART * took)
    cost = _fit(took, parts)
    factors = took / np.maximum(parts @ cost, 1.0) if len(took) else np.ones(1)
    latency, message, result, byte = map(float, cost)
    byte_with_network = byte if moving.any() else min(byte, float(_ASSUMED[3]))
    return TransferCosts(latency, message, result, byte, byte_with_network, factors)


def _observations(trace: RunTrace, network: NetworkSpec | None) -> tuple[Float64, Float64, Float64]:
    """Measure stretches in which a worker waited for messages: time; parts, shape (n, 4); time of the network."""
    transfers = trace.transfers
    known = transfers.arrived & (transfers.start != MISSING) & (transfers.stop > transfers.start)
    if not known.any():
        return np.empty(0), np.empty((0, 4)), np.empty(0)
    rows = np.flatnonzero(known)
    receiver, sender, start, stop, nbytes = (
        column[rows].astype(np.int64)
        for column in (transfers.receiver, transfers.sender, transfers.start, transfers.stop, transfers.nbytes)
    )
    sizes = np.maximum(nbytes, 0).astype(np.float64)
    # A worker requests one message at a time from another one: results whose times overlap travelled together.
    pair = receiver * (int(sender.max()) + 2) + sender
    order = np.lexsort((start, pair))
    first = _first_rows(pair[order], start[order], stop[order])
    receiver, sender, start = receiver[order][first], sender[order][first], start[order][first]
    stop = np.maximum.reduceat(stop[order], first)
    counted = [np.add.reduceat(column, first) for column in (np.ones(len(rows)), sizes[order])]
    # Messages of several senders whose times overlap waited for each other.
    order = np.lexsort((start, receiver))
    first = _first_rows(receiver[order], start[order], stop[order])
    parts = [np.add.reduceat(column[order], first) for column in (np.ones(len(receiver)), *counted)]
    took = np.maximum.reduceat(stop[order], first) - start[order][first]
    moving = np.zeros(len(first))
    # Messages between workers of the trace; others come from clients, for example.
    inside = (np.minimum(sender, receiver) >= 0) & (np.maximum(sender, receiver) < len(trace.workers))
    if network is not None and has_hosts(network, trace.workers) and inside.all():
        arrived = arrivals_on(network, trace.workers, sender, receiver, start, counted[1])
        moving = (np.maximum.reduceat(arrived[order], first) - start[order][first]).astype(np.float64)
    return took.astype(np.float64), np.column_stack([np.ones(len(first)), *parts]), moving


def _first_rows(of: Int64, start: Int64, stop: Int64) -> Int64:
    """Find the rows that begin a group of overlapping intervals; rows are in order of ``of`` and start."""
    other = np.diff(of) != 0
    # The latest stop so far of each group, by rank: instants with an offset for each group would overflow.
    stops, rank = np.unique(stop, return_inverse=True)
    group = np.concatenate([[0], np.cumsum(other)])
    until = stops[np.maximum.accumulate(group * len(stops) + rank) % len(stops)]
    rows: Int64 = np.flatnonzero(np.r_[True, other | (start[1:] >= until[:-1])])
    return rows


def _fit(took: Float64, parts: Float64) -> Float64:
    """Fit the costs, none below 0, with the least relative error, and near the assumed ones."""
    cost, weight = _ASSUMED.copy(), np.ones(len(took))
    for _ in range(_ROUNDS):
        # In units of the assumed costs.
        scaled = parts * _ASSUMED / took[:, None] * weight[:, None]
        equations = np.vstack([scaled, np.sqrt(_TRUST) * np.eye(4)])
        wanted = np.concatenate([weight, np.full(4, np.sqrt(_TRUST))])
        cost = _non_negative_least_squares(equations, wanted) * _ASSUMED
        off = np.abs(np.log(np.maximum(parts @ cost, 1.0) / np.maximum(took, 1.0)))
        weight = 1.0 / np.sqrt(np.maximum(off, 0.1))
    return cost


def _non_negative_least_squares(equations: Float64, wanted: Float64) -> Float64:
    """Solve least squares with no unknown below 0: negative ones are left out, the most negative first."""
    kept = np.arange(equations.shape[1])
    solution = np.zeros(equations.shape[1])
    while len(kept):
        solved = np.linalg.lstsq(equations[:, kept], wanted, rcond=None)[0]
        if (solved >= 0).all():
            solution[kept] = solved
            break
        kept = np.delete(kept, np.argmin(solved))
    return solution
