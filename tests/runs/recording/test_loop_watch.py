import asyncio
import gc
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from distributed import protocol
from distributed.comm import utils as comm_utils
from tornado.ioloop import PeriodicCallback
from tornado.iostream import IOStream, SSLIOStream
from tornado.tcpclient import TCPClient
from tornado.tcpserver import TCPServer

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.recording import loop_watch
from dask_efficiency.runs.recording.loop_watch import DataMoves, LoopWatch
from dask_efficiency.runs.trace.schema import BLOCKED_BY
from tests.plugin.watch import eventually

PATCHED = [(owner, name) for owner in (IOStream, SSLIOStream) for name in ("read_from_fd", "write_to_fd")]
PATCHED += [(protocol, "dumps"), (protocol, "loads"), (comm_utils, "offload")]
ORIGINALS = {(owner, name): vars(owner)[name] for owner, name in PATCHED}
#: Takes Dask some milliseconds to serialise.
MESSAGE = {str(i): "x" for i in range(30_000)}

known_schedstat = pytest.mark.skipif(
    not Path("/proc/thread-self/schedstat").exists(), reason="what another thread does is only known on Linux"
)


@pytest.fixture(autouse=True)
def originals() -> None:
    """Take what is in place before a test: other parts of the package may time messages in this process, too."""
    ORIGINALS.update({(owner, name): vars(owner)[name] for owner, name in PATCHED})


def in_place() -> bool:
    """True if the functions that were there before are in place."""
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


def offloaded(call: Callable[[], object]) -> None:
    """Have Dask's thread for large messages make a call."""

    async def offload() -> None:
        await comm_utils.offload(call)

    asyncio.run(offload())


class Download(TCPServer):
    def __init__(self, nbytes: int) -> None:
        super().__init__()
        self.nbytes = nbytes

    async def handle_stream(self, stream: IOStream, address: object) -> None:
        await stream.write(b"x" * self.nbytes)


async def download(nbytes: int) -> None:
    """Have so many bytes sent and read, as Dask reads them."""
    server = Download(nbytes)
    server.listen(0, "127.0.0.1")
    [socket] = server._sockets.values()
    stream = await TCPClient().connect(*socket.getsockname()[:2])
    buffer = bytearray(nbytes)
    assert await stream.read_into(buffer) == nbytes
    assert buffer == b"x" * nbytes
    stream.close()
    server.stop()


@pytest.mark.parametrize("other", [(IOStream, "write_to_fd"), (IOStream, "read_from_fd")], ids=["reads", "writes"])
def test_reads_and_writes_of_a_stream_count(monkeypatch, other):
    moves = DataMoves()
    monkeypatch.setattr(*other, ORIGINALS[other])
    asyncio.run(download(20_000_000))
    monkeypatch.undo()
    assert moves.turn(10**12) > 0
    moves.close()
    assert in_place()
    assert moved(lambda: asyncio.run(download(1_000)))[0] == 0, "too little to keep a loop"


@pytest.mark.parametrize("name", ["dumps", "loads"])
def test_serialising_and_deserialising_counts_whatever_the_load(monkeypatch, name):
    compute = Compute()
    monkeypatch.setattr(protocol, name, compute)
    found, _ = moved(lambda: getattr(protocol, name)([]))
    assert found > compute.wall / 2


@pytest.mark.parametrize("elsewhere", [False, True])
def test_sleep_in_a_call_here_or_in_another_thread_does_not_count(monkeypatch, elsewhere):
    monkeypatch.setattr(protocol, "loads", idle)
    found, took = moved(lambda: offloaded(lambda: protocol.loads([])) if elsewhere else protocol.loads([]))
    assert found <= took - 0.8 * IDLE_NS  # a thread that has set its alarm may wait for a core before it sleeps


@known_schedstat
def test_waiting_while_another_thread_deserialises_counts(monkeypatch):
    compute = Compute()
    monkeypatch.setattr(protocol, "loads", compute)
    found, _ = moved(lambda: offloaded(lambda: protocol.loads([])))
    assert found > compute.cpu / 2


@known_schedstat
def test_a_call_counts_while_its_thread_is_still_at_it(monkeypatch):
    done = threading.Event()
    monkeypatch.setattr(protocol, "loads", lambda frames: (Compute()(), done.wait(100)))

    async def offload() -> None:
        moves = DataMoves()
        message = asyncio.ensure_future(comm_utils.offload(protocol.loads, []))
        await asyncio.sleep(0)  # it begins
        # Far more than it took: a loop that waits for a core meanwhile has not slept all of it.
        eventually(lambda: time.sleep(0.05) or moves.turn(10**9))
        done.set()
        await message
        moves.close()

    asyncio.run(offload())


def test_an_error_of_upstream_is_the_same_and_its_time_counts():
    moves = DataMoves()
    frames = protocol.dumps(MESSAGE)
    assert moves.turn(10**9) > 0
    assert moves.turn(10**9) == 0, "it has counted"
    with pytest.raises(ValueError, match="incomplete"):
        protocol.loads([frames[0][:-1]])
    assert moves.turn(10**9) > 0
    with pytest.raises(TypeError, match="frames"):
        protocol.loads()
    moves.close()


