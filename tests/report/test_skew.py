import math
from dataclasses import replace

import pytest

from dask_efficiency.accounts.rows import OTHER
from dask_efficiency.report.facts import facts_of
from dask_efficiency.report.kinds import advice
from dask_efficiency.report.skew import (
    MIN_BYTES,
    MIN_TASKS,
    held_up,
    input_of,
    larger_input,
    long_tasks,
    longest,
    recorded_tasks,
    uneven_sizes,
    uneven_times,
)
from dask_efficiency.runs.stragglers.long_tail import LongTask
from dask_efficiency.show.finding import Basis
from tests.report.samples import report_of, skew


def test_the_prefixes_that_matter_most_come_first() -> None:
    found = {"mild": skew(max_seconds=3.0, max_bytes=2.0**30), "join": skew()}
    report = report_of(skew=found, cluster_seconds=40.0)
    assert list(uneven_times(report)) == ["join", "mild"]
    assert list(uneven_sizes(report)) == ["mild", "join"]
    assert list(long_tasks(report)) == list(held_up(report)) == ["join", "mild"]


@pytest.mark.parametrize(
    ("prefix", "fields"),
    [
        ("join", {"count": MIN_TASKS - 1}),
        ("join", {"max_seconds": 1.04, "max_bytes": 1.9 * 2**20}),
        ("join", {"median_seconds": 0.01, "max_seconds": 0.3, "median_bytes": 10.0, "max_bytes": MIN_BYTES - 1.0}),
        ("join", {"median_seconds": 0.0, "median_bytes": 0.0}),
        (OTHER, {}),
    ],
)
def test_what_is_too_few_too_even_too_small_or_put_together_is_not_worth_words(prefix: str, fields: dict) -> None:
    report = report_of(skew={prefix: skew(**fields)}, cluster_seconds=40.0)
    assert uneven_times(report) == uneven_sizes(report) == long_tasks(report) == {}


def test_only_a_task_that_held_all_else_up_for_a_good_part_of_the_run_does_so() -> None:
    assert held_up(report_of(skew={"join": skew(alone_seconds=1.9)}, cluster_seconds=40.0)) == {}
    assert held_up(report_of(skew={"join": skew(alone_seconds=2.1)}, cluster_seconds=40.0))
    assert held_up(report_of(skew={"join": skew(alone_seconds=0.0)}, cluster_seconds=0.0)) == {}
    assert long_tasks(report_of(skew={"join": skew()}, cluster_seconds=500.0)) == {}


def test_tasks_of_the_long_tail_are_not_repeated() -> None:
    known = LongTask("join", "('join', 13)", "w1", 200, 0.525, 21.0, 1e6, 20e6)
    report = report_of(skew={"join": skew(), "sum": skew()}, cluster_seconds=40.0, long_tail=(known,))
    assert list(long_tasks(report)) == ["sum"]
    assert list(uneven_times(report)) == ["join", "sum"]


@pytest.mark.parametrize(
    ("longest", "largest", "times"),
    [
        ("('heavy-1', 14)", "('p2pshuffle-2', 14)", 40.0),
        ("('heavy-1', 4, 0)", "('rechunk-2', 4, 0)", 40.0),
        ("('heavy-1', 14)", "('p2pshuffle-2', 4)", math.nan),
        ("('heavy-1', 4, 0)", "('rechunk-2', 5, 0)", math.nan),
        ("heavy-1", "p2pshuffle-2", math.nan),
    ],
)
def test_the_largest_result_of_the_same_partition_is_what_the_longest_task_worked_on(
    longest: str, largest: str, times: float
) -> None:
    heavy = skew(longest_key=longest, largest_key="", median_bytes=0.0, max_bytes=0.0)
    shuffle = skew(longest_key="", median_seconds=0.0, max_seconds=0.0, largest_key=largest, max_bytes=40.0 * 2**20)
    report = report_of(skew={"heavy": heavy, "p2pshuffle": shuffle}, cluster_seconds=40.0)
    assert input_of(report, heavy) == pytest.approx(times, nan_ok=True)
    for waited_for in ("", "heavy"):
        assert larger_input(report, waited_for) == pytest.approx(times, nan_ok=True)
    assert math.isnan(larger_input(report, "svd"))


