"""Tab: what the pages of one scheduler show now, computed once for all viewers."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any, Protocol, TypeVar, cast

from distributed.scheduler import heartbeat_interval
from tornado.ioloop import PeriodicCallback

from dask_efficiency.accounts.cluster.cluster import ClusterLedger
from dask_efficiency.accounts.slow_worker import SlowWorker
from dask_efficiency.accounts.wire.heartbeats import REPORT_SECONDS
from dask_efficiency.live.last_seconds import WINDOW_NS, Details, ThreadTotals
from dask_efficiency.live.tab_view import TabView, tab_view
from dask_efficiency.show.log import logger

#: Where the page with Dask's links is.
LINK = "efficiency"

#: How often an open page asks for news, which there is once a heartbeat at most.
UPDATE_MS = 2_000

#: How often the details of each worker, GPU and prefix are kept: those of the last minutes begin at the oldest kept.
KEEP_MS = 60_000

GONE = (
    "The plugin was unregistered, and these figures stand still. "
    "They go on when client.register_plugin(EfficiencyPlugin()) puts it back."
)

T = TypeVar("T")


class TabSource(Protocol):
    """What is shown: the accounts, and what they said at the last polls."""

    cluster: ClusterLedger
    #: Seconds since the epoch at which the accounts began.
    since: float

    @property
    def off(self) -> str | None:
        """Why nothing is measured any more; None while it is."""

    @property
    def findings(self) -> Sequence[SlowWorker]:
        """The stragglers of now, the most certain first."""

    @property
    def recent(self) -> Iterable[ThreadTotals]:
        """The last polls, in order."""


class Tab:
    """The pages on one scheduler's dashboard.

    Their routes stay for as long as the scheduler serves, because Dask cannot take a route away. A page that is left
    open over :meth:`hide` says so, and goes on with the next :meth:`show`. The links are there in between only.
    """

    def __init__(self, variables: dict[str, Any]) -> None:
        #: What there is to draw; the same object where nothing has changed since the last :meth:`refresh`.
        self.view: TabView | None = None
        #: As HTML, why the figures stand still; None where they do not.
        self.notice: str | None = None
        #: Lists that the templates of all pages share.
        self._pages: list[str] = variables["pages"]
        self._plots: list[dict[str, str]] = variables["plots"]
        self._source: TabSource | None = None
        #: What each function made, and of which view.
        self._drawn: dict[Callable[[TabView], Any], tuple[TabView, Any]] = {}
        self._failed = False
        self._kept: deque[Details] = deque(maxlen=1 + WINDOW_NS // (KEEP_MS * 10**6))
        self._keeper = PeriodicCallback(self._keep, KEEP_MS)

    @property
    def shown(self) -> bool:
        """Whether there is something to show."""
        return self._source is not None

    def show(self, source: TabSource) -> None:
        """Link to the tab, and show this from now on."""
        self.hide(self._source)
        self._source = source
        self.view = None
        self._drawn.clear()
        self._pages.append(LINK)
        self._plots.append({"url": LINK, "name": "Efficiency"})
        self._plots.sort(key=lambda plot: plot["name"])
        self._keep()
        self._keeper.start()

    def hide(self, source: TabSource | None) -> None:
        """Link to it no more, and say so on pages that are open; no-op where another source is shown."""
        if source is None or source is not self._source:
            return
        self._source = None
        self._keeper.stop()
        self._kept.clear()
        self._pages[:] = [page for page in self._pages if page != LINK]
        self._plots[:] = [plot for plot in self._plots if plot["url"] != LINK]

    def refresh(self) -> None:
        """Take a new view if there is news, or a notice of why there is none."""
        source = self._source
        if source is None:
            self.notice = escape(GONE)
        elif source.off is not None:
            self.notice = escape(f"Nothing is measured any more: {source.off}")
        else:
            self._look(source)

    def _look(self, source: TabSource) -> None:
        polls = list(source.recent)
        heartbeat_seconds = max(REPORT_SECONDS, float(heartbeat_interval(len(source.cluster.present))))
        # Less a quarter, because polls and pages do not keep step.
        gap = 0.75e9 * max(UPDATE_MS / 1e3, heartbeat_seconds)
        if polls and (self.view is None or self.notice is not None or polls[-1].at - self.view.at >= gap):
            self.view = tab_view(
                source.cluster,
                polls,
                self._kept[0],
                since=source.since,
                now=time.time(),
                heartbeat_seconds=heartbeat_seconds,
                stragglers=source.findings,
            )
            self.notice = None

    def drawn(self, draw: Callable[[TabView], T], *, every_ns: int = 0) -> T:
        """What a function makes of the view, or made of an earlier one that is less than ``every_ns`` older.

        It is called once, however many pages are open.
        """
        now = self.view
        assert now is not None
        then, made = self._drawn.get(draw, (None, None))
        if then is None or (then is not now and now.at - then.at >= every_ns):
            made = draw(now)
            self._drawn[draw] = now, made
        return cast("T", made)

    def fail(self, error: Exception) -> None:
        """A page could not be drawn: log it the first time, and say it on the page."""
        if not self._failed:
            logger.exception("dask_efficiency could not draw its page", exc_info=error)
        self._failed = True
        self.notice = escape(f"This page failed: {type(error).__name__}: {error}"[:500])

    def _keep(self) -> None:
        source = self._source
        if source is not None and source.off is None:
            at = max((poll.at for poll in source.recent), default=source.cluster.started)
            self._kept.append(Details.of(source.cluster, at=at))
