"""Progress of long work: a bar on a terminal, a line that changes in a notebook, a line now and then in a log.

The code that works reports its progress as often as it likes, and needs neither a clock nor a screen::

    with progress("simulating", unit="runs", of=61) as report:
        report(12)

Without a terminal, notebook or log, or for short work, nothing is shown. rich, an extra, draws the bar; without it
lines are written as to a log. tqdm would be one more package for the same, and in notebooks both need ipywidgets, which
IPython's own displays do not.
"""

from __future__ import annotations

import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib.util import find_spec
from time import monotonic
from typing import IO, Any, ClassVar, Protocol, TypeVar

Item = TypeVar("Item")
Found = TypeVar("Found")

#: Seconds before a bar, a notebook's line or a log's line is first shown, and between two updates: each update of a
#: notebook is a message to the browser, and a log's lines stay. Guesses about patience.
BAR_TIMING, NOTEBOOK_TIMING, LOG_TIMING = (2.0, 0.1), (2.0, 0.5), (10.0, 30.0)

#: Share of the time of work with a bound after which it is shown, where that is sooner. A guess about patience.
EARLY = 0.25

_hidden: ContextVar[bool] = ContextVar("hidden", default=False)


class StoppedWarning(UserWarning):
    """Ctrl-C ended work early; the result is what was done by then."""


@dataclass(slots=True)
class ProgressState:
    """State of some work: the activity, and the number of the counted things that are done."""

    doing: str
    #: Empty if nothing is counted.
    unit: str = ""
    #: None if unknown.
    of: float | None = None
    done: float = 0.0

    @property
    def counted(self) -> str:
        """The count in words; empty where nothing is counted."""
        of = "" if self.of is None else f" of {self.of:,.0f}"
        return f"{int(self.done):,}{of} {self.unit}" if self.unit else ""

    @property
    def in_words(self) -> str:
        """The state in words."""
        return f"{self.doing}: {self.counted}" if self.unit else self.doing


class Report(Protocol):
    """Function that updates the state, as often as is convenient; what is not given stays as it was."""

    def __call__(self, done: float, *, of: float | None = None, doing: str = "") -> None:  # noqa: D102
        ...


class Display:
    """Display of work; this one shows nothing."""

    #: Seconds that the work may take before it is shown, and between two updates.
    timing: ClassVar[tuple[float, float]] = float("inf"), float("inf")

    def show(self, work: ProgressState, seconds: float) -> None:
        """Show the state of work that began ``seconds`` ago."""

    def close(self, work: ProgressState, seconds: float) -> None:
        """End the display with the work."""


@dataclass(slots=True)
class _LogLines(Display):
    file: IO[str]
    timing = LOG_TIMING

    def show(self, work: ProgressState, seconds: float) -> None:
        self.file.write(f"{work.in_words}, {_clock(seconds)}\n")
        self.file.flush()


@dataclass(slots=True)
class _TerminalBar(Display):
    """A bar by rich, which is gone when the work is over."""

    file: IO[str]
    timing = BAR_TIMING
    _drawn: Any = field(default=None, init=False)

    def show(self, work: ProgressState, seconds: float) -> None:
        if self._drawn is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

            self._drawn = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TextColumn("{task.fields[counted]}", markup=False),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=Console(file=self.file),
                refresh_per_second=4,
                transient=True,
                redirect_stdout=False,  # it may be a file
            )
            self._drawn.add_task(work.doing, counted="")
            self._drawn.tasks[0].start_time -= seconds
        shown = {"description": work.doing, "total": work.of, "completed": work.done, "counted": work.counted}
        self._drawn.update(self._drawn.tasks[0].id, **shown)
        self._drawn.start()  # at first

    def close(self, work: ProgressState, seconds: float) -> None:
        if self._drawn is not None:
            self._drawn.stop()


@dataclass(slots=True)
class _NotebookLine(Display):
    """A line below a notebook's cell, which stays as it is at the end."""

    timing = NOTEBOOK_TIMING
    _shown: Any = field(default=None, init=False)

    def show(self, work: ProgressState, seconds: float) -> None:
        from IPython.display import display

        content = {"text/plain": f"{work.in_words}, {_clock(seconds)}"}
        if self._shown is not None:
            self._shown.update(content, raw=True)
        else:
            self._shown = display(content, raw=True, display_id=True)

    def close(self, work: ProgressState, seconds: float) -> None:
        if self._shown is not None:
            self.show(work, seconds)


@contextmanager
def progress(
    doing: str,
    *,
    unit: str = "",
    of: float | None = None,
    within: float = math.inf,
    clock: Callable[[], float] = monotonic,
) -> Iterator[Report]:
    """Show the progress of the work in this block, if it takes long enough; of nested blocks, the outermost.

    Work that ends ``within`` some seconds is shown after a quarter of these at the latest, as its caller waits for it.

    If Ctrl-C ends it, the exception holds the state in words.
    """
    work, began = ProgressState(doing, unit, of), clock()
    display = Display() if _hidden.get() else _display()
    first, interval = display.timing
    due = began + min(first, within * EARLY)

    def report(done: float, *, of: float | None = None, doing: str = "") -> None:
        nonlocal due
        work.done, work.of, work.doing = done, of or work.of, doing or work.doing
        now = clock()
        if now >= due:
            due = now + interval
            with suppress(Exception):  # a screen that is gone does not end the work
                display.show(work, now - began)

    try:
        with hidden():
            yield report
    except KeyboardInterrupt as stopped:
        stopped.args = stopped.args or (work.in_words,)
        raise
    finally:
        with suppress(Exception):
            display.close(work, clock() - began)


@contextmanager
def hidden() -> Iterator[None]:
    """Hide all progress in this block."""
    token = _hidden.set(True)
    try:
        yield
    finally:
        _hidden.reset(token)


def until_stopped(do: Callable[[Item], Found], items: Sequence[Item], unit: str) -> list[Found]:
    """Results for all items; fewer, with a :class:`StoppedWarning` that names the unit, if Ctrl-C ends it early."""
    found: list[Found] = []
    try:
        for item in items:
            found.append(do(item))  # noqa: PERF401 what is found is kept when it ends early
    except KeyboardInterrupt:
        if not found:
            raise
        warnings.warn(f"stopped after {len(found)} of {len(items)} {unit}", StoppedWarning, stacklevel=3)
    return found


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    return f"{minutes}:{seconds:02d} min" if minutes else f"{seconds} s"


def _display() -> Display:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if getattr(shell, "kernel", None) is not None:
        return _NotebookLine()
    file = sys.stderr
    if file is None or file.closed:
        return Display()
    if file.isatty() and os.environ.get("TERM") != "dumb" and find_spec("rich") is not None:
        return _TerminalBar(file)
    return _LogLines(file)
