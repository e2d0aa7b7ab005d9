from hypothesis import given

from dask_efficiency import EfficiencyReport, compare
from dask_efficiency.report.comparison_findings import caveats, excess, find, format_rise, headline
from dask_efficiency.report.kinds import KINDS
from dask_efficiency.show.finding import MAX_HEADLINE, MAX_TITLE, Basis
from tests.report.comparison_samples import Side, explained_sides, run, sides, waited
from tests.report.samples import HOSTILE_NAMES, by_hand, report_of, seconds


def found(before: EfficiencyReport | list[EfficiencyReport], after: EfficiencyReport) -> list[str]:
    return [one.lines[0] for one in find(compare(before, after))]


def test_a_loss_that_grew_is_a_finding_with_its_prefix_and_a_bound_of_the_saving() -> None:
    before = run(5.5, thread_cpu=9, spill=2, prefixes={"merge": seconds(spill=1), "load": seconds(spill=1)})
    after = run(10, thread_cpu=9, spill=11, prefixes={"merge": seconds(spill=9), "load": seconds(spill=2)})
    (grown,) = find(compare(before, after))
    assert (grown.kind, grown.page) == ("spill", "docs/buckets.md#spill")
    assert (grown.lost_seconds, grown.saves_seconds, grown.basis) == (9.0, 4.5, Basis.BOUNDED)  # two threads
    assert grown.evidence == {"thread_seconds_before": 2.0, "thread_seconds_after": 11.0}
    assert grown.lines[0] == "Grown: spilling to disk: saves up to 4.5 s. 2.0 -> 11.0 thread-seconds, mostly in merge"
    (less,) = find(compare(after, before))
    assert less.lines == ("Less: spilling to disk. 11.0 -> 2.0 thread-seconds, mostly in merge",)
    assert (less.lost_seconds, less.saves_seconds) == (0.0, None)


def test_a_prefix_is_named_harmlessly_and_only_if_most_of_the_change_is_in_it() -> None:
    after = run(thread_cpu=9, spill=4, prefixes={"a": seconds(spill=2), "b": seconds(spill=2)})
    assert "mostly" not in found(run(thread_cpu=9), after)[0]
    for name in filter(None, HOSTILE_NAMES):
        (line,) = found(run(thread_cpu=9), run(thread_cpu=9, spill=5, prefixes={name: seconds(spill=5)}))
        assert line.isprintable()
        assert "mostly in" in line


def test_new_and_gone_losses_are_called_so_the_larger_first_and_causes_stand_in_place_of_their_bucket() -> None:
    assert found(run(thread_cpu=9, spill=10), run(thread_cpu=9, idle=11)) == [
        "New: threads idle: saves up to 5.5 s. 0.0 -> 11.0 thread-seconds",
        "Gone: spilling to disk. 10.0 -> 0.0 thread-seconds",
    ]
    assert found(waited(gil=8, file=2), waited(core=9, file=2)) == [
        "New: waiting for a core: saves up to 4.3 s. 0.0 -> 9.0 thread-seconds, mostly in clean",
        "Gone: waiting for the GIL. 8.0 -> 0.0 thread-seconds, mostly in clean",
    ]


def test_growth_without_a_known_cause_has_no_saving() -> None:
    (line, *_) = found(waited(), waited(unknown=4, gil=1))
    assert line.startswith("New: tasks off the CPU, for no known reason: 4.0 s of thread time. 0.0 -> 4.0 ")


def test_no_saving_is_more_than_the_ideal_runtime_leaves() -> None:
    (grown,) = find(compare(run(thread_cpu=8, idle=2), run(thread_cpu=8, idle=12, fields={"cores": 1.0})))
    assert grown.saves_seconds == 2.0  # 8 s of CPU on one core


def test_with_other_threads_the_wall_clock_decides_the_direction() -> None:
    on_2_threads, on_8 = run(20, thread_cpu=1, spill=39), run(5.25, thread_cpu=1, spill=41)
    (less,) = find(compare(on_2_threads, on_8))
    assert less.lines == ("Less: spilling to disk. 39.0 -> 41.0 thread-seconds, 19.5 -> 5.1 s of the wall clock",)
    assert less.lost_seconds == 0.0


def test_less_than_3_percent_of_the_wall_clock_is_no_finding() -> None:
    assert found(run(thread_cpu=9), run(thread_cpu=9, spill=0.27)) == []
    assert len(found(run(thread_cpu=9), run(thread_cpu=9, spill=0.29))) == 1
    elsewhere = {"window_seconds": 20.0}
    assert found(run(thread_cpu=9, fields=elsewhere), run(thread_cpu=9, spill=0.29, fields=elsewhere)) == []
    # nor are time that was not measured, and a change between runs without runtimes
    assert found(run(thread_cpu=5, unmeasured=15), run(thread_cpu=20)) == []
    assert found(run(0.0, thread_cpu=5, spill=1), run(thread_cpu=5, spill=9)) == []


def test_only_changes_beyond_the_spread_of_the_runs_are_findings() -> None:
    before = [run(thread_cpu=9, spill=spill, failed=1) for spill in (4.5, 5, 5.5)]
    (grown,) = found(before, run(thread_cpu=9, spill=6, failed=2))
    assert grown.startswith("Grown: tasks failed: ")


def test_the_time_of_the_client_and_without_workers_are_findings() -> None:
    before = run(thread_cpu=10, fields={"window_seconds": 17.0, "no_workers_seconds": 5.0})
    assert found(before, run(thread_cpu=10, fields={"window_seconds": 20.0})) == [
        "Grown: no work on the cluster: saves up to 8.0 s. 2.0 -> 10.0 s",
        "Gone: no worker was there. 5.00 -> 0.00 s",
    ]


