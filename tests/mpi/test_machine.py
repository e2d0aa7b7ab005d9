from pathlib import Path

import pytest

from dask_efficiency.mpi.machine import MpiSettings
from dask_efficiency.mpi.program import MpiTraceError
from dask_efficiency.mpi.result import MpiPrediction, run
from dask_efficiency.mpi.timeline import RankActivity
from dask_efficiency.mpi.trace_files import load_trace as from_mpi_trace
from dask_efficiency.simulation.model.topology import Cable, Host, Topology
from tests.mpi.programs import written

#: 100 MB/s and 1 ms between two hosts, half of it on each side of the switch.
MEGABYTE_SECONDS, LATENCY = 0.01, 0.001


def star(count: int, speed: float = 1.0) -> Topology:
    hosts = tuple(Host(f"h{i}", slots=4, speed=speed) for i in range(count))
    links = tuple(Cable((host.name, "switch"), 100e6, LATENCY / 2) for host in hosts)
    return Topology(hosts, ("switch",), links, payload=1.0)


def simulated(folder: Path, text: str, hosts: str = "h0 h1 h2 h3", **settings: object) -> MpiPrediction:
    program = from_mpi_trace(written(folder, text))
    chosen = MpiSettings(instructions_per_second=1e9, **settings)  # type: ignore[arg-type]
    return run(program, star(4), hosts.split()[: program.size], chosen)


def test_a_large_message_waits_for_its_receiver_and_for_the_handshake(tmp_path: Path) -> None:
    text = "0 send 1 0 1000000\n1 compute 1e9\n1 recv 0 0 1000000\n"
    found = simulated(tmp_path, text)
    # The question has long been there; the answer and the bytes each take the latency.
    assert found.makespan_seconds == pytest.approx(1 + 2 * LATENCY + MEGABYTE_SECONDS)
    assert found.seconds(0)[RankActivity.WAITING] == pytest.approx(1)
    plain = simulated(tmp_path, text, handshake=False)
    assert plain.makespan_seconds == pytest.approx(1 + LATENCY + MEGABYTE_SECONDS)


def _exchanges(count: int, seconds_late: float = 0.0) -> str:
    """Two ranks that give each other a megabyte each, again and again; the second comes late each time."""
    return "".join(
        f"{rank} compute {1e9 * seconds_late * rank}\n{rank} irecv {1 - rank} 0 1000000\n"
        f"{rank} isend {1 - rank} 0 1000000\n{rank} waitall\n"
        for rank in (0, 1)
        for _ in range(count)
    )


def test_of_two_ranks_that_exchange_large_messages_the_later_one_sends_when_it_has_received(tmp_path: Path) -> None:
    late = 5 * LATENCY
    for count in (1, 3):
        found = simulated(tmp_path, _exchanges(count, late))
        assert found.makespan_seconds == pytest.approx(count * (late + 2 * (2 * LATENCY + MEGABYTE_SECONDS)))
    plain = simulated(tmp_path, _exchanges(1, late), handshake=False)
    assert plain.makespan_seconds == pytest.approx(late + LATENCY + MEGABYTE_SECONDS)


def test_of_ranks_that_come_at_once_every_other_exchange_is_in_both_directions_at_once(tmp_path: Path) -> None:
    for count, times in ((1, 2), (2, 3), (4, 6)):
        found = simulated(tmp_path, _exchanges(count)).makespan_seconds
        assert times * MEGABYTE_SECONDS < found < times * MEGABYTE_SECONDS + 6 * LATENCY * count
    on_one_host = simulated(tmp_path, _exchanges(4, 0.001), hosts="h0 h0")
    assert on_one_host.makespan_seconds == pytest.approx(0.004)


def test_a_small_message_goes_at_once_and_its_sender_goes_on(tmp_path: Path) -> None:
    found = simulated(tmp_path, "0 send 1 0 1000\n0 compute 5e8\n1 compute 1e9\n1 recv 0 0 1000\n")
    assert found.makespan_seconds == 1.0
    assert found.timelines[0].end == 500_000_000


def test_a_synchronous_send_of_any_size_waits(tmp_path: Path) -> None:
    found = simulated(tmp_path, "0 ssend 1 0 1000\n1 compute 1e9\n1 recv 0 0 1000\n")
    assert found.timelines[0].end > 1_000_000_000


def test_messages_share_a_link(tmp_path: Path) -> None:
    both = "0 recv 1 0 1000000\n0 recv 2 0 1000000\n1 isend 0 0 1000000\n2 isend 0 0 1000000\n"
    at_once = both.replace("recv", "irecv")
    assert simulated(tmp_path, at_once, handshake=False).makespan_seconds == pytest.approx(
        LATENCY + 2 * MEGABYTE_SECONDS
    )
    one_by_one = simulated(tmp_path, both, handshake=False)
    assert one_by_one.makespan_seconds == pytest.approx(2 * (LATENCY + MEGABYTE_SECONDS))


def test_messages_of_one_sender_and_tag_are_received_in_their_order(tmp_path: Path) -> None:
    text = "0 send 1 0 1000\n0 compute 1e9\n0 send 1 0 10\n1 recv 0 0 1000\n1 compute 1\n1 recv 0 0 10\n"
    found = simulated(tmp_path, text)
    sizes = [stretch.nbytes for stretch in found.path if stretch.kind == RankActivity.COMMUNICATION]
    assert sizes == [10]
    assert found.timelines[1].nbytes[0] == 1000


