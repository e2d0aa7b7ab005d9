import pytest

from dask_efficiency.accounts.gpu import DeviceTotals, GpuTotals
from dask_efficiency.live.bokeh import columns, texts
from dask_efficiency.live.bokeh.tab import Tab
from dask_efficiency.live.tab_view import TabView
from tests.live.bokeh.meter import SECOND, Meter


def view_of(tab: Tab, meter: Meter, seconds: int = 20) -> TabView:
    tab.show(meter)
    meter.run_until(seconds)
    tab.refresh()
    assert tab.view is not None
    return tab.view


@pytest.mark.parametrize("workers", [0, 2, 150])
def test_every_figures_columns_are_of_one_length(tab: Tab, workers: int) -> None:
    now = view_of(tab, Meter(workers))
    for names, *makers in (
        (columns.PIE, columns.pie),
        (columns.TIMELINE, columns.timeline),
        (columns.WORKERS, columns.few_workers, columns.all_workers),
        (columns.SPREAD, columns.worker_spread),
        (columns.PREFIXES, columns.prefixes),
        (columns.GPUS, columns.few_gpus, columns.all_gpus),
    ):
        for found in (make(now) for make in makers):
            assert tuple(found) == names
            assert len({len(column) for column in found.values()}) == 1


def test_the_figures_are_the_accounts_by_hand(tab: Tab) -> None:
    """In each of 20 s two workers hold one of their two threads each, one of them with half of it on the CPU."""
    now = view_of(tab, Meter())
    timeline = columns.timeline(now)
    assert timeline["left"] == [1_000_000, 1_005_000, 1_010_000, 1_015_000]
    assert timeline["nthreads"] == [4.0] * 4
    assert timeline["thread-cpu"] == [0.5] * 4
    assert timeline["idle"] == [2.0] * 4
    pie = columns.pie(now)
    assert dict(zip(pie["label"], pie["seconds"], strict=True)) == {"idle": 40, "thread-noncpu": 30, "thread-cpu": 10}
    bars = columns.all_workers(now)
    assert bars["name"] == ["tcp://0", "tcp://1"]
    assert (bars["thread-cpu"], bars["thread-noncpu"], bars["idle"]) == ([0, 0.25], [0.5, 0.25], [0.5, 0.5])
    prefixes = columns.prefixes(now)
    assert (prefixes["name"], prefixes["total"], prefixes["thread-cpu"]) == (["inc"], [40], [10])


def test_the_pie_lists_the_causes_of_a_wedge(tab: Tab) -> None:
    meter = Meter()
    meter.gil = 0.8
    pie = columns.pie(view_of(tab, meter))
    causes = dict(zip(pie["label"], pie["causes"], strict=True))
    assert causes == {"idle": "", "thread-noncpu": "gil 30 %, unknown 7.5 %", "thread-cpu": ""}


def test_above_a_hundred_workers_there_is_the_spread_instead_of_bars(tab: Tab) -> None:
    now = view_of(tab, Meter(100))
    assert len(columns.all_workers(now)["name"]) == 100
    assert columns.worker_spread(now)["name"] == []
    now = view_of(tab, Meter(101))
    assert columns.all_workers(now)["name"] == []
    spread = columns.worker_spread(now)
    assert spread["name"] == ["thread-cpu", "thread-noncpu", "idle"]
    quantiles = [spread[name][0] for name in ("q0", "q10", "q50", "q90", "q100")]
    assert quantiles == pytest.approx([0, 5 / 101, 25 / 101, 45 / 101, 50 / 101])
    assert (spread["least"][0], spread["most"][0]) == ("tcp://0", "tcp://100")
    assert "101 workers" in texts.workers_title(now)


def test_names_of_prefixes_and_gpus_are_text(tab: Tab) -> None:
    now = view_of(tab, Meter(prefixes=("<script>", "$$x$$")))
    assert sorted(columns.prefixes(now)["name"]) == ["$\u2060$x$\u2060$", "<script>"]
    assert "script" not in texts.prefixes_key(now)
    meter = Meter(1)
    device = DeviceTotals("$$x$$", "<script>", SECOND, SECOND, unattributed=SECOND)
    meter.gpu = lambda address, seconds: GpuTotals("cupti", "", (device,))
    now = view_of(tab, meter)
    assert columns.few_gpus(now)["name"] == ["tcp://0 <script> $\u2060$x$\u2060$"]
    assert "script" not in texts.few_gpus_title(now)


def test_without_a_gpu_no_figure_is_there_and_its_page_has_a_note(tab: Tab) -> None:
    now = view_of(tab, Meter())
    assert texts.few_gpus_title(now) == ""
    assert columns.all_gpus(now)["name"] == []
    assert texts.NO_GPU in texts.gpus_title(now)
