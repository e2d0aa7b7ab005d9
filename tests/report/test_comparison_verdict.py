from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency import EfficiencyReport, compare
from dask_efficiency.report.comparison_verdict import caveats, excess, format_rise, headline
from tests.report.comparison_samples import explained_sides, sides
from tests.report.samples import HOSTILE_NAMES, by_hand, causes, report_of, reports, seconds


def run(wall: float = 10.0, *, prefixes: Any = None, fields: Any = None, **buckets: float) -> EfficiencyReport:
    return report_of(seconds(**buckets), cluster_seconds=wall, by_prefix=prefixes or {}, **(fields or {}))


def test_slower_with_the_cause_that_grew_most_and_where() -> None:
    before = run(61.5, thread_cpu=50, spill=3, idle=8, prefixes={"merge": seconds(spill=1), "load": seconds(spill=2)})
    after = run(70.1, thread_cpu=50, spill=25, idle=9, prefixes={"merge": seconds(spill=20), "load": seconds(spill=5)})
    assert headline(compare(before, after)) == (
        "14 % slower: 61.5 -> 70.1 s; lost time rose by 209 %, 11.0 -> 34.0 thread-seconds; "
        "the largest growth is spill, +22.0 thread-seconds, mostly in merge"
    )


def test_faster_with_the_cause_that_fell_most_in_no_one_prefix() -> None:
    before = run(20, thread_cpu=9, spill=10, prefixes={"a": seconds(spill=5), "b": seconds(spill=5)})
    after = run(12, thread_cpu=9, spill=0.5, prefixes={"a": seconds(spill=0.25), "b": seconds(spill=0.25)})
    assert headline(compare(before, after)) == (
        "40 % faster: 20.0 -> 12.0 s; lost time fell by 95 %, 10.0 -> 0.5 thread-seconds; "
        "the largest drop is spill, -9.5 thread-seconds"
    )


def test_a_cause_that_took_anothers_place_is_named_beside_it() -> None:
    said = headline(compare(run(thread_cpu=9, spill=10), run(thread_cpu=9, idle=11)))
    assert said == (
        "As fast as before: 10.0 -> 10.0 s; lost time rose by 10 %, 10.0 -> 11.0 thread-seconds; "
        "the largest growth is idle, +11.0 thread-seconds; the largest drop is spill, -10.0 thread-seconds"
    )


def waited(wall: float = 10.0, **by_cause: float) -> EfficiencyReport:
    row = causes(**{f"thread-noncpu/{cause}": value for cause, value in by_cause.items()})
    whole = seconds(thread_cpu=10, thread_noncpu=sum(by_cause.values()))
    by_prefix = {"causes_by_prefix": {"clean": row}, "causes_by_worker": {"w0": row}}
    return report_of(whole, cluster_seconds=wall, by_prefix={"clean": whole}, **by_prefix)


def test_the_cause_that_grew_is_named_and_where() -> None:
    assert headline(compare(waited(gil=1, file=2), waited(gil=9, file=3))) == (
        "As fast as before: 10.0 -> 10.0 s; lost time rose by 300 %, 3.0 -> 12.0 thread-seconds; "
        "the largest growth is waiting for the GIL, +8.0 thread-seconds, mostly in clean"
    )


def test_of_many_causes_that_grew_alike_the_bucket_is_named() -> None:
    said = headline(compare(waited(), waited(gil=3, file=3, core=3)))
    assert said.endswith("the largest growth is thread-noncpu, +9.0 thread-seconds, mostly in clean")


def test_a_cause_that_took_the_place_of_another_in_its_bucket_is_seen() -> None:
    said = headline(compare(waited(gil=8, file=2), waited(core=9, file=2)))
    assert said.endswith(
        "the largest growth is waiting for a core, +9.0 thread-seconds, mostly in clean; "
        "the largest drop is waiting for the GIL, -8.0 thread-seconds, mostly in clean"
    )


