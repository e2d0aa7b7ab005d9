from __future__ import annotations

from dask_efficiency.live.last_seconds import Details
from dask_efficiency.live.tab_view import TabView, tab_view
from tests.live.bokeh.meter import SECOND, Meter


def view(meter: Meter, then: Details) -> TabView:
    return tab_view(
        meter.cluster, meter.recent, then, since=meter.since, now=0.0, heartbeat_seconds=1.0, stragglers=meter.findings
    )


def test_threads_are_shown_for_five_minutes_and_the_parts_since_what_was_kept() -> None:
    meter = Meter()
    meter.run_until(290)
    then = Details.of(meter.cluster, at=290 * SECOND)
    meter.run_until(600)
    found = view(meter, then)
    assert found.at == 600 * SECOND
    assert found.last.seconds == 300
    assert found.last.did.total_ns == 4 * 300 * SECOND
    assert found.seconds_by_part == 310
    assert found.last.workers.nanoseconds.sum() == 4 * 310 * SECOND


def test_the_bins_reach_from_the_first_poll_to_the_last() -> None:
    meter = Meter()
    then = Details.of(meter.cluster, at=0)
    meter.run_until(20)
    bins = view(meter, then).bins
    assert (bins.start[0], bins.stop[-1]) == (0, 20 * SECOND)


def test_what_no_page_shows_is_not_read_and_what_is_shown_is_read_once() -> None:
    meter = Meter()
    then = Details.of(meter.cluster, at=0)
    meter.run_until(20)
    found = view(meter, then)
    assert found.last.prefixes.seconds.sum() == 40
    meter.run_until(30)
    assert found.last.prefixes.seconds.sum() == 40
    assert found.last.did.total_ns == 4 * 20 * SECOND
    assert "workers" not in vars(found.last.now)