def test_two_watches_both_count_and_the_last_one_restores_upstream_but_for_a_later_foreign_patch(monkeypatch):
    gc.collect()  # files of earlier tests
    before = sorted(os.listdir("/dev/fd"))
    first, second = DataMoves(), DataMoves()
    for both in ((first, second), (second,)):
        protocol.dumps(MESSAGE)
        assert all(moves.turn(10**9) > 0 for moves in both)  # not the same: each reads the thread's clock for itself
        both[0].close()
        assert in_place() == (both == (second,))
    moved(lambda: offloaded(lambda: protocol.dumps(MESSAGE)))
    assert sorted(os.listdir("/dev/fd")) == before, "a file stays open"
    moves = DataMoves()
    timed = protocol.dumps
    over = lambda message: timed(message)  # noqa: E731  # it has to differ from all others
    monkeypatch.setattr(protocol, "dumps", over)
    moves.close()
    assert protocol.dumps is over
    assert protocol.loads(protocol.dumps({"op": "x"})) == {"op": "x"}


def test_a_version_of_dask_with_other_arguments_is_called_as_ever_and_what_it_lacks_is_left_out(monkeypatch):
    monkeypatch.setattr(protocol, "dumps", lambda msg, *, level=1: [Compute()(), msg, level])
    monkeypatch.delattr(protocol, "loads")
    moves = DataMoves()
    assert protocol.dumps("x", level=2)[1:] == ["x", 2]
    assert moves.turn(10**9) > 0
    moves.close()
    assert not hasattr(protocol, "loads")


def test_without_the_time_of_waiting_for_a_core_cpu_time_counts(monkeypatch):
    def missing(path, flags):
        raise FileNotFoundError(path)

    monkeypatch.setattr(os, "open", missing)
    monkeypatch.setattr(protocol, "loads", Compute())
    assert moved(lambda: protocol.loads([]))[0] > 0
    assert moved(lambda: offloaded(lambda: protocol.loads([])))[0] == 0


INTERVAL_MS = 20


async def watch(
    block: Callable[[], object], *, stop_first: bool = False
) -> tuple[list[tuple[int, int, int, int]], int, int, list[int]]:
    """Return the reports, the times in which the loop was blocked, and its ticks."""
    blocked: list[tuple[int, int, int, int]] = []
    ticks: list[int] = []
    tick = PeriodicCallback(lambda: ticks.append(time.monotonic_ns()), INTERVAL_MS)
    tick.start()
    watch = LoopWatch(SimpleNamespace(periodic_callbacks={"tick": tick}), lambda *row: blocked.append(row))
    await asyncio.sleep(0.05)
    if stop_first:
        watch.stop()
    start = time.monotonic_ns()
    block()
    stop = time.monotonic_ns()
    await asyncio.sleep(0.05)
    watch.stop()
    watched = len(ticks)
    await asyncio.sleep(0.05)
    tick.stop()
    assert len(ticks) > watched > 0
    return blocked, start, stop, ticks


def test_a_loop_that_does_not_turn_is_reported_with_when():
    blocked, start, stop, ticks = asyncio.run(watch(lambda: time.sleep(0.3)))
    # A busy machine may have kept the loop from turning before and after it, too.
    ((begins, _, moving, _),) = [row for row in blocked if row[0] <= start + INTERVAL_MS * 1e6 and row[1] >= stop]
    last_but_one = [0, *(tick for tick in ticks if tick <= start)][-2]
    assert begins >= last_but_one
    assert moving == 0


def test_once_stopped_or_without_a_tick_it_reports_nothing():
    blocked, start, _, _ = asyncio.run(watch(lambda: time.sleep(0.1), stop_first=True))
    assert all(stop <= start for _, stop, *_ in blocked)
    LoopWatch(SimpleNamespace(periodic_callbacks={}), pytest.fail).stop()


def test_a_loop_blocked_by_moving_data_is_distinguished():
    message = {str(i): "x" for i in range(300_000)}
    blocked, start, stop, _ = asyncio.run(watch(lambda: protocol.loads(protocol.dumps(message))))
    begins, ends, moving, cause = max(blocked, key=lambda row: row[2])
    assert (stop - start) / 2 < moving <= ends - begins
    assert cause == MISSING or 2 * moving <= ends - begins + INTERVAL_MS * 1e6


@pytest.mark.parametrize(
    ("loop", "process", "core", "cause"),
    [
        (80, 80, 0, "computing"),
        (10, 10, 70, "core"),
        (10, 90, 0, "gil"),
        (10, 20, 0, "call"),
        (49, 49, 49, "computing"),
        (40, 90, 42, "core"),
    ],
)
def test_the_cause_of_a_blocked_loop_follows_from_the_clocks(loop: int, process: int, core: int, cause: str) -> None:
    assert BLOCKED_BY[loop_watch.cause_of_block(100, loop, process, core)] == cause


def longest(blocked: list[tuple[int, int, int, int]]) -> str:
    return BLOCKED_BY[max(blocked, key=lambda row: row[1] - row[0])[3]]


def test_a_loop_that_computes_is_distinguished_from_one_in_a_blocking_call():
    def compute() -> None:
        while time.thread_time() - began < 0.5:
            pass

    began = time.thread_time()
    # on a machine that is busy enough, it may wait for a core for longer than it computes
    assert longest(asyncio.run(watch(compute))[0]) in ("computing", "core")
    assert longest(asyncio.run(watch(lambda: time.sleep(0.5)))[0]) in ("call", "core")
