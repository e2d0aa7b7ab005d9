import json
import os

import pytest
from click.testing import CliRunner, Result

import dask_efficiency
from dask_efficiency import load_report
from dask_efficiency.accounts.buckets import Breakdown
from dask_efficiency.cli import main
from dask_efficiency.cli.inputs import InputKind, is_address, look_at
from tests.cli.results_of_commands import fails_in_one_line
from tests.report.samples import report_of

REPORT = report_of(
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


def shown(*arguments: str) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def test_a_saved_report_is_shown_as_text_json_page_and_copy(saved, tmp_path):
    text = shown("report", saved)
    assert "nightly" in text
    assert "10.0 s, of which up to 2.0 s can be saved" in text
    assert ["lost time by cause" in one for one in (text, shown("report", saved, "--all"))] == [False, True]
    assert json.loads(shown("report", saved, "--json")) == REPORT.to_dict()
    page, copy = tmp_path / "run.html", str(tmp_path / "copy.json")
    assert shown("report", saved, "--html", str(page)) == f"{REPORT.headline}.\n"
    assert page.read_text().startswith("<!DOCTYPE html>")
    shown("report", saved, "--save", copy)
    assert load_report(copy) == REPORT
    assert shown("--version") == f"dask-efficiency, version {dask_efficiency.__version__}\n"


def test_a_source_that_cannot_be_read_is_named_in_one_line(tmp_path):
    foreign = tmp_path / "package.json"
    foreign.write_text('{"name": "left-pad"}')
    named = {str(foreign): str(foreign), "gopher://host/run.json": "gopher", "tls://127.0.0.1:1": "--tls-cert"}
    for source, name in named.items():
        assert name in fails_in_one_line(run("report", source))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        *((["report", "tcp://127.0.0.1:1", "--last", last], "--last") for last in ("banana", "0s", "-5m", "")),
        (["report", "run.json", "--last", "30m"], "not a scheduler"),
        (["report", "run.json", "--html", "nowhere/run.html"], "Invalid value for '--html': 'nowhere/run.html'"),
        (["demo", "--workers", "1"], "--workers"),
    ],
)
def test_options_that_cannot_be_used_are_refused(saved, monkeypatch, arguments, named):
    monkeypatch.chdir(os.path.dirname(saved))
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert named in result.stderr


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        *((one, True) for one in ("tcp://10.0.0.1:8786", "tls://host:8786", "ucx://host:1", "host.x:8786", "[::1]:80")),
        *((one, False) for one in ("run.json", "s3://bucket/run.json", "https://host:80/run.json", "runs/a:1")),
    ],
)
def test_addresses_are_distinguished_from_files_and_urls(source, expected):
    assert is_address(source) == expected


def test_a_file_whose_name_looks_like_an_address_is_a_file(saved, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.rename(saved, "host:8786")
    assert look_at("host:8786").kind is InputKind.REPORT
