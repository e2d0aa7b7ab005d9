"""Data that every rank must have after a collective, by MPI's standard."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.mpi.collectives.call import Collective
from dask_efficiency.mpi.collectives.rounds import Message, Round
from tests.mpi.collectives.blocking import Behaviour, run


def _mask(message: Message, length: int) -> NDArray[np.bool_]:
    mask = np.zeros(length, bool)
    for block in message.blocks:
        mask[block.start : block.stop] = True
    return mask


def _layout(call: Collective) -> tuple[int, Callable[[int], range], Callable[[int], Iterable[range]]]:
    """Length of the data; what a rank starts with; what it must end with."""
    size, name = call.size, call.name
    if name in ("bcast", "reduce", "allreduce"):
        whole = range(call.nbytes)
        start = whole if name != "bcast" else range(0)
        return call.nbytes, lambda rank: whole if rank == call.root else start, lambda rank: [whole]
    if name in ("alltoall", "alltoallv"):
        sizes = call.sizes if name == "alltoallv" else call.sizes * size**2
        starts = np.concatenate([[0], np.cumsum(sizes)]).tolist()
        span = lambda first, stop: range(starts[first], starts[stop])  # noqa: E731
        return (
            starts[-1],
            lambda rank: span(rank * size, (rank + 1) * size),
            lambda rank: [span(source * size + rank, source * size + rank + 1) for source in range(size)],
        )
    starts = np.concatenate([[0], np.cumsum(call.blocks)]).tolist()
    block = lambda rank: range(starts[rank], starts[rank + 1])  # noqa: E731
    whole = range(starts[-1])
    if name in ("scatter", "scatterv"):
        return len(whole), lambda rank: whole if rank == call.root else range(0), lambda rank: [block(rank)]
    if name in ("reduce_scatter", "reduce_scatter_block"):
        return len(whole), lambda rank: whole, lambda rank: [block(rank)]
    gathers = name in ("gather", "gatherv")
    return len(whole), block, lambda rank: [whole] if not gathers or rank == call.root else []


def check_movement(call: Collective, rounds: Sequence[Sequence[Round]]) -> None:
    """Every rank sends only bytes that it has, and ends with those that it must have."""
    length, starts_with, ends_with = _layout(call)
    has = np.zeros((call.size, length), bool)
    for rank in range(call.size):
        own = starts_with(rank)
        has[rank, own.start : own.stop] = True

    def sent(rank: int, message: Message) -> NDArray[np.bool_]:
        mask = _mask(message, length)
        assert message.nbytes == mask.sum()
        assert has[rank, mask].all(), f"{rank} sends what it does not have: {message}"
        return mask

    def received(rank: int, message: Message, mask: object, each: Round) -> None:
        assert not each.reduces
        has[rank] |= mask  # type: ignore[arg-type]

    run(rounds, Behaviour(sent, received))
    for rank in range(call.size):
        for needed in ends_with(rank):
            assert has[rank, needed.start : needed.stop].all(), f"{rank} misses some of {needed}"


def check_reduction(call: Collective, rounds: Sequence[Sequence[Round]]) -> None:
    """Every byte of the result combines each rank's part exactly once."""
    length, _, ends_with = _layout(call)
    size = call.size
    #: By rank, byte and rank: how often this rank's part is in it.
    parts = np.zeros((size, length, size), np.int64)
    for rank in range(size):
        parts[rank, :, rank] = 1

    def sent(rank: int, message: Message) -> NDArray[np.int64]:
        mask = _mask(message, length)
        assert message.nbytes == mask.sum()
        return parts[rank, mask].copy()

    def received(rank: int, message: Message, payload: object, each: Round) -> None:
        mask = _mask(message, length)
        if each.reduces:
            assert each.reduces == mask.sum()
            parts[rank, mask] += payload
        else:
            parts[rank, mask] = payload

    run(rounds, Behaviour(sent, received))
    for rank in range(size):
        if call.name == "reduce" and rank != call.root:
            continue
        for needed in ends_with(rank):
            assert (parts[rank, needed.start : needed.stop] == 1).all(), f"{rank} lacks parts, or has some twice"


def check_combined(call: Collective, rounds: Sequence[Sequence[Round]]) -> None:
    """As `check_reduction`, where messages say whose parts they combine: each can be put together from others."""
    name, size = call.name, call.size
    if name in ("scan", "exscan"):
        length, needed = call.nbytes, [range(call.nbytes)] * size
        results = [range(rank + (name == "scan")) for rank in range(size)]
    else:
        length, _, ends_with = _layout(call)
        needed = [next(iter(ends_with(rank))) for rank in range(size)]
        results = [range(size)] * size
    pieces = [[{(rank, rank + 1)} for _ in range(length)] for rank in range(size)]

    def sent(rank: int, message: Message) -> None:
        for block in message.blocks:
            for byte in block:
                assert _tiled(message.ranks, pieces[rank][byte]), f"{rank} cannot send {message}"

    def received(rank: int, message: Message, payload: object, each: Round) -> None:
        for block in message.blocks:
            for byte in block:
                pieces[rank][byte].add((message.ranks.start, message.ranks.stop))

    run(rounds, Behaviour(sent, received))
    for rank in range(size):
        for byte in needed[rank]:
            assert _tiled(results[rank], pieces[rank][byte]), f"{rank} lacks parts at byte {byte}"


def _tiled(ranks: range, pieces: set[tuple[int, int]]) -> bool:
    """True if consecutive pieces make up all the ranks."""
    reached = {ranks.start}
    for start, stop in sorted(pieces):
        if start in reached and stop <= ranks.stop:
            reached.add(stop)
    return ranks.stop in reached


def check_barrier(call: Collective, rounds: Sequence[Sequence[Round]]) -> None:
    """No rank leaves before all have come."""
    known = [{rank} for rank in range(call.size)]
    run(
        rounds,
        Behaviour(
            lambda rank, message: set(known[rank]),
            lambda rank, message, payload, each: known[rank].update(payload),  # type: ignore[arg-type]
        ),
    )
    assert all(len(each) == call.size for each in known)


def check(call: Collective, rounds: Sequence[Sequence[Round]]) -> None:
    says_ranks = any(message.ranks for own in rounds for each in own for message in each.sends)
    if call.name == "barrier":
        check_barrier(call, rounds)
    elif says_ranks:
        check_combined(call, rounds)
    elif call.name in ("reduce", "allreduce", "reduce_scatter", "reduce_scatter_block"):
        check_reduction(call, rounds)
    else:
        check_movement(call, rounds)
