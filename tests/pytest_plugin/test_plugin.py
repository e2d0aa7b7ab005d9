import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from dask_efficiency import EfficiencyReport, compare, load_report
from dask_efficiency.pytest_plugin.limits import EfficiencyLimits
from dask_efficiency.pytest_plugin.plugin import _TOLD, _compared, _limits, _tell, _whole, file_name
from tests.histories.nights import night

TESTS = """
import time
import pytest
from distributed import Client, LocalCluster

def local():
    return LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0")

@pytest.fixture(scope="module")
def client():
    with local() as cluster, Client(cluster) as client:
        yield client

@pytest.mark.efficiency(no=["spill", "recomputed"])
@pytest.mark.parametrize("n", [1, 2])
def test_good(client, n):
    assert client.submit(sum, [n, 1], pure=False).result() == n + 1

@pytest.mark.efficiency(no=["thread-noncpu"])
def test_sleeps(client):
    client.submit(time.sleep, 0.3, pure=False).result()

@pytest.mark.efficiency
def test_of_its_own(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with local() as cluster, Client(cluster) as client:
        client.submit(sum, [1], pure=False).result()

@pytest.mark.efficiency
def test_async():
    import asyncio
    async def main():
        options = {"n_workers": 1, "processes": False, "dashboard_address": ":0"}
        async with LocalCluster(asynchronous=True, **options) as cluster, Client(cluster, asynchronous=True) as client:
            return await client.submit(sum, [1, 2], pure=False)
    assert asyncio.run(main()) == 3

@pytest.mark.efficiency(max_seconds=60)
def test_fails(client):
    client.submit(sum, [1], pure=False).result()
    raise RuntimeError("its own fault")

@pytest.mark.efficiency(max_seconds=60)
def test_without_a_cluster():
    pass

@pytest.mark.efficiency(max_second=60)
def test_misspelt(client):
    pass

@pytest.mark.efficiency
def test_skips(client):
    pytest.skip("not today")

def test_block(client, efficiency):
    with efficiency() as report:
        client.submit(sum, [1], pure=False).result()
    assert report.tasks == {"succeeded": 1}
    assert report.name.endswith("::test_block")

def test_unmarked(client):
    client.submit(sum, [1], pure=False).result()
"""
#: Tests of which there is a report.
MEASURED = ["test_good[1]", "test_good[2]", "test_sleeps", "test_of_its_own", "test_async", "test_fails", "test_block"]


