from dataclasses import dataclass, replace

import pytest
from hypothesis import example, given

from dask_efficiency import EfficiencyReport
from dask_efficiency.report.sections.report import (
    context,
    factors,
    first_screen,
    not_counted,
    not_measured,
    outside,
    page,
    sections,
    with_predictions,
)
from dask_efficiency.report.turnover import LostWorker
from dask_efficiency.report.values import HeldFor
from dask_efficiency.show.document import Document, Section, section
from dask_efficiency.show.finding import Finding
from dask_efficiency.show.terminal import plain
from tests.report.samples import by_hand, report_of, reports, seconds


@dataclass(frozen=True)
class Elsewhere:
    section: Section


def test_predictions_stand_behind_the_critical_path_and_otherwise_last() -> None:
    def page_of(*titles: str) -> Document:
        return Document("Report", "", "Headline", tuple(section(title, "A sentence.") for title in titles))

    title, one, other = "Simulation: what it would take elsewhere", section("On 16", "1 s."), section("By size", "2 s.")
    found = with_predictions(page_of("Factors", "Critical path: why", "Notes"), [Elsewhere(one), Elsewhere(other)])
    assert [part.title for part in found.sections] == ["Factors", "Critical path: why", title, "Notes"]
    assert found.sections[2].sections == (one, other)
    without = page_of("Factors", "Notes")
    assert with_predictions(without, [Elsewhere(one)]).sections[-1].title == title
    assert with_predictions(without, []) is without


def titles(report: EfficiencyReport) -> list[str]:
    return [part.title for part in sections(report)]


def test_empty_sections_are_absent_on_a_screen_and_a_page_which_also_explains_findings() -> None:
    assert titles(report_of()) == []
    assert titles(report_of(seconds(no_work=4))) == ["Lost time"]
    shown = ("More findings", "Lost time", "Factors", "Workers", "Prefixes by time held (thread-s)", "Client phases")
    assert titles(by_hand()) == [*shown]
    on_page = {part.title: part for part in page(by_hand()).sections}
    found = on_page.pop("What findings mean")
    assert [*on_page] == titles(by_hand())
    assert found.folded
    heads = ["spill: Spilling to disk", "client: No work on the cluster", "failed: Tasks failed"]
    assert [part.title for part in found.sections] == heads


def test_the_context_counts_workers_threads_and_tasks_and_time_without_work_is_left_out() -> None:
    assert context(by_hand()) == "2 workers, 4 threads, a window of 5.0 s; tasks: 12 succeeded, 1 failed"
    idle = report_of(seconds(idle=1))
    assert context(idle) == "1 worker, a window of 5.0 s"
    stayed = {"workers": 2, "most_workers": 2, "most_threads": 4}
    assert context(replace(idle, attendance=stayed)) == "2 workers, 4 threads, a window of 5.0 s"
    went = {"workers": 5, "most_workers": 3, "most_threads": 6}
    text = "5 workers came and went, at most 3 at a time with 6 threads, a window of 5.0 s"
    assert context(replace(idle, attendance=went)) == text
    assert not_counted(by_hand()) == "Not counted: 2.0 thread-seconds with no work outstanding (no-work)"
    assert not_counted(idle) == ""


def test_the_context_names_a_worker_that_was_lost_and_counts_several() -> None:
    killed = LostWorker("w1", "killed by SIGKILL", False, 10**9)
    left = LostWorker("w2", "retired", True, 0)
    assert context(by_hand(lost_workers=(left,))) == context(by_hand())
    one, two = by_hand(lost_workers=(left, killed)), by_hand(lost_workers=(LostWorker("w3", "", False, 1), killed))
    assert context(one) == f"{context(by_hand())}; worker w1 was lost (killed by SIGKILL)"
    assert context(two) == f"{context(by_hand())}; 2 workers were lost, such as w1 (killed by SIGKILL)"


def test_where_nothing_ran_there_is_no_bar_of_what_was_not_measured() -> None:
    report = report_of(seconds(no_work=100, unmeasured=2, lost_worker=1), window_seconds=20.0, cluster_seconds=0.0)
    assert first_screen(report).headline.startswith("Nothing ran")
    assert first_screen(report).figure is None


def test_where_workers_have_a_price_the_first_screen_has_the_cost_and_the_part_of_lost_time() -> None:
    # 3600 thread-seconds of a worker with two threads at 2 an hour, a quarter of them lost
    priced = report_of(seconds(thread_cpu=2700, spill=900), nthreads={"w0": 2}, price_per_worker_hour=2.0)
    assert "cost 1.00 (0.25 of it for lost time)" in plain(first_screen(priced))
    assert "cost" not in context(replace(priced, price_per_worker_hour=None))


def test_the_factors_are_listed_with_poor_ones_named_but_not_those_of_very_little_time() -> None:
    product, poor, _ = factors(report_of(seconds(thread_cpu=7, spill=3))).lines
    assert product.startswith("efficiency 0.700 = supply 1.000 x transfer 1.000 x memory 0.700 x ")
    assert poor == "below 0.8, the mark of a good factor: memory"
    # after thread-noncpu, 0.04 s of the 10 are left: nobody knows what "unknown 0.500" means
    lines = factors(report_of(seconds(thread_cpu=0.02, unmeasured=0.02, thread_noncpu=9.96))).lines
    assert "unknown 0.500" in lines[0]
    assert lines[1:3] == (
        "below 0.8, the mark of a good factor: in-task",
        "no verdict on unknown: a share of less than 1 thread-second",
    )


def test_seconds_outside_the_sums_are_sorted_and_bounded() -> None:
    part = outside(report_of(outside={f"label-{i}": float(i) for i in range(30)}))
    assert part.rows[0] == ("label-29", "29.0 s")
    assert len(part.rows) == 12
    assert part.lines == ("the 12 largest of 29",)


def test_workers_that_were_not_measured_are_gathered_by_reason() -> None:
    part = not_measured(report_of(not_measured={f"w{i}": "package absent" for i in range(200)} | {"x": "late"}))
    assert part.lines == ("workers w0, w1, w2 and 197 more: package absent", "worker x: late")
    assert part.caveat


@given(reports)
@example(report_of(seconds(spill=9), held_for=(HeldFor("p", "future", "\x1b[2J" * 9, "", 1.0, 1.0, 1),)))
def test_everything_shown_of_any_report_is_printable_and_bounded(report: EfficiencyReport) -> None:
    for finding in report.findings:
        assert f"{finding.title}{finding.advice}".isprintable()
    for part in (inner for one in sections(report) for inner in (one, *one.sections)):
        for cell in (*part.lines, *part.table.heads, *(cell for row in part.rows for cell in row)):
            assert cell.isprintable()
            assert len(cell) < 700
        assert all(len(row) == len(part.table.heads) for row in part.rows)


def test_a_first_screen_gives_no_advice_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "Call read_csv once, with all parts or paths of a kind: 300 dataframes were made one by one."
    found = [Finding("small-tasks", "Too many small tasks", advice=words), Finding("client", "No work", advice=words)]
    monkeypatch.setattr("dask_efficiency.report.sections.report.leading", lambda report: found)
    assert [advice for _, advice in first_screen(by_hand()).findings] == [words, "See 1: the same helps here."]
