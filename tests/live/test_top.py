import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result
from distributed import Client, LocalCluster, wait
from distributed.comm import CommClosedError

from dask_efficiency import EfficiencyPlugin, snapshot, unregister
from dask_efficiency.accounts.cluster.cluster import ClusterLedger
from dask_efficiency.accounts.cluster.memory_timeline import ClusterMemory
from dask_efficiency.cli import main
from dask_efficiency.live import top
from dask_efficiency.plugin.scheduler.replies import MAX_LIVE_WORKERS, of_live
from tests.cli.results_of_commands import fails_in_one_line
from tests.plugin.tasks import Diary, wait_for_word
from tests.plugin.watch import eventually

#: A script that is started in the background of a shell ignores Ctrl-C, and so do its children, unless told otherwise.
HEEDING_CTRL_C = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
COMMAND = [sys.executable, "-c", f"{HEEDING_CTRL_C}; from dask_efficiency.cli import main; main()", "top"]
DASK_COMMAND = [sys.executable, "-m", "dask", "efficiency", "top"]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["top", *arguments])


def listen(cluster: LocalCluster) -> str:
    """An address for other processes: a scheduler with its workers in its own process listens on none."""
    cluster.sync(cluster.scheduler.listen, "tcp://127.0.0.1:0")
    address: str = cluster.scheduler.listeners[-1].contact_address
    return address


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def bare_address(cluster: LocalCluster) -> str:
    return listen(cluster)


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster) as client:
        yield client


@pytest.fixture
def address(client: Client, bare_address: str) -> str:
    """Of a scheduler that has the plugin."""
    client.register_plugin(EfficiencyPlugin())
    return bare_address


@contextmanager
def running(*arguments: str, command: list[str] = COMMAND, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """The command with its output in a pipe."""
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*command, *arguments], env={**os.environ, **environment}, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def read_until(descriptor: int, pattern: str, *, seconds: float = 90) -> str:
    """What a terminal is sent, up to a pattern."""
    seen = ""
    until = time.monotonic() + seconds
    while not re.search(pattern, seen):
        assert time.monotonic() < until, f"waited {seconds} s for {pattern!r}; seen: {seen!r}"
        if select.select([descriptor], [], [], 0.2)[0]:
            try:
                seen += os.read(descriptor, 65_536).decode(errors="replace")
            except OSError:  # the other end is closed
                assert re.search(pattern, seen), seen
                break
    return seen


def test_a_wrong_address_is_refused_in_a_line(tmp_path):
    path = tmp_path / "report.json"
    path.write_text("{}")
    result = run(str(path))
    assert result.exit_code == 1
    assert "expected a scheduler's address" in result.stderr
    assert "--tls-cert" in fails_in_one_line(run("tls://127.0.0.1:1", "--once"))
    result = run("tcp://127.0.0.1:1", "--once", "--timeout", "0.5s")
    assert result.stderr.startswith("connecting to tcp://127.0.0.1:1, up to 0.5 s\n")
    assert "no scheduler answered at tcp://127.0.0.1:1 in 0.5 s" in fails_in_one_line(result)


@pytest.mark.parametrize("interval", ["banana", "0s", "-1s"])
def test_the_interval_must_be_a_length_of_time(interval):
    assert run("tcp://127.0.0.1:1", "--interval", interval).exit_code == 2


@pytest.mark.cluster
def test_a_scheduler_without_the_plugin_is_an_error_with_its_remedy(bare_address, client):
    unregister(client)
    assert "register_plugin(EfficiencyPlugin())" in fails_in_one_line(run(bare_address, "--once"))


@pytest.mark.cluster
def test_a_failed_meter_is_an_error_with_the_reason(address, cluster, monkeypatch):
    meter = cluster.scheduler.plugins[EfficiencyPlugin.name]._meter
    monkeypatch.setattr(meter.guard, "off", "the meter on the scheduler failed: injected")
    assert "injected" in fails_in_one_line(run(address, "--once"))


@pytest.mark.cluster
def test_once_as_json_is_one_object_whose_threads_add_up(client, address, tmp_path):
    diaries = [Diary(tmp_path / str(i)) for i in range(2)]
    data = client.submit(bytes, 1_000_000)
    wait(data)
    futures = client.map(wait_for_word, diaries, pure=False)
    eventually(lambda: all(diary.read("start") for diary in diaries))
    snapshot(client)

    def with_heartbeats() -> Any:
        now = json.loads(run(address, "--once", "--json", "--interval", "1s").stdout)
        return now if now["threads"] else None

    found = eventually(with_heartbeats)
    assert found["life"]["moved_bytes"]["made"] >= sum(client.nbytes().values())
    for diary in diaries:
        diary.write(event="go")
    assert sum(found["threads"].values()) == pytest.approx(2)
    assert found["threads"]["thread-noncpu"] > 1.5
    assert (found["nthreads"], set(found["workers"])) == (2, {"0", "1"})
    assert found["seconds"] > 0.5
    client.gather(futures)


