import json
import re
from html import unescape

from dask_efficiency import EfficiencyReport
from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.plugin.names import ALL_WORKERS
from dask_efficiency.report.sections.groups import lost_workers, prefixes, repeats, spans, worker_strips, workers
from dask_efficiency.report.sections.report import sections
from dask_efficiency.report.turnover import LostWorker
from dask_efficiency.report.values import Repeat
from dask_efficiency.show.document import MAX_ROWS, PAGE, Document, Section, is_empty
from dask_efficiency.show.drawn_buckets import COLOURS
from dask_efficiency.show.figures import NAME_LENGTH
from dask_efficiency.show.html.figures import SHADES
from dask_efficiency.show.html.render import fragment
from tests.report.samples import HOSTILE_NAMES, by_hand, causes, report_of, seconds, waiting_for_the_gil


def test_repeated_results_are_listed_with_advice() -> None:
    report = report_of(repeats={"load": Repeat(6, 2), "sum": Repeat(384, 4), "": Repeat(1, 2)})
    section = repeats(report)
    (line,) = section.lines
    assert line.startswith("results were computed up to 4 times, on request (391 tasks")
    assert "persist()" in line
    assert section.table.heads == ("prefix", "tasks", "computed up to")
    assert section.rows == (("sum", "384", "4 times"), ("load", "6", "2 times"), ("(no prefix)", "1", "2 times"))
    assert [part.title for part in sections(report)] == ["Computed again"]
    section = repeats(report_of(repeats={name: Repeat(9, 2) for name in (*HOSTILE_NAMES, *map(str, range(99)))}))
    assert len(section.rows) == 8
    assert all(len(cell) <= NAME_LENGTH and "\x1b" not in cell for row in section.rows for cell in row)
    assert section.lines[1] == f"the 8 prefixes with most of these tasks, of {99 + len(HOSTILE_NAMES)}:"


def test_each_lost_worker_has_a_line_the_most_costly_first() -> None:
    lost = [LostWorker(f"w{i}", "retired", True, 0, {}, i, 1) for i in range(10)]
    section = lost_workers(report_of(lost_workers=(*lost, LostWorker("x", "killed by SIGKILL", False, 99))))
    assert section.title == "Lost workers"
    assert section.lines[0].startswith("worker x was lost (killed by SIGKILL): ")
    assert (len(section.lines), section.lines[-1]) == (9, "3 more")
    assert len(lost_workers(report_of(lost_workers=tuple(lost)), PAGE).lines) == 10
    assert not lost_workers(report_of()).blocks


def test_a_report_in_retrospect_compares_no_workers() -> None:
    retrospect = report_of(by_worker={ALL_WORKERS: seconds(thread_cpu=3, idle=1)})
    assert workers(retrospect).lines == ("a report in retrospect does not distinguish workers",)
    assert workers(retrospect).rows == ()


def test_few_workers_are_all_shown_the_least_useful_first() -> None:
    section = workers(by_hand())
    assert section.rows == (
        # a held 9 of 10 s and 6 of 10 were useful; b held 8 of 8 s and 4 of 7 were useful
        ("b", "2", "8.0", "100 %", "57 %", "thread-noncpu 29 %"),
        ("a", "2", "10.0", "90 %", "60 %", "spill 30 %"),
    )
    assert section.lines == ("share of its time held by tasks: min 90 %, median 95 %, max 100 %; load balance 0.94",)


def test_a_workers_largest_loss_is_a_cause_where_one_is_most_of_it() -> None:
    rows = (causes(**{"thread-noncpu/gil": gil, "thread-noncpu/unknown": rest}) for gil, rest in ((3, 2), (1, 3)))
    rows_of = seconds(thread_cpu=5, thread_noncpu=5), seconds(thread_cpu=6, thread_noncpu=4)
    report = report_of(*rows_of, causes_by_worker=dict(zip(("w0", "w1"), rows, strict=True)))
    assert [row[5] for row in workers(report).rows] == ["thread-noncpu/gil 30 %", "thread-noncpu 40 %"]


def test_each_prefix_has_its_largest_cause() -> None:
    table = prefixes(waiting_for_the_gil()).table
    assert table.heads[-1] == "waits for"
    assert table.words == (0, len(table.heads) - 1)
    assert {row[0]: row[-1] for row in table.rows} == {"clean": "gil 86 %", "load": "file 100 %"}
    assert "waits for" not in prefixes(waiting_for_the_gil(causes_by_prefix={})).table.heads


def test_a_worker_that_was_never_there_is_no_bad_worker() -> None:
    section = workers(report_of(*[seconds(thread_cpu=3, idle=1)] * 9, seconds(), seconds(running=2)))
    assert all(row[4] == "75 %" for row in section.rows)


