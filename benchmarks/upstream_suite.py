"""Goal: of at least 1,900 of distributed's own tests, none fails only because the plugin is there.

``python -m benchmarks.upstream_suite CHECKOUT FOLDER`` runs the tests of a checkout of distributed against the
installed version, of the same number: *without* the plugin, *with* it preloaded by configuration, and *traced*, with
``efficiency.trace`` on as well. Then it runs each test that did not end alike three more times each way, and prints:

- how many tests ran each way, and how many schedulers had the plugin, by what started them: ``gen_cluster``,
  ``LocalCluster``, ``dask scheduler``, a test; and how many of these used TLS;
- test by test, what failed how often each way;
- errors of the package that distributed swallowed, and warnings of the package.

FOLDER gets a scratch tree, of the installed distributed and the checkout's tests, and all that was found. Each file of
tests is a process with a time limit. Called again with the same FOLDER, only what is missing runs: a test is done once
its line is in ``WAY.jsonl``. With ``--print``, nothing runs. Left out is what upstream marks as slow, flaky, or for
GPUs. Where that is allowed (to root, on Linux), each process has a network of its own, so that no two meet on a port.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import distributed

import dask_efficiency
from benchmarks import upstream_probe as probe
from benchmarks.figures import figure

#: By way, what is set in the environment of its processes.
WAYS: dict[str, dict[str, str]] = {
    "without": {},
    "with": {probe.PRELOAD: f"{probe.PACKAGE} upstream_probe"},
    "traced": {probe.PRELOAD: f"{probe.PACKAGE} upstream_probe", probe.TRACE: "1"},
}
#: The files of tests that come first, as what the plugin touches is most likely to show in them.
FIRST = (
    "tests/test_worker_state_machine.py",
    "tests/test_scheduler.py",
    "tests/test_client.py",
    "tests/test_worker.py",
    "tests/test_nanny.py",
    "tests/test_spill.py",
    "tests/test_worker_memory.py",
    "tests/test_steal.py",
    "shuffle/tests/test_shuffle.py",
    "tests/test_active_memory_manager.py",
    "deploy/tests/test_local.py",
    "cli/tests/test_dask_scheduler.py",
    "tests/test_tls_functional.py",
    "cli/tests/test_tls_cli.py",
    "tests/test_semaphore.py",
    "tests/test_cancelled_state.py",
    "tests/test_spans.py",
    "tests/test_event_logging.py",
    "diagnostics/tests/test_scheduler_plugin.py",
    "diagnostics/tests/test_worker_plugin.py",
    "tests/test_worker_metrics.py",
    "tests/test_actor.py",
    "http/scheduler/tests/test_scheduler_http.py",
    "cli/tests/test_dask_worker.py",
    "deploy/tests/test_spec_cluster.py",
    "deploy/tests/test_adaptive.py",
    "shuffle/tests/test_rechunk.py",
)
#: How often a test that did not end alike is repeated each way.
REPEATS = 3
#: Seconds a test may take. Upstream's own limit is 300; those that come near it are marked as slow.
TEST_SECONDS = 150
#: Tests that tell any plugin that does as much, and what of it they see.
EXPLAINED = {
    "tests/test_worker.py::test_log_remove_worker": "it expects no event but Dask's own",
    "shuffle/tests/test_shuffle_plugins.py::test_installation_on_scheduler": "it expects Dask's own handlers",
    "shuffle/tests/test_shuffle_plugins.py::test_installation_on_worker": "it expects Dask's own handlers",
    # A recording asks each worker that joins for its clock, and `Scheduler.broadcast` keeps the connection for the next
    # question, unless distributed.scheduler.reuse-broadcast-comm is off.
    "tests/test_client.py::test_run_rpc_error": "it expects no connection to the worker yet",
    "tests/test_client.py::test_get_versions_rpc_error": "it expects no connection to the worker yet",
    "tests/test_scheduler.py::test_broadcast_reuse_comm[True]": "it counts the scheduler's connections",
    "tests/test_scheduler.py::test_broadcast_reuse_comm[False]": "it counts the scheduler's connections",
    "tests/test_worker.py::test_worker_client_closes_if_created_on_worker_last_worker_alive": "it counts connections",
}
#: Failures, as against what says nothing: skipped, and expected to fail.
BAD = ("failed", "killed")

Notes = list[dict[str, Any]]


class Suite:
    """The notes in a folder, and the runs that make the missing ones."""

    def __init__(self, checkout: Path, folder: Path, seconds: float) -> None:
        self.folder = folder.resolve()
        self.tree = self.folder / "tree"
        self._checkout = checkout
        self._seconds = seconds
        self._isolated = _isolation()

    def build(self) -> None:
        """The installed distributed, with the checkout's tests in it, and the package as it is now."""
        if self.tree.exists():
            return
        building = self.folder / "tree.part"
        shutil.rmtree(building, ignore_errors=True)
        for package in (distributed, dask_efficiency):
            installed = Path(package.__file__).parent
            shutil.copytree(installed, building / installed.name, ignore=shutil.ignore_patterns("__pycache__"))
        for tests in (self._checkout / "distributed").rglob("tests"):
            shutil.copytree(tests, building / tests.relative_to(self._checkout), dirs_exist_ok=True)
        for plugin in (self._checkout / "distributed").glob("pytest_*.py"):  # of the tests; wheels may lack them
            shutil.copy(plugin, building / "distributed")
        for name in ("conftest.py", "pyproject.toml"):
            shutil.copy(self._checkout / name, building)
        shutil.copy(probe.__file__, building / "upstream_probe.py")
        (building / "sitecustomize.py").write_text("import upstream_probe\n\nupstream_probe.watch_logs()\n")
        (self.folder / "logs").mkdir(exist_ok=True)
        building.rename(self.tree)

    def files(self) -> list[str]:
        """Each file of tests, those that are most likely to tell first, then the longest."""
        found = {str(path.relative_to(self.tree)): path.stat().st_size for path in self.tree.rglob("test_*.py")}
        first = [f"distributed/{name}" for name in FIRST if f"distributed/{name}" in found]
        return first + sorted(found.keys() - set(first), key=lambda name: -found[name])

    def notes(self, way: str) -> Notes:
        """All that was noted of a way."""
        try:
            lines = (self.folder / f"{way}.jsonl").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in lines]

    def outcomes(self, way: str) -> dict[str, list[str]]:
        found: dict[str, list[str]] = defaultdict(list)
        for note in self.notes(way):
            if note["kind"] == "test":
                found[note["test"]].append(note["outcome"])
        return found

    def run_file(self, way: str, name: str) -> None:
        """Run what is missing of a file of tests; again after a test that had to be killed."""
        if any(note["kind"] == "file" and note["file"] == name for note in self.notes(way)):
            return
        rc: int | None = None
        for _ in range(10):
            before = set(self.outcomes(way))
            if (rc := self._pytest(way, name, [name], done=before)) is not None:
                break
        if rc == 4:  # pytest did not understand us
            raise RuntimeError(f"pytest could not run {name}: see {self.folder / 'logs'}")
        self._note(way, kind="file", file=name, rc=rc)

    def repeat(self, way: str, tests: Sequence[str]) -> None:
        """Run tests of one file until each has ended as often as it shall."""
        for times in range(1, REPEATS + 1):
            ended = self.outcomes(way)
            if missing := [test for test in tests if len(ended[test]) <= times]:
                self._pytest(way, f"{missing[0].partition('::')[0]} {times}", missing, done=())

    def _pytest(self, way: str, log: str, selected: Sequence[str], done: Collection[str]) -> int | None:
        """Run pytest; None if it had to be killed."""
        with (
            tempfile.NamedTemporaryFile("w", suffix=".done") as skipped,
            tempfile.TemporaryDirectory(prefix="upstream-suite-") as scratch,
            open(self.folder / "logs" / f"{way} {log.replace(os.sep, '.')}.log", "a") as output,
        ):
            skipped.write("\n".join(done))
            skipped.flush()
            command = [
                sys.executable,
                "-m",
                "pytest",
                "-p",
                "upstream_probe",
                "-p",
                "no:asyncio",
                "-p",
                "no:legacypath",
            ]
            command += ["-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts=", "-o", "timeout_method=signal"]
            command += [f"--timeout={TEST_SECONDS}", "-q", "--tb=short", f"--rootdir={self.tree}", *selected]
            env = os.environ | WAYS[way] | {probe.NOTES: str(self.folder / f"{way}.jsonl"), probe.DONE: skipped.name}
            env["PYTHONPATH"] = str(self.tree)
            env["TMPDIR"] = scratch
            if preload := WAYS[way].get(probe.PRELOAD):
                env["DASK_DISTRIBUTED__SCHEDULER__PRELOAD"] = repr(preload.split())
            if WAYS[way].get(probe.TRACE):
                env["DASK_EFFICIENCY__TRACE"] = "True"
            running = subprocess.Popen(
                [*self._isolated, *command],
                cwd=self.tree,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                rc: int | None = running.wait(self._seconds)
            except subprocess.TimeoutExpired:
                rc = None
            finally:
                _kill(running)
        # What was running when the process ended, of itself or not, would end it again.
        started = [note["test"] for note in self.notes(way) if note["kind"] == "started"]
        file = selected[0].partition("::")[0]
        last = next((test for test in reversed(started) if test.startswith(file)), None)
        if last and (rc is None or rc > 1) and started.count(last) > len(self.outcomes(way)[last]):
            self._note(way, kind="test", test=last, outcome="killed", why=f"the process ended: {rc}")
            return None
        return rc

    def _note(self, way: str, **what: Any) -> None:
        with open(self.folder / f"{way}.jsonl", "a") as file:
            file.write(json.dumps(what) + "\n")


def _isolation() -> list[str]:
    """A prefix that gives a command a network of its own with an address; empty where that is not allowed."""
    setup = (
        "ip link set lo up; ip link add dev here type veth peer name there; ip addr add 10.77.0.1/24 dev here; "
        'ip link set here up; ip link set there up; ip route add default via 10.77.0.2; exec "$@"'
    )
    command = ["unshare", "--net", "sh", "-ec", setup, "sh"]
    if shutil.which("unshare") is None or subprocess.run([*command, "true"], capture_output=True).returncode:
        return []
    return command


def _kill(running: subprocess.Popen[bytes]) -> None:
    """End a process and what it started."""
    with suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    running.wait()


def differing(outcomes: dict[str, dict[str, list[str]]]) -> list[str]:
    """Tests that failed one way and not another, of those that have run each way."""
    common = set.intersection(*(set(of_way) for of_way in outcomes.values()))
    return sorted(
        test for test in common if len({any(one in BAD for one in of_way[test]) for of_way in outcomes.values()}) > 1
    )


def verdict(failed: dict[str, tuple[int, int]]) -> str:
    """The verdict on a test, by failures and runs of each way."""
    ours = {way: counts for way, counts in failed.items() if way != "without"}
    if failed["without"][0]:
        return "fails without it, too"
    if all(ran == 1 for _, ran in ours.values()):
        return "not repeated yet"
    if all(bad <= 1 < ran for bad, ran in ours.values()):
        return "not when repeated"
    return "FAILS ONLY WITH IT"


def lines(suite: Suite, ways: Sequence[str]) -> Iterator[str]:
    outcomes = {way: suite.outcomes(way) for way in ways}
    for way, of_way in outcomes.items():
        ends = Counter("failed" if any(o in BAD for o in ended) else ended[0] for ended in of_way.values())
        yield f"{way}: " + ", ".join(f"{count} {end}" for end, count in sorted(ends.items()))
    ran = [{test for test, ended in of_way.items() if ended[0] in ("passed", *BAD)} for of_way in outcomes.values()]
    yield f"{len(set.intersection(*ran))} tests ran each way"
    for way in ways:
        if broken := [
            note["file"] for note in suite.notes(way) if note["kind"] == "file" and note["rc"] not in (0, 1, 5)
        ]:
            yield f"{way}: not all of these ran: {', '.join(broken)}"
    for way in ways[1:]:
        yield from _schedulers(way, suite.notes(way))
    yield ""
    different = differing(outcomes)
    yield f"{len(different)} tests ended otherwise; failed / ran:"
    for test in different:
        failed = {way: (sum(o in BAD for o in of_way[test]), len(of_way[test])) for way, of_way in outcomes.items()}
        counts = "  ".join(f"{way} {bad}/{count}" for way, (bad, count) in failed.items())
        name = test.removeprefix("distributed/")
        why = f" ({EXPLAINED[name]})" if name in EXPLAINED else ""
        yield f"  {name}: {counts}: {verdict(failed)}{why}"
    for way in ways[1:]:
        yield from _logged(way, suite.notes(way))


def _schedulers(way: str, notes: Notes) -> Iterator[str]:
    started: dict[str, dict[str, Any]] = {note["id"]: note for note in notes if note["kind"] == "scheduler"}
    metered = {note["id"] for note in notes if note["kind"] == "closed" and note["metered"]}
    rows: dict[str, list[tuple[bool, bool, bool]]] = defaultdict(list)
    for key, note in started.items():
        rows[note["where"]].append((note["preloaded"], key in metered, note["tls"]))
    for where, of_where in sorted(rows.items()):
        had, until_end, tls = (sum(column) for column in zip(*of_where, strict=True))
        yield f"{way}: {where}: {had} of {len(of_where)} schedulers had it ({tls} with TLS), {until_end} to their end"


def _logged(way: str, notes: Notes) -> Iterator[str]:
    """By message and the last line, how often it was logged and in which test first."""
    grouped: dict[tuple[bool, str, str], Notes] = defaultdict(list)
    for note in notes:
        if note["kind"] == "logged":
            last = note["trace"].strip().rpartition("\n")[2]
            grouped[not note["raised"], " ".join(note["message"].split())[:80], last[:160]].append(note)
    yield ""
    yield f"{way}: log records with an error of the package's, or a warning:"
    for (passed_on, message, last), records in sorted(grouped.items(), key=lambda item: (item[0][0], -len(item[1]))):
        title = "of upstream's, passed on" if passed_on else records[0]["level"]
        yield f"  {len(records)} x {title}: {records[0]['by']}: {message} {last} (first in {records[0]['test']})"


def run(suite: Suite, ways: Sequence[str], only: Iterable[str], jobs: int) -> None:
    """Run what is missing, and repeat what differs."""
    suite.build()
    files = list(only) or suite.files()
    with ThreadPoolExecutor(jobs) as pool:
        for pair in (ways[:2], ways[2:]):  # of each file both, so that something can be compared early
            list(pool.map(lambda both: suite.run_file(*both), [(way, name) for name in files for way in pair]))
        different: dict[str, list[str]] = defaultdict(list)
        for test in differing({way: suite.outcomes(way) for way in ways}):
            different[test.partition("::")[0]].append(test)
        list(pool.map(lambda both: suite.repeat(*both), [(way, tests) for tests in different.values() for way in ways]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, help="a checkout of distributed, of the installed version")
    parser.add_argument("folder", type=Path, help="where to keep what is found")
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS), help="in addition to 'without'")
    parser.add_argument("--files", nargs="+", default=[], help="only these, such as distributed/tests/test_spill.py")
    parser.add_argument("--jobs", type=int, default=2, help="files of tests that run at a time")
    parser.add_argument("--seconds", type=float, default=3600, help="that a file of tests may take")
    parser.add_argument("--print", action="store_true", help="only print what has been found so far")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    ways = [way for way in WAYS if way == "without" or way in args.ways]
    suite = Suite(args.checkout, args.folder, args.seconds)
    if not args.print:
        run(suite, ways, args.files, args.jobs)
    print("\n".join(lines(suite, ways)))
    outcomes = {way: suite.outcomes(way) for way in ways}
    ran = [{test for test, ended in of_way.items() if ended[0] in ("passed", *BAD)} for of_way in outcomes.values()]
    figure("tests that ran each way", len(set.intersection(*ran)))
    unlike = [test.removeprefix("distributed/") for test in differing(outcomes)]
    figure("tests that ended otherwise, unexplained", len({*unlike} - {*EXPLAINED}), at_most=0)
    figure("tests that any such plugin fails", len({*unlike} & {*EXPLAINED}))


if __name__ == "__main__":
    main()
