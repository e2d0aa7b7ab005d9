"""Runner: runs a script as `python` does, and reports on every cluster that its clients reach.

``dask-efficiency run`` replaces its own process by ``python -m dask_efficiency.report``, which is this module. So the
script has a fresh interpreter, and its exit code, signals, standard streams and process id are its own. It runs as
``__main__`` in the module that ``pickle`` and ``multiprocessing`` look for.

Nothing of Dask is imported first. Once the script imports ``distributed``, ``Client._start`` and ``._close`` are
replaced in this process alone: Dask's own ``distributed.client.preload`` would travel with its configuration to workers
that may lack the package.
"""

from __future__ import annotations

import asyncio
import builtins
import importlib.abc
import importlib.machinery
import importlib.util
import io
import json
import os
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass, replace
from types import CodeType, ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Client

    from dask_efficiency.report.efficiency_report import efficiency_report
    from dask_efficiency.report.model import EfficiencyReport
    from dask_efficiency.runs.trace.run_trace import RunTrace

#: Seconds that a scheduler has to answer at the end of a script. A guess.
LAST_ANSWER = 60
#: Dask's name of clients with which tasks submit tasks; their cluster is reported already.
OF_A_TASK = "Client-worker-"

HINT = "`dask-efficiency run --local` gives it a LocalCluster"
#: Dask's name of worker processes.
WORKER_PROCESS = "Dask Worker process (from Nanny)"


@dataclass(frozen=True, slots=True)
class ScriptRun:
    """Script to run, a path or a module's name, and options for its reports."""

    script: str
    is_module: bool = False
    local: bool = False
    everything: bool = False
    html: str | None = None
    json: str | None = None
    trace: str | None = None
    #: Folder in which each report gets a name of its own.
    save_to: str | None = None

    @property
    def name(self) -> str:
        """Name of the reports."""
        return self.script if self.is_module else os.path.basename(self.script)


def replace_process(run: ScriptRun, arguments: tuple[str, ...]) -> None:
    """Continue as the script in this process; if a process cannot be replaced, wait for it and exit with its code."""
    command = [sys.executable, "-m", "dask_efficiency.report", json.dumps(asdict(run)), *arguments]
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "posix":
        os.execv(sys.executable, command)
    import subprocess

    sys.exit(subprocess.call(command))


def main() -> None:
    """Run the script that the arguments name."""
    run = ScriptRun(**json.loads(sys.argv[1]))
    del sys.argv[:2]
    runner = Runner(run)
    try:
        if run.local:
            runner.start_local()
        else:
            sys.meta_path.insert(0, _AfterImport("distributed", runner.watch))
        code, namespace = _prepared(run)
        exec(code, namespace)
    except BaseException as error:
        sys.excepthook = _hiding_ours(sys.excepthook)
        runner.finish(failed=not isinstance(error, SystemExit))
        raise
    runner.finish(failed=False)


def _prepared(run: ScriptRun) -> tuple[CodeType, dict[str, Any]]:
    """Compiled program, and the namespace of a ``__main__`` like that of ``python``."""
    module = ModuleType("__main__")
    if run.is_module:
        spec = _spec_of(run.script)
        assert spec.loader is not None
        code = spec.loader.get_code(spec.name)  # type: ignore[attr-defined]
        if code is None:
            raise ImportError(f"No code object available for {spec.name}", name=spec.name)
        module.__spec__, module.__package__, module.__loader__ = spec, spec.parent, spec.loader
        module.__file__ = spec.origin
        sys.argv.insert(0, spec.origin or spec.name)
    else:
        sys.argv.insert(0, run.script)
        path = os.path.abspath(run.script)
        if not sys.flags.safe_path:
            sys.path[0] = os.path.dirname(os.path.realpath(run.script))
        module.__file__ = path
        module.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
        with io.open_code(path) as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
    vars(module).update(__builtins__=builtins, __cached__=None)
    if "__annotations__" in vars(sys.modules["__main__"]):  # set by CPython before 3.14
        module.__annotations__ = {}
    sys.modules["__main__"] = module
    return code, module.__dict__


