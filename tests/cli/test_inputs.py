"""What the commands make of each kind of file, and of schedulers that answer or do not."""

import contextlib
import gzip
import json
import shutil
import socket
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from distributed import Client, LocalCluster

from dask_efficiency import EfficiencyPlugin, unregister
from dask_efficiency.accounts.slow_worker import Cause, SlowWorker
from dask_efficiency.cli import main
from dask_efficiency.cli.inputs import InputKind, look_at
from tests.cli.results_of_commands import fails_in_one_line
from tests.plugin.watch import eventually
from tests.report.samples import report_of, seconds
from tests.runs.stragglers.tables_of_tasks import slowed, tasks
from tests.simulated_traces import transfer_bound, wide

# What the commands of a wing say is tested where the wing is.
OF_TORCH_TRACES = pytest.mark.skipif(not find_spec("dask_efficiency.torch_traces"), reason="without torch_traces")

SLOW = SlowWorker("w3", "h1", Cause.SLOW_CPU, 3.0, 0.95, 0.0, 2.5, None, ())


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of each kind, under names that do not show it."""
    monkeypatch.chdir(tmp_path)
    report = report_of(seconds(thread_cpu=10, idle=2), stragglers=(SLOW,))
    report.save("a-report")
    report.save("report.json.gz")
    report.save("report.json.zip")
    shutil.copy("report.json.gz", "compressed")
    report.to_html("a-page")
    wide(slow={1: 3.0}).save("a-run")
    table = slowed(tasks(), "w03", 2.0)
    table.to_csv("a-table")  # with its index
    table.to_csv("table.csv.gz", index=False)
    table.to_parquet("parquet")
    assert run("critical-path", "a-run", "--chrome", "timeline").exit_code == 0
    Path("scheduler").write_text(json.dumps({"type": "Scheduler", "address": "tcp://127.0.0.1:1", "workers": {}}))
    Path("viewed").write_text('{"traceEvents": [{"ph": "X", "name": "read", "ts": 1, "dur": 1}]}')
    Path("overlay").write_text(
        '{"traceEvents":[\n{"ph":"M","pid":1,"tid":1,"name":"process_name","args":{"name":"critical path"}},\n'
        '{"ph":"X","pid":2,"tid":2,"ts":0.000,"dur":5.000,"name":"aten::mm","cat":"cpu_op"}]}'
    )
    Path("execution").write_text('{"schema": "1.0.1", "pid": 7, "nodes": [{"name": "aten::mm", "id": 2}]}')
    Path("chakra").write_text('{"id": 1, "name": "global"} {"id": 2, "name": "aten::mm", "ctrl_deps": [1]}')
    Path("autograd").write_text('[{"name": "aten::mm", "ph": "X", "ts": 4.2, "dur": 3, "pid": "CPU functions"}]')
    with gzip.open("dump", "wb") as dump:
        dump.write(b"\x83\xa9scheduler\x81\xa4type\xa9Scheduler")
    Path("dump.yaml").write_text("scheduler:\n  address: inproc://192.0.2.2/1/1\n")
    Path("performance").write_text("<!DOCTYPE html>\n<html><head><title>Dask Performance Report</title></head></html>")
    Path("poem").write_text("roses are red,\nworkers are slow\n")
    Path("truncated").write_bytes(Path("a-run").read_bytes()[:200])
    Path("empty").touch()


KINDS = {
    InputKind.REPORT: ("a-report", "report.json.gz", "compressed"),
    InputKind.PAGE: ("a-page",),
    InputKind.TRACE: ("a-run", "truncated"),
    InputKind.CSV: ("a-table", "table.csv.gz"),
    InputKind.PARQUET: ("parquet",),
    InputKind.CHROME: ("viewed",),
    InputKind.OVERLAY: ("timeline", "overlay"),
    InputKind.EXECUTION: ("execution", "chakra"),
    InputKind.AUTOGRAD: ("autograd",),
    InputKind.DUMP: ("dump", "dump.yaml"),
    InputKind.PERFORMANCE_REPORT: ("performance",),
    InputKind.SCHEDULER_FILE: ("scheduler",),
    InputKind.OTHER: ("poem", "empty", "report.json.zip"),
}


def test_a_file_is_known_by_its_content() -> None:
    for kind, names in KINDS.items():
        for name in names:
            assert look_at(name).kind is kind, name
            assert look_at(Path(name).absolute().as_uri()).kind is kind, name


def test_reports_and_tables_under_any_name_are_shown_and_judged() -> None:
    shown = run("report", "a-report")
    assert shown.exit_code == 0
    for name in ("report.json.gz", "report.json.zip", "compressed", Path("a-report").absolute().as_uri()):
        assert run("report", name).stdout == shown.stdout, name
    for name in ("a-table", "table.csv.gz", "parquet", Path("a-table").absolute().as_uri()):
        assert "Worker w03, 1.98x as long" in run("stragglers", name).stdout, name


def test_the_findings_in_a_saved_report_are_shown() -> None:
    result = run("stragglers", "a-report")
    assert result.exit_code == 0
    assert "Worker w3, 2.50x as long" in result.stdout
    assert "As the scheduler found them during the run" in " ".join(result.stdout.split())
    plain = json.loads(run("stragglers", "a-report", "--json").stdout)["slow_workers"]
    assert [*map(SlowWorker.from_dict, plain)] == [SLOW]
    refused = fails_in_one_line(run("stragglers", "a-report", "--factor", "1"))
    assert "--history and --factor judge a recorded run" in refused


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("report a-run", "a-run is a recorded run: `dask-efficiency critical-path a-run` and `dask-efficiency strag"),
        ("report a-table", "a-table is a table of tasks: `dask-efficiency stragglers a-table` judges its workers"),
        ("report a-page", "a-page is a page: open it in a browser; expected a saved report or a scheduler's addre"),
        ("report timeline", "timeline is a timeline with a critical path, which --chrome wrote: open it in ui.perf"),
        ("critical-path a-report", "a-report is a saved report: `dask-efficiency report a-report` shows it; expect"),
        ("critical-path a-report", "`efficiency_report(trace=True)` makes"),
        ("critical-path parquet", "(Parquet): `dask-efficiency stragglers parquet` judges its workers; expected"),
        ("critical-path a-page", "a-page is a page"),
        ("critical-path a-run --before a-report", "a-report is a saved report"),
        ("stragglers a-page", "a-page is a page: open it in a browser; expected a recorded run or a table of tasks"),
        ("stragglers timeline", "timeline is a timeline"),
        *(
            pytest.param(command, error, marks=OF_TORCH_TRACES)
            for command, error in (
                (
                    "torch path execution",
                    "`dask-efficiency torch path TRACE --execution-trace execution` reads it beside",
                ),
                (
                    "torch path overlay",
                    "overlay is a timeline with a critical path, which --chrome wrote: open it in ui.perfet",
                ),
                (
                    "torch path autograd",
                    "autograd is a trace of torch.autograd.profiler, which has no streams: record one",
                ),
                (
                    "torch path dump",
                    "dump is a dump of a cluster's state: `distributed.cluster_dump.DumpArtefact.from_url` r",
                ),
                (
                    "torch path performance",
                    "performance is a page of Dask's performance_report: open it in a browser; expec",
                ),
            )
        ),
        ("stragglers a-run --history a-report", "expected a recorded run or a table"),
    ],
)
def test_the_right_command_is_named(command: str, error: str) -> None:
    assert error in fails_in_one_line(run(*command.split()))


@OF_TORCH_TRACES
@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("timeline", "timeline is a timeline with a critical path, which --chrome wrote: open it in ui.perfetto.dev"),
        ("execution", "is an execution trace of PyTorch or Chakra: `dask-efficiency torch path TRACE --execution-t"),
        ("autograd", "autograd is a trace of torch.autograd.profiler, which has no streams: record one with"),
        ("dump", "dump is a dump of a cluster's state"),
        ("performance", "performance is a page of Dask's performance_report: open it in a browser; expected traces"),
        ("a-report", "a-report is a saved report: `dask-efficiency report a-report` shows it; expected traces that"),
        ("a-run", "a-run is a recorded run"),
        ("parquet", "parquet is a table of tasks (Parquet)"),
    ],
)
def test_one_of_several_files_is_named_and_one_in_a_folder(name: str, error: str, tmp_path: Path) -> None:
    trace = (
        '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 2, "ts": 10, "dur": 5}]}'
    )
    Path("rank0").write_text(trace)
    assert error in fails_in_one_line(run("torch", "path", "rank0", name))
    (folder := tmp_path / f"with-{name}").mkdir()
    (folder / "a.json").write_text(trace)
    shutil.copy(name, folder / "b.json")
    assert f"b.json {error[error.index('is a') :]}"[:40] in fails_in_one_line(run("torch", "path", str(folder)))
    assert run("torch", "path", "rank0").exit_code == 0


def test_compare_names_the_command_for_recorded_runs_and_a_name_is_quoted_where_it_is_to_be_typed() -> None:
    result = run("compare", "a-report", "a-run")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "a-run is a recorded run" in result.stderr
    assert "expected saved reports; `critical-path` compares recorded runs by its --before" in result.stderr
    transfer_bound().save("my run")
    assert "`dask-efficiency critical-path 'my run'`" in fails_in_one_line(run("report", "my run"))


@pytest.mark.parametrize("command", ["report", "critical-path", "stragglers"])
@pytest.mark.parametrize("name", ["poem", "empty", "truncated", "nothing"])
def test_a_file_of_no_kind_is_an_error_of_one_line(command: str, name: str) -> None:
    assert name in fails_in_one_line(run(command, name))


COMMANDS = [["report"], ["critical-path"], ["stragglers"]]
COMMANDS += [["top", "--once"]] if find_spec("dask_efficiency.live") else []
PREFLIGHT = [["preflight"]] if find_spec("dask_efficiency.preflights") else []


@pytest.fixture
def silent() -> Iterator[str]:
    """An address where connections are taken and nobody ever answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"tcp://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_silent_scheduler_is_an_error_after_a_line_about_the_connection(command: list[str], silent: str) -> None:
    for address in (silent, "tcp://127.0.0.1:1"):
        result = run(*command, address, "--timeout", "300ms")
        line = fails_in_one_line(result)
        assert f"no scheduler answered at {address} in 0.3 s" in line
        assert "object at" not in line
        assert result.stderr.startswith(f"connecting to {address}, up to 0.3 s\n")
    assert "How long a scheduler has to answer. [default: 10s]" in " ".join(run(*command, "--help").stdout.split())
    assert run(*command, "tcp://127.0.0.1:1", "--timeout", "never").exit_code == 2
    by_file = run(*command, "--scheduler-file", "scheduler", "--timeout", "100ms")
    assert by_file.stderr.startswith("connecting to tcp://127.0.0.1:1, up to")