def ran(folder: Path, *options: str, tests: str = TESTS) -> str:
    """Output of pytest on tests, with the plugin as its entry point would have it."""
    (folder / "test_them.py").write_text(tests)
    plugin = ["-p", "no:dask-efficiency", "-p", "dask_efficiency.pytest_plugin.plugin", "-p", "no:cacheprovider"]
    command = [
        sys.executable,
        "-m",
        "pytest",
        *plugin,
        "-c",
        os.devnull,
        "--rootdir",
        ".",
        "-q",
        *options,
        "test_them.py",
    ]
    environment = os.environ | {"COLUMNS": "200", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    return done.stdout + done.stderr


@pytest.mark.cluster
@pytest.mark.parametrize("processes", [[], ["-p", "xdist", "-n", "2"]], ids=["alone", "xdist"])
def test_each_marked_test_has_its_report_and_keeps_its_limits(tmp_path: Path, processes: list[str]) -> None:
    output = ran(tmp_path, "--dask-efficiency", "runs", "--junit-xml", "junit.xml", *processes)
    assert "<propert" not in (tmp_path / "junit.xml").read_text()
    assert "3 failed, 7 passed, 1 skipped" in output, output
    saved = {path.name: load_report(path) for path in (tmp_path / "runs").iterdir()}
    assert sorted(saved) == sorted(f"test_them.py_{name}.json" for name in MEASURED)
    for name in MEASURED:
        report = saved[f"test_them.py_{name}.json"]
        assert report.name == f"test_them.py::{name}"
        assert report.tasks == {"succeeded": 1}, name
    assert saved["test_them.py_test_fails.json"].ended_by == "RuntimeError: its own fault"
    assert saved["test_them.py_test_sleeps.json"].ended_by == ""
    assert "beyond its limits: " in output
    assert "thread time in thread-noncpu, and there may be none" in output
    assert "efficiency(max_second=...) is unknown" in output
    summary = output.partition("= dask-efficiency =")[2]
    assert "test_them.py::test_without_a_cluster: not measured, no client gave work to a cluster" in summary
    assert "\ntest_them.py::test_good[1]\n    " in summary
    assert "test_unmarked" not in summary


def test_a_baseline_is_without_failed_runs_and_without_the_folder_that_is_compared(tmp_path: Path) -> None:
    new, failed = night(1, 90.0), night(2, 10.0, ended_by="KeyError")
    for folder, report in {"1": night(0, 60.0), "2": failed, "new": new}.items():
        (tmp_path / folder).mkdir()
        report.save(tmp_path / folder / "a.py_test[1].json")
    baseline, folder = str(tmp_path), str(tmp_path / "new")
    assert [one.wall_clock_seconds for one in _whole(baseline, "a.py_test[1].json", but=folder)] == [60.0]
    assert [one.wall_clock_seconds for one in _whole(folder, "a.py_test[1].json", but=baseline)] == [90.0]
    line = _compared(baseline, new, "a.py_test[1].json", folder)
    assert line == f"against the baseline: {compare(night(0, 60.0), new).headline}"
    assert _compared(baseline, new, "a.py_test[1].json", baseline) == ""


def test_reports_are_saved_at_a_url_and_a_url_that_cannot_be_is_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(folder: str) -> dict[str, Any]:
        options = {"dask_efficiency": folder, "dask_efficiency_baseline": None}
        item = Mock(nodeid="a.py::test", stash=pytest.Stash(), config=Mock(getoption=options.get))
        _tell(item, [night(0)], [])
        return item.stash[_TOLD]

    monkeypatch.chdir(tmp_path)
    assert told("memory://tests")["notes"] == []
    assert load_report("memory://tests/a.py_test.json").name == "nightly.py"
    monkeypatch.setattr(EfficiencyReport, "save", Mock(side_effect=ImportError("Please install gcsfs")))
    assert told("gs://bucket")["notes"] == ["Please install gcsfs"]
    assert list(tmp_path.iterdir()) == []


def test_limits_of_a_module_hold_beside_those_of_a_test_and_each_has_a_name() -> None:
    def of(*marks: pytest.MarkDecorator) -> EfficiencyLimits:
        return _limits(Mock(iter_markers=lambda name: (one.mark for one in marks if one.name == name)))

    mark = pytest.mark.efficiency
    own, of_module = mark(max_seconds=1), mark(no=["spill"], max_seconds=5)
    assert of(own, pytest.mark.cluster, of_module) == EfficiencyLimits(no=["spill"], max_seconds=1)
    with pytest.raises(ValueError, match=r"efficiency\('spill'\): expected limits by name"):
        of(mark("spill", 0.001))


@pytest.mark.cluster
def test_each_of_several_clusters_has_a_report_with_a_name_of_its_own(tmp_path: Path) -> None:
    tests = """
import pytest
from distributed import Client

@pytest.mark.efficiency
def test_two():
    for _ in range(2):
        with Client(n_workers=1, processes=False, dashboard_address=":0") as client:
            client.submit(sum, [1]).result()
"""
    ran(tmp_path, "--dask-efficiency", "runs", tests=tests)
    names = {path.name: load_report(path).name for path in (tmp_path / "runs").iterdir()}
    assert names == {
        "test_them.py_test_two.json": "test_them.py::test_two",
        "test_them.py_test_two-2.json": "test_them.py::test_two (2)",
    }


@pytest.mark.cluster
def test_a_unittest_that_fails_is_saved_with_its_error_and_one_that_is_skipped_not_at_all(tmp_path: Path) -> None:
    tests = """
import unittest
import pytest
from distributed import Client

@pytest.mark.efficiency(max_seconds=0.001)
class Tests(unittest.TestCase):
    def setUp(self):
        self.client = Client(n_workers=1, processes=False, dashboard_address=":0")
        self.addCleanup(self.client.close)

    def test_fails(self):
        self.assertEqual(self.client.submit(sum, [1]).result(), 2)

    def test_skips(self):
        self.skipTest(str(self.client.submit(sum, [1]).result()))
"""
    output = ran(tmp_path, "--dask-efficiency", "runs", tests=tests)
    assert "1 failed, 1 skipped" in output, output
    assert "beyond its limits" not in output
    (path,) = (tmp_path / "runs").iterdir()
    assert load_report(path).ended_by.startswith("AssertionError: 1 != 2")


@pytest.mark.cluster
def test_a_cluster_of_many_tests_with_two_clients_keeps_nothing_of_their_reports(tmp_path: Path) -> None:
    tests = """
import pytest
from distributed import Client, LocalCluster

@pytest.fixture(scope="module")
def clients():
    with LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as cluster:
        with Client(cluster) as one, Client(cluster) as other:
            yield one, other

@pytest.mark.efficiency
@pytest.mark.parametrize("n", [1, 2, 3])
def test_both(clients, n):
    for client in clients:
        client.submit(sum, [n], pure=False).result()

def test_nothing_is_left(clients):
    cluster = clients[0].cluster
    plugins = [name for name in cluster.scheduler.plugins if "efficiency" in name]
    assert ("_close" in vars(cluster), plugins) == (False, [])
"""
    output = ran(tmp_path, "--dask-efficiency", "runs", tests=tests)
    assert "4 passed" in output, output
    assert len(list((tmp_path / "runs").iterdir())) == 3


@pytest.mark.cluster
def test_reports_are_compared_with_those_of_a_baseline(tmp_path: Path) -> None:
    options = ["-k", "test_good", "--dask-efficiency"]
    ran(tmp_path, *options, "main/1")
    ran(tmp_path, *options, "main/2")
    output = ran(tmp_path, *options, "branch", "--dask-efficiency-baseline", "main")
    assert output.count("    against the baseline: ") == 2, output
    assert "--dask-efficiency-baseline is a URL" in ran(tmp_path, "--dask-efficiency-baseline", "s3://bucket/main")


@pytest.mark.cluster
def test_without_being_asked_nothing_is_measured_or_saved(tmp_path: Path) -> None:
    output = ran(tmp_path, "-k", "test_unmarked")
    assert "dask-efficiency" not in output
    assert [path.name for path in tmp_path.iterdir() if path.name != "__pycache__"] == ["test_them.py"]


def test_the_plugin_imports_nothing_until_a_test_asks() -> None:
    code = (
        "import sys, dask_efficiency.pytest_plugin.plugin; print('distributed' in sys.modules, 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False False\n"


def test_a_file_has_a_name_that_every_file_system_takes_and_no_other_test_has() -> None:
    assert file_name("tests/test_a.py::test_b[1]") == "tests_test_a.py_test_b[1].json"
    assert file_name("a.py::b", 2) == "a.py_b-2.json"
    odd = [f"a.py::b[{text}]" for text in ("x/y", "x y", "x:y", "\ud800", "é", "../..", "z" * 300, "z" * 301)]
    names = [file_name(node) for node in odd]
    assert len(set(names)) == len(names)
    assert all(name.isascii() and len(name) < 200 and not set(name) & set("/\\: ") for name in names)
