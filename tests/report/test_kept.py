"""Last report of `dask-efficiency run`."""

import os
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner

from dask_efficiency import EfficiencyReport
from dask_efficiency.cli import main
from dask_efficiency.report import kept
from dask_efficiency.report.kept import keep, kept_at, load_kept
from dask_efficiency.report.runner import MORE, MORE_WITHOUT, Runner, ScriptRun
from tests.report.samples import by_hand


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def ended(*reports: EfficiencyReport) -> Runner:
    """Runner of a script that has ended."""
    runner = Runner(ScriptRun("job.py"))
    runner._ended = [(report, None) for report in reports]
    runner.finish(failed=False)
    return runner


def report(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["report", *arguments])
    return result.exit_code, " ".join((result.stdout + result.stderr).split())


def test_the_report_that_run_shows_is_kept_and_report_shows_it_without_a_source(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended(by_hand(name="job.py"))
    assert MORE in " ".join(capsys.readouterr().err.split())
    assert load_kept() == by_hand(name="job.py")
    code, text = report()
    assert (code, text.startswith("job.py ")) == (0, True)
    assert "Lost time" in report("--all")[1]
    ended(by_hand(name="next.py"))
    assert load_kept().name == "next.py"
    assert [path.name for path in kept_at().parent.iterdir()] == ["last-report.json"]


@pytest.mark.skipif(os.name != "posix", reason="modes are those of POSIX")
def test_only_the_user_may_read_it_even_where_a_file_was_open_to_all(state: Path) -> None:
    for _ in range(2):
        keep(by_hand())
        assert [stat.S_IMODE(path.stat().st_mode) for path in (kept_at(), kept_at().parent)] == [0o600, 0o700]
        kept_at().chmod(0o644)


def test_a_report_that_cannot_be_kept_is_shown_all_the_same(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state.write_text("a file in place of the folder")
    ended(by_hand())
    shown = " ".join(capsys.readouterr().err.split())
    assert (MORE_WITHOUT in shown, "Error" in shown) == (True, False)


def test_without_a_report_that_was_kept_it_is_said_who_keeps_one(monkeypatch: pytest.MonkeyPatch) -> None:
    code, text = report()
    assert (code, text.startswith("Error: expected SOURCE, or --scheduler-file FILE: `dask-efficiency run` keeps")) == (
        1,
        True,
    )
    code, text = report("--last", "1h")
    assert (code, "expected SOURCE, or --scheduler-file FILE" in text) == (2, True)


@pytest.mark.parametrize(
    ("platform", "folder"),
    [
        ("linux", ".local/state"),
        ("darwin", "Library/Application Support"),
        ("win32", "AppData/Local"),
    ],
)
def test_it_is_where_the_platform_keeps_the_state_of_programs(
    platform: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.delenv("LOCALAPPDATA", raising=False)
    monkeypatch.setattr(kept.sys, "platform", platform)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert kept_at() == tmp_path / folder / "dask-efficiency" / "last-report.json"
