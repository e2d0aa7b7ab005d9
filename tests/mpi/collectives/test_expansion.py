import random
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dask_efficiency.mpi.collectives.call import SIZES, Collective
from dask_efficiency.mpi.collectives.choice import ALGORITHMS, VERSIONS, aborts, choose, falls_back
from dask_efficiency.mpi.collectives.expansion import rounds_of
from dask_efficiency.mpi.collectives.rounds import Message, Round
from tests.mpi.collectives.blocking import Deadlock, Mismatch, run
from tests.mpi.collectives.meaning import check
from tests.mpi.collectives.recorder.record import REDUCTIONS, ROOTED, number_of_sizes

ALL = [(name, algorithm) for name, algorithms in ALGORITHMS.items() for algorithm in algorithms]


def _nodes(size: int) -> list[tuple[int, ...]]:
    """Ranks in blocks, ranks dealt out, and nodes of different sizes."""
    return [
        tuple(rank // 3 for rank in range(size)),
        tuple(rank % 4 for rank in range(size)),
        tuple(min(rank, 2) for rank in range(size)),
    ]


def _sizes(name: str, size: int, largest: int, seed: int) -> tuple[int, ...]:
    draw = random.Random(seed)
    return tuple(draw.choice((0, largest, draw.randint(0, largest))) for _ in range(number_of_sizes(name, size)))


def _calls(name: str, algorithm: str, size: int, largest: int, roots: list[int]) -> Iterator[Collective]:
    for root in roots if name in ROOTED else [0]:
        for nodes in _nodes(size) if algorithm == "smp" else [()]:
            for commutative in (True, False) if name in REDUCTIONS else (True,):
                sizes = _sizes(name, size, largest, root) if SIZES[name] != "one" else (largest,)
                call = Collective(name, size, sizes, root=root, nodes=nodes, commutative=commutative)
                if not falls_back(call, algorithm) and not aborts(call, algorithm):
                    yield call


def _sent(call: Collective, algorithm: str, rank: int, version: str = "4.0.2") -> list[int]:
    return [message.nbytes for each in rounds_of(call, algorithm, rank, version) for message in each.sends]


def _check(call: Collective, algorithm: str, version: str, forced: dict[str, str] | None = None) -> None:
    check(call, [rounds_of(call, algorithm, rank, version, forced or {}) for rank in range(call.size)])


@pytest.mark.parametrize(("name", "algorithm"), ALL)
def test_every_rank_ends_with_the_required_bytes(name: str, algorithm: str) -> None:
    checked = 0
    for size in range(1, 13):
        for largest in (0, 7, 2 * size + 3):
            for call in _calls(name, algorithm, size, largest, list(range(size))[:: 1 + size // 5]):
                for version in VERSIONS:
                    _check(call, algorithm, version)
                    checked += 1
    assert checked > 20


@pytest.mark.parametrize(("name", "algorithm"), ALL)
@pytest.mark.parametrize("size", [33, 64])
def test_many_ranks_end_with_the_required_bytes(name: str, algorithm: str, size: int) -> None:
    for call in _calls(name, algorithm, size, 3 if SIZES[name] != "one" else 70, [size - 2]):
        if name in ("allgather", "alltoall", "reduce_scatter_block", "gather", "scatter"):
            call = Collective(name, size, (2,), root=call.root, commutative=call.commutative)
        _check(call, algorithm, "4.0.2")


@st.composite
def _any_call(draw: st.DrawFn) -> tuple[Collective, str, str, dict[str, str]]:
    """A call, an algorithm for it, a version, and algorithms for the calls inside."""
    name, algorithm = draw(st.sampled_from(ALL))
    size = draw(st.integers(2, 24))
    element = draw(st.sampled_from([1, 1, 4]))
    count = number_of_sizes(name, size)
    if count == 1:
        sizes: tuple[int, ...] = (draw(st.integers(0, 40)) * element,)
    else:
        choice = random.Random(draw(st.integers(0, 1000)))
        sizes = tuple(choice.choice((0, 1, 4)) * element for _ in range(count))
    call = Collective(
        name,
        size,
        sizes,
        root=draw(st.integers(0, size - 1)) if name in ROOTED else 0,
        nodes=tuple(draw(st.lists(st.integers(0, 5), min_size=size, max_size=size))) if draw(st.booleans()) else (),
        element=element,
        commutative=draw(st.booleans()) if name in REDUCTIONS else True,
    )
    forced = {each: draw(st.sampled_from(ALGORITHMS[each])) for each in ("bcast", "reduce", "allreduce", "scan")}
    version = draw(st.sampled_from(VERSIONS))
    if falls_back(call, algorithm) or aborts(call, algorithm):
        algorithm = choose(call, version)
    return call, algorithm, version, forced


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_any_call())
def test_any_call_ends_as_mpis_standard_requires(drawn: tuple[Collective, str, str, dict[str, str]]) -> None:
    _check(*drawn)


def test_blocks_larger_than_a_piece_go_around_the_ring_of_an_allgatherv_in_pieces() -> None:
    sizes = (100_000, 0, 40_000, 32_768)
    new = Collective("allgatherv", 4, sizes)
    _check(new, "ring", "4.0.2")
    _check(new, "ring", "3.2.1")
    # Its own block in four pieces, then those of ranks 3 and 2; rank 1, the next one, has its own.
    assert _sent(new, "ring", 0) == [32_768, 32_768, 32_768, 1696, 32_768, 32_768, 7232]
    # 3.2.1 makes no piece smaller than the smallest block.
    old = Collective("allgatherv", 4, (100_000, 50_000, 50_000, 50_000))
    assert _sent(old, "ring", 0, "3.2.1") == [50_000] * 4
    # A piece is whole elements: 32,768 bytes hold 10 of 3,000, and an element that is larger goes alone.
    for element, pieces in ((3000, [30_000, 30_000]), (60_000, [60_000])):
        call = Collective("allgatherv", 2, (60_000, 0), element=element)
        assert _sent(call, "ring", 0) == pieces


def test_rabenseifner_gives_the_rest_to_the_last_in_3_2_1_and_to_the_first_in_4_0_2() -> None:
    call = Collective("allreduce", 4, (11 * 8,), element=8)
    first = {
        version: [message.nbytes // 8 for message in rounds_of(call, "reduce_scatter_allgather", 0, version)[0].sends]
        for version in VERSIONS
    }
    # 3 + 3 + 3 + 2 elements, or 2 + 2 + 2 + 5; rank 0 gives the upper half away.
    assert first == {"4.0.2": [5], "3.2.1": [7]}


def test_a_scattered_alltoall_posts_thirty_two_peers_at_once_and_itself_is_one() -> None:
    rounds = rounds_of(Collective("alltoall", 40, (1000,)), "scattered", 3)
    assert [(len(each.sends), len(each.receives)) for each in rounds] == [(31, 31), (8, 8)]
    assert [message.peer for message in rounds[0].receives[:3]] == [4, 5, 6]
    assert [message.peer for message in rounds[0].sends[:4]] == [2, 1, 0, 39]


def test_from_thirty_two_ranks_on_the_sends_of_a_gatherv_are_synchronous() -> None:
    for size in (31, 32):
        (each,) = rounds_of(Collective("gatherv", size, (5,) * size), "linear", 1)
        assert each.synchronous == (size == 32)


def test_a_rank_combines_every_byte_that_it_receives_to_combine() -> None:
    for version in VERSIONS:
        call = Collective("allreduce", 8, (800,))
        # Doubling combines the vector three times; halving combines a half, a quarter and an eighth of it.
        assert sum(each.reduces for each in rounds_of(call, "recursive_doubling", 5, version)) == 2400
        assert sum(each.reduces for each in rounds_of(call, "reduce_scatter_allgather", 5, version)) == 700
    # Of 4 blocks of 10 bytes a rank gets the 3 of others than its neighbour, and then the 2 of others than that pair.
    call = Collective("reduce_scatter_block", 4, (10,), commutative=False)
    assert sum(each.reduces for each in rounds_of(call, "recursive_doubling", 1)) == 50


def test_a_scan_combines_messages_of_lower_ranks_twice() -> None:
    # Rank 5 of 8 meets 4, 7 and 1: what comes from 4 and 1 goes into the result, too.
    scan = rounds_of(Collective("scan", 8, (100,)), "recursive_doubling", 5)
    assert [each.reduces for each in scan] == [200, 100, 200]
    # The first part of an exclusive result is copied.
    exscan = rounds_of(Collective("exscan", 8, (100,)), "recursive_doubling", 5)
    assert [each.reduces for each in exscan] == [100, 100, 200]
    # Rank 3 scans with rank 2 on its node, and then combines what the node before makes up to.
    in_levels = rounds_of(Collective("scan", 4, (100,), nodes=(0, 0, 1, 1)), "smp", 3)
    assert [each.reduces for each in in_levels if each.reduces] == [200, 100]


def test_a_medium_broadcast_goes_once_through_each_node() -> None:
    call = Collective("bcast", 16, (20_000,), root=3, nodes=(0,) * 8 + (1,) * 8)
    for version in VERSIONS:
        inside = [
            message.nbytes
            for rank in range(16)
            for each in rounds_of(call, "smp", rank, version)
            for message in each.sends
            if rank // 8 == message.peer // 8
        ]
        if version == "3.2.1":
            # It names the tree on nodes, where 4.0.2 scatters among 8 ranks.
            assert inside == [20_000] * 14
        else:
            assert sum(nbytes == 20_000 for nbytes in inside) == 0 < len(inside)
    small = Collective("bcast", 8, (20_000,), root=1, nodes=(0,) * 4 + (1,) * 4)
    assert [nbytes for rank in range(8) for nbytes in _sent(small, "smp", rank)] == [20_000] * 7


def test_only_the_first_rank_of_each_node_talks_to_other_nodes() -> None:
    nodes = tuple(rank // 4 for rank in range(16))
    for name in ("allreduce", "reduce", "barrier", "bcast", "scan"):
        call = Collective(name, 16, () if name == "barrier" else (1000,), nodes=nodes)
        for rank in range(16):
            for each in rounds_of(call, "smp", rank):
                for message in (*each.sends, *each.receives):
                    assert nodes[rank] == nodes[message.peer] or rank % 4 == 0 == message.peer % 4


def test_a_forced_algorithm_also_serves_the_calls_inside() -> None:
    call = Collective("allreduce", 16, (16_000,), nodes=tuple(rank // 8 for rank in range(16)))
    free = rounds_of(call, "smp", 7)
    forced = rounds_of(call, "smp", 7, forced={"bcast": "scatter_ring_allgather", "reduce": "binomial"})
    # Rank 7 sends its vector up the tree, gets its eighth, and then seven times an eighth from the ring.
    assert [message.nbytes for each in forced for message in each.receives] == [2000] * 8
    assert free != forced


def test_mpich_returns_at_once_from_calls_with_nothing_to_send() -> None:
    shared = (0, 0, 1, 1)
    for name, algorithms in ALGORITHMS.items():
        if name in ("barrier", "allreduce"):
            continue
        nothing = Collective(name, 4, (0,) * number_of_sizes(name, 4), nodes=shared)
        assert rounds_of(nothing, algorithms[-1], 1) == ()
    assert rounds_of(Collective("barrier", 1), "dissemination", 0) == ()
    nothing = Collective("allreduce", 4, (0,), nodes=shared)
    assert rounds_of(nothing, choose(nothing, "3.2.1"), 1, "3.2.1") == ()
    # 4.0.2 reduces nothing on each node, with messages.
    assert _sent(nothing, choose(nothing), 1) == [0]
    flat = Collective("allreduce", 4, (0,))
    assert choose(flat) == "smp"
    assert rounds_of(flat, "smp", 1) == ()


def test_the_blocking_machine_sees_a_deadlock_and_an_unexpected_message() -> None:
    send, receive = (
        lambda peer, nbytes: Round((Message(peer, nbytes),), ()),
        lambda peer, nbytes: Round((), (Message(peer, nbytes),)),
    )
    run([[send(1, 5)], [receive(0, 5)]])
    with pytest.raises(Deadlock):
        run([[send(1, 5), receive(1, 5)], [send(0, 5), receive(0, 5)]])
    with pytest.raises(Mismatch):
        run([[send(1, 5)], [receive(0, 6)]])