def test_an_unknown_cause_is_not_named_as_one() -> None:
    assert "the largest growth is thread-noncpu, +5.0" in headline(compare(waited(), waited(unknown=4, gil=1)))


def test_a_run_that_does_not_know_why_threads_waited_is_a_caveat() -> None:
    unknown = report_of(seconds(thread_cpu=10, thread_noncpu=4))
    said = "why threads waited is not known before: what libraries' threads computed is among thread-noncpu there"
    assert said in caveats(compare(unknown, waited(gil=4)))
    assert said.replace("before", "after") in caveats(compare(waited(gil=4), unknown))
    for both in (unknown, waited(gil=4)):
        assert not any("why threads waited" in caveat for caveat in caveats(compare(both, both)))


@given(explained_sides, explained_sides)
def test_any_causes_make_one_printable_line(before: list[EfficiencyReport], after: list[EfficiencyReport]) -> None:
    assert headline(compare(before, after)).isprintable()


def test_more_useful_time_is_not_called_lost() -> None:
    assert headline(compare(run(10, thread_cpu=10, spill=2), run(20, thread_cpu=20, spill=2))) == (
        "100 % slower: 10.0 -> 20.0 s; useful time rose by 100 %, 10.0 -> 20.0 thread-seconds; "
        "lost time is the same, 2.0 thread-seconds"
    )


def test_other_threads_are_said_with_the_runtime() -> None:
    one = {"nthreads": {"w0": 4}}
    said = headline(compare(run(thread_cpu=9, fields=one), run(5, thread_cpu=9, fields={"nthreads": {"w0": 8}})))
    assert said.startswith("50 % faster: 10.0 -> 5.0 s on 8 threads instead of 4; ")


def test_a_change_that_was_not_on_the_cluster_is_said_to_be_elsewhere() -> None:
    before, after = (
        run(thread_cpu=10, fields={"window_seconds": 12.0}),
        run(thread_cpu=10, fields={"window_seconds": 20.0}),
    )
    assert headline(compare(before, after)).startswith(
        "67 % slower: 12.0 -> 20.0 s, mostly on the client, 2.0 -> 10.0 s; lost time is the same"
    )


def test_no_difference() -> None:
    assert headline(compare(by_hand(), by_hand())) == "No difference: both took 5.0 s and lost 7.0 thread-seconds"


@given(sides)
def test_runs_compared_with_themselves_show_no_difference(side: list[EfficiencyReport]) -> None:
    assert headline(compare(side, side)).startswith(("No difference", "Nothing to compare"))


def test_a_side_in_which_nothing_ran_cannot_be_compared() -> None:
    assert headline(compare(run(no_work=5), by_hand())) == "Nothing to compare: nothing ran before"
    assert headline(compare(by_hand(), report_of())) == "Nothing to compare: nothing ran after"


def test_a_difference_as_large_as_the_runs_have_among_themselves_is_called_so() -> None:
    runs = [run(wall, thread_cpu=9, spill=spill) for wall, spill in ((10, 2.0), (11, 3.0), (13, 5.0))]
    assert headline(compare(runs, run(12, thread_cpu=9, spill=4))) == (
        "9.1 % slower: 11.0 -> 12.0 s; lost time rose by 33 %, 3.0 -> 4.0 thread-seconds; "
        "neither runtime nor lost time changed by more than the runs differ among themselves"
    )


def test_only_the_runtime_or_only_lost_time_may_be_within_the_spread() -> None:
    runs = [run(wall, thread_cpu=9, spill=3) for wall in (10, 11, 13)]
    assert "11.0 -> 12.0 s, not more than the runs differ among themselves; lost time rose by 33 %" in headline(
        compare(runs, run(12, thread_cpu=9, spill=4))
    )
    runs = [run(10, thread_cpu=9, spill=spill) for spill in (2, 3, 5)]
    assert headline(compare(runs, run(12, thread_cpu=9, spill=4))).endswith(
        "3.0 -> 4.0 thread-seconds, not more than the runs differ among themselves"
    )


