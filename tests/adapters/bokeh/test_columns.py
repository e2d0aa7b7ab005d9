from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from dask_efficiency.adapters.bokeh import columns
from dask_efficiency.adapters.bokeh.columns import Reading
from dask_efficiency.adapters.bokeh.tab import Tab
from dask_efficiency.gpu.totals import DeviceTotals, GpuTotals
from dask_efficiency.straggler.finding import Cause, Finding
from tests.adapters.bokeh.meter import SECOND, Meter, busy_gpu


def reading(tab: Tab, meter: Meter, seconds: int = 20) -> Reading:
    tab.show(meter)
    meter.run_until(seconds)
    tab.refresh()
    assert tab.reading is not None
    return tab.reading


@pytest.mark.parametrize("workers", [0, 2, 150])
def test_every_figures_columns_are_of_one_length(tab: Tab, workers: int) -> None:
    now = reading(tab, Meter(workers))
    for found, names in (
        (columns.pie(now), columns.PIE),
        (columns.timeline(now), columns.TIMELINE),
        (columns.few_workers(now).columns, columns.BARS),
        (columns.all_workers(now).columns, columns.BARS),
        (columns.worker_spread(now), columns.SPREAD),
        (columns.by_prefix(now).columns, columns.PREFIXES),
        (columns.few_gpus(now).columns, columns.GPUS),
        (columns.all_gpus(now), columns.GPUS),
    ):
        assert tuple(found) == names
        assert len({len(column) for column in found.values()}) == 1


def test_before_any_report_it_is_said_that_there_is_none(tab: Tab) -> None:
    now = reading(tab, Meter(), seconds=0)
    assert columns.verdict(now).endswith(columns.NO_REPORT)
    assert columns.by_prefix(now).key == columns.NO_TASK


def test_the_figures_are_the_accounts_by_hand(tab: Tab) -> None:
    """In each of 20 s two workers hold one of their two threads each, one of them with half of it on the CPU."""
    now = reading(tab, Meter())
    timeline = columns.timeline(now)
    assert timeline["left"] == [1_000_000, 1_005_000, 1_010_000, 1_015_000]
    assert timeline["nthreads"] == [4.0] * 4
    assert timeline["thread-cpu"] == [0.5] * 4
    assert timeline["idle"] == [2.0] * 4
    pie = columns.pie(now)
    assert dict(zip(pie["label"], pie["seconds"], strict=True)) == {"idle": 40, "thread-noncpu": 30, "thread-cpu": 10}
    bars = columns.all_workers(now).columns
    assert bars["name"] == ["tcp://0", "tcp://1"]
    assert (bars["thread-cpu"], bars["thread-noncpu"], bars["idle"]) == ([0, 0.25], [0.5, 0.25], [0.5, 0.5])
    prefixes = columns.by_prefix(now).columns
    assert (prefixes["name"], prefixes["total"], prefixes["thread-cpu"]) == (["inc"], [40], [10])


def test_workers_and_prefixes_count_from_the_oldest_that_was_kept(tab: Tab) -> None:
    meter = Meter(prefixes=("old",))
    tab.show(meter)
    for minute in range(1, 9):
        meter.run_until(60 * minute)
        tab._keep()
    meter.run_until(490)
    tab.refresh()
    now = tab.reading
    assert now is not None
    assert columns.by_prefix(now).columns["total"] == [2 * (490 - 180)]
    assert "Last 5 min" in columns.prefixes_title(now)


def test_above_a_hundred_workers_there_is_the_spread_instead_of_bars(tab: Tab) -> None:
    now = reading(tab, Meter(100))
    assert len(columns.all_workers(now).columns["name"]) == 100
    assert columns.worker_spread(now)["name"] == []
    now = reading(tab, Meter(101))
    assert columns.all_workers(now).columns["name"] == []
    spread = columns.worker_spread(now)
    assert spread["name"] == ["thread-cpu", "thread-noncpu", "idle"]
    quantiles = [spread[name][0] for name in ("q0", "q10", "q50", "q90", "q100")]
    assert quantiles == pytest.approx([0, 5 / 101, 25 / 101, 45 / 101, 50 / 101])
    assert (spread["least"][0], spread["most"][0]) == ("tcp://0", "tcp://100")
    assert "101 workers" in columns.workers_title(now)


