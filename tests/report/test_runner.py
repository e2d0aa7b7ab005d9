"""A script runs under `dask-efficiency run` as it does under `python`: the same output, exit code and tracebacks."""

import contextlib
import io
import os
import shlex
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dask_efficiency import load_report, load_trace
from dask_efficiency.report.runner import Runner, ScriptRun
from tests.report.samples import waiting_for_the_gil

RUN = [sys.executable, "-c", "from dask_efficiency.cli import main; main()", "run"]

SCRIPTS = {
    "where it is": """
        import sys
        known = {name: value for name, value in globals().items() if name not in ("__loader__", "sys")}
        known["__builtins__"] = type(known["__builtins__"])
        print(sorted(known.items(), key=str), type(__loader__), sys.argv, sys.path[0])
        print(vars(sys.modules["__main__"]) is globals())
    """,
    "reads standard input": "print(input())",
    "ends": "import sys; sys.exit(3)",
    "ends with a message": "import sys; sys.exit('no such table')",
    "fails": """
        def inner(): raise ValueError("inner")
        try:
            inner()
        except ValueError as error:
            raise RuntimeError("outer") from error
    """,
    "is no Python": "def f(:\n",
    "has a hook of its own": """
        import sys, traceback
        sys.excepthook = lambda kind, error, trace: print("hook", [f.name for f in traceback.extract_tb(trace)])
        raise ValueError
    """,
    "hook that exits": """
        import sys
        sys.excepthook = lambda *shown: sys.exit(5)
        1 / 0
    """,
    "interrupts itself": "import os, signal; os.kill(os.getpid(), signal.SIGINT); input()",
    "is terminated": "import os, signal; os.kill(os.getpid(), signal.SIGTERM); input()",
    "handles a signal": """
        import os
import shlex
import signal
        signal.signal(signal.SIGUSR1, lambda *_: print("handled", flush=True))
        signal.raise_signal(signal.SIGUSR1)
    """,
    "ends at once": "import os; print('now', flush=True); os._exit(5)",
    "cleans up at exit": """
        import atexit, threading
        atexit.register(print, "at exit")
        threading.Thread(target=lambda: (threading.main_thread().join(), print("thread"))).start()
        print("last line")
    """,
    "forks": """
        import os
        child = os.fork()
        if child:
            print(os.waitpid(child, 0)[1], flush=True)
    """,
    "pickles its own": """
        import pickle
        class Thing: pass
        def function(): return 1
        print(type(pickle.loads(pickle.dumps(Thing()))) is Thing, pickle.loads(pickle.dumps(function)) is function)
    """,
    **{
        f"starts processes by {method}": f"""
            import multiprocessing, os
            from concurrent.futures import ProcessPoolExecutor
            def square(x): return x * x, __name__
            if __name__ == "__main__":
                context = multiprocessing.get_context("{method}")
                with ProcessPoolExecutor(1, mp_context=context) as pool:
                    print(list(pool.map(square, range(3))))
        """
        for method in ("spawn", "fork", "forkserver")
    },
    "imports its neighbour": "import neighbour; print(neighbour.__file__)",
    "closes its standard error": "import sys; sys.stderr.close()",
    "closes its standard output": "import sys; sys.stdout.close()",
    "closes its standard error beneath Python": "import os; os.close(2)",
    "has no standard error": "import sys; sys.stderr = None",
    "fails after it closed its standard error": "import sys; sys.stderr.close(); sys.exit(3)",
    "shows its source": """
        import inspect, sys
        def function(): return 1
        print(inspect.getsource(function), inspect.getsource(sys.modules["__main__"])[:40])
    """,
}


def outcome(*command: str, cwd: Path) -> tuple[int, str, str]:
    done = subprocess.run(command, cwd=cwd, input="a line\n", capture_output=True, text=True, timeout=120)
    lines = [line for line in done.stderr.splitlines(keepends=True) if not line.startswith("dask-efficiency: ")]
    return done.returncode, done.stdout, "".join(lines)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "neighbour.py").write_text("")
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text("import sys\nfrom . import other\nprint(sys.argv, __spec__.name, other.X)\n")
    (package / "other.py").write_text("X = 1\nif __name__ == '__main__':\n    print(__package__)\n    1 / 0\n")
    return tmp_path


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_a_script_runs_as_under_python(folder: Path, script: str) -> None:
    (folder / "scripts").mkdir()
    (folder / "scripts" / "neighbour.py").write_text("")
    (folder / "scripts" / "job.py").write_text(textwrap.dedent(script))
    arguments = ["scripts/job.py", "--html", "x", "--", "-m"]
    assert outcome(*RUN, *arguments, cwd=folder) == outcome(sys.executable, *arguments, cwd=folder)