def test_a_cause_within_its_spread_gives_way_to_one_beyond() -> None:
    before = [run(thread_cpu=9, spill=spill, failed=1) for spill in (2, 5, 9)]
    said = headline(compare(before, run(thread_cpu=9, spill=8, failed=2)))
    assert said.endswith("the largest growth beyond the runs' own spread is failed, +1.0 thread-seconds")


def test_unmeasured_time_is_said_and_is_no_drop() -> None:
    said = headline(compare(run(thread_cpu=5, unmeasured=15), run(thread_cpu=5, spill=1)))
    assert said.endswith("the largest growth is spill, +1.0 thread-seconds; before, 75 % of the time was not measured")
    assert "drop" not in said


def test_running_time_is_said() -> None:
    assert headline(compare(run(thread_cpu=5), run(thread_cpu=5, running=5))).endswith(
        "after, 50 % of the time was in tasks that had not ended"
    )


def test_without_runtimes_the_verdict_is_of_thread_time() -> None:
    assert headline(compare(run(0.0, thread_cpu=5, spill=1), run(thread_cpu=5, spill=2))).startswith(
        "Lost time rose by 100 %, 1.00 -> 2.00 thread-seconds"
    )


@given(st.lists(reports, min_size=1, max_size=2), reports)
def test_a_verdict_is_one_printable_line_for_any_reports(
    before: list[EfficiencyReport], after: EfficiencyReport
) -> None:
    found = compare(before, after)
    assert headline(found).isprintable()
    assert len(headline(found)) < 900
    assert all(said.isprintable() for said in caveats(found))


def test_a_prefix_is_named_harmlessly() -> None:
    for name in HOSTILE_NAMES:
        said = headline(compare(run(thread_cpu=9), run(thread_cpu=9, spill=5, prefixes={name: seconds(spill=5)})))
        assert said.isprintable()
        assert len(said) < 300
        assert "mostly in" in said


def test_caveats_of_two_runs_that_are_alike_are_none() -> None:
    assert caveats(compare(run(thread_cpu=9, spill=1), run(thread_cpu=9, spill=8))) == ()


def test_other_workers_work_prices_and_notes_are_caveats() -> None:
    fields = {"nthreads": {"w0": 4}, "price_per_worker_hour": 2.5, "notes": ("a\x1bb",)}
    found = "\n".join(caveats(compare(run(thread_cpu=9), run(thread_cpu=12, fields=fields))))
    assert "0 -> 4 threads" in found
    assert "useful time differs" in found
    assert "not the same in all runs: none, 2.5" in found
    assert r"after: a\x1bb" in found


def test_little_unmeasured_time_is_a_caveat_though_not_in_the_verdict() -> None:
    found = compare(run(thread_cpu=98, unmeasured=2), run(thread_cpu=98))
    assert caveats(found) == ("before, 2.0 % of the time was not measured: there is no comparing that part",)
    assert "measured" not in headline(found)


def test_runs_of_one_side_with_other_threads_are_a_caveat() -> None:
    one, other = (run(thread_cpu=9, fields={"nthreads": {"w0": n}}) for n in (2, 4))
    assert any("did not all have the same" in said for said in caveats(compare([one, other, other], other)))


def test_a_rise_is_signed_and_short() -> None:
    rises = (0.14, -0.034, 2.5, 0.0, float("inf"), 0.0004)
    assert [format_rise(rise) for rise in rises] == ["+14 %", "-3.4 %", "+250 %", "", "", ""]


def test_the_excess_over_a_limit_names_both_figures() -> None:
    assert excess(compare(run(spill=2), run(spill=2.5))) == (
        "lost time rose by 25 %, from 2.000 to 2.500 thread-seconds"
    )
    assert excess(compare(run(thread_cpu=1), run(spill=2.5))) == "lost time rose, from 0.000 to 2.500 thread-seconds"
    assert excess(compare([run(spill=2), run(spill=8)], run(spill=6))).endswith(
        "(not more than the runs differ among themselves)"
    )
