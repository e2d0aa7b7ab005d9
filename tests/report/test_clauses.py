from __future__ import annotations

from hypothesis import given

from dask_efficiency import EfficiencyReport
from dask_efficiency.report.clauses import long_task, skewed, why_not_known
from dask_efficiency.runs.stragglers.long_tail import LongTask
from tests.report.samples import causes, report_of, reports, seconds, skew

LONG = LongTask("join", "('join', 13)", "w1", 200, 0.525, 21.0, 1e6, 20e6)


def test_the_longest_task_of_a_prefix_is_said_with_how_long_nothing_else_ran() -> None:
    assert skewed("join", skew()) == (
        "the largest of 200 join took 21.0 s, 40 times the median; for 19.0 s nothing else ran"
    )


def test_the_longest_is_not_called_the_largest_where_another_is() -> None:
    said = "the longest of 200 join took 21.0 s, 40 times the median; for 19.0 s nothing else ran"
    assert skewed("join", skew(largest_key="another")) == said
    assert skewed("join", skew(max_bytes=1.5 * 2**20)) == said


def test_the_size_of_the_input_of_the_longest_is_said_where_it_is_known() -> None:
    said = "the longest of 200 join took 21.0 s, 40 times the median, its input is 30 times as large"
    assert skewed("join", skew(largest_key="another"), 30.0).startswith(said)
    assert "input" not in skewed("join", skew(largest_key="another"), 1.5)


def test_nothing_is_said_of_a_short_time_alone() -> None:
    for alone in (0.0, 1.0):
        assert skewed("join", skew(alone_seconds=alone)).endswith("40 times the median")


def test_where_a_trace_knows_the_size_of_its_input_both_are_said_once() -> None:
    said = "task \"('join', 13)\" took 21.0 s, 40 times the median of its prefix, its input is 20 times as large"
    assert long_task(LONG) == said
    assert long_task(LONG, skew()) == f"{said}; for 19.0 s nothing else ran"
    assert long_task(LONG, skew(longest_key="another")) == said


def test_a_hostile_prefix_is_harmless() -> None:
    assert "\x1b" not in skewed("\x1b[31m" + "x" * 1000, skew())


def test_why_it_is_not_known_why_threads_waited_is_said_in_a_line() -> None:
    waited = seconds(thread_cpu=1, thread_noncpu=1)
    known = {"w0": causes(**{"thread-noncpu/gil": 1})}
    assert why_not_known(report_of(waited)) == "why threads waited is not known here: nobody looked"
    assert why_not_known(report_of(waited, not_sampled={"w0": "no /proc"})) == (
        "why threads waited is not known here: no /proc"
    )
    assert why_not_known(report_of(waited, waited, causes_by_worker=known, not_sampled={"w1": "no /proc"})) == (
        "why threads of w1 waited is not known here: no /proc"
    )
    reasons = {"w0": "no /proc", "w1": "switched off", "w2": "no /proc"}
    assert why_not_known(report_of(waited, waited, waited, not_sampled=reasons)) == (
        "why threads of w0, w2 waited is not known here: no /proc, and 1 more reason on other workers"
    )


def test_nothing_is_said_where_it_is_known_or_hardly_any_thread_waited() -> None:
    known = {"w0": causes(**{"thread-noncpu/unknown": 1})}
    assert why_not_known(report_of(seconds(thread_noncpu=1), causes_by_worker=known)) == ""
    assert why_not_known(report_of(seconds(thread_cpu=1))) == ""
    assert why_not_known(report_of(seconds(thread_cpu=200, thread_noncpu=1), not_sampled={"w0": "no /proc"})) == ""


@given(reports)
def test_of_any_report_it_is_one_printable_line(report: EfficiencyReport) -> None:
    assert why_not_known(report) == "" or why_not_known(report).isprintable()
