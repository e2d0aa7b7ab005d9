"""No file, command or question of ours runs code that somebody else sends.

All commands are in the table of commands, all actions in the file of names, and everything that asks is found in the
source: what is new is tested too.
"""

from __future__ import annotations

import ast
import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner
from distributed import Scheduler, protocol
from distributed.core import ConnectionPool, rpc
from distributed.protocol import Serialize, Serialized, ToPickle

from dask_efficiency.accounts.checks import RefusedPayload
from dask_efficiency.cli import main
from dask_efficiency.plugin import names, options
from dask_efficiency.plugin.client import Server, ask, call
from dask_efficiency.plugin.plain import NotPlainError
from dask_efficiency.plugin.scheduler.meter import ClusterMeter
from dask_efficiency.plugin.scheduler.workers import WorkerHalves
from dask_efficiency.plugin.worker.aside import AsideThread
from dask_efficiency.plugin.worker.meter import WorkerMeter
from dask_efficiency.preflights.worker import WorkerPreflight
from tests.canary import FORMS, Canary, Hostile, hostile
from tests.trees import nodes, sources

# -- commands ------------------------------------------------------------------------------------


def commands(group: click.Group = main, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """All commands, with their names."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, *path, name)
        else:
            yield (*path, name), command


ALL = {" ".join(path): command for path, command in commands()}
OF_SCHEDULERS = [
    name for name, command in ALL.items() if any(option.name == "scheduler_file" for option in command.params)
]
#: Commands that end by themselves with these options.
ENDING = {"top": ["--once"], "fleet watch": ["--once"]}
#: Commands whose argument is a program to run, or that take no file.
RUNNING = {"run", "demo", "mpi record"}


def run(name: str, *arguments: str) -> Any:
    return CliRunner().invoke(main, [*name.split(), *arguments, *ENDING.get(name, ())])


def test_the_commands_that_ask_schedulers_are_known() -> None:
    assert {"report", "stragglers", "critical-path"} <= set(OF_SCHEDULERS)
    assert ALL.keys() >= RUNNING


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("command", OF_SCHEDULERS)
def test_no_command_unpickles_what_a_scheduler_sends(command: str, form: str, tmp_path: Path) -> None:
    with hostile(form, tmp_path) as server:
        result = run(command, server.address, "--timeout", "5s")
        assert server.connections
        assert not server.sang()
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code in (1, 2)
    assert "Error: " in result.stderr


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("command", sorted(ALL.keys() - RUNNING))
def test_no_command_connects_because_of_what_is_in_a_file(command: str, count: int, tmp_path: Path) -> None:
    with hostile("pickled", tmp_path) as server:
        content = {"type": "Scheduler", "address": server.address, "format": "dask-efficiency-report", "version": 1}
        for name, fields in (("run.json", content), ("scheduler.json", {**content, "format": ""})):
            file = tmp_path / name
            file.write_text(json.dumps(fields))
            result = run(command, *[str(file)] * count)
            assert result.exit_code != 0
            assert isinstance(result.exception, SystemExit)
            if count == 1 and command in OF_SCHEDULERS and name == "scheduler.json":
                assert f"take it as `--scheduler-file {file}`" in result.stderr
        assert server.connections == 0


@pytest.mark.parametrize("command", OF_SCHEDULERS)
def test_each_command_takes_the_file_of_a_scheduler_that_the_user_names(command: str, tmp_path: Path) -> None:
    file = tmp_path / "scheduler.json"
    with hostile("pickled", tmp_path) as server:
        file.write_text(json.dumps({"type": "Scheduler", "address": server.address}))
        assert run(command, "--scheduler-file", str(file), "--timeout", "5s").exit_code in (1, 2)
        assert server.connections
        assert not server.sang()
    assert "expected one of S" in run(command, "tcp://127.0.0.1:1", "--scheduler-file", str(file)).stderr
    assert "or --scheduler-file FILE" in run(command).stderr
    for content in ("{}", '{"type": "Scheduler", "address": "report.json"}', '{"address": "tcp://127.0.0.1:1"}', "["):
        file.write_text(content)
        assert "is no scheduler's file" in run(command, "--scheduler-file", str(file)).stderr


# -- answers -------------------------------------------------------------------------------------

Question = Callable[[str], Awaitable[Any]]

#: Values of all names that travel: the actions, among others.
NAMES = sorted({value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)})


async def of_a_client(address: str) -> None:
    """All actions, and handlers of Dask's that we call."""
    for action in NAMES:
        with suppress(NotPlainError, RuntimeError):
            async with rpc(address, timeout=5) as server:
                await ask(Server(server), action)
    for op in ("retire_workers", "register_scheduler_plugin"):
        with suppress(NotPlainError, RuntimeError):
            async with rpc(address, timeout=5) as server:
                await call(Server(server), op)


async def of_a_scheduler(address: str) -> None:
    """All that the scheduler asks workers and nannies."""
    async with Scheduler(port=0, dashboard=False, dashboard_address=":0", host="127.0.0.1") as scheduler:
        scheduler.workers[address] = SimpleNamespace(metrics={})  # type: ignore[assignment]
        meter: Any = SimpleNamespace(
            scheduler=scheduler, session="s", windows={}, options=options.resolve({"report_timeout": 5})
        )
        halves = WorkerHalves(meter)
        for action in NAMES:
            await halves.ask(action, "w")
        for asked in (halves.send, halves.remove):
            await asked()
        with suppress(OSError):
            await halves.ask_one(address, {"action": names.PREFLIGHT}, 5.0)
        await halves.take(names.SNAPSHOT, "w", lambda *_: None)
        for op in (names.OP, "get_logs", "run"):
            await halves.ask_directly(address, op)
        scheduler.workers.clear()


async def of_a_worker(address: str) -> None:
    """What a worker asks its partner in a preflight."""
    async with ConnectionPool() as pool:
        worker: Any = SimpleNamespace(rpc=pool, address="tcp://127.0.0.1:1")
        step = {"step": names.PAIR, "partner": address, "test": "t", "repetition": 0.01, "repeats": 1, "seconds": 5}
        await WorkerPreflight(worker).answer(names.PREFLIGHT, {"preflight": step})


async def of_a_blocked_worker(address: str) -> None:
    """What the thread beside a blocked event loop tells the scheduler."""
    loop = SimpleNamespace(is_running=lambda: True, is_closed=lambda: False)
    worker: Any = SimpleNamespace(
        address="tcp://127.0.0.1:1", connection_args={}, _tick_counter=1, io_loop=SimpleNamespace(asyncio_loop=loop)
    )
    await AsideThread(worker, lambda asked: {})._tell(address, 1)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("question", [of_a_client, of_a_scheduler, of_a_worker, of_a_blocked_worker])
def test_no_question_unpickles_its_answer(question: Question, form: str, tmp_path: Path) -> None:
    with hostile(form, tmp_path) as server:
        asyncio.run(question(server.address))
        assert server.connections
        assert not server.sang()


@pytest.mark.parametrize("form", FORMS)
def test_the_canary_sings_where_dask_itself_asks(form: str, tmp_path: Path) -> None:
    async def asked(server: Hostile) -> None:
        async with rpc(server.address, timeout=5) as scheduler:
            found = await scheduler.efficiency()
            protocol.loads(found["packed"])

    with hostile(form, tmp_path) as server:
        with suppress(Exception):
            asyncio.run(asked(server))
        assert server.sang()


#: Functions of Dask that ask another process, or connect to one.
ASKING = {"rpc", "broadcast", "send_recv", "connect", "live_comm", "ConnectionPool", "PooledRPCCall"}
#: Files with such names: those that ask, each within ``plain.answer`` and above, and those whose names mean something
#: else: torch's store, and the comms of simulated clusters, which are objects of one process.
FILES = {
    "plugin/client.py": {"rpc"},
    "plugin/scheduler/workers.py": {"rpc", "broadcast"},
    "plugin/worker/aside.py": {"rpc"},
    "preflights/light_client.py": {"rpc", "connect"},
    "preflights/worker.py": {"rpc"},
    "preflights/hardware/with_torch.py": {"connect"},
    "simulation/engine/cluster.py": {"connect"},
}


def test_everything_that_asks_another_process_is_tested_here() -> None:
    found: dict[str, set[str]] = {}
    for path, text in sources().items():
        named = [node for node in nodes()[path] if isinstance(node, ast.Attribute | ast.Name)]
        asking = ASKING & {node.attr if isinstance(node, ast.Attribute) else node.id for node in named}
        if asking and any(word in text for word in ("distributed", "Worker", "Scheduler")):
            found[path] = asking
    assert found == FILES


#: Files that unpickle: the workload of a preflight, which is the client's code, in a process of its own; and what
#: processes that read torch's traces for this one tell it through a pipe.
UNPICKLING = ["preflights/hardware/host.py", "torch_traces/summaries/reading.py"]


def test_nothing_else_unpickles() -> None:
    pickles = ("pickle", "cloudpickle", "distributed.protocol", "distributed.protocol.pickle", "joblib", "marshal")
    found = set()
    for path, tree in nodes().items():
        for node in tree:
            match node:
                case ast.ImportFrom(module=module, names=imported) if module in pickles:
                    reads = any(one.name in ("load", "loads", "deserialize", "Unpickler") for one in imported)
                case ast.Attribute(value=ast.Name(id=owner), attr="load" | "loads" | "deserialize" | "Unpickler"):
                    reads = owner in ("pickle", "cloudpickle", "protocol", "joblib", "marshal")
                case ast.keyword(arg="allow_pickle", value=ast.Constant(value=allowed)):
                    reads = allowed is not False
                case _:
                    continue
            if reads:
                found.add(path)
    assert sorted(found) == UNPICKLING


# -- questions -----------------------------------------------------------------------------------

#: Ways in which an object reaches a handler: as Dask's scheduler leaves it, and as its workers read it.
WRAPPED = {
    "serialized": lambda it: Serialized({"serializer": "pickle"}, [b"x"]),
    "to serialize": Serialize,
    "to pickle": ToPickle,
    "unpickled": lambda it: it,
}


@pytest.mark.parametrize("wrapped", WRAPPED.values(), ids=WRAPPED)
@pytest.mark.parametrize("handle", [ClusterMeter.handle, WorkerMeter.handle])
def test_no_handler_takes_an_object(handle: Any, wrapped: Any) -> None:
    canary = wrapped(Canary("nowhere"))
    for action in NAMES:
        for argument in ("window", "limit", "anything"):
            for value in (canary, [canary], {"x": {"y": (canary,)}}):
                with pytest.raises(RefusedPayload, match="expected plain data"):
                    asyncio.run(handle(None, action, **{argument: value}))