def test_a_script_that_deletes_the_hook_of_errors_ends_with_its_own_error(folder: Path) -> None:
    (folder / "script.py").write_text("import sys\ndel sys.excepthook\n1/0\n")
    code, _, shown = outcome(*RUN, "script.py", cwd=folder)
    assert code == 1
    assert "ZeroDivisionError" in shown
    assert shown.count("Traceback") == 1


@pytest.mark.parametrize("module", ["package", "package.other", "neighbour"])
def test_a_module_runs_as_under_python(folder: Path, module: str) -> None:
    found, expected = (outcome(*start, "-m", module, "-x", cwd=folder) for start in (RUN, [sys.executable]))
    assert found[:2] == expected[:2]
    # Python's own traceback shows how it ran the module
    assert found[2].splitlines()[-3:] == expected[2].splitlines()[-3:]


@pytest.mark.parametrize("command", [RUN, [sys.executable]], ids=["run", "python"])
def test_a_script_ends_with_its_own_code_whether_or_not_somebody_reads(folder: Path, command: list[str]) -> None:
    (folder / "job.py").write_text("import sys; sys.exit(int(sys.argv[1]))")
    read, write = os.pipe()
    os.close(read)
    try:
        for code in (0, 3):
            arguments = [*command, "job.py", str(code)]
            assert subprocess.run(arguments, cwd=folder, stderr=write, timeout=120).returncode == code
            closed = f"{shlex.join(arguments)} 2>&-"
            assert subprocess.run(closed, shell=True, cwd=folder, timeout=120).returncode == code
    finally:
        os.close(write)


def test_an_error_of_ours_at_the_end_is_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Runner, "_show", lambda _: {}["no such name"])
    Runner(ScriptRun("job.py")).finish(failed=False)
    assert capsys.readouterr().err == (
        "dask-efficiency: what there is to report was not shown: KeyError: 'no such name'\n"
    )


def test_reports_that_are_kept_under_one_name_each_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "localtime", lambda _: time.gmtime(0))
    for _ in range(2):  # two scripts, of which each had three clusters, in the same second
        runner = Runner(ScriptRun("job.py", save_to=str(tmp_path)))
        runner._ended = [(waiting_for_the_gil(), None)] * 3
        runner._save()
    names = [f"job-19700101-000000{number}.json" for number in ("", "-2", "-3", "-4", "-5", "-6")]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)
    assert runner._notes == [f"wrote {tmp_path}/{name}" for name in names[3:]]


def test_files_are_where_they_were_asked_for_if_the_script_goes_to_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("runs", "elsewhere"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    runner = Runner(ScriptRun("job.py", json="run.json", html="memory://run.html", save_to="runs"))
    runner._ended = [(waiting_for_the_gil(), None)]
    monkeypatch.chdir("elsewhere")
    runner._save()
    assert (tmp_path / "run.json").exists()
    assert len(list((tmp_path / "runs").iterdir())) == 1
    assert runner._notes[:2] == ["wrote memory://run.html", "wrote run.json"]


def started(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    patient = os.environ | {"DASK_EFFICIENCY__REPORT_TIMEOUT": "60s"}  # as tests of clusters are
    return subprocess.run([*RUN, *arguments], cwd=folder, env=patient, capture_output=True, text=True, timeout=1_200)


def test_a_script_without_a_client_gets_a_hint(folder: Path) -> None:
    assert started(folder, "neighbour.py").stderr == (
        "dask-efficiency: neighbour.py made no Client, and nothing is metered without a cluster: "
        "`dask-efficiency run --local` gives it a LocalCluster\n"
    )
    # one that did not come as far does not need it
    (folder / "usage.py").write_text("import argparse\nargparse.ArgumentParser().parse_args(['--odd'])\n")
    assert "made no Client" not in started(folder, "usage.py").stderr


def test_a_script_without_dask_imports_none_for_its_progress(folder: Path) -> None:
    (folder / "job.py").write_text(
        "import sys, threading, time\n"
        "time.sleep(1)\n"
        "print('dask-efficiency-progress' in [one.name for one in threading.enumerate()], 'distributed' in sys.modules)"
    )
    assert started(folder, "--progress", "job.py").stdout == "True False\n"


class Terminal(io.StringIO):
    is_one = True

    def isatty(self) -> bool:
        return self.is_one


def test_progress_is_written_where_standard_error_was_at_first_while_that_is_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = []

    def tell(clients: object, finished: object, write: Callable[[str], object]) -> None:
        written.append(write)

    monkeypatch.setattr("dask_efficiency.report.run_progress.tell_now_and_then", tell)
    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file):
        monkeypatch.setattr(sys, "stderr", stream)
        Runner(ScriptRun("job.py", progress=True)).tell_progress()
    captured = io.StringIO()
    with contextlib.redirect_stderr(captured):
        for write in written:
            write("about 4 s left")
        terminal.is_one = False
        written[0]("about 3 s left")
    assert terminal.getvalue() == "\r\x1b[Kdask-efficiency: about 4 s left\n"
    assert file.getvalue() == "dask-efficiency: about 4 s left\n"
    assert captured.getvalue() == ""


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("missing.py", "'missing.py' is no file; expected a Python script, or -m and a module's name"),
        ("-m no_such_module", "No module named no_such_module"),
        ("--html no/such/folder.html neighbour.py", "no/such"),
        ("--save-to neighbour.py neighbour.py", "'neighbour.py' cannot be made: File exists; expected a folder"),
        ("--json - neighbour.py", "'-' is no file here; expected a file or URL, such as /dev/stdout"),
    ],
)
def test_errors_of_running_and_writing_are_one_line(folder: Path, arguments: str, line: str) -> None:
    code, output, error = outcome(*RUN, *arguments.split(), cwd=folder)
    assert code == (1 if arguments.startswith("-m") else 2)
    assert not output
    assert line in error.splitlines()[-1]
    assert "Traceback" not in error