class _Server(threading.Thread):
    """Answers the first bytes of each connection with some of its own, and closes."""

    def __init__(self, answer: bytes) -> None:
        super().__init__(daemon=True)
        self.answer = answer
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self.listener.getsockname()[1]}"

    def run(self) -> None:
        with contextlib.suppress(OSError):  # until the listener is closed
            while True:
                with self.listener.accept()[0] as connection:
                    connection.recv(100)
                    connection.sendall(self.answer)


@pytest.mark.parametrize("command", [*COMMANDS, *PREFLIGHT])
def test_another_server_than_a_scheduler_is_an_error_of_one_line(command: list[str]) -> None:
    server = _Server(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    server.start()
    with server.listener:
        connecting, *errors = run(*command, server.address, "--timeout", "2s").stderr.splitlines()
    assert connecting.startswith("connecting to ")
    who = f"({server.address} speaks another protocol than Dask's, as a dashboard and other web servers do)"
    assert len(errors) == 1
    assert f"no scheduler answered at {server.address} in 2 s {who}" in errors[0]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None) as cluster:
        cluster.sync(cluster.scheduler.listen, "tcp://127.0.0.1:0")
        yield cluster


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster) as client:
        yield client
        unregister(client)


def address(client: Client) -> str:
    return str(client.cluster.scheduler.listeners[-1].contact_address)