@pytest.mark.cluster
def test_dask_has_it_as_a_subcommand(address):
    with running(address, "--once", "--json", "--interval", "0.5s", command=DASK_COMMAND) as process:
        stdout, stderr = process.communicate(timeout=120)
    if "No such command" in stderr:
        pytest.skip("the package is not installed here, so that Dask's command does not know it")
    assert json.loads(stdout)["nthreads"] == 2


@pytest.mark.cluster
def test_a_pipe_gets_blocks_until_ctrl_c_and_no_traceback(address):
    with running(address, "--interval", "0.5s", COLUMNS="60") as process:
        assert process.stdout is not None
        lines = []
        while sum("workers, " in line for line in lines) < 3:
            lines.append(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=120)
    assert (process.returncode, stderr) == (0, f"connecting to {address}, up to 10 s\n")
    assert max(map(len, lines)) <= 60 + 1


@pytest.mark.cluster
def test_a_pipe_that_closes_ends_it_without_a_traceback(address):
    with running(address, "--interval", "0.2s") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr is not None
        stderr = process.stderr.read()
        process.wait(120)
    assert "Traceback" not in stderr


@contextmanager
def on_a_terminal(*arguments: str, command: list[str] = COMMAND) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The command on a terminal of its own, and where to read what that is sent."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24", "PYTHONUTF8": "1"}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen([*command, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    try:
        yield process, ours
    finally:
        process.kill()
        process.wait()
        os.close(ours)


@pytest.mark.cluster
def test_a_terminal_shows_workers_come_and_go_and_is_given_back():
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        client.register_plugin(EfficiencyPlugin())
        with on_a_terminal(cluster.scheduler_address, "--interval", "0.3s") as (process, screen):
            assert "\x1b[?1049h" in read_until(screen, "1 worker, 1 thread,")
            cluster.scale(2)
            read_until(screen, "2 workers, 2 threads")
            client.restart()
            read_until(screen, "2 workers, 2 threads")
            cluster.scale(1)
            read_until(screen, "1 worker, 1 thread,")
            unregister(client)
            assert "\x1b[?1049l" in read_until(screen, "Error: .*register_plugin")
            assert process.wait(120) == 1


@pytest.mark.cluster
def test_ctrl_c_gives_the_terminal_back_in_silence(address):
    with on_a_terminal(address, "--interval", "0.3s") as (process, screen):
        read_until(screen, "2 workers, 2 threads")
        process.send_signal(signal.SIGINT)
        last = read_until(screen, r"\x1b\[\?1049l")
        assert process.wait(120) == 0
        assert "Traceback" not in last
        assert "Aborted" not in last


WITHOUT_RICH = "import sys; sys.modules['rich'] = None; from dask_efficiency.cli import main; main()"


@pytest.mark.cluster
def test_without_rich_one_view_is_plain_and_a_terminal_lists_the_missing_package(address):
    command = [sys.executable, "-c", WITHOUT_RICH, "top"]
    with running(address, "--once", "--interval", "0.5s", command=command) as process:
        stdout, _ = process.communicate(timeout=120)
    assert "2 workers, 2 threads" in stdout
    with on_a_terminal(address, command=command) as (process_on_screen, screen):
        assert "Traceback" not in read_until(screen, r"pip install 'dask-efficiency\[report\]'")
        assert process_on_screen.wait(120) == 1


def idle_accounts(cluster: ClusterLedger) -> Any:
    known = {"session": "s", "read_interval_seconds": 0.5, "stalled": (), "left": None}
    memory = ClusterMemory.of(cluster.present.values())
    return SimpleNamespace(cluster=cluster, scheduler=SimpleNamespace(workers={}), memory=memory, **known)


def test_the_end_of_the_scheduler_is_said_in_a_line(monkeypatch):
    cluster = ClusterLedger(at=0)
    accounts = idle_accounts(cluster)
    answers = iter([of_live(accounts)])

    @asynccontextmanager
    async def connected(*_args: Any, **_kwargs: Any) -> Any:
        yield None

    async def ask(*_args: Any) -> Any:
        for answer in answers:
            return answer
        raise CommClosedError("in <Closed rpc>: Stream is closed")

    monkeypatch.setattr(top, "connected", connected)
    monkeypatch.setattr(top, "ask", ask)
    result = run("tcp://127.0.0.1:8786", "--interval", "1ms", "--json")
    said = "Error: tcp://127.0.0.1:8786 answers no more: the scheduler stopped, or cannot be reached"
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (1, said)
    assert len(result.stdout.splitlines()) == 1


def test_the_answer_on_very_many_workers_is_bounded():
    cluster = ClusterLedger(at=0)
    for i in range(MAX_LIVE_WORKERS + 5):
        cluster.worker_joined(f"tcp://{i}", f"w{i}", 2, at=0)
    found = of_live(idle_accounts(cluster))
    assert (len(found["workers"]), found["more_workers"]) == (MAX_LIVE_WORKERS, 5)
    assert found["nthreads"] == 2 * (MAX_LIVE_WORKERS + 5)
