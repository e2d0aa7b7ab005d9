"""Against MPICH 4.0.2 itself: the algorithms that it chose and the messages that it sent."""

from dask_efficiency.mpi.collectives.choice import ALGORITHMS, choose
from dask_efficiency.mpi.collectives.expansion import rounds_of
from tests.mpi.collectives.recorder.recorded import Recorded, read


def _ours(record: Recorded, rank: int) -> list[tuple[int, int]]:
    """Messages that we expect of a rank, without sizes that the record lacks."""
    call, forced = record.call, {record.call.name: record.algorithm}
    rounds = rounds_of(call, choose(call, forced=forced), rank, forced=forced)
    sends = [(message.peer, message.nbytes) for each in rounds for message in each.sends]
    known = [nbytes >= 0 for _, nbytes in record.sends[rank]]
    if len(known) != len(sends):
        return sends
    return [(peer, nbytes if known[index] else -1) for index, (peer, nbytes) in enumerate(sends)]


def test_every_rank_sends_the_messages_of_mpich() -> None:
    records = read()
    assert {record.call.name for record in records} == set(ALGORITHMS)
    for record in records:
        for rank in range(record.call.size):
            assert _ours(record, rank) == list(record.sends[rank]), f"{record.call}, {record.algorithm}, rank {rank}"


def test_the_records_hold_every_algorithm_but_the_butterfly_of_irregular_reduce_scatters() -> None:
    held = {(each.call.name, choose(each.call, forced={each.call.name: each.algorithm})) for each in read()}
    every = {(name, algorithm) for name, algorithms in ALGORITHMS.items() for algorithm in algorithms}
    assert every - held == {("reduce_scatter", "noncommutative")}
