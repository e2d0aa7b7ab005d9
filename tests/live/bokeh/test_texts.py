import re

import pytest

from dask_efficiency.accounts.buckets import UNKNOWN
from dask_efficiency.accounts.cluster.presence import Presence
from dask_efficiency.accounts.slow_worker import Cause, SlowWorker
from dask_efficiency.live.bokeh import texts
from dask_efficiency.live.bokeh.tab import Tab
from dask_efficiency.show.figures import FEW_ROWS
from tests.live.bokeh.meter import SECOND, Meter, busy_gpu
from tests.live.bokeh.test_columns import view_of


def test_before_any_report_a_notice_is_shown_and_durations_are_spelled_out(tab: Tab) -> None:
    now = view_of(tab, Meter(), seconds=0)
    assert texts.headline(now).endswith(texts.NO_REPORT)
    assert texts.prefixes_key(now) == texts.NO_TASK
    assert [texts.time_span(s) for s in (0.0, 59.6, 119.0, 300.2)] == ["0 s", "60 s", "119 s", "5 min"]


def test_each_key_names_the_colours_in_its_figure(tab: Tab) -> None:
    """Tasks hold two of four threads for 20 s; the other two are idle for 10 s, then there is no more work for them."""
    meter = Meter()
    tab.show(meter)
    meter.run_until(10)
    meter.cluster.work.set(False, at=10 * SECOND)
    now = view_of(tab, meter)
    names, percent = ["thread-cpu", "thread-noncpu", "idle"], ["16.7 %", "50.0 %", "33.3 %"]
    pairs = [*zip(names, percent, strict=True)]
    assert seen(texts.key_table(now)) == [*(text for pair in pairs for text in pair), "no-work"]
    assert seen(texts.timeline_key(now)) == [*map(" ".join, pairs), "no-work"]
    assert seen(texts.workers_key(now)) == names
    assert seen(texts.prefixes_key(now)) == names[:2]


def test_the_keys_hold_all_causes(tab: Tab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 80 thread-seconds two workers' tasks wait for 30, and 40 are idle."""
    meter = Meter()
    meter.gil = 0.8

    def split(presence: Presence, ns: int, *, at: int) -> dict[str, int]:
        known = {"parallelism": ns // 4, "scheduler": ns // 8}
        return {**known, UNKNOWN: ns - sum(known.values())}

    monkeypatch.setattr(meter.cluster.idle, "split", split)
    now = view_of(tab, meter)
    titles = re.findall(r'title="([^"]*)"', texts.key_table(now))
    causes = ["gil 30 %, unknown 7.5 %", "parallelism 12 %, scheduler 6.2 %, unknown 31 %"]
    assert [title.partition("\n")[2] for title in titles] == ["", *causes]
    more = [text for text in seen(texts.key_with_causes(now)) if text not in seen(texts.key_table(now))]
    assert [text.replace("&nbsp;", " ") for text in more] == causes
    assert titles == re.findall(r'title="([^"]*)"', texts.timeline_key(now))


def test_without_samples_the_reason_is_given(tab: Tab) -> None:
    now = view_of(tab, Meter())
    assert texts.findings(now).endswith("<br>Threads of 2 workers are not sampled: no /proc.")
    assert not any("\n" in title for title in re.findall(r'title="([^"]*)"', texts.key_table(now)))


def test_data_that_moved_breaks_after_a_comma_only_and_takes_no_room_without(tab: Tab) -> None:
    meter = Meter()
    assert texts.data_moved(view_of(tab, meter)) == ""
    meter.amounts = {"made/bytes": 100, "read-back/bytes": 512}
    found = texts.data_moved(view_of(tab, meter, seconds=40))
    assert "Last 20 s" in found
    assert found.endswith("Data&nbsp;moved:&nbsp;made&nbsp;200&nbsp;B, read-&NoBreak;back&nbsp;1.0&nbsp;kiB")
    meter.amounts = {"made/bytes": 150, "read-back/bytes": 512}
    tab._keep()
    tab._kept.popleft()
    meter.run_until(60)
    tab.refresh()
    assert tab.view is not None
    assert "(in&nbsp;all):&nbsp;made&nbsp;100&nbsp;B&nbsp;(300&nbsp;B), " in texts.data_moved(tab.view)


def seen(html: str) -> list[str]:
    """What a reader sees, tag by tag."""
    return [text for text in re.findall(r">([^<>]+)<", html) if text != "&emsp;"]


def test_stragglers_are_listed_with_their_cause_if_there_are_any(tab: Tab) -> None:
    meter = Meter()
    assert texts.straggler_table(view_of(tab, meter)) == ""
    meter.findings = (
        SlowWorker("<b>w3</b>", "h3", Cause.DISK, 2.0, 0.97, 0.0, 1.52),
        *(SlowWorker("", f"h{i}", Cause.GIL, 2.0, 0.97, 0.0, 3.0) for i in range(FEW_ROWS)),
    )
    text = texts.straggler_table(view_of(tab, meter, seconds=40))
    told = ["worker &lt;b&gt;w3&lt;/b&gt;", "takes 1.52x", "disk: its disk is slow", "97 % sure"]
    told += ["all workers of", "and 1 more"]
    assert [words for words in told if words not in text] == []
    assert text.count("<tr>") == FEW_ROWS


def test_with_many_workers_or_gpus_the_title_gives_the_choice_and_its_measure(tab: Tab) -> None:
    assert texts.few_workers_title(view_of(tab, Meter(20))).startswith("Workers: share of ")
    title = texts.few_workers_title(view_of(tab, Meter(25)))
    assert title.startswith(
        "The 20 of 25 workers whose time was useful least (of all, least 0 %, median 24 %, most 48 %): share of "
    )
    meter = Meter(20)
    meter.gpu = busy_gpu
    title = texts.few_gpus_title(view_of(tab, meter))
    assert title.startswith("The 16 of 20 GPUs, idle 40 % of the time, that are idle most&emsp;")