CLUSTER = "LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=':0', processes={processes})"
WORK = "client.gather(client.map(work, range(8)))"
HEAD = """
import asyncio, os, signal, sys, time
from distributed import Client, LocalCluster
def work(x):
    time.sleep(0.05)
    return x
"""


def ran(
    folder: Path, body: str, *options: str, processes: bool = False, first: str = ""
) -> subprocess.CompletedProcess[str]:
    cluster = CLUSTER.format(processes=processes)
    text = first + HEAD + textwrap.dedent(body).replace("CLUSTER", cluster).replace("WORK", WORK)
    (folder / "job.py").write_text(text)
    return started(folder, *options, "job.py")


#: A process that a shell started in the background is deaf to Ctrl-C.
INTERRUPT = "signal.signal(signal.SIGINT, signal.default_int_handler); signal.raise_signal(signal.SIGINT)"

CLOSED = {
    "blocks": """
        with CLUSTER as cluster, Client(cluster) as client:
            print(sum(WORK))
    """,
    "at exit": """
        client = Client(CLUSTER)
        print(sum(WORK))
    """,
    "the cluster first": """
        cluster = CLUSTER
        client = Client(cluster)
        print(sum(WORK))
        cluster.close()
        client.close()
    """,
    "by a shutdown": """
        client = Client(CLUSTER)
        print(sum(WORK))
        client.shutdown()
    """,
    "in an event loop": """
        async def main():
            async with LocalCluster(n_workers=1, processes=False, asynchronous=True, dashboard_address=':0') as cluster:
                async with Client(cluster, asynchronous=True) as client:
                    print(sum(await client.gather(client.map(work, range(8)))))
        asyncio.run(main())
    """,
}


@pytest.mark.cluster
@pytest.mark.parametrize("body", CLOSED.values(), ids=CLOSED)
def test_a_cluster_is_reported_however_it_is_closed(folder: Path, body: str) -> None:
    done = ran(folder, body, "--json", "run.json", "--html", "run.html", "--save-to", "runs", "--label", "a=b=c")
    assert (done.returncode, done.stdout) == (0, "28\n")
    assert "tasks: 8 succeeded" in done.stderr
    assert (folder / "run.html").exists()
    (kept,) = (folder / "runs").iterdir()
    report = load_report(kept)
    assert report == load_report(folder / "run.json")
    assert report.labels == {"a": "b=c"}
    assert report.notes == ()
    assert report.by_prefix["work"]["thread-noncpu"] >= 8 * 0.05


@pytest.mark.cluster
def test_the_scripts_line_is_named_where_its_time_went(folder: Path) -> None:
    body = """
        def doze(x):
            time.sleep(1.5)  # so long that its threads are looked at on a busy machine, too
        client = Client(CLUSTER)
        client.gather(client.map(doze, range(4)))
    """
    done = ran(folder, body)
    assert "Sleeping" in done.stderr
    assert "job.py:9" in done.stderr


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("end", "code"), [("raise ValueError('at the end')", 1), ("sys.exit(4)", 4), (INTERRUPT, -signal.SIGINT)]
)
def test_a_script_that_fails_is_reported_and_ends_as_it_would(folder: Path, end: str, code: int) -> None:
    done = ran(folder, f"client = Client(CLUSTER)\nprint(sum(WORK))\n{end}\n")
    assert (done.returncode, done.stdout) == (code, "28\n")
    assert "tasks: 8 succeeded" in done.stderr
    assert "runner.py" not in done.stderr
    error = {1: "ValueError", 4: "", -signal.SIGINT: "KeyboardInterrupt"}[code]
    above, report = done.stderr.split("tasks: 8 succeeded")
    assert ("Traceback" in above) is bool(error)  # an exit has none
    assert error in above
    assert (f", until {error} (" in report) is bool(error)