def test_a_trace_knows_the_input_of_the_longest_task() -> None:
    known = LongTask("join", "('join', 13)", "w1", 200, 0.525, 21.0, 1e6, 20e6)
    assert larger_input(report_of(long_tail=(known,))) == 20.0
    assert math.isnan(larger_input(report_of(long_tail=(replace(known, median_bytes=0.0),))))
    assert math.isnan(larger_input(report_of()))
    assert larger_input(report_of(long_tail=(known,)), "join") == 20.0


def test_the_input_of_a_long_task_is_no_advice_where_all_waited_for_another() -> None:
    known = LongTask("qr", "('qr', 1)", "w1", 200, 0.01, 0.5, 1e6, 8e6)
    report = report_of(long_tail=(known,), waited_for={"svd": 9, "qr": 1})
    assert math.isnan(larger_input(report, "svd"))
    assert "salt" not in advice("idle/parallelism", facts_of(report))


def test_figures_that_are_no_numbers_are_worth_nothing() -> None:
    nothing = skew(median_seconds=math.nan, max_seconds=math.nan, median_bytes=math.nan, max_bytes=math.nan)
    report = report_of(skew={"join": nothing}, cluster_seconds=math.nan)
    assert uneven_times(report) == uneven_sizes(report) == {}


# -- as findings -----------------------------------------------------------------------------------


def where(**fields: object) -> str:
    return longest(report_of(skew={"join": skew(**fields)}, cluster_seconds=40.0), "join").where


def test_the_longest_task_of_a_prefix_is_a_finding_with_how_long_nothing_else_ran() -> None:
    found = longest(report_of(skew={"join": skew()}, cluster_seconds=40.0), "join")
    assert found.where == "The largest of 200 join took 21.0 s, 40 times the median; for 19.0 s nothing else ran"
    assert (found.kind, found.saves_seconds, found.basis) == ("long-task", 21.0, Basis.BOUNDED)


def test_the_longest_is_not_called_the_largest_where_another_is() -> None:
    said = "The longest of 200 join took 21.0 s, 40 times the median; for 19.0 s nothing else ran"
    assert where(largest_key="another") == said
    assert where(max_bytes=1.5 * 2**20) == said


def test_the_input_size_of_the_longest_task_is_given_if_known() -> None:
    larger = skew(count=50, max_bytes=30 * 2.0**20, largest_key="('load', 13)", alone_seconds=0.0)
    report = report_of(skew={"join": skew(largest_key="another"), "load": larger}, cluster_seconds=40.0)
    assert longest(report, "join").where == (
        "The longest of 200 join took 21.0 s, 40 times the median, its input is 30 times as large; "
        "for 19.0 s nothing else ran"
    )


def test_a_short_time_alone_is_no_finding() -> None:
    assert all(where(alone_seconds=alone).endswith("40 times the median") for alone in (0.0, 1.0))


def test_with_a_trace_time_and_input_size_are_given_once() -> None:
    known = LongTask("join", "('join', 13)", "w1", 200, 0.525, 21.0, 1e6, 20e6)
    said = "Task ('join', 13) took 21.0 s, 40 times the median, its input is 20 times as large"
    assert known.finding().where == said
    for key, alone in (("('join', 13)", "; for 19.0 s nothing else ran"), ("another", "")):
        report = report_of(skew={"join": skew(longest_key=key)}, long_tail=(known,))
        assert [one.where for one in recorded_tasks(report)] == [f"{said}{alone}"]


def test_a_hostile_prefix_is_harmless() -> None:
    name = "\x1b[31m" + "x" * 1000
    assert longest(report_of(skew={name: skew()}), name).where.isprintable()