def test_a_receive_of_any_takes_the_first_message(tmp_path: Path) -> None:
    text = "0 recv -555 -444 -1\n0 recv 2 7 8\n1 compute 1e9\n1 send 0 3 8\n2 compute 5e8\n2 send 0 7 8\n2 send 0 7 8\n"
    found = simulated(tmp_path, text)
    assert list(found.timelines[0].others)[:1] == [2]
    assert found.notes == ("1 message was sent and never received",)


def test_hosts_of_twice_the_speed_take_half_the_time(tmp_path: Path) -> None:
    program = from_mpi_trace(written(tmp_path, "0 init\n0 compute 1e9\n0 sleep 1\n"))
    found = run(program, star(1, speed=2.0), ["h0"], MpiSettings(instructions_per_second=1e9))
    assert found.makespan_seconds == pytest.approx(1.5)


def test_each_message_costs_its_sender_and_its_receiver(tmp_path: Path) -> None:
    text = "0 send 1 0 100\n1 recv 0 0 100\n"
    found = simulated(tmp_path, text, overhead_seconds=0.5)
    assert found.makespan_seconds == pytest.approx(1 + LATENCY + 100 / 100e6)
    assert found.breakdown[RankActivity.OVERHEAD] == pytest.approx(1.0)
    collective = simulated(tmp_path, "0 bcast 100 0 6\n1 bcast 100 0 6\n", overhead_seconds=0.5)
    assert collective.makespan_seconds == pytest.approx(found.makespan_seconds)


def test_ranks_of_a_host_do_not_use_its_link(tmp_path: Path) -> None:
    found = simulated(tmp_path, "0 send 1 0 1000000\n1 recv 0 0 1000000\n", hosts="h0 h0")
    assert found.makespan_seconds == 0.0
    assert (found.moved_bytes, found.links) == (0, ())


def test_collectives_of_two_halves_do_not_meet(tmp_path: Path) -> None:
    files = []
    for rank in range(4):
        half = rank // 2
        ranks = f"{2 * half} {2 * half + 1}"
        text = f"#comm half{half} {ranks}\n{rank} compute {1e9 * half}\n{rank} allreduce 8 0 6 @half{half}\n"
        (tmp_path / f"rank{rank}").write_text(text)
        files.append(f"rank{rank}")
    (tmp_path / "list").write_text("\n".join(files))
    found = run(from_mpi_trace(tmp_path / "list"), star(4), ["h0", "h1", "h2", "h3"])
    assert found.timelines[0].end < 2_000_000 < found.timelines[2].end


def test_messages_of_two_communicators_do_not_meet(tmp_path: Path) -> None:
    actions = [
        "0 isend 1 0 1000 6 @a\n0 isend 1 0 10 6 @b\n0 waitall",
        "1 recv 0 0 10 6 @b\n1 compute 1\n1 recv 0 0 1000 6 @a",
    ]
    for rank, lines in enumerate(actions):
        (tmp_path / f"rank{rank}").write_text(f"#comm a 0 1\n#comm b 0 1\n{lines}\n")
    (tmp_path / "list").write_text("rank0\nrank1\n")
    found = run(from_mpi_trace(tmp_path / "list"), star(4), ["h0", "h1"])
    assert found.timelines[1].nbytes[0] == 10


def test_requests_without_a_wait_are_waited_for_at_the_end(tmp_path: Path) -> None:
    found = simulated(tmp_path, "0 irecv 1 0 1000\n0 test 1 0 0\n1 compute 1e9\n1 send 0 0 1000\n")
    assert found.timelines[0].end == found.timelines[1].end + round(1e9 * (LATENCY + 1000 / 100e6))


def test_combining_in_a_reduction_takes_time(tmp_path: Path) -> None:
    text = "0 reduce 1000 0 0 6\n1 reduce 1000 0 0 6\n"
    found = simulated(tmp_path, text, reduce_bytes_per_second=1000.0)
    assert found.makespan_seconds == pytest.approx(1 + LATENCY + 1000 / 100e6)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "0 recv 1 0 8\n0 send 1 0 8\n1 recv 0 0 8\n1 send 0 0 8\n",
            r"does not end: rank 0 waits for a message of rank 1 with tag 0 \(.*, line 1\); rank 1 waits .* line 3\)",
        ),
        ("0 send 1 0 1e6\n1 compute 1\n", r"rank 0 waits for rank 1 to receive \(.*, line 1\)"),
        ("0 recv -555 -444 8\n1 compute 1\n", r"rank 0 waits for a message of any rank with any tag"),
        ("0 irecv 1 3 8\n0 wait 1 0 3\n1 compute 1\n", r"rank 0 waits for a message of rank 1 with tag 3"),
        ("0 barrier\n1 recv 0 0 8\n1 barrier\n", r"rank 0 waits in barrier \(.*, line 1\); rank 1 waits for a message"),
    ],
)
def test_ranks_that_wait_for_ever_are_named(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(MpiTraceError, match=message):
        simulated(tmp_path, text)