#: A script has as long for its report as a busy machine makes it take.
PATIENT = """
        from dask_efficiency.report import runner, termination
        termination.PATIENCE = runner.HASTY_ANSWER = 600.0
"""

TERMINATED = {
    "in a block": """
        with CLUSTER as cluster, Client(cluster) as client:
            print(sum(WORK), flush=True)
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(100)
    """,
    "in its event loop": """
        async def main():
            async with LocalCluster(n_workers=1, processes=False, asynchronous=True, dashboard_address=':0') as cluster:
                async with Client(cluster, asynchronous=True) as client:
                    print(sum(await client.gather(client.map(work, range(8)))), flush=True)
                    os.kill(os.getpid(), signal.SIGTERM)
                    await asyncio.sleep(100)
        asyncio.run(main())
    """,
}


@pytest.mark.cluster
@pytest.mark.parametrize("body", TERMINATED.values(), ids=TERMINATED)
def test_a_script_whose_time_is_over_is_reported_and_ends_by_the_signal(folder: Path, body: str) -> None:
    # What follows progress leaves the import of Dask to the script, however late that is.
    options = ["--json", "run.json", "--progress"]
    done = ran(folder, PATIENT + body, *options, first="import time\ntime.sleep(1)\n")
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "28\n")
    assert ", until SIGTERM (" in done.stderr
    report = load_report(folder / "run.json")
    assert (report.ended_by, report.tasks["succeeded"]) == ("SIGTERM", 8)


@pytest.mark.cluster
def test_a_script_that_stands_still_is_ended_by_its_timeout_and_its_report_begins_with_that(folder: Path) -> None:
    body = """
        with CLUSTER as cluster, Client(cluster) as client:
            print(sum(WORK), flush=True)
            future = client.submit(work, 1, resources={"GPU": 1})
            def time_is_over():
                while not client.sync(client.scheduler.efficiency, action="live")["stalls"]:
                    time.sleep(0.1)
                (timer,) = [one for one in threading.enumerate() if isinstance(one, threading.Timer)]
                timer.function(*timer.args)
            threading.Thread(target=time_is_over, daemon=True).start()
            future.result()
    """
    done = ran(folder, "import threading\n" + textwrap.dedent(body), "--json", "run.json", "--timeout", "10h")
    assert (done.returncode, done.stdout) == (124, "28\n")
    assert ", until timeout (" in done.stderr
    assert "1. No worker may run these tasks. 1 task of work" in done.stderr
    report = load_report(folder / "run.json")
    assert (report.ended_by, report.findings[0].kind) == ("timeout: 10.0 h", "stalled/no-worker")


@pytest.mark.cluster
def test_a_compute_that_is_interrupted_lets_its_tasks_go_and_the_report_begins_with_what_stood_still(
    folder: Path,
) -> None:
    body = """
        import dask
        with CLUSTER as cluster, Client(cluster) as client:
            from dask_efficiency import snapshot
            def stalled():
                return client.sync(client.scheduler.efficiency, action="live")["stalls"]
            def interrupt():
                while not stalled():
                    time.sleep(0.1)
                os.kill(os.getpid(), signal.SIGINT)
            import threading
            signal.signal(signal.SIGINT, signal.default_int_handler)
            threading.Thread(target=interrupt, daemon=True).start()
            with dask.annotate(resources={"GPU": 1}):
                dask.delayed(work)(1).compute(optimize_graph=False)
    """
    done = ran(folder, body, "--json", "run.json")
    assert done.returncode == -signal.SIGINT
    assert load_report(folder / "run.json").findings[0].kind == "stalled/no-worker"


