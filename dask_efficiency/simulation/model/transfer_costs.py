"""TransferCosts: time to move results to a worker, fitted to the recorded transfers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Float64, Int64
from dask_efficiency.runs.trace.run_trace import RunTrace, WorkerSpec
from dask_efficiency.simulation.model.events import EventHeap
from dask_efficiency.simulation.model.network import NetworkSpec
from dask_efficiency.simulation.model.topology import Topology


def knows(network: NetworkSpec | None, workers: Sequence[WorkerSpec]) -> bool:
    """Whether a network has the hosts that workers were on, by name or address."""
    return isinstance(network, Topology) and all(network.host(worker.host) is not None for worker in workers)


def arrivals(
    network: NetworkSpec, workers: Sequence[WorkerSpec], sender: Int64, receiver: Int64, start: Int64, nbytes: Int64
) -> Int64:
    """When messages that start when they did would be there if nothing but the network took time; in nanoseconds."""
    clock = EventHeap(int(start.min()))
    model = network.model(clock)
    found = np.zeros(len(start), np.int64)

    def arrived(i: int) -> None:
        found[i] = clock.now

    hosts = [worker.host for worker in workers]
    for i, (a, b, at, size) in enumerate(
        zip(sender.tolist(), receiver.tolist(), start.tolist(), nbytes.tolist(), strict=True)
    ):
        clock.at(at, model.transfer, hosts[a], hosts[b], size, lambda i=i: arrived(i))
    while clock.step():
        pass
    return found


#: What is assumed as far as a trace does not tell: Dask 2026.8 between processes of one machine. In nanoseconds: for a
#: result, for a byte; until the first byte, for a message, for these.
RESULT_NS, BYTE_NS = 100_000.0, 2.0
_ASSUMED = np.array([1_000_000.0, 700_000.0, RESULT_NS, BYTE_NS])

#: How much a fit trusts what is assumed: as much as so many stretches that agree with it.
_TRUST = 4.0

#: Of a stretch, what is left for the costs beside a network at least.
MIN_PART = 0.02

#: How often the fit is made again with less weight for what lies far off.
_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class TransferCosts:
    """A message of results takes ``latency + message + results * result + nbytes * byte`` nanoseconds.

    A worker takes in one message after the other, except for the latency: many messages at once wait for each other.
    """

    latency: float
    message: float
    result: float
    byte: float
    #: What one byte takes beside a network that is simulated on its own.
    byte_with_network: float
    #: How many times as long as that recorded transfers took: a sample, not empty.
    factors: Float64

    @staticmethod
    def computing(results: int, nbytes: int) -> float:
        """Nanoseconds of a core that a message needs: as much as where nothing kept it waiting."""
        _, message, result, byte = _ASSUMED.tolist()
        return float(message + results * result + nbytes * byte)


def transfer_costs(trace: RunTrace, network: NetworkSpec | None = None) -> TransferCosts:
    """What a recorded run's transfers took; beside the network, where it is given and the run was recorded on it.

    A stretch in which a worker always waited for at least one message is one observation: it takes one latency, and
    the rest of each of its messages.
    """
    took, parts, moving = _stretches(trace, network)
    # However wrong the network is described, something else took time too.
    took = np.maximum(took - moving, MIN_PART * took)
    cost = _fit(took, parts)
    factors = took / np.maximum(parts @ cost, 1.0) if len(took) else np.ones(1)
    latency, message, result, byte = map(float, cost)
    beside = byte if moving.any() else min(byte, float(_ASSUMED[3]))
    return TransferCosts(latency, message, result, byte, beside, factors)


def _stretches(trace: RunTrace, network: NetworkSpec | None) -> tuple[Float64, Float64, Float64]:
    """How long each stretch took; how many latencies, messages, results and bytes were in it: shape (stretches, 4).

    The last is how long a network that is known took for them; 0 where it is not.
    """
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
    # A worker asks another one for one message at a time: results whose times overlap travelled together.
    pair = receiver * (int(sender.max()) + 2) + sender
    order = np.lexsort((start, pair))
    first = _firsts(pair[order], start[order], stop[order])
    receiver, sender, start = receiver[order][first], sender[order][first], start[order][first]
    stop = np.maximum.reduceat(stop[order], first)
    counted = [np.add.reduceat(column, first) for column in (np.ones(len(rows)), sizes[order])]
    # Messages of several senders whose times overlap waited for each other.
    order = np.lexsort((start, receiver))
    first = _firsts(receiver[order], start[order], stop[order])
    parts = [np.add.reduceat(column[order], first) for column in (np.ones(len(receiver)), *counted)]
    took = np.maximum.reduceat(stop[order], first) - start[order][first]
    moving = np.zeros(len(first))
    # Messages from and to workers that the trace has; others come from clients and the like.
    inside = (np.minimum(sender, receiver) >= 0) & (np.maximum(sender, receiver) < len(trace.workers))
    if network is not None and knows(network, trace.workers) and inside.all():
        there = arrivals(network, trace.workers, sender, receiver, start, counted[1])
        moving = (np.maximum.reduceat(there[order], first) - start[order][first]).astype(np.float64)
    return took.astype(np.float64), np.column_stack([np.ones(len(first)), *parts]), moving


def _firsts(of: Int64, start: Int64, stop: Int64) -> Int64:
    """The rows with which a stretch begins in which intervals overlap; rows are in order of ``of`` and start."""
    other = np.diff(of) != 0
    # The latest stop so far of each: by rank, as instants of many on one time line would be too large.
    stops, rank = np.unique(stop, return_inverse=True)
    group = np.concatenate([[0], np.cumsum(other)])
    until = stops[np.maximum.accumulate(group * len(stops) + rank) % len(stops)]
    found: Int64 = np.flatnonzero(np.r_[True, other | (start[1:] >= until[:-1])])
    return found


def _fit(took: Float64, parts: Float64) -> Float64:
    """The costs, none below 0, that are least off, in proportion, and from what is assumed."""
    cost, weight = _ASSUMED.copy(), np.ones(len(took))
    for _ in range(_ROUNDS):
        # In units of what is assumed.
        scaled = parts * _ASSUMED / took[:, None] * weight[:, None]
        equations = np.vstack([scaled, np.sqrt(_TRUST) * np.eye(4)])
        wanted = np.concatenate([weight, np.full(4, np.sqrt(_TRUST))])
        cost = _not_negative(equations, wanted) * _ASSUMED
        off = np.abs(np.log(np.maximum(parts @ cost, 1.0) / np.maximum(took, 1.0)))
        weight = 1.0 / np.sqrt(np.maximum(off, 0.1))
    return cost


def _not_negative(equations: Float64, wanted: Float64) -> Float64:
    """Least squares with no unknown below 0: what would be is left out, the most negative first."""
    kept = np.arange(equations.shape[1])
    found = np.zeros(equations.shape[1])
    while len(kept):
        solved = np.linalg.lstsq(equations[:, kept], wanted, rcond=None)[0]
        if (solved >= 0).all():
            found[kept] = solved
            break
        kept = np.delete(kept, np.argmin(solved))
    return found
