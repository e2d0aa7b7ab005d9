"""Part: something on a page that one function of a view fills."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from bokeh.models import ColumnDataSource, Div

from dask_efficiency.live.bokeh.columns import Columns
from dask_efficiency.live.tab_view import TabView

#: How long something may stay on a page that changes by little in a few seconds, such as shares of five minutes.
SLOW_NS = 5_000_000_000


class Part(Protocol):
    """Something on a page."""

    #: What Bokeh draws.
    root: Any
    #: How much older it may be than what is new.
    every_ns: int

    @property
    def made_by(self) -> Callable[[TabView], Any]:
        """Gives what :meth:`draw` takes."""

    def draw(self, made: Any) -> None:
        """Show it."""


class Text:
    """Lines of HTML, which take no room where there are none.

    Parameters
    ----------
    made_by
        Gives the HTML.
    every_ns
        How much older it may be than what is new.
    options
        Of the element: its size and its style.
    """

    def __init__(self, made_by: Callable[[TabView], str], *, every_ns: int = 0, **options: Any) -> None:
        self.made_by = made_by
        self.every_ns = every_ns
        self.root = Div(disable_math=True, **options)

    def draw(self, made: str) -> None:
        """Show it."""
        self.root.text = made
        self.root.visible = bool(made)


def send(source: ColumnDataSource, made: Columns) -> None:
    """Show these columns, and send the viewer only those that are new: most activities stay at zero."""
    shown = source.data
    # Copies, because what was made is every viewer's, and Bokeh patches columns in place.
    changed = {name: list(values) for name, values in made.items() if values != shown[name]}
    if changed:
        shown.update(changed)
