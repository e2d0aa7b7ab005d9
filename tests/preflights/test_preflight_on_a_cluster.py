from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from click.testing import CliRunner
from distributed import Client, Event, LocalCluster

import dask_efficiency
from dask_efficiency import EfficiencyPlugin
from dask_efficiency.accounts.slow_worker import Cause
from dask_efficiency.cli import main
from dask_efficiency.plugin import names
from dask_efficiency.plugin.plain import carried
from dask_efficiency.preflights import PreflightResult
from dask_efficiency.preflights.hardware.host import SCRIPT
from dask_efficiency.preflights.judge.readings import Component
from dask_efficiency.preflights.scheduler import plan, preflights
from dask_efficiency.preflights.scheduler import preflight as scheduler_preflight
from dask_efficiency.preflights.worker import OWN_TEST
from tests.plugin.watch import addresses, eventually
from tests.terminals import in_a_log

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

#: Of two workers nobody is slow, however busy the machine is.
MEASURED = {Component.CPU, Component.MEMORY, Component.DISK, Component.PYTHON}


@pytest.fixture(autouse=True)
def short_repetitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundredth of the time; the scheduler is in this process."""
    monkeypatch.setattr(plan, "REPETITION_SECONDS", 0.001)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": False}
    with LocalCluster(**options) as cluster:
        yield cluster


@pytest.fixture
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster) as client:
        eventually(lambda: not any(client.processing().values()))
        yield client


def children() -> list[str]:
    """What measures now, wherever it is on this machine below this process."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            line = " ".join(process.cmdline())
        except psutil.Error:
            continue
        if "dask_efficiency.preflights.hardware" in line and process.status() != psutil.STATUS_ZOMBIE:
            found.append(line)
    return found


def files(client: Client) -> Any:
    return client.run(lambda dask_worker: sorted(os.listdir(dask_worker.local_directory)))


def test_workers_are_measured_without_a_task_and_two_are_too_few_to_tell(client: Client, cluster: LocalCluster) -> None:
    client.register_plugin(EfficiencyPlugin())
    transitions, before = cluster.scheduler.transition_counter, files(client)
    try:
        found = dask_efficiency.preflight(client, timeout="120s", device="cpu")
        assert dask_efficiency.snapshot(client).outside[OWN_TEST] > 0
    finally:
        dask_efficiency.unregister(client)
    assert isinstance(found, PreflightResult)
    assert found.tested
    assert not found.findings
    assert [set(one.readings) for one in found.subjects] == [MEASURED, MEASURED]
    assert len(found.links) == 1
    assert found.links[0].seconds[Component.SEND] > 0
    assert found.too_few == (("0", "1"),)
    assert "Too few to tell" in " ".join(str(found).split())
    assert json.loads(json.dumps(found.to_dict()))["workers"][0]["measured"]["cpu"]["value"] > 0
    assert "<table" in found._repr_html_()
    assert cluster.scheduler.transition_counter == transitions
    assert files(client) == before


def test_a_workload_is_timed_and_a_missing_folder_is_named(client: Client, cluster: Any, tmp_path: Path) -> None:
    def break_it(dask_worker: Any) -> None:
        dask_worker.was, dask_worker.local_directory = dask_worker.local_directory, "/nowhere"

    def mend(dask_worker: Any) -> None:
        dask_worker.local_directory = dask_worker.was

    script = tmp_path / "work.py"
    script.write_text("import sys, time\nprint('printed')\ntime.sleep(0.05)\nsys.exit(0)\n")
    first, second = addresses(client)
    client.run(break_it, workers=[first])
    try:
        found = dask_efficiency.preflight(client, workload=script)
    finally:
        client.run(mend, workers=[first])
    by_address = {one.address: one for one in found.subjects}
    assert all(one.readings[Component.WORKLOAD].value >= 0.05 for one in found.subjects)
    assert by_address[first].missing == {Component.DISK: "cannot write to /nowhere: No such file or directory"}
    assert not by_address[second].missing
    assert not found.findings
    eventually(lambda: not children())
    assert names.OP not in cluster.scheduler.handlers  # it was registered for this only


def wait_for(name: str) -> None:
    Event(name).wait()


@contextmanager
def busy(client: Client) -> Iterator[None]:
    future = client.submit(wait_for, "end", pure=False)
    eventually(lambda: any(client.processing().values()))
    try:
        yield
    finally:
        Event("end", client=client).set()
        future.result()
        Event("end", client=client).clear()


def test_a_busy_cluster_is_left_alone_unless_it_is_forced(client: Client, cluster: LocalCluster) -> None:
    with busy(client):
        found = dask_efficiency.preflight(client)
        assert not found.tested
        assert "the cluster is busy: 1 task on 1 worker" in found.reason
        assert "Nothing was tested" in str(found)
        result = CliRunner().invoke(main, ["preflight", cluster.scheduler_address, "--fail"])
        assert result.exit_code == 2
        assert "Nothing was tested: the cluster is busy" in " ".join(result.output.split())
        forced = dask_efficiency.preflight(client, force=True, device="cpu")
        assert [set(one.readings) for one in forced.subjects] == [MEASURED, MEASURED]


