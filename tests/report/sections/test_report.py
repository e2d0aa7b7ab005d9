from hypothesis import example, given

from dask_efficiency import EfficiencyReport
from dask_efficiency.report.sections.report import context, factors, not_counted, not_measured, outside, page, sections
from dask_efficiency.report.values import HeldResult
from tests.report.samples import by_hand, report_of, reports, seconds


def titles(report: EfficiencyReport) -> list[str]:
    return [section.title for section in sections(report)]


def test_sections_with_nothing_to_say_are_absent() -> None:
    assert titles(report_of()) == []
    assert titles(report_of(seconds(no_work=4))) == ["Lost time"]
    assert titles(by_hand()) == [
        *("More findings", "Lost time", "Factors", "Workers", "Prefixes by time held (thread-s)", "Client phases")
    ]


def test_a_page_and_a_screen_have_their_sections_in_one_order() -> None:
    on_page = [section.title for section in page(by_hand()).sections]
    assert [title for title in on_page if title != "What findings mean"] == titles(by_hand())


def test_a_page_has_what_the_first_findings_mean_folded_away() -> None:
    (found,) = [section for section in page(by_hand()).sections if section.title == "What findings mean"]
    assert found.folded
    assert [block.text.splitlines()[0] for block in found.blocks] == ["## `spill`", "### `client`", "## `failed`"]


def test_the_context_counts_what_the_report_covers() -> None:
    expected = "2 workers, 4 threads, a window of 5.0 s; tasks: 12 succeeded, 1 failed"
    assert context(by_hand()) == expected
    assert context(report_of(seconds(idle=1))) == "1 worker, a window of 5.0 s"


def test_workers_that_came_and_went_are_counted() -> None:
    stayed = {"workers": 2, "most_workers": 2, "most_threads": 4}
    assert context(report_of(seconds(idle=1), attendance=stayed)) == "2 workers, 4 threads, a window of 5.0 s"
    went = {"workers": 5, "most_workers": 3, "most_threads": 6}
    assert context(report_of(seconds(idle=1), attendance=went)) == (
        "5 workers came and went, at most 3 at a time with 6 threads, a window of 5.0 s"
    )


def test_time_without_work_is_noted_as_left_out() -> None:
    assert not_counted(by_hand()) == "Not counted: 2.0 thread-seconds with no work outstanding (no-work)"
    assert not_counted(report_of(seconds(idle=1))) == ""


def test_the_factors_are_listed_with_poor_ones_named() -> None:
    product, poor, _ = factors(report_of(seconds(thread_cpu=7, spill=3))).lines
    assert product.startswith("efficiency 0.700 = supply 1.000 x transfer 1.000 x memory 0.700 x ")
    assert poor == "below 0.8, the mark of a good factor: memory"


def test_a_factor_of_very_little_time_is_not_called_poor() -> None:
    # after thread-noncpu, 0.04 s of the 10 are left: nobody knows what "unknown 0.500" means
    lines = factors(report_of(seconds(thread_cpu=0.02, unmeasured=0.02, thread_noncpu=9.96))).lines
    assert "unknown 0.500" in lines[0]
    assert lines[1:3] == (
        "below 0.8, the mark of a good factor: in-task",
        "no verdict on unknown: a share of less than 1 thread-second",
    )


def test_seconds_outside_the_sums_are_sorted_and_bounded() -> None:
    section = outside(report_of(outside={f"label-{i}": float(i) for i in range(30)}))
    assert section.rows[0] == ("label-29", "29.0 s")
    assert len(section.rows) == 12
    assert section.lines == ("the 12 largest of 29",)


def test_workers_that_were_not_measured_are_gathered_by_reason() -> None:
    section = not_measured(report_of(not_measured={f"w{i}": "package absent" for i in range(200)} | {"x": "late"}))
    assert section.lines == ("w0, w1, w2 and 197 more: package absent", "x: late")
    assert section.caveat


@given(reports)
@example(report_of(seconds(spill=9), held_results=(HeldResult("p", "\x1b[2J" * 9, 1.0, 1.0),)))
def test_everything_shown_of_any_report_is_printable_and_bounded(report: EfficiencyReport) -> None:
    for finding in report.findings:
        assert f"{finding.title}{finding.advice}".isprintable()
    for section in sections(report):
        for cell in (*section.lines, *section.table.heads, *(cell for row in section.rows for cell in row)):
            assert cell.isprintable()
            assert len(cell) < 500
        assert all(len(row) == len(section.table.heads) for row in section.rows)
