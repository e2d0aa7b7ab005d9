"""Progress of long work: a bar on a terminal, a line that changes in a notebook, a line now and then in a log.

Whoever works says how far it is, as often as it likes, and knows neither a clock nor a screen::

    with progress("simulating", unit="runs", of=61) as report:
        report(12)

Where nobody looks, or the work is short, nothing is shown. rich draws the bar; it is an extra, and without it there are
the lines of a log. tqdm would be one more package for the same, and in notebooks both want ipywidgets, which IPython's
own displays do not.
"""

from __future__ import annotations

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

#: Seconds that work may take before it is shown, and between two updates. A bar goes away again, a line of a log stays.
BAR = 2.0, 0.1
NOTEBOOK = 2.0, 0.5
LOG = 10.0, 30.0

_hidden: ContextVar[bool] = ContextVar("hidden", default=False)


class StoppedWarning(UserWarning):
    """Ctrl-C ended work early, and what was done by then is the result."""


@dataclass(slots=True)
class Work:
    """How far some work is.

    Parameters
    ----------
    doing
        What is done, such as ``simulating``.
    unit
        What is counted; empty where nothing is.
    of
        How many there are; None if nobody knows.
    done
        How many of them are done, also parts of one.
    """

    doing: str
    unit: str = ""
    of: float | None = None
    done: float = 0.0

    @property
    def counted(self) -> str:
        """The count in words; empty where nothing is counted."""
        if not self.unit:
            return ""
        return f"{int(self.done):,}{'' if self.of is None else f' of {self.of:,.0f}'} {self.unit}"

    @property
    def said(self) -> str:
        """All of it in words."""
        return f"{self.doing}: {self.counted}" if self.unit else self.doing


class Report(Protocol):
    """Says how far the work is; what is not given stays as it was."""

    def __call__(self, done: float, *, of: float | None = None, doing: str = "") -> None:
        """Say it, as often as is convenient."""
        ...


class Display(Protocol):
    """Where work is shown."""

    #: Seconds that it may take before it is shown, and between two updates.
    timing: ClassVar[tuple[float, float]]

    def show(self, work: Work, seconds: float) -> None:
        """Show how far the work is, which began so many seconds ago."""
        ...

    def close(self, work: Work, seconds: float) -> None:
        """The work is over."""
        ...


class Nothing:
    """Nobody looks."""

    timing: ClassVar[tuple[float, float]] = float("inf"), float("inf")

    def show(self, work: Work, seconds: float) -> None:
        """Show nothing."""

    def close(self, work: Work, seconds: float) -> None:
        """Nothing was shown."""


@dataclass(slots=True)
class Lines:
    """Lines in a log."""

    file: IO[str]
    timing: ClassVar[tuple[float, float]] = LOG

    def show(self, work: Work, seconds: float) -> None:
        """Add a line."""
        self.file.write(f"{work.said}, {_clock(seconds)}\n")
        self.file.flush()

    def close(self, work: Work, seconds: float) -> None:
        """The lines stay."""


@dataclass(slots=True)
class Bar:
    """A bar on a terminal, by rich; it is gone when the work is over."""

    file: IO[str]
    timing: ClassVar[tuple[float, float]] = BAR
    _drawn: Any = field(default=None, init=False)

    def show(self, work: Work, seconds: float) -> None:
        """Draw the bar, or move it."""
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

    def close(self, work: Work, seconds: float) -> None:
        """Take the bar away."""
        if self._drawn is not None:
            self._drawn.stop()


@dataclass(slots=True)
class Cell:
    """A line below a notebook's cell."""

    timing: ClassVar[tuple[float, float]] = NOTEBOOK
    _shown: Any = field(default=None, init=False)

    def show(self, work: Work, seconds: float) -> None:
        """Show the line, or change it."""
        from IPython.display import display

        content = {"text/plain": f"{work.said}, {_clock(seconds)}"}
        if self._shown is None:
            self._shown = display(content, raw=True, display_id=True)
        else:
            self._shown.update(content, raw=True)

    def close(self, work: Work, seconds: float) -> None:
        """Leave the line as it is at the end."""
        if self._shown is not None:
            self.show(work, seconds)


@contextmanager
def progress(
    doing: str, *, unit: str = "", of: float | None = None, clock: Callable[[], float] = monotonic
) -> Iterator[Report]:
    """Show how far some work is while this block does it, if it takes long enough; of blocks in one another, the outer.

    Where Ctrl-C ends it, the exception says how far it was.
    """
    work, began = Work(doing, unit, of), clock()
    display: Display = Nothing() if _hidden.get() else _display()
    first, interval = display.timing
    due = began + first

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
        stopped.args = stopped.args or (work.said,)
        raise
    finally:
        with suppress(Exception):
            display.close(work, clock() - began)


@contextmanager
def hidden() -> Iterator[None]:
    """In this block no progress is shown."""
    token = _hidden.set(True)
    try:
        yield
    finally:
        _hidden.reset(token)


def until_stopped(do: Callable[[Item], Found], items: Sequence[Item], unit: str) -> list[Found]:
    """What becomes of each item; fewer, with a :class:`StoppedWarning`, where Ctrl-C ends it after the first.

    Parameters
    ----------
    unit
        What the items are, for the warning.
    """
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
    """What there is to be seen by whoever waits."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if getattr(shell, "kernel", None) is not None:
        return Cell()
    file = sys.stderr
    if file is None or file.closed:
        return Nothing()
    if file.isatty() and os.environ.get("TERM") != "dumb" and find_spec("rich") is not None:
        return Bar(file)
    return Lines(file)
