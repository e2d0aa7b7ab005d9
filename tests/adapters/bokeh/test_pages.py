from __future__ import annotations

from collections.abc import Callable

import pytest

from dask_efficiency.adapters.bokeh.pages import PAGES, Page, timeline, whole
from dask_efficiency.adapters.bokeh.tab import GONE, Tab
from tests.adapters.bokeh.meter import Meter


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
    columns = shown(page, "timeline")
    assert columns["nthreads"] == [4.0, 4.0]
    tab.hide(meter)
    page.update()
    assert shown(page, "timeline") == columns


def test_a_timeline_that_is_sent_step_by_step_is_that_of_a_page_opened_now(tab: Tab) -> None:
    meter = Meter()
    tab.show(meter)
    page = timeline(tab)
    for seconds in range(0, 700, 3):
        meter.run_until(seconds)
        page.update()
    fresh = timeline(tab)
    fresh.update()
    assert len(shown(fresh, "timeline")["left"]) > 50
    assert shown(page, "timeline") == shown(fresh, "timeline")


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
