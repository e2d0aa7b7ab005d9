"""A script runs under `dask-efficiency run` as it does under `python`: the same output, exit code and tracebacks."""

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from dask_efficiency import load_report, load_trace

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
    "interrupts itself": "import os, signal; os.kill(os.getpid(), signal.SIGINT); input()",
    "is terminated": "import os, signal; os.kill(os.getpid(), signal.SIGTERM); input()",
    "handles a signal": """
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


@pytest.mark.parametrize("module", ["package", "package.other", "neighbour"])
def test_a_module_runs_as_under_python(folder: Path, module: str) -> None:
    found, expected = (outcome(*start, "-m", module, "-x", cwd=folder) for start in (RUN, [sys.executable]))
    assert found[:2] == expected[:2]
    # Python's own traceback shows how it ran the module
    assert found[2].splitlines()[-3:] == expected[2].splitlines()[-3:]


def started(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*RUN, *arguments], cwd=folder, capture_output=True, text=True, timeout=240)


def test_a_script_without_a_client_gets_a_hint(folder: Path) -> None:
    assert started(folder, "neighbour.py").stderr == (
        "dask-efficiency: neighbour.py made no Client, and nothing is metered without a cluster: "
        "`dask-efficiency run --local` gives it a LocalCluster\n"
    )


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("missing.py", "'missing.py' is no file; expected a Python script, or -m and a module's name"),
        ("-m no_such_module", "No module named no_such_module"),
        ("--html no/such/folder.html neighbour.py", "no/such"),
        ("--save-to neighbour.py neighbour.py", "neighbour.py"),
    ],
)
def test_errors_of_running_and_writing_are_one_line(folder: Path, arguments: str, line: str) -> None:
    code, output, error = outcome(*RUN, *arguments.split(), cwd=folder)
    assert code in (1, 2)
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


def ran(folder: Path, body: str, *options: str, processes: bool = False) -> subprocess.CompletedProcess[str]:
    cluster = CLUSTER.format(processes=processes)
    text = HEAD + textwrap.dedent(body).replace("CLUSTER", cluster).replace("WORK", WORK)
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
    done = ran(folder, body, "--json", "run.json", "--html", "run.html", "--save-to", "runs")
    assert (done.returncode, done.stdout) == (0, "28\n")
    assert "tasks: 8 succeeded" in done.stderr
    assert (folder / "run.html").exists()
    (kept,) = (folder / "runs").iterdir()
    report = load_report(kept)
    assert report == load_report(folder / "run.json")
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
    done = ran(folder, body, "--trace", "run.trace", processes=True)
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
    assert (folder / "run-2.json").exists()


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