@pytest.mark.cluster
def test_a_cluster_that_records_is_reported_on_explained_and_judged(client: Client) -> None:
    client.register_plugin(EfficiencyPlugin(trace=True))
    client.gather(client.map(abs, range(-20, 0), pure=False))

    def efficiency() -> Any:
        past = run("report", address(client), "--last", "30m", "--json")
        return json.loads(past.stdout)["head"]["efficiency"]

    # The past reaches to the last heartbeat.
    eventually(lambda: efficiency() is not None)
    assert 0 <= efficiency() <= 1
    path = json.loads(run("critical-path", address(client), "--json").stdout)
    assert path["seconds_by_prefix"].keys() >= {"abs"}
    judged = run("stragglers", address(client), "--factor", "2")
    assert judged.exit_code == 0, judged.stderr
    assert "As the scheduler finds them now" not in judged.stdout


@pytest.mark.cluster
def test_without_the_plugin_it_is_asked_for_and_without_a_recording_the_live_findings_are_shown(client: Client) -> None:
    for command in COMMANDS:
        assert "client.register_plugin(EfficiencyPlugin())" in fails_in_one_line(run(*command, address(client)))
    client.register_plugin(EfficiencyPlugin())
    output = " ".join(run("stragglers", address(client)).stdout.split())
    assert "None of 2 workers is slow." in output
    assert "As the scheduler finds them now, by heartbeats" in output
    assert json.loads(run("stragglers", address(client), "--json").stdout)["slow_workers"] == []
    assert "EfficiencyPlugin(trace=True)" in fails_in_one_line(run("critical-path", address(client)))
    assert "--history and --factor judge" in fails_in_one_line(run("stragglers", address(client), "--history", "a-run"))


@pytest.mark.cluster
def test_a_workers_address_is_refused_as_a_schedulers() -> None:
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(EfficiencyPlugin())
        (worker,) = client.scheduler_info()["workers"]
        for command in COMMANDS:
            assert f"{worker} is a worker; expected the scheduler's address" in fails_in_one_line(run(*command, worker))


def test_a_folder_is_named_as_one(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match=r"is a folder; expected a file, or of several runs a pattern"):
        look_at(str(tmp_path))
