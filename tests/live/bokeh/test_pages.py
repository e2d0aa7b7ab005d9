from __future__ import annotations

from collections.abc import Callable

import pytest
from bokeh.document import Document
from bokeh.document.events import ColumnDataChangedEvent, ColumnsPatchedEvent, ColumnsStreamedEvent

from dask_efficiency.live.bokeh import columns
from dask_efficiency.live.bokeh.pages import PAGES, Page, timeline, whole
from dask_efficiency.live.bokeh.tab import GONE, Tab
from tests.live.bokeh.meter import Meter, busy_gpu


def shown(page: Page, name: str) -> dict[str, list[object]]:
    return dict(page.root.select_one({"name": name}).data)


def headline(page: Page) -> str:
    return str(page.root.select_one({"name": "headline"}).text)


@pytest.mark.parametrize("make", PAGES.values(), ids=PAGES)
def test_a_page_that_is_left_open_stands_still_and_comes_back_to_life(tab: Tab, make: Callable[[Tab], Page]) -> None:
    meter = Meter()
    tab.show(meter)
    meter.run_until(10)
    page = make(tab)
    page.update()
    before = headline(page)
    assert before.startswith("<span")
    tab.hide(meter)
    page.update()
    assert headline(page) == GONE
    other = Meter(workers=1)
    tab.show(other)
    other.run_until(5)
    page.update()
    assert headline(page).startswith("<span")
    assert headline(page) != before


def test_figures_that_stand_still_keep_what_they_showed(tab: Tab) -> None:
    meter = Meter()
    tab.show(meter)
    meter.run_until(10)
    page = whole(tab)
    page.update()
    before = shown(page, "timeline")
    assert before["nthreads"] == [4.0, 4.0]
    tab.hide(meter)
    page.update()
    assert shown(page, "timeline") == before


class Viewer:
    """The columns of a figure as a browser has them that is sent the changes."""

    def __init__(self, page: Page, name: str) -> None:
        source = page.root.select_one({"name": name})
        self.columns = {column: list(values) for column, values in source.data.items()}
        self._document = Document()
        self._document.add_root(page.root)
        self._document.callbacks.on_change_dispatch_to(self)

    def _column_data_changed(self, event: ColumnDataChangedEvent) -> None:
        data = event.model.data
        self.columns.update({column: list(data[column]) for column in event.cols or data})

    def _columns_patched(self, event: ColumnsPatchedEvent) -> None:
        for column, changes in event.patches.items():
            for rows, values in changes:
                self.columns[column][rows] = values

    def _columns_streamed(self, event: ColumnsStreamedEvent) -> None:
        for column, values in event.data.items():
            self.columns[column] = [*self.columns[column], *values][-event.rollover :]


def test_viewers_that_are_sent_only_the_changes_see_all_there_is(tab: Tab) -> None:
    meter = Meter()
    tab.show(meter)
    meter.run_until(20)
    pages = [timeline(tab) for _ in range(2)]
    for page in pages:
        page.update()
    viewers = [Viewer(page, "timeline") for page in pages]
    for seconds in range(23, 700, 3):
        meter.run_until(seconds)
        # One of them looks less often.
        for page, viewer in [*zip(pages, viewers, strict=True)][: 1 + seconds % 2]:
            page.update()
            assert tab.view is not None
            assert viewer.columns == columns.timeline(tab.view)
    assert len(viewers[0].columns["left"]) > 50


def test_a_failure_of_a_page_is_logged_once_and_shown_until_it_is_over(
    tab: Tab, caplog: pytest.LogCaptureFixture
) -> None:
    meter = Meter()
    tab.show(meter)
    meter.run_until(10)
    page = whole(tab)
    meter.recent.append("no moment")  # type: ignore[arg-type]
    page.update()
    assert headline(page).startswith("This page failed: AttributeError")
    page.update()
    assert len(caplog.records) == 1
    meter.recent.pop()
    meter.run_until(20)
    page.update()
    assert "efficient" in headline(page)


def test_the_gpus_are_on_the_tab_where_there_are_any(tab: Tab) -> None:
    meter = Meter()
    tab.show(meter)
    meter.run_until(10)
    page = whole(tab)
    page.update()
    title, figure = page.root.children[4:6]
    assert not title.visible
    assert not figure.visible
    meter.gpu = busy_gpu
    meter.run_until(20)
    page.update()
    assert title.visible
    assert figure.visible
    assert shown(page, "gpus")["idle"] == [0.4, 0.4]
    assert "2 GPUs, idle 40 % of the time" in title.text
