from hypothesis import given

from dask_efficiency import EfficiencyReport
from dask_efficiency.report.figures import NAME_LENGTH
from dask_efficiency.report.model import ALL_WORKERS, Repeat
from dask_efficiency.report.sections import (
    beside,
    context,
    not_counted,
    not_measured,
    prefixes,
    repeats,
    sections,
    spans,
    workers,
)
from tests.report.samples import HOSTILE_NAMES, by_hand, report_of, reports, seconds


def titles(report: EfficiencyReport) -> list[str]:
    return [section.title for section in sections(report)]


def test_sections_with_nothing_to_say_are_absent() -> None:
    assert titles(report_of()) == []
    assert titles(report_of(seconds(no_work=4))) == []
    assert titles(by_hand()) == ["Factors", "Client phases", "Workers", "Prefixes by time held (thread-s)"]


def test_what_was_computed_again_is_told_with_what_to_do_about_it() -> None:
    report = report_of(repeats={"load": Repeat(6, 2), "sum": Repeat(384, 4), "": Repeat(1, 2)})
    section = repeats(report)
    (told,) = section.lines
    assert told.startswith("the same results were computed up to 4 times, because they were asked for again (391 tasks")
    assert "persist()" in told
    assert section.heads == ("prefix", "tasks", "computed up to")
    assert section.rows == (("sum", "384", "4 times"), ("load", "6", "2 times"), ("(no prefix)", "1", "2 times"))
    assert titles(report) == ["Computed again"]


def test_many_prefixes_that_were_computed_again_are_bounded_and_their_names_harmless() -> None:
    section = repeats(report_of(repeats={name: Repeat(9, 2) for name in (*HOSTILE_NAMES, *map(str, range(99)))}))
    assert len(section.rows) == 8
    assert all(len(cell) <= NAME_LENGTH and "\x1b" not in cell for row in section.rows for cell in row)
    assert section.lines[1] == f"the 8 prefixes with most of these tasks, of {99 + len(HOSTILE_NAMES)}:"


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


def test_a_report_in_retrospect_compares_no_workers() -> None:
    retrospect = report_of(by_worker={ALL_WORKERS: seconds(thread_cpu=3, idle=1)})
    assert workers(retrospect).lines == ("a report in retrospect does not tell them apart",)
    assert workers(retrospect).rows == ()


def test_time_without_work_is_said_to_be_left_out() -> None:
    assert not_counted(by_hand()) == "Not counted: 2.0 thread-seconds with no work outstanding (no-work)"
    assert not_counted(report_of(seconds(idle=1))) == ""


def test_the_factors_are_said_with_those_that_are_poor() -> None:
    product, poor, _ = sections(report_of(seconds(thread_cpu=7, spill=3)))[0].lines
    assert product.startswith("efficiency 0.700 = supply 1.000 x transfer 1.000 x memory 0.700 x ")
    assert poor == "below 0.8, the mark of a good factor: memory"


def test_a_factor_of_very_little_time_is_not_called_poor() -> None:
    # after thread-noncpu, 0.04 s of the 10 are left: nobody knows what "unknown 0.500" means
    lines = sections(report_of(seconds(thread_cpu=0.02, unmeasured=0.02, thread_noncpu=9.96)))[0].lines
    assert "unknown 0.500" in lines[0]
    assert lines[1:3] == (
        "below 0.8, the mark of a good factor: in-task",
        "nothing is said of unknown: a share of less than 1 thread-second",
    )


def test_few_workers_are_all_shown_the_least_useful_first() -> None:
    section = workers(by_hand())
    assert section.rows == (
        # a held 9 of 10 s and 6 of 10 were useful; b held 8 of 8 s and 4 of 7 were useful
        ("b", "2", "8.0", "100 %", "57 %", "thread-noncpu 29 %"),
        ("a", "2", "10.0", "90 %", "60 %", "spill 30 %"),
    )
    assert section.lines == ("share of its time held by tasks: min 90 %, median 95 %, max 100 %; load balance 0.94",)


def test_of_two_hundred_workers_the_worst_five_are_shown() -> None:
    section = workers(report_of(*(seconds(thread_cpu=i, idle=200 - i) for i in range(200))))
    assert [row[0] for row in section.rows] == ["w0", "w1", "w2", "w3", "w4"]
    assert section.lines[1] == "the 5 of 200 with the smallest useful share:"


def test_a_worker_that_was_never_there_is_no_bad_worker() -> None:
    section = workers(report_of(*[seconds(thread_cpu=3, idle=1)] * 9, seconds(), seconds(running=2)))
    assert all(row[4] == "75 %" for row in section.rows)


def test_a_row_of_prefixes_adds_up_to_the_time_held() -> None:
    report = report_of(by_prefix={"x": seconds(thread_cpu=5 / 3, thread_noncpu=5 / 3, spill=5 / 3)})
    (row,) = prefixes(report).rows
    assert row == ("x", "1.67", "1.67", "1.66", "0.00", "0.00", "5.00")


def test_prefixes_beyond_the_eighth_are_folded_into_one_row() -> None:
    section = prefixes(report_of(by_prefix={f"p{i}": seconds(thread_cpu=i) for i in range(1, 12)}))
    assert [row[0] for row in section.rows] == [*(f"p{i}" for i in range(11, 3, -1)), "3 more prefixes"]
    assert section.rows[-1][-1] == "6.0"


def test_what_is_neither_shown_nor_useful_has_a_column_of_its_own() -> None:
    section = prefixes(by_hand())
    assert section.heads == ("prefix", "cpu", "noncpu", "spill", "overhead", "failed", "other", "held")
    assert section.rows[1] == ("sum", "4.00", "2.00", "0.00", "0.00", "1.00", "1.00", "8.00")


def test_spans_are_shown_where_there_are_several_and_the_own_one_is_named() -> None:
    mine = {"a run": seconds(thread_cpu=3), "a run/inner": seconds(spill=3)}
    assert spans(report_of(by_span={"a run": seconds(thread_cpu=3)})).rows == ()
    section = spans(report_of(by_span=mine | {"theirs (other work)": seconds(thread_cpu=2)}))
    assert section.lines == ("the report's own work held 75 % of this time, other work the rest",)
    assert section.rows[2] == ("theirs (other work)", "2.00", "25.0", "100 %")


def test_seconds_shown_beside_are_sorted_and_bounded() -> None:
    section = beside("Beside", {f"label-{i}": float(i) for i in range(30)})
    assert section.rows[0] == ("label-29", "29.0 s")
    assert len(section.rows) == 12
    assert section.lines == ("the 12 largest of 29",)


def test_workers_that_were_not_measured_are_gathered_by_reason() -> None:
    section = not_measured(report_of(not_measured={f"w{i}": "package absent" for i in range(200)} | {"x": "late"}))
    assert section.lines == ("w0, w1, w2 and 197 more: package absent", "x: late")
    assert section.caveat


@given(reports)
def test_everything_said_of_any_report_is_printable_and_bounded(report: EfficiencyReport) -> None:
    for section in sections(report):
        for cell in (*section.lines, *section.heads, *(cell for row in section.rows for cell in row)):
            assert cell.isprintable()
            assert len(cell) < 500
        assert all(len(row) == len(section.heads) for row in section.rows)


def test_hostile_names_are_bounded() -> None:
    rows = prefixes(report_of(by_prefix={name: seconds(thread_cpu=1) for name in HOSTILE_NAMES})).rows
    assert all(len(row[0]) <= NAME_LENGTH and row[0].isprintable() and row[0] for row in rows)