def test_a_worker_that_hangs_is_named_and_delays_no_other(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler_preflight, "READY_SECONDS", 5.0)
    client.register_plugin(EfficiencyPlugin())  # while it can be
    victim = next(iter(client.run(os.getpid).values()))
    os.kill(victim, signal.SIGSTOP)
    try:
        found = dask_efficiency.preflight(client)
    finally:
        os.kill(victim, signal.SIGCONT)
        dask_efficiency.unregister(client)
    assert [finding.cause for finding in found.slow_workers] == [Cause.UNRESPONSIVE]
    assert sum(bool(one.readings) for one in found.subjects) == 1


def waits_for_ever() -> None:
    while True:
        time.sleep(1)


def test_nothing_stays_after_ctrl_c(client: Client) -> None:
    # Where these tests run in the background, Ctrl-C is ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupt() -> None:
        eventually(lambda: children())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            dask_efficiency.preflight(client, workload=waits_for_ever, timeout="200s")
        thread.join()
    finally:
        signal.signal(signal.SIGINT, before)
    eventually(lambda: not children(), seconds=30)
    eventually(lambda: names.OP not in client.cluster.scheduler.handlers, seconds=30)


def test_ctrl_c_reports_the_measurements_so_far(client: Client, cluster: LocalCluster, tmp_path: Path) -> None:
    # Whoever comes first has its turn; the other one hangs until it is stopped.
    script = f"""
import os, time
try:
    open({str(tmp_path / "first")!r}, "x").write(str(os.getpid()))
except FileExistsError:
    while open({str(tmp_path / "first")!r}).read() != str(os.getpid()):
        time.sleep(0.1)
"""
    (tmp_path / "script.py").write_text(script)
    asked = [cluster.scheduler_address, "--workload", str(tmp_path / "script.py"), "--limit", "200s", "--json"]
    with in_a_log(["preflight", *asked], tmp_path / "found.json") as command:
        command.until("measuring each worker alone: 1 of 2 done")
        command.interrupt()
        assert command.end() == 130
    note = "stopped while measuring each worker alone, 1 of 2 done: a complete test would show more"
    assert f"Ctrl-C: {note}\n" in command.text
    assert "Traceback" not in command.text
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["notes"][-1] == note
    assert sorted(bool(one["measured"]) for one in found["workers"]) == [False, True]
    assert sorted(one["not_tested"] for one in found["workers"]) == ["", "the test was stopped before its turn"]
    eventually(lambda: not children(), seconds=60)
    eventually(lambda: names.OP not in client.cluster.scheduler.handlers, seconds=60)


def test_nothing_stays_after_the_client_died(client: Client, cluster: LocalCluster) -> None:
    code = (
        "import time, dask_efficiency\nfrom distributed import Client\n"
        f"client = Client({cluster.scheduler_address!r})\n"
        "dask_efficiency.preflight(client, workload=lambda: time.sleep(1000), timeout='200s')\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code])
    try:
        eventually(lambda: children(), seconds=60)
    finally:
        process.kill()
        process.wait()
    eventually(lambda: not children(), seconds=60)
    eventually(lambda: names.OP not in cluster.scheduler.handlers, seconds=60)


def test_a_silent_clients_test_is_stopped(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = threading.Event()
    silent = preflights.Preflights._silent

    def silent_and_noted(meter: preflights.Preflights) -> None:
        silent(meter)
        stopped.set()

    monkeypatch.setattr(preflights, "SILENT_SECONDS", 1.0)
    monkeypatch.setattr(preflights.Preflights, "_silent", silent_and_noted)
    client.register_plugin(EfficiencyPlugin())

    async def ask(**step: Any) -> None:
        await client.scheduler.efficiency(action=names.PREFLIGHT, preflight=step)

    payload = carried(np.frombuffer(b"while True: pass", np.uint8))
    plan = {"test": "t", "seconds": 200.0, "workload": SCRIPT, "payload": payload}
    client.sync(ask, step=names.BEGIN_TEST, plan=plan, client="gone")
    try:
        eventually(stopped.is_set)
        eventually(lambda: not children())
        with pytest.raises(RuntimeError, match="was stopped"):
            client.sync(ask, step=names.WAIT_FOR_TEST, test="t")
    finally:
        dask_efficiency.unregister(client)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "tpu"}, "device is 'tpu'; expected one of auto, cpu, gpu"),
        ({"timeout": "soon"}, "timeout is 'soon'; expected a positive duration such as '60s'"),
        ({"timeout": -1}, "timeout is -1; expected"),
        ({"collective": "mpi"}, "collective is 'mpi'; expected one of gloo, nccl, or None"),
        ({"workload": 3}, "workload is 3; expected a function without arguments or the path of a script"),
        ({"workload": "nowhere.py"}, "workload is 'nowhere.py'; expected a script in Python: "),
        ({"soak": 1}, "soak is 1; expected True or False"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        dask_efficiency.preflight(**options)


def test_the_command_prints_json_and_exits_with_0_if_no_worker_is_slow(cluster: LocalCluster) -> None:
    result = CliRunner().invoke(main, ["preflight", cluster.scheduler_address, "--json", "--fail", "--device", "cpu"])
    assert result.exit_code == 0, result.output
    content = json.loads(result.output[result.output.index("{") :])
    assert content["tested"]
    assert content["slow"] == []


def test_the_command_reports_a_silent_scheduler_in_one_line() -> None:
    result = CliRunner().invoke(main, ["preflight", "tcp://127.0.0.1:9", "--fail", "--timeout", "500ms"])
    assert result.exit_code == 2
    assert "no scheduler answered at tcp://127.0.0.1:9" in result.output