def _spec_of(name: str) -> importlib.machinery.ModuleSpec:
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        name = f"{name}.__main__"
        spec = importlib.util.find_spec(name)
    if spec is None or not hasattr(spec.loader, "get_code"):
        raise ImportError(f"No module named {name}", name=name)
    return spec


def _hiding_ours(hook: Callable[..., Any]) -> Callable[..., None]:
    """Exception hook that starts the traceback in the script."""

    def shown(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        own = ("<frozen runpy>", __file__, os.path.join(os.path.dirname(__file__), "__main__.py"))
        while traceback is not None and traceback.tb_frame.f_code.co_filename in own:
            traceback = traceback.tb_next
        hook(kind, error.with_traceback(traceback), traceback)

    return shown


class _AfterImport(importlib.abc.MetaPathFinder):
    """Calls a function once, right after a module was imported."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name, self._then = name, then

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute, then = spec.loader.exec_module, self._then

            def exec_module(module: ModuleType) -> None:
                execute(module)
                then()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


class Runner:
    """Opens a report when a client connects, closes it before the client or cluster closes, and shows all at the end.

    A cluster has one report at a time. Failures become notes at the end, and never reach the script.
    """

    def __init__(self, run: ScriptRun) -> None:
        self._run = run
        #: A forked process has another id, and nothing to report.
        self._pid = os.getpid()
        self._local: Client | None = None
        self._clients: list[Client] = []
        #: Client and open report by the scheduler's address.
        self._open: dict[str, tuple[Client, efficiency_report]] = {}
        self._ended: list[tuple[EfficiencyReport, RunTrace | None]] = []
        self._notes: list[str] = []
        self._finished = False

    # -- where clients come and go -----------------------------------------------------------------

    def start_local(self) -> None:
        """Give the script a client of a LocalCluster whose processes do not import the script.

        A script not written for processes would repeat its work in each worker that imports it.
        """
        from multiprocessing import spawn

        prepared = spawn.get_preparation_data

        def without_script(name: str) -> dict[str, Any]:
            data = prepared(name)
            if name == WORKER_PROCESS:
                data.pop("init_main_from_path", None)
                data.pop("init_main_from_name", None)
            return data

        spawn.get_preparation_data = without_script
        import distributed

        self.watch()
        self._local = distributed.Client()

    def watch(self) -> None:
        """Follow each client that this process creates from now on."""
        from distributed import Client

        from dask_efficiency.plugin.patches import CLIENT_CLOSES, CLIENT_STARTS, Replacements

        def starting(original: Callable[..., Any]) -> Callable[..., Any]:
            async def _start(client: Client, *args: Any, **kwargs: Any) -> Any:
                started = await original(client, *args, **kwargs)
                await self._harmlessly(self._connected(client))
                return started

            return _start

        put = Replacements().put
        if not (put(CLIENT_STARTS, Client, starting) and put(CLIENT_CLOSES, Client, self._closing())):
            self._notes.append(CLIENT_STARTS.without)

    def _closing(self, client: Client | None = None) -> Callable[..., Any]:
        """Replacement for the method that closes a client, or its cluster: the report is closed before."""

        def closing(original: Callable[..., Any]) -> Callable[..., Any]:
            async def _close(*args: Any, **kwargs: Any) -> Any:
                await self._harmlessly(self._leaving(args[0] if client is None else client))
                return await original(*args, **kwargs)

            return _close

        return closing

    async def _harmlessly(self, step: Coroutine[Any, Any, None]) -> None:
        try:
            await step
        except Exception as error:
            self._notes.append(f"reports are incomplete: {type(error).__name__}: {error}")

    async def _connected(self, client: Client) -> None:
        if self._finished or os.getpid() != self._pid or client.id.startswith(OF_A_TASK):
            return
        self._clients.append(client)
        if _address(client) not in self._open:
            await self._begin(client)

    async def _begin(self, client: Client) -> None:
        from dask_efficiency.plugin.patches import CLUSTER_CLOSES, Replacements
        from dask_efficiency.report.efficiency_report import efficiency_report

        address = _address(client)
        report = efficiency_report(client=client, name=self._run.name, trace=self._run.trace is not None)
        self._open[address] = client, report
        try:
            await report.__aenter__()
        except Exception as error:
            del self._open[address]
            self._notes.append(f"{address} was not metered: {error}")
            return
        if client.cluster is not None:
            Replacements().put(CLUSTER_CLOSES, client.cluster, self._closing(client))

    async def _leaving(self, client: Client) -> None:
        if client not in self._clients or os.getpid() != self._pid:
            return
        if (loop := _loop(client)) is not asyncio.get_running_loop():  # a cluster may have another
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._leaving(client), loop))
            return
        self._clients.remove(client)
        for address, (owner, report) in list(self._open.items()):
            if owner is client:
                await self._end(address, report)
                others = [other for other in self._clients if _address(other) == address]
                if others and not self._finished:
                    await self._begin(others[0])

    async def _end(self, address: str, report: efficiency_report) -> None:
        from dask_efficiency.report.efficiency_report import LEASED

        del self._open[address]
        try:
            await report.__aexit__(None, None, None)
            # Running by this command already implies that the script has no plugin.
            notes = tuple(note for note in report.report.notes if note != LEASED)
            self._ended.append((replace(report.report, notes=notes), report.trace))
        except Exception as error:
            self._notes.append(f"there is no report of {address}: {error}")

    # -- when the script has ended -----------------------------------------------------------------

    def finish(self, *, failed: bool) -> None:
        """Close open reports, save them as requested, and print; a script that ``failed`` gets no hint."""
        if os.getpid() != self._pid or self._finished:
            return
        self._finished = True
        made_none = not self._ended and not [client for client in self._clients if client is not self._local]
        for address, (client, _) in list(self._open.items()):
            loop = _loop(client)
            try:
                if not loop.is_running():
                    raise RuntimeError("its client was still open when its event loop ended")
                asyncio.run_coroutine_threadsafe(self._leaving(client), loop).result(LAST_ANSWER)
            except Exception as error:
                self._notes.append(f"there is no report of {address}: {str(error) or type(error).__name__}")
        if made_none and not failed and self._local is None and not self._notes:
            self._notes.append(f"{self._run.name} made no Client, and nothing is metered without a cluster: {HINT}")
        self._save()
        self._show()

    def _save(self) -> None:
        for number, (report, trace) in enumerate(self._ended, 1):
            began = time.strftime("%Y%m%d-%H%M%S", time.localtime(report.started))
            own = f"{os.path.splitext(self._run.name)[0]}-{began}.json"
            kept = None if self._run.save_to is None else os.path.join(self._run.save_to, own)
            for path, write in (
                (self._run.html, report.to_html),
                (self._run.json, report.save),
                (kept, report.save),
                (self._run.trace, None if trace is None else trace.save),
            ):
                if path is not None and write is not None:
                    stem, extension = os.path.splitext(path)
                    self._write(path if number == 1 else f"{stem}-{number}{extension}", write)

    def _write(self, path: str, write: Callable[[str], Any]) -> None:
        try:
            write(path)
            self._notes.append(f"wrote {path}")
        except Exception as error:
            self._notes.append(f"{path} was not written: {type(error).__name__}: {error}")

    def _show(self) -> None:
        from dask_efficiency.show.figures import sentence
        from dask_efficiency.show.terminal import show

        reports = [report for report, _ in self._ended]
        largest = max(reports, key=lambda report: report.thread_seconds, default=None)
        for number, report in enumerate(reports, 1):
            if report is not largest:
                sys.stderr.write(f"report {number} of {len(reports)}: {report.document.headline}.\n")
        if largest is not None:
            if len(reports) > 1:
                sys.stderr.write(f"report {reports.index(largest) + 1} of {len(reports)}:\n")
            show(largest.document if self._run.everything else largest.first_screen, sys.stderr)
        for note in self._notes:
            sys.stderr.write(f"dask-efficiency: {sentence(' '.join(note.split()))}\n")


def _address(client: Any) -> str:
    return str(client.scheduler.address)


def _loop(client: Any) -> asyncio.AbstractEventLoop:
    loop: asyncio.AbstractEventLoop = client.loop.asyncio_loop
    return loop
