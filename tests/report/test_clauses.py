from __future__ import annotations

from hypothesis import given

from dask_efficiency import EfficiencyReport
from dask_efficiency.accounts.causes import CAUSES, UNKNOWN
from dask_efficiency.report.clauses import PHRASES, loss_name, why_not_known
from tests.report.samples import causes, report_of, reports, seconds


def test_every_known_cause_has_a_name_for_sentences() -> None:
    assert set(PHRASES) == {(bucket, cause) for bucket in CAUSES for cause in CAUSES[bucket] if cause != UNKNOWN}
    assert loss_name("thread-noncpu", "gil") == "waiting for the GIL"
    assert loss_name("thread-noncpu", "lock", in_libraries=True) == "waiting for threads of a library"
    assert loss_name("idle", UNKNOWN) == loss_name("idle", "") == "idle"


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