def test_a_row_of_prefixes_adds_up_to_the_time_held_and_those_beyond_the_eighth_are_one() -> None:
    thirds = seconds(thread_cpu=5 / 3, thread_noncpu=5 / 3, spill=5 / 3)
    (row,) = prefixes(report_of(seconds(thread_cpu=5), by_prefix={"x": thirds})).rows
    assert row == ("x", "1.67", "1.67", "1.66", "0.00", "0.00", "5.00")
    section = prefixes(by_hand())
    assert section.table.heads == ("prefix", "cpu", "noncpu", "spill", "overhead", "failed", "other", "held")
    assert section.rows[1] == ("sum", "4.00", "2.00", "0.00", "0.00", "1.00", "1.00", "8.00")
    many = {f"p{i}": seconds(thread_cpu=i) for i in range(1, 12)}
    section = prefixes(report_of(seconds(thread_cpu=66), by_prefix=many))
    assert [row[0] for row in section.rows] == [*(f"p{i}" for i in range(11, 3, -1)), "3 more prefixes"]
    assert section.rows[-1][-1] == "6.0"


def test_of_thousands_of_prefixes_and_workers_a_page_folds_away_a_bounded_number() -> None:
    def folded(number: int) -> list[str]:
        many = {f"p{i}": seconds(thread_cpu=i + 1) for i in range(number)}
        report = report_of(by_prefix=many, by_worker=many)
        parts = (*prefixes(report, PAGE).sections, *workers(report, PAGE).sections)
        assert all(part.folded for part in parts)
        return [part.title for part in parts]

    assert folded(PAGE.prefixes) == []
    assert folded(MAX_ROWS) == [f"All {MAX_ROWS} prefixes", f"All {MAX_ROWS} workers"]
    assert folded(MAX_ROWS + 1) == [f"{MAX_ROWS} of {MAX_ROWS + 1} prefixes"]


def test_spans_are_shown_as_a_tree_where_there_are_several() -> None:
    by_span = {
        "a run": seconds(thread_cpu=3, idle=2, no_work=9),
        "a run/etl.py:7": seconds(thread_cpu=1, idle=2),
        "a run/etl.py:9": seconds(thread_cpu=2),
        "(other work)": seconds(thread_cpu=1, waiting_on_data=2),
        "(no span)": seconds(unmeasured=1),
    }
    idle = dict.fromkeys(("a run", "a run/etl.py:7"), causes(**{"idle/graph": 0.5, "idle/parallelism": 1.5}))
    section = spans(report_of(seconds(thread_cpu=8), by_span=by_span, causes_by_span=idle))
    assert section.lines == (
        "the time of free threads is shared equally by the spans that had work outstanding",
        "a span includes its inner spans, which begin with '/': the others add up to the whole",
        "of the time that tasks held, 75 % is of the report's own, the rest of others",
    )
    assert section.table.heads == ("span", "held", "on data", "idle", "lost", "thread-s", "useful", "idle for")
    assert section.rows == (
        ("a run", "3.00", "0.00", "2.00", "0.00", "5.00", "60 %", "parallelism"),
        ("/etl.py:7", "1.00", "0.00", "2.00", "0.00", "3.00", "33 %", "parallelism"),
        ("/etl.py:9", "2.00", "0.00", "0.00", "0.00", "2.00", "100 %", ""),
        ("(other work)", "1.00", "2.00", "0.00", "0.00", "3.00", "33 %", ""),
        ("(no span)", "0.00", "0.00", "0.00", "1.00", "1.00", "0 %", ""),
    )
    # a span whose only content is one span is listed once
    alone = {"a run": seconds(thread_cpu=3), "a run/etl.py:7": seconds(thread_cpu=3), "(no span)": seconds(no_work=3)}
    assert spans(report_of(by_span=alone)).rows == ()


def test_of_many_spans_the_largest_are_listed_and_the_rest_is_one_row() -> None:
    many = {f"span {i}": seconds(thread_cpu=i) for i in range(1, 12)}
    inner = {f"span 11/{i}": seconds(thread_cpu=1) for i in range(11)}
    section = spans(report_of(seconds(thread_cpu=66), by_span=many | inner))
    names = [row[0] for row in section.rows]
    assert names[0] == "span 11"
    assert [name for name in names if "/" in name] == [f"/{i}" for i in range(8)]
    assert names[-2:] == ["span 4", "3 more spans"]
    assert section.rows[-1][1] == "6.0"
    assert "3 more spans in these" in section.lines


def strips(report: EfficiencyReport) -> str:
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
    spilled = [seconds(thread_cpu=10 - spill, spill=spill) for spill in (1, 5, 0)]
    report = report_of(*spilled, seconds(no_work=4))
    assert names(report) == ["w1", "w0", "w2"]
    assert cells(report, Bucket.SPILL) == [10, 2, 0]
    assert cells(report, Bucket.THREAD_CPU) == [5, 9, 10]
    # small shares are faint, however they differ, and visible
    report = report_of(seconds(thread_cpu=1000, failed=1), seconds(thread_cpu=960, failed=40))
    assert cells(report, Bucket.FAILED) == [2, 1]
    # the spread of each cause is in figures
    report = report_of(*(seconds(thread_cpu=100 - spill, spill=spill) for spill in (10, 30, 50)))
    rows = {str(row[0]): row[1:] for row in worker_strips(report).table.rows}
    assert rows["spill"] == ("10 %", "30 %", "50 %")


def test_of_thousands_of_workers_neighbours_share_a_cell() -> None:
    report = report_of(*(seconds(thread_cpu=100, spill=i) for i in range(999)))
    assert len(cells(report, Bucket.SPILL)) == len(names(report)) == 250
    assert "least useful 4 workers first" in strips(report)
    assert is_empty(worker_strips(report_of(seconds(no_work=5))))
