"""What a thread that is idle waits for on another one: autograd's thread, the thread of a collective, its caller."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Bool, Int64
from dask_efficiency.torch_traces.kineto.trace import RankTrace
from dask_efficiency.torch_traces.path.calls import named
from dask_efficiency.torch_traces.path.exchanges import cpu_collectives
from dask_efficiency.torch_traces.path.instants import Instants, last_before

#: Operators of the backward pass as autograd's engine calls them: today ``autograd::engine::evaluate_function: ...``,
#: formerly ``AddmmBackward0`` and ``torch::autograd::AccumulateGrad``.
_BACKWARD = re.compile(r"autograd::|Backward\d*$")
#: Operators that hand a collective over to a backend, and may wait for it.
_DISTRIBUTED = re.compile("c10d::")

_Pairs = tuple[NDArray[np.integer], NDArray[np.integer]]


def across_threads(trace: RankTrace, instants: Instants) -> Iterator[_Pairs]:
    """Pairs of instants of different threads, of which the second may have waited for the first.

    Nothing in a trace says so; it is inferred from what threads of PyTorch do while they are idle:

    - The thread of the forward pass waits for autograd's thread, and that one for the former.
    - A thread that is idle, or in an operator of torch.distributed, waits for a collective on the CPU. The collective
      was asked for by such an operator, or else by the main thread.
    - A thread on which nothing has happened yet waited for what operators did last on any thread of its process.
    """
    if not len(instants):
        return
    lanes = _Lanes(trace, instants)
    yield from _backward(lanes, instants)
    yield from _collectives(trace, lanes, instants)
    first = (instants.before == MISSING) & ~instants.on_gpu
    others = instants.working & ~instants.on_gpu & ~first
    yield last_before(lanes.process, np.flatnonzero(first | others), others)


class _Lanes:
    """What kind of thread each lane is, and where threads are idle."""

    def __init__(self, trace: RankTrace, instants: Instants) -> None:
        lane, cpu = instants.lane, ~instants.on_gpu
        self.process: Int64 = trace.events.process[instants.event]
        count = int(lane.max()) + 1
        #: By instant, whether nothing is open on its thread after it, and whether nothing was before it.
        self.idle_after: Bool = cpu & (instants.depth == 0)
        self.idle_before: Bool = cpu & instants.is_start & (instants.depth == 1)
        outermost = self.idle_before
        backward = named(trace, lambda name: _BACKWARD.search(name) is not None)[instants.event]
        total = np.bincount(lane[outermost], minlength=count)
        is_backward = 2 * np.bincount(lane[outermost & backward], minlength=count) > np.maximum(total, 1)
        collective = cpu_collectives(trace)[instants.event]
        is_collective = np.bincount(lane[outermost & collective], minlength=count) == np.maximum(total, 1)
        size = np.bincount(lane[cpu], minlength=count)
        size[is_backward | is_collective] = 0
        #: By instant, what its lane is.
        self.backward: Bool = cpu & is_backward[lane]
        self.collective: Bool = cpu & is_collective[lane]
        self.main: Bool = cpu & (lane == int(size.argmax())) & bool(size.any())


def _backward(lanes: _Lanes, instants: Instants) -> Iterator[_Pairs]:
    for waiting, working in ((lanes.main, lanes.backward), (lanes.backward, lanes.main)):
        sources, targets = working & lanes.idle_after, waiting & lanes.idle_before
        yield last_before(lanes.process, np.flatnonzero(sources | targets), sources)


def _collectives(trace: RankTrace, lanes: _Lanes, instants: Instants) -> Iterator[_Pairs]:
    distributed = named(trace, lambda name: _DISTRIBUTED.match(name) is not None)
    before, inner = instants.before, instants.innermost
    waiting = ~instants.on_gpu & ~lanes.collective
    previous = before[waiting]
    in_distributed = (inner[previous] != MISSING) & distributed[inner[previous]]
    waiting[waiting] = (previous == MISSING) | lanes.idle_after[previous] | in_distributed
    ended = lanes.collective & ~instants.is_start
    yield last_before(lanes.process, np.flatnonzero(ended | waiting), ended)
    begun = lanes.collective & instants.is_start
    callers = distributed[instants.event] & instants.is_start & ~instants.on_gpu
    if not callers.any():
        callers = lanes.main
    yield last_before(lanes.process, np.flatnonzero(begun | callers), callers)
