import json
import re
from html import unescape

from dask_efficiency import EfficiencyReport
from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.report.sections.groups import MAX_CELLS, worker_strips
from dask_efficiency.show.colours import COLOURS
from dask_efficiency.show.document import Document, Section, is_empty
from dask_efficiency.show.html.figures import SHADES
from dask_efficiency.show.html.render import fragment
from tests.report.samples import HOSTILE_NAMES, report_of, seconds


def strips(report: EfficiencyReport) -> str:
    """The strips as a page has them."""
    return fragment(Document("", "", "", (Section("", (worker_strips(report),)),))).partition("</style>")[2]


def cells(report: EfficiencyReport, bucket: Bucket) -> list[int]:
    """The shades of one strip, from left to right."""
    html = strips(report)
    width = int(re.search(r'viewBox="0 0 (\d+) 1"', html)[1])  # type: ignore[index]
    shades = [0] * width
    paths = rf'<path stroke="{COLOURS[bucket]}" stroke-opacity="([\d.]+)" d="([^"]*)"'
    for opacity, path in re.findall(paths, html):
        for x, length in re.findall(r"M(\d+) \.5h(\d+)", path):
            shades[int(x) : int(x) + int(length)] = [round(float(opacity) * SHADES)] * int(length)
    return shades


def names(report: EfficiencyReport) -> list[str]:
    return json.loads(unescape(re.search(r'data-cells="([^"]*)"', strips(report))[1]))  # type: ignore[index]


def test_each_worker_has_a_cell_in_every_strip_and_the_least_useful_is_first() -> None:
    report = report_of(
        seconds(thread_cpu=9, spill=1), seconds(thread_cpu=5, spill=5), seconds(thread_cpu=10), seconds(no_work=4)
    )
    assert names(report) == ["w1", "w0", "w2"]
    assert cells(report, Bucket.SPILL) == [10, 2, 0]
    assert cells(report, Bucket.THREAD_CPU) == [5, 9, 10]


def test_small_shares_are_faint_however_they_differ_and_are_seen() -> None:
    report = report_of(seconds(thread_cpu=1000, failed=1), seconds(thread_cpu=960, failed=40))
    assert cells(report, Bucket.FAILED) == [2, 1]


def test_the_spread_of_each_cause_is_in_figures() -> None:
    report = report_of(*(seconds(thread_cpu=100 - spill, spill=spill) for spill in (10, 30, 50)))
    assert "spill</td>" in strips(report)
    figures = re.search(r"spill</td>.*?</svg></td>(.*?)</tr>", strips(report))
    assert figures is not None
    assert re.findall(r"<td>(.*?)</td>", figures.group(1)) == ["10 %", "30 %", "50 %"]


def test_of_thousands_of_workers_neighbours_share_a_cell() -> None:
    report = report_of(*(seconds(thread_cpu=100, spill=i) for i in range(MAX_CELLS * 4 - 1)))
    assert len(cells(report, Bucket.SPILL)) == len(names(report)) == MAX_CELLS
    assert "least useful 4 workers first" in strips(report)


def test_names_that_are_code_stay_names() -> None:
    html = strips(report_of(by_worker={name: seconds(thread_cpu=1) for name in HOSTILE_NAMES}))
    assert "<script" not in html
    assert "<img" not in html
    assert len(html) < 10_000


def test_without_time_there_is_no_strip() -> None:
    assert is_empty(worker_strips(report_of(seconds(no_work=5))))
