import io
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from dask_efficiency.show import progress as module
from dask_efficiency.show.progress import StoppedWarning, hidden, progress, until_stopped


class Clock:
    """Shows the time that it is set to."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a notebook shows below a cell, in the order of time."""
    shown: list[Any] = []

    def display(content: Any, *, raw: bool, display_id: bool) -> Any:
        shown.append(content)
        return SimpleNamespace(update=lambda content, *, raw: shown.append(content))

    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    return shown


def work(clock: Clock, seconds: float, steps: int = 100, **named: Any) -> None:
    """Work that takes so long."""
    with progress("counting", unit="sheep", of=steps, clock=clock, **named) as report:
        for step in range(1, steps + 1):
            clock.now += seconds / steps
            report(step)


def test_a_log_has_a_line_every_half_minute_of_work_that_lasts(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    work(clock, 100)
    assert capsys.readouterr().err.splitlines() == [
        "counting: 10 of 100 sheep, 10 s",
        "counting: 40 of 100 sheep, 40 s",
        "counting: 70 of 100 sheep, 1:10 min",
        "counting: 100 of 100 sheep, 1:40 min",
    ]


def test_short_work_leaves_nothing_anywhere(
    clock: Clock, capsys: pytest.CaptureFixture[str], cell: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    work(clock, 1.9)
    monkeypatch.delitem(sys.modules, "IPython")
    work(clock, 9.9)
    monkeypatch.setattr(sys, "stderr", screen := Screen())
    work(clock, 1.9)
    assert (cell, capsys.readouterr().err, screen.getvalue()) == ([], "", "")


def test_work_with_a_bound_is_shown_early_enough(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    work(clock, 4, within=5)
    work(clock, 1.2, within=5)
    work(clock, 12, within=60)
    assert capsys.readouterr().err == "counting: 32 of 100 sheep, 1 s\ncounting: 84 of 100 sheep, 10 s\n"


def test_a_notebook_has_one_line_that_ends_as_the_work_does(
    clock: Clock, capsys: pytest.CaptureFixture[str], cell: list[Any]
) -> None:
    work(clock, 20)
    assert cell[0]["text/plain"] == "counting: 10 of 100 sheep, 2 s"
    assert cell[-1]["text/plain"] == "counting: 100 of 100 sheep, 20 s"
    assert not capsys.readouterr().err


def test_a_terminal_has_a_bar_that_goes_away(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", screen := Screen())
    work(clock, 5)
    shown = screen.getvalue()
    assert "counting" in shown
    assert "━━━" in shown
    assert " of 100 sheep" in shown
    assert shown.endswith("\x1b[2K")


@pytest.mark.parametrize("lacking", ["rich", "cursor"])
def test_a_terminal_without_rich_or_a_cursor_has_lines(
    lacking: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", screen := Screen())
    if lacking == "rich":
        monkeypatch.setattr(module, "find_spec", lambda name: None)
    else:
        monkeypatch.setenv("TERM", "dumb")
    work(clock, 12)
    assert screen.getvalue() == "counting: 84 of 100 sheep, 10 s\n"


def test_hidden_work_and_work_within_work_are_not_shown(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with progress("sleeping", unit="nights", clock=clock) as report:
        work(clock, 100)
        report(1)
    assert capsys.readouterr().err == "sleeping: 1 nights, 1:40 min\n"
    with hidden():
        work(clock, 100)
    assert not capsys.readouterr().err
    work(clock, 12)
    assert capsys.readouterr().err


def test_the_activity_and_the_number_of_things_may_change(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with progress("preflight", unit="done", clock=clock) as report:
        clock.now += 10
        report(1, of=4, doing="measuring alone")
        clock.now += 30
        report(2)
    assert capsys.readouterr().err == "measuring alone: 1 of 4 done, 10 s\nmeasuring alone: 2 of 4 done, 40 s\n"


class Gone(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


@pytest.mark.parametrize("kind", ["none", "closed", "gone"])
def test_without_standard_error_the_work_goes_on(kind: str, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    file = None if kind == "none" else Gone()
    if file is not None and kind == "closed":
        file.close()
    monkeypatch.setattr(sys, "stderr", file)
    work(clock, 100)


def test_ctrl_c_carries_the_progress_so_far() -> None:
    with (  # noqa: PT012
        pytest.raises(KeyboardInterrupt, match="^counting: 3 of 7 sheep$"),
        progress("counting", unit="sheep", of=7) as report,
    ):
        report(3.9)
        raise KeyboardInterrupt


def test_ctrl_c_keeps_the_results_and_warns() -> None:
    def halved(number: int) -> int:
        if number == 6:
            raise KeyboardInterrupt
        return number // 2

    with pytest.warns(StoppedWarning, match="^stopped after 2 of 4 numbers$"):
        assert until_stopped(halved, [2, 4, 6, 8], "numbers") == [1, 2]
    with pytest.raises(KeyboardInterrupt):
        until_stopped(halved, [6, 8], "numbers")
