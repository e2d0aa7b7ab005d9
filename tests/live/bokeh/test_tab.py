import pytest

from dask_efficiency.live.bokeh.tab import GONE, KEEP_MS, Tab
from dask_efficiency.live.tab_view import TabView
from tests.live.bokeh.meter import SECOND, Meter


def view_of(tab: Tab) -> TabView:
    tab.refresh()
    assert tab.view is not None
    return tab.view


@pytest.fixture
def meter(tab: Tab) -> Meter:
    """A source that the tab shows."""
    meter = Meter()
    tab.show(meter)
    return meter


def second_of(view: TabView) -> int:
    return view.at // SECOND


def test_a_view_is_taken_anew_once_there_is_news(tab: Tab, meter: Meter) -> None:
    meter.run_until(10)
    first = view_of(tab)
    meter.run_until(11)
    assert view_of(tab) is first
    meter.run_until(12)
    assert view_of(tab).at == 12 * SECOND


def test_a_view_s_figures_are_made_once_for_all_pages(tab: Tab, meter: Meter) -> None:
    made: list[int] = []

    def second(view: TabView) -> int:
        made.append(second_of(view))
        return made[-1]

    for seconds in (10, 10, 12):
        meter.run_until(seconds)
        view_of(tab)
        assert [tab.drawn(second) for _ in range(3)] == [seconds] * 3
    assert made == [10, 12]


def test_slow_figures_are_made_less_often_and_anew_for_another_source(tab: Tab, meter: Meter) -> None:
    drawn = []
    for seconds in range(10, 22, 2):
        meter.run_until(seconds)
        view_of(tab)
        drawn.append(tab.drawn(second_of, every_ns=5 * SECOND))
    assert drawn == [10, 10, 10, 16, 16, 16]
    other = Meter()
    tab.show(other)
    other.run_until(2)
    view_of(tab)
    assert tab.drawn(second_of, every_ns=5 * SECOND) == 2


def test_the_last_minutes_begin_at_the_oldest_that_was_kept(tab: Tab, meter: Meter) -> None:
    for minute in range(1, 20):
        meter.run_until(60 * minute)
        tab._keep()
    assert view_of(tab).last.then.at == 14 * 60 * SECOND
    assert len(tab._kept) * KEEP_MS <= 6 * 60_000


def test_a_missing_source_and_a_failed_meter_have_a_notice(tab: Tab, meter: Meter) -> None:
    view = view_of(tab)
    tab.hide(meter)
    assert view_of(tab) is view
    assert tab.notice == GONE
    tab.show(meter)
    view_of(tab)
    assert tab.notice is None
    meter.off = "<b>it</b> failed"
    tab.refresh()
    assert tab.notice == "Metering has stopped: &lt;b&gt;it&lt;/b&gt; failed"


def test_links_come_and_go_and_are_never_there_twice(tab: Tab) -> None:
    first, second = Meter(), Meter()
    for source in (first, first, second):
        tab.show(source)
        assert tab._pages == ["status", "efficiency"]
        assert [plot["name"] for plot in tab._plots] == ["Efficiency", "Zebra"]
    tab.hide(first)
    assert tab.shown
    tab.hide(second)
    tab.hide(second)
    assert tab._pages == ["status"]
    assert [plot["name"] for plot in tab._plots] == ["Zebra"]
