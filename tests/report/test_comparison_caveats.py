from __future__ import annotations

from dask_efficiency import compare
from dask_efficiency.report.comparison_caveats import caveats
from tests.report.comparison_samples import run, waited
from tests.report.samples import report_of, seconds


def test_runs_that_are_alike_have_none() -> None:
    assert caveats(compare(run(thread_cpu=9, spill=1), run(thread_cpu=9, spill=8))) == ()


def test_other_workers_work_prices_and_notes_are_caveats() -> None:
    fields = {"nthreads": {"w0": 4}, "price_per_worker_hour": 2.5, "notes": ("a\x1bb",)}
    found = "\n".join(caveats(compare(run(thread_cpu=9), run(thread_cpu=12, fields=fields))))
    assert "0 -> 4 threads" in found
    assert "useful time differs" in found
    assert "not the same in all runs: none, 2.5" in found
    assert r"after: a\x1bb" in found


def test_unmeasured_and_running_time_are_caveats() -> None:
    found = compare(run(thread_cpu=98, unmeasured=2), run(thread_cpu=98, running=98))
    assert caveats(found) == (
        "before, 2.0 % of the time was not measured: there is no comparing that part",
        "after, 50 % of the time was in tasks that had not ended",
    )


def test_runs_of_one_side_with_other_threads_are_a_caveat() -> None:
    one, other = (run(thread_cpu=9, fields={"nthreads": {"w0": n}}) for n in (2, 4))
    assert any("did not all have the same" in said for said in caveats(compare([one, other, other], other)))


def test_a_run_that_does_not_know_why_threads_waited_is_a_caveat() -> None:
    unknown = report_of(seconds(thread_cpu=10, thread_noncpu=4))
    said = "why threads waited is not known before: what libraries' threads computed is among thread-noncpu there"
    assert said in caveats(compare(unknown, waited(gil=4)))
    assert said.replace("before", "after") in caveats(compare(waited(gil=4), unknown))
    for both in (unknown, waited(gil=4)):
        assert not any("why threads waited" in caveat for caveat in caveats(compare(both, both)))