def test_names_of_prefixes_are_text(tab: Tab) -> None:
    made: Any = columns.by_prefix(reading(tab, Meter(prefixes=("<script>", "$$x$$"))))
    assert sorted(made.columns["name"]) == ["$\u2060$x$\u2060$", "<script>"]
    assert "script" not in made.key


def test_the_keys_name_what_their_figures_draw(tab: Tab) -> None:
    """Tasks hold two of four threads for 20 s; the other two are idle for 10 s, then there is no more work for them."""
    meter = Meter()
    tab.show(meter)
    meter.run_until(10)
    meter.cluster.work.set(False, at=10 * SECOND)
    now = reading(tab, meter)
    names, percent = ["thread-cpu", "thread-noncpu", "idle"], ["16.7 %", "50.0 %", "33.3 %"]
    assert texts(columns.key_table(now)) == [text for pair in zip(names, percent, strict=True) for text in pair] + [
        "no-work"
    ]
    assert texts(columns.timeline_key(now)) == [*map(" ".join, zip(names, percent, strict=True)), "no-work"]
    assert texts(columns.workers_key(now)) == names
    assert texts(columns.by_prefix(now).key) == names[:2]


def texts(html: str) -> list[str]:
    """What a reader sees, tag by tag."""
    return [text for text in re.findall(r">([^<>]+)<", html) if text != "&emsp;"]


def test_stragglers_stand_with_their_cause_and_nothing_stands_there_without(tab: Tab) -> None:
    meter = Meter()
    assert columns.straggler_table(reading(tab, meter)) == ""
    meter.findings = (
        Finding("<b>w3</b>", "h3", Cause.DISK, 2.0, 0.97, 0.0, 1.52),
        *(Finding("", f"h{i}", Cause.GIL, 2.0, 0.97, 0.0, 3.0) for i in range(columns.MAX_STRAGGLERS)),
    )
    text = columns.straggler_table(reading(tab, meter, seconds=40))
    assert "worker &lt;b&gt;w3&lt;/b&gt;" in text
    assert "takes 1.52x" in text
    assert "disk: its disk is slow" in text
    assert "97 % sure" in text
    assert "all workers of" in text
    assert text.count("<tr>") == columns.MAX_STRAGGLERS
    assert "and 1 more" in text


def test_without_a_gpu_no_figure_is_there_and_a_page_of_its_own_says_so(tab: Tab) -> None:
    now = reading(tab, Meter())
    assert columns.few_gpus(now).title == ""
    assert columns.all_gpus(now)["name"] == []
    assert columns.NO_GPU in columns.gpus_title(now)


def test_gpus_count_from_the_oldest_that_was_kept(tab: Tab) -> None:
    meter = Meter()
    # idle for the first two minutes, then never
    meter.gpu = lambda address, seconds: busy_gpu(address, 1) if seconds <= 120 else _always(address, seconds)
    tab.show(meter)
    for minute in range(1, 9):
        meter.run_until(60 * minute)
        tab._keep()
    meter.run_until(490)
    tab.refresh()
    assert tab.reading is not None
    made = columns.few_gpus(tab.reading)
    assert made.columns["kernels"] == [1.0, 1.0]
    assert "2 GPUs, idle 0 % of the time" in made.title
    assert texts(columns.gpu_key(tab.reading)) == ["kernels", "copies", "idle"]


def _always(address: str, seconds: int) -> GpuTotals:
    """As a :func:`busy_gpu` of one second, and kernels without a pause from then on."""
    before = busy_gpu(address, 1)
    more = (seconds - 1) * SECOND
    (device,) = before.devices
    device = replace(
        device, elapsed=seconds * SECOND, kernels=device.kernels + more, unattributed=device.unattributed + more
    )
    return replace(before, devices=(device,), kernel_ns=before.kernel_ns + more)


def test_names_of_gpus_are_text(tab: Tab) -> None:
    meter = Meter(1)
    device = DeviceTotals("$$x$$", "<script>", SECOND, SECOND, unattributed=SECOND)
    meter.gpu = lambda address, seconds: GpuTotals("cupti", "", (device,))
    made = columns.few_gpus(reading(tab, meter))
    assert made.columns["name"] == ["tcp://0 <script> $\u2060$x$\u2060$"]
    assert "script" not in made.title
