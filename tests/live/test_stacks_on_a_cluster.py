"""`stacks` of live clusters: what known tasks do; workers whose event loop is blocked, and that are stopped."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from distributed import Client, Event

from dask_efficiency import EfficiencyPlugin, snapshot
from dask_efficiency.accounts.thread_looks import LOOP, TASK
from dask_efficiency.cli import main
from dask_efficiency.live import stacks
from tests.plugin.watch import addresses, eventually

pytestmark = pytest.mark.cluster


def wait_for_event(number: int, name: str) -> None:
    Event(name).wait()


def wait_for_file(path: str) -> None:
    until = time.monotonic() + 100
    while not os.path.exists(path) and time.monotonic() < until:
        time.sleep(0.02)


@contextmanager
def blocked(client: Client, address: str, path: Path) -> Iterator[None]:
    """Block a worker's event loop by ``client.run``."""

    async def block(path: str) -> None:
        wait_for_file(path)

    client.run(block, str(path), workers=[address], wait=False)
    try:
        yield
    finally:
        path.touch()


def of_kind(found: Any, kind: str) -> list[Any]:
    return [group for group in found.groups if group.kind == kind]


def once(client: Client, condition: Callable[[Any], bool], **asked: Any) -> Any:
    """Stacks once all workers answer in time and a condition holds: threads may be seen on their way."""
    return eventually(lambda: found if not (found := stacks(client, **asked)).silent and condition(found) else None)


def test_tasks_that_wait_alike_are_one_with_their_cause_line_and_workers(client: Client) -> None:
    futures = client.map(wait_for_event, range(4), name="stacks-event", key="waiter")
    try:
        found = once(client, lambda found: [len(one.threads) for one in of_kind(found, TASK)] == [4])
        only = once(client, lambda found: len(found.groups) == 1, workers=[0], prefix="waiter")
        printed = str(found)
        none = stacks(client, prefix="other")
    finally:
        Event("stacks-event", client=client).set()
        client.gather(futures)
    (group,) = of_kind(found, TASK)
    assert (group.prefix, set(group.workers)) == ("waiter", {"0", "1"})
    assert "wait_for_event" in [frame.function.rpartition(".")[2] for frame in group.stack]
    if Path("/proc/self/syscall").exists():
        assert group.cause == "cluster"
    assert "4 threads in tasks" in printed
    assert [(one.kind, one.workers, len(one.threads)) for one in only.groups] == [(TASK, ("0",), 2)]
    assert none.groups == ()
    # The scheduler's loop and the workers'.
    assert {look.worker for one in of_kind(found, LOOP) for look in one.threads} == {"", "0", "1"}
    with pytest.raises(ValueError, match="no worker is called 'nobody'; expected a name or address, such as '[01]'"):
        stacks(client, workers=["nobody"])


def test_a_worker_whose_event_loop_is_blocked_answers_with_the_call_that_blocks_it(
    client: Client, tmp_path: Path
) -> None:
    address = addresses(client)[0]
    with blocked(client, address, tmp_path / "go on"):
        found = once(client, lambda found: any(_is_in(one, "wait_for_file") for one in of_kind(found, LOOP)))
    assert found.workers == 2
    # Once it goes on, it answers by itself.
    eventually(lambda: not any(_is_in(one, "wait_for_file") for one in stacks(client).groups))


def _is_in(group: Any, function: str) -> bool:
    return any(frame.function.endswith(function) for frame in group.stack)


def test_a_worker_that_is_stopped_is_named_and_delays_nobody(client: Client) -> None:
    address = addresses(client)[0]
    process = client.run(os.getpid, workers=[address])[address]
    os.kill(process, signal.SIGSTOP)
    try:
        found = eventually(lambda: found if len((found := stacks(client)).silent) == 1 else None)
    finally:
        os.kill(process, signal.SIGCONT)
    assert set(found.silent.values()) == {"no answer in 1.5 s"}
    assert "did not answer" in found.headline
    assert {look.worker for one in of_kind(found, LOOP) for look in one.threads} == {"", "0", "1"} - found.silent.keys()


@pytest.mark.needs("py-spy")
def test_native_frames_are_of_c_functions_between_those_of_python(client: Client) -> None:
    futures = client.map(wait_for_event, range(4), name="stacks-native", key="waiter")
    try:
        found = once(client, lambda found: len(of_kind(found, TASK)) > 0, prefix="waiter", native=True)
    finally:
        Event("stacks-native", client=client).set()
        client.gather(futures)
    if found.not_native:
        pytest.skip(f"py-spy may not look: {next(iter(found.not_native.values()))}")
    looks = [look for group in of_kind(found, TASK) for look in group.threads]
    assert all(look.is_native for look in looks)
    for group in of_kind(found, TASK):
        files = {frame.file.rpartition(".")[2] for frame in group.stack if frame.file}
        assert "wait_for_event" in [frame.function for frame in group.stack]
        assert files - {"py"}, group.stack
    assert found.not_native == {}


def test_no_source_is_shown_where_reports_have_none(client: Client) -> None:
    client.register_plugin(EfficiencyPlugin(source=False))
    future = client.submit(wait_for_event, 1, name="stacks-source", key="waiter-0")
    try:
        eventually(lambda: of_kind(stacks(client), TASK))
        assert {one.code for one in stacks(client).groups} == {""}
    finally:
        Event("stacks-source", client=client).set()
        future.result()


def test_the_command_prints_json_and_text(client: Client) -> None:
    address = client.scheduler_info()["address"]
    result = CliRunner().invoke(main, ["stacks", address, "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["workers"] == 2
    assert {group["kind"] for group in found["groups"]} >= {LOOP}
    text = CliRunner().invoke(main, ["stacks", address]).stdout
    assert "No thread runs a task" in text
    failed = CliRunner().invoke(main, ["stacks", address, "--worker", "nobody"])
    assert failed.exit_code == 1
    assert "no worker is called 'nobody'" in failed.stderr


def test_a_resource_that_no_worker_has_is_the_first_finding_while_tasks_wait(client: Client) -> None:
    futures = client.map(len, ["a"], resources={"TPU": 1}, key="tpu")
    try:
        found = eventually(lambda: client.sync(client.scheduler.efficiency, action="live")["stalls"])
        report = snapshot(client)
    finally:
        client.cancel(futures)
    ((kind, tasks, prefix, *_, detail),) = found
    assert (kind, tasks, prefix, detail) == ("no-worker", 1, "tpu", "TPU=1, on no worker")
    assert report.findings[0].kind == "stalled/no-worker"
    eventually(lambda: not client.sync(client.scheduler.efficiency, action="live")["stalls"])
