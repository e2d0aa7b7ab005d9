from __future__ import annotations

import asyncio
import os
import threading
import time

import pytest
from distributed import protocol
from tornado.iostream import IOStream, SSLIOStream
from tornado.tcpclient import TCPClient
from tornado.tcpserver import TCPServer

from dask_efficiency.plugins.data_moves import DataMoves

ORIGINALS = {
    (owner, name): vars(owner)[name] for owner in (IOStream, SSLIOStream) for name in ("read_from_fd", "write_to_fd")
} | {(protocol, name): vars(protocol)[name] for name in ("dumps", "loads")}


def in_place() -> bool:
    """Whether upstream's own functions are where they were."""
    return all(vars(owner)[name] is original for (owner, name), original in ORIGINALS.items())


class Echo(TCPServer):
    async def handle_stream(self, stream: IOStream, address: object) -> None:
        await stream.write(b"x" * 20_000_000)


async def download() -> DataMoves:
    moves = DataMoves()
    server = Echo()
    server.listen(0, "127.0.0.1")
    [socket] = server._sockets.values()
    stream = await TCPClient().connect(*socket.getsockname()[:2])
    await stream.read_bytes(20_000_000)
    stream.close()
    server.stop()
    moves.close()
    return moves


def test_what_a_stream_reads_and_writes_counts():
    start = time.monotonic_ns()
    moves = asyncio.run(download())
    assert 0 < moves.total_ns <= time.monotonic_ns() - start


@pytest.mark.parametrize("name", ["dumps", "loads"])
def test_what_is_serialised_and_deserialised_counts(name):
    moves = DataMoves()
    frames = protocol.dumps({"op": "x"})
    dumped = moves.total_ns
    protocol.loads(frames)
    moves.close()
    assert {"dumps": dumped, "loads": moves.total_ns - dumped}[name] > 0


def test_what_another_thread_serialises_does_not_count():
    moves = DataMoves()
    thread = threading.Thread(target=protocol.dumps, args=({"op": "x"},))
    thread.start()
    thread.join()
    moves.close()
    assert moves.total_ns == 0


def test_what_a_call_sleeps_does_not_count(monkeypatch):
    monkeypatch.setattr(protocol, "loads", lambda frames: time.sleep(0.3))
    moves = DataMoves()
    start = time.monotonic_ns()
    protocol.loads([])
    elapsed = time.monotonic_ns() - start
    moves.close()
    assert moves.total_ns < elapsed / 2


def test_what_a_call_computes_counts_whatever_the_load(monkeypatch):
    monkeypatch.setattr(protocol, "loads", lambda frames: sum(range(5_000_000)))
    moves = DataMoves()
    moves.turn()
    start = time.monotonic_ns()
    protocol.loads([])
    elapsed = time.monotonic_ns() - start
    moves.close()
    assert moves.total_ns > elapsed / 2


def test_an_error_of_upstream_is_the_same_and_its_time_counts():
    moves = DataMoves()
    with pytest.raises(TypeError, match="frames"):
        protocol.loads()
    moves.close()
    assert moves.total_ns > 0


def test_two_at_once_count_the_same_and_the_last_one_puts_upstream_back():
    first, second = DataMoves(), DataMoves()
    protocol.dumps({"op": "x"})
    assert first.total_ns == second.total_ns > 0
    first.close()
    assert not in_place()
    before = second.total_ns
    protocol.dumps({"op": "x"})
    assert second.total_ns > before
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
    moves = DataMoves()
    protocol.dumps({"op": "x"})
    moves.close()
    assert moves.total_ns > 0
    assert not hasattr(protocol, "loads")


def test_where_nobody_tells_what_a_thread_waited_for_a_core_its_cpu_time_counts(monkeypatch):
    def missing(path, flags):
        raise FileNotFoundError(path)

    monkeypatch.setattr(os, "open", missing)
    monkeypatch.setattr(protocol, "loads", lambda frames: sum(range(1_000_000)))
    moves = DataMoves()
    protocol.loads([])
    moves.close()
    assert moves.total_ns > 0
