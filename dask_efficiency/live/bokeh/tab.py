"""State of one scheduler's pages, computed once for all viewers."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection
from html import escape
from typing import TYPE_CHECKING, Any, TypeVar, cast

from distributed.scheduler import heartbeat_interval
from tornado.ioloop import PeriodicCallback

from dask_efficiency.accounts.wire.heartbeats import REPORT_SECONDS
from dask_efficiency.live.last_seconds import WINDOW_NS, Details, DetailsNow
from dask_efficiency.live.tab_view import TabView, tab_view
from dask_efficiency.show.log import logger

if TYPE_CHECKING:
    from dask_efficiency.plugin.scheduler.accounts import ClusterAccounts

#: Path of the page with Dask's links.
LINK = "efficiency"
#: Milliseconds between two requests of an open page; heartbeats bring news less often. A guess.
UPDATE_MS = 2_000
#: Milliseconds between two kept details of workers, GPUs and prefixes; the oldest begins the last minutes. A guess.
KEEP_MS = 60_000

GONE = (
    "The plugin was unregistered, and these figures stand still. "
    "They go on when client.register_plugin(EfficiencyPlugin()) puts it back."
)

T = TypeVar("T")


class Tab:
    """Pages on one scheduler's dashboard.

    Dask cannot remove a route, so routes stay as long as the scheduler serves; only the links come and go. A page left
    open after :meth:`hide` shows a notice, and continues with the next :meth:`show`.
    """

    def __init__(self, variables: dict[str, Any]) -> None:
        #: Current view; the same object as long as nothing has changed.
        self.view: TabView | None = None
        #: HTML that explains why the figures stand still; None if they do not.
        self.notice: str | None = None
        #: Lists shared by the templates of all pages.
        self._pages: list[str] = variables["pages"]
        self._plots: list[dict[str, str]] = variables["plots"]
        self._source: ClusterAccounts | None = None
        #: Last result of each drawing function, with its view.
        self._drawn: dict[Callable[[TabView], Any], tuple[TabView, Any]] = {}
        self._failed = False
        self._kept: deque[Details] = deque(maxlen=1 + WINDOW_NS // (KEEP_MS * 10**6))
        self._keeper = PeriodicCallback(self._keep, KEEP_MS)

    @property
    def shown(self) -> bool:
        """True if a source is shown."""
        return self._source is not None

    def show(self, source: ClusterAccounts) -> None:
        """Add the links and show this source."""
        self.hide(self._source)
        self._source = source
        self.view = None
        self._drawn.clear()
        self._pages.append(LINK)
        self._plots.append({"url": LINK, "name": "Efficiency"})
        self._plots.sort(key=lambda plot: plot["name"])
        self._keep()
        self._keeper.start()

    def hide(self, source: ClusterAccounts | None) -> None:
        """Remove the links and put a notice on open pages; does nothing if another source is shown."""
        if source is None or source is not self._source:
            return
        self._source = None
        self._keeper.stop()
        self._kept.clear()
        self._pages[:] = [page for page in self._pages if page != LINK]
        self._plots[:] = [plot for plot in self._plots if plot["url"] != LINK]

    def refresh(self) -> None:
        """Take a new view if polls have come in, or set a notice."""
        source = self._source
        if source is None:
            self.notice = escape(GONE)
        elif source.off is not None:
            self.notice = escape(f"Metering has stopped: {source.off}")
        else:
            self._look(source)

    def _look(self, source: ClusterAccounts) -> None:
        polls = source.recent
        heartbeat_seconds = max(REPORT_SECONDS, float(heartbeat_interval(len(source.cluster.present))))
        # A quarter less, because polls and pages are not in step.
        gap = 0.75e9 * max(UPDATE_MS / 1e3, heartbeat_seconds)
        if polls and (self.view is None or self.notice is not None or polls[-1].at - self.view.at >= gap):
            self.view = tab_view(source, self._kept[0], now=time.time(), heartbeat_seconds=heartbeat_seconds)
            self.notice = None

    def drawn(self, draw: Callable[[TabView], T], *, every_ns: int = 0) -> T:
        """Result of a function of the view, one for all pages; kept until the view is ``every_ns`` older."""
        now = self.view
        assert now is not None
        then, made = self._drawn.get(draw, (None, None))
        if then is None or (then is not now and now.at - then.at >= every_ns):
            made = draw(now)
            self._drawn[draw] = now, made
        return cast("T", made)

    def prefixes_in(self, span: str) -> Collection[str]:
        """Prefixes of the tasks in the spans that have this in their names."""
        return () if self._source is None else self._source.prefixes_in(span)

    def fail(self, error: Exception) -> None:
        """Log the first failure to draw a page, and show it on all pages."""
        self.notice = self.failed(error)

    def failed(self, error: Exception) -> str:
        """Log the first failure to draw a page; the notice of it for that page."""
        if not self._failed:
            logger.exception("dask_efficiency could not draw its page", exc_info=error)
        self._failed = True
        return escape(f"This page failed: {type(error).__name__}: {error}"[:500])

    def _keep(self) -> None:
        source = self._source
        if source is not None and source.off is None:
            at = max((poll.at for poll in source.recent), default=source.cluster.started)
            self._kept.append(DetailsNow(at, source.cluster).read())