@given(sides | explained_sides, sides | explained_sides)
def test_headline_and_findings_of_any_comparison_keep_their_bounds(before, after):
    found = compare(before, after)
    assert all(text.isprintable() for text in (headline(found), *found.caveats))
    assert 0 < len(headline(found)) <= MAX_HEADLINE
    left = max(run.cluster_seconds - run.ideal_seconds for run in after)
    for one in find(found):
        assert one.lines[0].isprintable()
        assert len(one.lines) <= 2
        has_grown = one.title.startswith(("New: ", "Grown: "))
        assert has_grown or (one.lost_seconds, one.saves_seconds, one.advice) == (0.0, None, "")
        assert one.kind == "client" or (one.saves_seconds or 0.0) <= left


def test_every_title_of_a_report_has_room_for_the_word_of_its_change() -> None:
    assert max(len(kind.title) for kind in KINDS.values()) <= MAX_TITLE - len("Grown: ")


def test_the_headline_compares_runtime_and_lost_time() -> None:
    for before, after, text in (
        (run(8.2, spill=11), run(9.4, spill=34), "15 % slower: 8.20 -> 9.40 s; lost time rose by 209 %, 11.0 -> 34.0"),
        (run(20, spill=10), run(12, spill=0.5), "40 % faster: 20.0 -> 12.0 s; lost time fell by 95 %, 10.0 -> 0.5"),
        (run(10, spill=2), run(20, idle=2), "100 % slower: 10.0 -> 20.0 s; lost time is the same, 2.00"),
        (run(thread_cpu=9), run(idle=2), "As fast as before: 10.0 -> 10.0 s; lost time rose, 0.00 -> 2.00"),
        (run(0.0, spill=1), run(spill=2), "Lost time rose by 100 %, 1.00 -> 2.00"),
        (by_hand(), by_hand(), "No difference: both took 5.0 s and lost 7.0"),
    ):
        assert headline(compare(before, after)) == f"{text} thread-seconds"
    assert headline(compare(run(no_work=5), by_hand())) == "Nothing to compare: nothing ran before"
    assert headline(compare(by_hand(), report_of())) == "Nothing to compare: nothing ran after"


def test_a_change_within_the_spread_of_the_runs_is_called_so() -> None:
    noise = "more than the spread of the runs"
    for walls, spills, text in (
        ((10, 11, 13), (2, 3, 5), f"Neither runtime nor lost time changed by {noise}"),
        ((10, 11, 13), (3, 3, 3), f"9.1 % slower, not {noise}; lost time rose by 33 %"),
        ((11, 11, 11), (2, 3, 5), f"9.1 % slower: 11.0 -> 12.0 s; lost time rose no {noise}"),
    ):
        runs = [run(wall, thread_cpu=9, spill=spill) for wall, spill in zip(walls, spills, strict=True)]
        assert headline(compare(runs, run(12, thread_cpu=9, spill=4))) == text
    over = "lost time rose by 20 %, from 5.000 to 6.000 thread-seconds (not more than the spread of the runs)"
    assert excess(compare([run(spill=2), run(spill=8)], run(spill=6))) == over


@given(sides)
def test_runs_compared_with_themselves_show_no_difference(side: Side) -> None:
    found = compare(side, side)
    assert headline(found).startswith(("No difference", "Nothing to compare"))
    assert (find(found), found.is_same, found.loses_more(0)) == ((), True, False)
    assert not any(change.is_new or change.is_gone for change in found.by_prefix.values())


def test_a_rise_is_signed_and_short() -> None:
    rises = (0.14, -0.034, 2.5, 0.0, 0.0009, 0.001, 100.0, 101.0)
    expected = ["+14 %", "-3.4 %", "+250 %", "", "", "+0.1 %", "+10000 %", ""]
    assert [format_rise(rise) for rise in rises] == expected


def test_other_workers_work_prices_notes_and_time_without_an_account_are_caveats() -> None:
    fields = {"nthreads": {"w0": 4}, "price_per_worker_hour": 2.5, "notes": ("a\x1bb",)}
    found = "\n".join(caveats(compare(run(thread_cpu=9), run(thread_cpu=12, fields=fields))))
    assert "0 -> 4 threads" in found
    assert "useful time differs" in found
    assert "not the same in all runs: none, 2.5" in found
    assert r"after: a\x1bb" in found
    assert caveats(compare(run(thread_cpu=9, spill=1), run(thread_cpu=9, spill=8))) == ()
    assert caveats(compare(run(thread_cpu=98, unmeasured=2), run(thread_cpu=98, running=98))) == (
        "before, 2.0 % of the time was not measured: there is no comparing that part",
        "after, 50 % of the time was in tasks that had not ended",
    )
    one, other = (run(thread_cpu=9, fields={"nthreads": {"w0": n}}) for n in (2, 4))
    assert any("did not all have the same" in text for text in caveats(compare([one, other, other], other)))


def test_a_run_that_does_not_know_why_threads_waited_is_a_caveat() -> None:
    unknown = report_of(seconds(thread_cpu=10, thread_noncpu=4))
    text = "why threads waited is not known before: what libraries' threads computed is among thread-noncpu there"
    assert text in caveats(compare(unknown, waited(gil=4)))
    assert text.replace("before", "after") in caveats(compare(waited(gil=4), unknown))
    for both in (unknown, waited(gil=4)):
        assert not any("why threads waited" in caveat for caveat in caveats(compare(both, both)))
