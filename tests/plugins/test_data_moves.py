from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from distributed import protocol
from tornado.iostream import IOStream, SSLIOStream
from tornado.tcpclient import TCPClient
from tornado.tcpserver import TCPServer

from dask_efficiency.plugins.data_moves import DataMoves
from tests.plugins.watch import eventually

ORIGINALS = {
    (owner, name): vars(owner)[name] for owner in (IOStream, SSLIOStream) for name in ("read_from_fd", "write_to_fd")
} | {(protocol, name): vars(protocol)[name] for name in ("dumps", "loads")}

known_schedstat = pytest.mark.skipif(
    not Path("/proc/thread-self/schedstat").exists(), reason="what another thread does is only known on Linux"
)


def in_place() -> bool:
    """Whether upstream's own functions are where they were."""
    return all(vars(owner)[name] is original for (owner, name), original in ORIGINALS.items())


class Compute:
    """Stands in for what (de)serialises, and measures itself inside."""

    wall = cpu = 0

    def __call__(self, *frames: object) -> int:
        start, cpu = time.monotonic_ns(), time.thread_time_ns()
        total = sum(range(5_000_000))
        self.cpu = time.thread_time_ns() - cpu
        self.wall = time.monotonic_ns() - start
        return total


IDLE_NS = 300_000_000


def idle(*frames: object) -> None:
    time.sleep(IDLE_NS / 1e9)


def moved(call: Callable[[], object]) -> tuple[int, int]:
    """Nanoseconds that went to data during a call, and that it took."""
    moves = DataMoves()
    start = time.monotonic_ns()
    moves.turn(0)
    call()
    took = time.monotonic_ns() - start
    found = moves.turn(took)
    moves.close()
    assert 0 <= found <= took
    return found, took


def in_another_thread(call: Callable[[], object]) -> None:
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


class Download(TCPServer):
    async def handle_stream(self, stream: IOStream, address: object) -> None:
        await stream.write(b"x" * 20_000_000)


async def download() -> None:
    server = Download()
    server.listen(0, "127.0.0.1")
    [socket] = server._sockets.values()
    stream = await TCPClient().connect(*socket.getsockname()[:2])
    await stream.read_bytes(20_000_000)
    stream.close()
    server.stop()


def test_what_a_stream_reads_and_writes_counts():
    assert moved(lambda: asyncio.run(download()))[0] > 0


@pytest.mark.parametrize("name", ["dumps", "loads"])
def test_what_is_serialised_and_deserialised_counts_whatever_the_load(monkeypatch, name):
    compute = Compute()
    monkeypatch.setattr(protocol, name, compute)
    found, _ = moved(lambda: getattr(protocol, name)([]))
    assert found > compute.wall / 2


def test_what_a_call_sleeps_does_not_count(monkeypatch):
    monkeypatch.setattr(protocol, "loads", idle)
    found, took = moved(lambda: protocol.loads([]))
    assert found <= took - IDLE_NS


def test_what_is_no_data_does_not_count():
    assert moved(Compute())[0] == moved(idle)[0] == 0


def test_what_counted_once_does_not_count_in_the_next_turn():
    moves = DataMoves()
    protocol.dumps({"op": "x"})
    assert moves.turn(10**9) > 0
    assert moves.turn(10**9) == 0
    moves.close()


@known_schedstat
def test_what_the_loop_waits_while_another_thread_deserialises_counts(monkeypatch):
    compute = Compute()
    monkeypatch.setattr(protocol, "loads", compute)
    found, _ = moved(lambda: in_another_thread(lambda: protocol.loads([])))
    assert found > compute.cpu / 2


@known_schedstat
def test_it_counts_while_the_other_thread_is_still_at_it(monkeypatch):
    done = threading.Event()
    monkeypatch.setattr(protocol, "loads", lambda frames: (Compute()(), done.wait(100)))
    moves = DataMoves()
    thread = threading.Thread(target=protocol.loads, args=([],))
    thread.start()
    eventually(lambda: time.sleep(0.05) or moves.turn(50_000_000))
    done.set()
    thread.join()
    moves.close()


def test_what_the_loop_waits_while_another_thread_waits_too_does_not_count(monkeypatch):
    monkeypatch.setattr(protocol, "loads", idle)
    found, took = moved(lambda: in_another_thread(lambda: protocol.loads([])))
    assert found <= took - IDLE_NS


def test_an_error_of_upstream_is_the_same_and_its_time_counts():
    moves = DataMoves()
    with pytest.raises(TypeError, match="frames"):
        protocol.loads()
    assert moves.turn(10**9) > 0
    moves.close()


def test_two_at_once_count_the_same_and_the_last_one_puts_upstream_back():
    first, second = DataMoves(), DataMoves()
    protocol.dumps({"op": "x"})
    assert first.turn(10**9) == second.turn(10**9) > 0
    first.close()
    assert not in_place()
    protocol.dumps({"op": "x"})
    assert second.turn(10**9) > 0
    second.close()
    assert in_place()


def test_what_somebody_else_put_over_it_stays_and_works(monkeypatch):
    moves = DataMoves()
    timed = protocol.dumps
    over = lambda message: timed(message)  # noqa: E731  # it has to be told from all others
    monkeypatch.setattr(protocol, "dumps", over)
    moves.close()
    assert protocol.dumps is over
    assert protocol.loads(protocol.dumps({"op": "x"})) == {"op": "x"}


def test_what_upstream_does_not_have_is_left_out(monkeypatch):
    monkeypatch.delattr(protocol, "loads")
    assert moved(lambda: protocol.dumps({"op": "x"}))[0] > 0
    assert not hasattr(protocol, "loads")


def test_where_nobody_tells_what_a_thread_waited_for_a_core_its_cpu_time_counts(monkeypatch):
    def missing(path, flags):
        raise FileNotFoundError(path)

    monkeypatch.setattr(os, "open", missing)
    monkeypatch.setattr(protocol, "loads", Compute())
    assert moved(lambda: protocol.loads([]))[0] > 0
    assert moved(lambda: in_another_thread(lambda: protocol.loads([])))[0] == 0


def test_no_file_stays_open(monkeypatch):
    before = sorted(os.listdir("/dev/fd"))
    moved(lambda: in_another_thread(lambda: protocol.dumps({"op": "x"})))
    assert sorted(os.listdir("/dev/fd")) == before
