"""Runner: runs a script as `python` does, and reports on every cluster that its clients reach.

``dask-efficiency run`` replaces its own process by one that calls :func:`main`. So the script has a fresh interpreter,
and its exit code, signals, standard streams and process id are its own. It runs as ``__main__`` in the module that
``pickle`` and ``multiprocessing`` look for.

Nothing of Dask is imported first. Once the script imports ``distributed``, ``Client._start`` and ``._close`` are
replaced in this process alone: Dask's own ``distributed.client.preload`` would travel with its configuration to workers
that may lack the package.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from dask_efficiency.accounts.cluster.failures import error_text
from dask_efficiency.files import processes
from dask_efficiency.report import program
from dask_efficiency.report.after_import import AfterImport
from dask_efficiency.report.program import prepared
from dask_efficiency.report.termination import PATIENCE, after, before_termination, handled_error

if TYPE_CHECKING:
    from distributed import Client

    from dask_efficiency.plugin.patches import Replacements
    from dask_efficiency.report.efficiency_report import efficiency_report
    from dask_efficiency.report.model import EfficiencyReport
    from dask_efficiency.runs.trace.run_trace import RunTrace

#: Seconds that a scheduler has to answer at the end of a script, and of one that a signal ends: less than that waits
#: (:data:`~dask_efficiency.report.termination.PATIENCE`). Guesses.
LAST_ANSWER, HASTY_ANSWER = 60.0, 6.0
#: Dask's name of clients with which tasks submit tasks; their cluster is reported already.
OF_A_TASK = "Client-worker-"

HINT = "`dask-efficiency run --local` gives it a LocalCluster"
#: Hint at the end of the first screen, and where the report could not be kept.
MORE = (
    "More: `dask-efficiency report` shows this report again, with --all all of it, with --html FILE as a page; "
    "`dask-efficiency explain sleep` says what a cause means."
)
MORE_WITHOUT = "More: `dask-efficiency run --all` prints all of a report, and --json FILE or --html FILE saves it."
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
    savings: float | None = None
    #: Folder in which each report gets a name of its own.
    save_to: str | None = None
    labels: Mapping[str, str] | None = None
    #: Seconds after which it is ended.
    timeout: float | None = None
    #: Says now and then how long tasks will yet take.
    progress: bool = False

    @property
    def name(self) -> str:
        """Name of the reports."""
        return self.script if self.is_module else os.path.basename(self.script)


def replace_process(run: ScriptRun, arguments: tuple[str, ...]) -> None:
    """Continue as the script in this process; if a process cannot be replaced, wait for it and exit with its code."""
    started = processes.command(__name__, json.dumps(asdict(run)), *arguments)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # as it is where a shell closed it
            stream.flush()
    if os.name == "posix":
        os.execv(sys.executable, started)
    import subprocess

    sys.exit(subprocess.call(started))


def main() -> None:
    """Run the script that the arguments name."""
    run = ScriptRun(**json.loads(sys.argv[1]))
    del sys.argv[:2]
    # As `python` does; this process itself was started without.
    if not os.environ.get("PYTHONSAFEPATH"):
        sys.path.insert(0, os.getcwd() if run.is_module else os.path.dirname(os.path.realpath(run.script)))
    runner = Runner(run)
    if run.timeout is not None:
        after(run.timeout, runner.timed_out)
    try:
        if run.local:
            runner.start_local()
        else:
            sys.meta_path.insert(0, AfterImport("distributed", runner.watch))
        if run.progress:
            runner.tell_progress()
        code, namespace = prepared(run.script, is_module=run.is_module)
        exec(code, namespace)
    except SystemExit as end:
        runner.finish(failed=end.code not in (None, 0))
        raise
    except BaseException as error:
        hook = _hiding_ours(getattr(sys, "excepthook", sys.__excepthook__))  # a script may delete it
        try:
            hook(type(error), error, error.__traceback__)
        except BaseException:
            sys.excepthook = hook  # Python calls it again as this ends, and says what is wrong with it
        else:
            sys.excepthook = lambda *shown: None  # it stands above the report
        runner.finish(failed=True, error=error)
        raise
    runner.finish(failed=False)


def _hiding_ours(hook: Callable[..., Any]) -> Callable[..., None]:
    """Exception hook that starts the traceback in the script."""

    def shown(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        own = (__file__, processes.__file__, program.__file__)
        while traceback is not None and traceback.tb_frame.f_code.co_filename in own:
            traceback = traceback.tb_next
        hook(kind, error.with_traceback(traceback), traceback)

    return shown


class Runner:
    """Opens a report when a client connects, closes it before the client or cluster closes, and shows all at the end.

    A cluster has one report at a time. Failures become notes at the end, and never reach the script.
    """

    def __init__(self, run: ScriptRun) -> None:
        self._run = run
        #: A forked process has another id, and nothing to report.
        self._pid = os.getpid()
        #: Folder in which relative paths begin, as the script may go to another.
        self._began_in = ""
        with suppress(OSError):  # it is gone
            self._began_in = os.getcwd()
        self._local: Client | None = None
        self._clients: list[Client] = []
        #: Client and open report by the scheduler's address.
        self._open: dict[str, tuple[Client, efficiency_report]] = {}
        #: What closes an open report before its cluster, also by address.
        self._of_clusters: dict[str, Replacements] = {}
        #: Error that the script was handling when its last report was closed, as at the end of a block that failed.
        self._closed_for: object = None
        self._ended: list[tuple[EfficiencyReport, RunTrace | None]] = []
        self._notes: list[str] = []
        #: Held from the beginning of the end: by the main thread, or by that of a timeout.
        self._ending = threading.Lock()
        #: Set once all is saved and shown.
        self._told = threading.Event()
        #: True once the report that is shown is there for `dask-efficiency report`.
        self._is_kept = False

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

    def watch(self, *, signals: bool = True) -> None:
        """Follow each client that this process creates from now on; report before ``signals`` that end it."""
        from distributed import Client

        from dask_efficiency.plugin.patches import CLIENT_CLOSES, CLIENT_STARTS, Replacements

        if signals:
            before_termination(self.terminated)

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

        address, run = _address(client), self._run
        asked: dict[str, Any] = {"trace": run.trace is not None, "savings": run.savings, "labels": run.labels}
        report = efficiency_report(client=client, name=run.name, **asked)
        self._open[address] = client, report
        try:
            await report.__aenter__()
        except Exception as error:
            del self._open[address]
            self._notes.append(f"{address} was not metered: {error}")
            return
        if client.cluster is not None:
            self._of_clusters[address] = Replacements()
            self._of_clusters[address].put(CLUSTER_CLOSES, client.cluster, self._closing(client))

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
        if address in self._of_clusters:  # a cluster may outlive a thousand reports
            self._of_clusters.pop(address).put_back()
        self._closed_for = handled_error()
        try:
            await report.__aexit__(None, None, None)
            # Running by this command already implies that the script has no plugin.
            notes = tuple(note for note in report.report.notes if note != LEASED)
            self._ended.append((replace(report.report, notes=notes), report.trace))
        except Exception as error:
            self._notes.append(f"there is no report of {address}: {error}")

    # -- when the script has ended -----------------------------------------------------------------

    def tell_progress(self) -> None:
        """Say now and then how long the tasks will yet take."""
        from dask_efficiency.report.run_progress import line_writer, tell_now_and_then

        write = line_writer(sys.stderr)
        tell_now_and_then(lambda: [one for one, _ in list(self._open.values())], lambda: self._finished, write)

    @property
    def _finished(self) -> bool:
        return self._ending.locked()

    def timed_out(self, name: str, die: Callable[[], None]) -> None:
        """Report on what is open, then end; a script that is at its end already may tell first, and end itself."""
        if self._ending.acquire(blocking=False):
            self._finish(failed=True, ended_by=name if self._open else "")
        else:
            self._told.wait()
            time.sleep(PATIENCE)
        die()

    def terminated(self, name: str, die: Callable[[], None]) -> None:
        """Report on what was open when a signal came, then end; at once if the script is at its end already."""
        if self._finished:
            die()
            return
        opened = [client for client, _ in self._open.values()]
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            loop = None

        def finish(_: object = None) -> None:
            self.finish(failed=True, ended_by=name if opened else "", seconds=HASTY_ANSWER)
            die()

        if loop is None or loop not in map(_loop, opened):
            finish()
            return
        # Reports are closed in the loop that this signal interrupts.
        leaving = [self._harmlessly(self._leaving(client)) for client in opened]
        self._last = asyncio.gather(*leaving)
        self._last.add_done_callback(finish)

    def finish(self, **how: Any) -> None:
        """Close open reports, save and print them; where a timeout is at it already, wait to be ended."""
        if os.getpid() != self._pid:
            return
        if not self._ending.acquire(blocking=False):
            threading.Event().wait()
        try:
            self._finish(**how)
        finally:
            self._told.set()

    def _finish(
        self, *, failed: bool, error: BaseException | None = None, ended_by: str = "", seconds: float = LAST_ANSWER
    ) -> None:
        """Finish the reports.

        A script that ``failed`` gets no hint. Its last report has the error, or the signal, that ended it, unless it
        was closed before; then a note has the error.
        """
        was_open = bool(self._open)
        made_none = not self._ended and not [client for client in self._clients if client is not self._local]
        for address, (client, _) in list(self._open.items()):
            loop = _loop(client)
            try:
                if not loop.is_running():
                    raise RuntimeError("its client was still open when its event loop ended")
                asyncio.run_coroutine_threadsafe(self._leaving(client), loop).result(seconds)
            except Exception as problem:
                self._notes.append(f"there is no report of {address}: {str(problem) or type(problem).__name__}")
        if made_none and not failed and self._local is None and not self._notes:
            self._notes.append(f"{self._run.name} made no Client, and nothing is metered without a cluster: {HINT}")
        if self._ended and (error is not None or ended_by):
            report, trace = self._ended[-1]
            within = was_open or ended_by or error is self._closed_for or report.failures or report.unfinished
            ended_by = ended_by or error_text(error)
            if within:
                self._ended[-1] = replace(report, ended_by=ended_by), trace
            else:  # after its client had closed, and nothing in it failed
                self._notes.append(f"the script ended by {ended_by}")
        self._ended = [(numbered(one, number), trace) for number, (one, trace) in enumerate(self._ended, 1)]
        self._save()
        self._tell()

    def _save(self) -> None:
        for number, (report, trace) in enumerate(self._ended, 1):
            for path, write in (
                (self._run.html, report.to_html),
                (self._run.json, report.save),
                (self._run.trace, None if trace is None else trace.save),
            ):
                if path is not None and write is not None:
                    stem, extension = os.path.splitext(path)
                    self._write(path if number == 1 else f"{stem}-{number}{extension}", write)
            if self._run.save_to is not None:
                self._keep(report, self._run.save_to)
        from dask_efficiency.report.kept import keep

        if (largest := self._largest()) is not None:
            with suppress(Exception):  # such as a full disk, or a user without a home
                keep(largest)
                self._is_kept = True

    def _largest(self) -> EfficiencyReport | None:
        """Report with most thread time, which is shown."""
        return max((report for report, _ in self._ended), key=lambda report: report.thread_seconds, default=None)

    def _keep(self, report: EfficiencyReport, folder: str) -> None:
        """Save a report under the script's name and the time, and a number if several scripts begin together."""
        from dask_efficiency.report.files import save

        began = time.strftime("%Y%m%d-%H%M%S", time.localtime(report.started))
        stem = os.path.join(folder, f"{os.path.splitext(self._run.name)[0]}-{began}")
        for number in itertools.count(1):
            with suppress(FileExistsError):
                path = f"{stem}.json" if number == 1 else f"{stem}-{number}.json"
                self._write(path, partial(save, report, new=True))
                return

    def _write(self, path: str, write: Callable[[str], Any]) -> None:
        """Write a file, and note it; FileExistsError if it had to be a new one."""
        try:
            write(path if "://" in path else os.path.join(self._began_in, path))
            self._notes.append(f"wrote {path}")
        except FileExistsError:
            raise
        except Exception as error:
            self._notes.append(f"{path} was not written: {type(error).__name__}: {error}")

    def _tell(self) -> None:
        """Print what is left to say, unless the script closed its standard error, or nobody reads it any more."""
        try:
            sys.stderr.flush()
        except Exception:
            return
        try:
            self._show()
            sys.stderr.flush()
            return
        except Exception as error:
            problem = f"what there is to report was not shown: {type(error).__name__}: {error}"
        try:
            self._write_note(problem)
            sys.stderr.flush()
        except Exception:
            # Python would try again at exit, and change the script's exit code.
            sys.stderr = None

    def _show(self) -> None:
        from dask_efficiency.show.terminal import show

        reports, largest = [report for report, _ in self._ended], self._largest()
        for number, report in enumerate(reports, 1):
            if report is not largest:
                sys.stderr.write(f"report {number} of {len(reports)}: {report.document.headline}.\n")
        if largest is not None:
            if len(reports) > 1:
                sys.stderr.write(f"report {reports.index(largest) + 1} of {len(reports)}:\n")
            more = MORE if self._is_kept else MORE_WITHOUT
            show(largest.document if self._run.everything else replace(largest.first_screen, last=(more,)), sys.stderr)
        for note in self._notes:
            self._write_note(note)

    def _write_note(self, note: str) -> None:
        from dask_efficiency.show.figures import harmless, sentence

        sys.stderr.write(harmless(f"dask-efficiency: {sentence(' '.join(note.split()))}") + "\n")


def numbered(report: EfficiencyReport, number: int) -> EfficiencyReport:
    """Report of one of a run's clusters, from the second on with its number in its name: a series of its own."""
    return report if number == 1 else replace(report, name=f"{report.name} ({number})")


def _address(client: Any) -> str:
    return str(client.scheduler.address)


def _loop(client: Any) -> asyncio.AbstractEventLoop:
    loop: asyncio.AbstractEventLoop = client.loop.asyncio_loop
    return loop