@pytest.mark.cluster
def test_an_error_that_leaves_the_block_of_a_client_is_in_its_saved_report(folder: Path) -> None:
    body = """
        with CLUSTER as cluster, Client(cluster) as client:
            print(sum(WORK))
            raise ValueError("no such table")
    """
    done = ran(folder, body, "--json", "run.json")
    assert (done.returncode, done.stdout) == (1, "28\n")
    assert ", until ValueError (" in done.stderr
    assert load_report(folder / "run.json").ended_by == "ValueError: no such table"
    after = "with CLUSTER as cluster, Client(cluster) as client:\n    print(sum(WORK))\nraise ValueError('later')\n"
    done = ran(folder, after, "--json", "run.json")
    assert "dask-efficiency: the script ended by ValueError: later" in done.stderr
    assert load_report(folder / "run.json").ended_by == ""


@pytest.mark.cluster
def test_workers_that_are_processes_and_tasks_that_are_clients(folder: Path) -> None:
    body = """
        def nested(x):
            from distributed import get_client
            client = get_client()
            return sum(client.gather(client.map(work, range(x))))
        if __name__ == "__main__":
            client = Client(CLUSTER)
            print(client.submit(nested, 8).result())
    """
    done = ran(folder, body, "--trace", "run.trace", "--savings", "60", processes=True)
    assert (done.returncode, done.stdout) == (0, "28\n")
    assert "report 1 of" not in done.stderr  # one cluster, one report
    assert len(load_trace(folder / "run.trace").tasks) == 9


@pytest.mark.cluster
def test_each_of_several_clusters_has_a_report_and_the_largest_is_shown(folder: Path) -> None:
    body = """
        for repeats in (1, 9):
            with CLUSTER as cluster, Client(cluster) as first, Client(cluster) as second:
                for _ in range(repeats):
                    first.gather(first.map(work, range(8), pure=False))
    """
    done = ran(folder, body, "--json", "run.json")
    assert done.returncode == 0
    assert "report 1 of 2: " in done.stderr
    assert "report 2 of 2:\n" in done.stderr
    assert "tasks: 72 succeeded" in done.stderr
    # of each, history has a series
    assert [load_report(folder / name).name for name in ("run.json", "run-2.json")] == ["job.py", "job.py (2)"]


@pytest.mark.cluster
def test_a_client_that_stays_is_reported_when_another_goes(folder: Path) -> None:
    body = """
        with CLUSTER as cluster:
            first, second = Client(cluster), Client(cluster)
            first.gather(first.map(work, range(8)))
            first.close()
            second.gather(second.map(work, range(160)))
    """
    done = ran(folder, body)
    assert "tasks: 160 succeeded" in done.stderr
    assert "report 1 of 2: " in done.stderr


@pytest.mark.cluster
def test_the_operators_plugin_stays_as_it_was(folder: Path) -> None:
    body = """
        from dask_efficiency import EfficiencyPlugin, snapshot
        async def main():
            from distributed import Scheduler, Worker
            async with Scheduler(dashboard_address=":0") as scheduler, Worker(scheduler.address):
                plugin = EfficiencyPlugin(price_per_worker_hour=7)
                await plugin.start(scheduler)
                scheduler.add_plugin(plugin, name=EfficiencyPlugin.name)
                for _ in range(2):
                    async with Client(scheduler.address, asynchronous=True) as client:
                        await client.gather(client.map(work, range(8), pure=False))
                        print((await snapshot(client)).price_per_worker_hour)
        asyncio.run(main())
    """
    done = ran(folder, body, "--json", "run.json")
    assert (done.returncode, done.stdout) == (0, "7.0\n7.0\n")
    assert load_report(folder / "run-2.json").price_per_worker_hour == 7


@pytest.mark.cluster
def test_a_script_for_threads_gets_a_cluster_that_does_not_import_it(folder: Path) -> None:
    (folder / "threads.py").write_text(
        "import dask, os\nopen('imported.txt', 'a').write('x')\n"
        "def work(x):\n    return x\n"
        "print(sum(dask.compute(*[dask.delayed(work)(x) for x in range(8)])))\n"
    )
    done = started(folder, "--local", "threads.py")
    assert (done.returncode, done.stdout) == (0, "28\n"), done.stderr
    assert "tasks: 8 succeeded" in done.stderr
    assert (folder / "imported.txt").read_text() == "x"


@pytest.mark.cluster
def test_a_scheduler_without_the_package_is_named_and_the_script_runs(folder: Path) -> None:
    body = """
        with CLUSTER as cluster:
            async def absent(*args, **kwargs):
                raise ImportError("No module named 'dask_efficiency'")
            cluster.scheduler.handlers["register_scheduler_plugin"] = absent
            with Client(cluster) as client:
                print(sum(WORK))
    """
    done = ran(folder, body)
    assert (done.returncode, done.stdout) == (0, "28\n")
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("dask-efficiency: ")]
    assert "was not metered: the scheduler cannot load dask_efficiency" in line
