import json
import os
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner, Result
from distributed import Client, LocalCluster

import dask_efficiency
from dask_efficiency import EfficiencyReport, load_report
from dask_efficiency.accounts.buckets import Breakdown
from dask_efficiency.cli import main
from dask_efficiency.cli.inputs import InputKind, is_address, look_at
from tests.cli.results_of_commands import fails_in_one_line

REPORT = EfficiencyReport(
    name="nightly",
    started=1_780_000_000.0,
    window_seconds=10.0,
    cluster_seconds=10.0,
    by_worker={
        "0": Breakdown({"thread-cpu": 6_000_000_000, "idle": 4_000_000_000}),
        "1": Breakdown({"thread-cpu": 9_000_000_000, "spill": 1_000_000_000}),
    },
    nthreads={"0": 1, "1": 1},
)


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "run.json"
    REPORT.save(str(path))
    return str(path)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def test_a_saved_report_is_shown(saved):
    result = run("report", saved)
    assert result.exit_code == 0
    assert "10.0 s, of which up to 2.0 s can be saved" in result.stdout
    assert "lost time by cause" not in result.stdout
    assert "lost time by cause" in run("report", saved, "--all").stdout
    assert "nightly" in result.stdout


def test_json_holds_the_report_to_the_nanosecond(saved):
    result = run("report", saved, "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == REPORT.to_dict()


def test_save_copies_the_report(saved, tmp_path):
    copy = str(tmp_path / "copy.json")
    assert run("report", saved, "--save", copy).exit_code == 0
    assert load_report(copy) == REPORT


def test_html_writes_a_page_and_prints_the_headline(saved, tmp_path):
    page = tmp_path / "run.html"
    result = run("report", saved, "--html", str(page))
    assert (result.exit_code, result.stdout) == (0, f"{REPORT.headline}.\n")
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert "nightly" in page.read_text()


def test_a_page_that_cannot_be_written_is_named(saved, tmp_path):
    result = run("report", saved, "--html", str(tmp_path / "nowhere" / "run.html"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Invalid value for '--html'" in result.stderr
    assert "nowhere" in result.stderr


def test_a_foreign_file_is_refused_by_name(tmp_path):
    foreign = tmp_path / "package.json"
    foreign.write_text('{"name": "left-pad"}')
    assert str(foreign) in fails_in_one_line(run("report", str(foreign)))


def test_a_missing_file_is_named(tmp_path):
    assert "nothing.json" in fails_in_one_line(run("report", str(tmp_path / "nothing.json")))


def test_an_unknown_kind_of_url_is_named():
    assert "gopher" in fails_in_one_line(run("report", "gopher://host/run.json"))


@pytest.mark.parametrize("last", ["banana", "0s", "-5m", ""])
def test_last_must_be_a_length_of_time(last):
    result = run("report", "tcp://127.0.0.1:1", "--last", last)
    assert result.exit_code == 2
    assert "--last" in result.stderr


def test_last_needs_a_scheduler(saved):
    result = run("report", saved, "--last", "30m")
    assert result.exit_code == 2
    assert "not a scheduler" in result.stderr


def test_the_demo_needs_two_workers():
    assert run("demo", "--workers", "1").exit_code == 2


def test_an_encrypted_address_needs_certificates():
    assert "--tls-cert" in fails_in_one_line(run("report", "tls://127.0.0.1:1"))


@pytest.mark.parametrize(
    "source", ["tcp://10.0.0.1:8786", "tls://host:8786", "ucx://host:1", "host.x:8786", "[::1]:80"]
)
def test_addresses_are_recognised(source):
    assert is_address(source)


@pytest.mark.parametrize("source", ["run.json", "s3://bucket/run.json", "https://host:80/run.json", "runs/a:1"])
def test_files_and_urls_are_no_addresses(source):
    assert not is_address(source)


def test_a_scheduler_file_gives_its_address(tmp_path):
    path = tmp_path / "scheduler.json"
    path.write_text(json.dumps({"type": "Scheduler", "address": "tcp://10.0.0.1:8786", "workers": {}}))
    found = look_at(str(path))
    assert (found.kind, found.where) == (InputKind.SCHEDULER, "tcp://10.0.0.1:8786")


def test_a_file_whose_name_looks_like_an_address_is_a_file(saved, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.rename(saved, "host:8786")
    assert look_at("host:8786").kind is InputKind.REPORT


def test_the_version_is_the_packages():
    assert run("--version").stdout == f"dask-efficiency, version {dask_efficiency.__version__}\n"


def test_help_imports_no_cluster():
    code = (
        "import sys; from dask_efficiency.cli import main; main(['--help'], standalone_mode=False);"
        "assert not {'distributed', 'dask', 'numpy', 'pandas', 'rich'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.fixture
def cluster():
    with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster:
        yield cluster


def tcp_address(cluster: LocalCluster) -> str:
    """An address for others: a scheduler with its workers in its own process listens on none."""
    cluster.sync(cluster.scheduler.listen, "tcp://127.0.0.1:0")
    return cluster.scheduler.listeners[-1].contact_address


@pytest.mark.cluster
def test_a_scheduler_without_the_plugin_is_reported(cluster):
    assert "EfficiencyPlugin" in fails_in_one_line(run("report", tcp_address(cluster)))


@pytest.mark.cluster
def test_a_report_of_the_past_of_a_scheduler_has_an_efficiency(cluster):
    with Client(cluster) as client:
        client.register_plugin(dask_efficiency.EfficiencyPlugin())
        client.submit(sum, range(10)).result()
        address = tcp_address(cluster)
        deadline = time.monotonic() + 100
        efficiency = None
        # The past reaches to the last heartbeat.
        while efficiency is None and time.monotonic() < deadline:
            result = run("report", address, "--last", "30m", "--json")
            assert result.exit_code == 0, result.stderr
            efficiency = json.loads(result.stdout)["summary"]["efficiency"]
    assert 0 <= efficiency <= 1
