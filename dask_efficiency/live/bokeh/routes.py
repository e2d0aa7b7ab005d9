"""Routes: the pages' places on a scheduler's dashboard, and all that is private to Dask there."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from bokeh.server.tornado import BokehTornado
from distributed.dashboard.components import add_periodic_callback
from distributed.dashboard.components.scheduler import BOKEH_THEME, env
from distributed.dashboard.core import BokehApplication
from distributed.dashboard.scheduler import template_variables
from distributed.http.scheduler.info import IndividualPlots
from tornado.ioloop import IOLoop

from dask_efficiency.live.bokeh.pages import PAGES, Page, whole
from dask_efficiency.live.bokeh.tab import LINK, UPDATE_MS, Source, Tab

if TYPE_CHECKING:
    from distributed import Scheduler


class NoDashboardError(RuntimeError):
    """The scheduler serves no Bokeh dashboard; says what it is without."""


#: Every scheduler's tab, from its first registration on.
_TABS: WeakKeyDictionary[Scheduler, Tab] = WeakKeyDictionary()


def show(scheduler: Scheduler, source: Source) -> None:
    """Put the pages on this scheduler's dashboard, or show this on those that are there.

    Raises
    ------
    NoDashboardError
        If the scheduler serves none.
    """
    tab = _TABS.get(scheduler)
    if tab is None:
        tab = _TABS[scheduler] = _install(scheduler)
    tab.show(source)


def hide(scheduler: Scheduler, source: Source) -> None:
    """Take the pages off again, as far as Dask allows; no-op where another source is shown."""
    tab = _TABS.get(scheduler)
    if tab is not None:
        tab.hide(source)


def _install(scheduler: Scheduler) -> Tab:
    """Serve the pages, once for a scheduler: Dask has no way to take a route away."""
    http = scheduler.http_application
    dashboard = next((app for app in http.applications if isinstance(app, BokehTornado)), None)
    if dashboard is None:
        raise NoDashboardError("the scheduler serves no Bokeh dashboard")
    # Memoised, so that these are the lists that the pages of Dask's own have.
    variables = template_variables(scheduler)
    tab = Tab(variables)
    documents = {f"/{LINK}": partial(_with_links, tab)}
    documents |= {f"/{path}": partial(_alone, page, tab) for path, page in PAGES.items()}
    application = BokehApplication(documents, scheduler, prefix=dashboard.prefix, template_variables=variables)
    http.add_application(application)
    application.initialize(IOLoop.current())
    application.start()
    # Dask's own handler knows only the first Bokeh application; of two, the later one is asked first.
    route = rf"{dashboard.prefix}/individual-plots.json"
    http.add_handlers(r".*", [(route, _IndividualPlots, {"dask_server": scheduler})])
    return tab


class _IndividualPlots(IndividualPlots):
    """Dask's list of plots for dask-labextension, and ours."""

    def write(self, chunk: Any) -> None:
        tab = _TABS.get(self.server)
        if isinstance(chunk, dict) and tab is not None and tab.shown:
            # Named as Dask names its own: the extension shows what comes after "Individual".
            chunk = {**chunk, **{path.replace("-", " ").title(): f"/{path}" for path in PAGES}}
        super().write(chunk)


def _with_links(tab: Tab, scheduler: Scheduler, extra: dict[str, Any], doc: Any) -> None:
    """All figures, with Dask's links above them."""
    _alone(whole, tab, scheduler, extra, doc)
    doc.template = env.get_template("simple.html")
    doc.template_variables.update(extra)


def _alone(make: Callable[[Tab], Page], tab: Tab, scheduler: Scheduler, extra: dict[str, Any], doc: Any) -> None:
    """A page that fills its window, or a panel of JupyterLab."""
    page = make(tab)
    page.update()
    add_periodic_callback(doc, page, UPDATE_MS)
    doc.add_root(page.root)
    doc.title = "Dask: Efficiency"
    doc.theme = BOKEH_THEME
