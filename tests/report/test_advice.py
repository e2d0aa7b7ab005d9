from __future__ import annotations

import math
import string
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given

from dask_efficiency import EfficiencyReport
from dask_efficiency.buckets import GOOD, Bucket
from dask_efficiency.critical_paths.summary import PathSummary
from dask_efficiency.report.advice import RULES, Facts, advice, advised, facts_of
from tests.report.samples import report_of, reports, seconds

#: A run of which nothing stands out.
PLAIN = Facts(
    task_seconds=1.0,
    threads=4.0,
    held_threads=3.0,
    cores=2.0,
    gpu_waiting=0.0,
    core_waiting=0.0,
    libraries=0.0,
    one_core=0.0,
    spilling=0.0,
    load_balance=0.95,
    chain=math.nan,
    longest_task=math.nan,
    joining=False,
)

OR = "too few at a time, or a busy scheduler"

#: By bucket and the first words of a rule, what must be so for it to be given.
CASES = {
    ("thread-noncpu", "mostly waiting for GPUs"): {"gpu_waiting": 0.6},
    ("thread-noncpu", "waiting for 2 cores"): {"core_waiting": 0.6, "one_core": 0.9},
    ("thread-noncpu", "libraries' own threads"): {"libraries": 0.3, "one_core": 0.9},
    ("thread-noncpu", "each worker used about one core"): {"one_core": 0.9},
    ("overhead", "tasks of 1.0 ms are small"): {"task_seconds": 0.001},
    ("overhead", "workers' event loops were late, and they spilled"): {"spilling": 0.1},
    ("idle", "one task took 60 % of the makespan"): {"longest_task": 0.6},
    ("idle", "tasks waited for one another (90 %"): {"chain": 0.9, "longest_task": 0.1},
    ("idle", "tasks of 1.0 ms end sooner"): {"task_seconds": 0.001},
    ("idle", "one task at a time, 1 of 4 threads"): {"held_threads": 1.0},
    ("idle", "uneven work (load balance 0.50)"): {"load_balance": 0.5},
    ("idle", "3 of 4 threads had a task: too few at a time, or a busy scheduler; see the critical path"): {
        "chain": 0.1
    },
    ("unmeasured", "workers that were joining"): {"joining": True},
}


@pytest.mark.parametrize(("case", "facts"), CASES.items(), ids=[f"{b}: {w}" for b, w in CASES])
def test_a_rule_is_given_where_its_condition_holds_and_nowhere_else(case: tuple[str, str], facts: dict) -> None:
    bucket, words = case
    assert advice(bucket, replace(PLAIN, **facts)).startswith(words)
    assert not advice(bucket, PLAIN).startswith(words)


def test_every_rule_with_a_condition_has_a_case() -> None:
    conditional = [rule for rule in RULES if not rule.holds(PLAIN)]
    assert len(conditional) == len(CASES)


def test_nothing_that_is_not_known_makes_a_rule_hold() -> None:
    nan = math.nan
    unknown = Facts(nan, nan, nan, None, 0.0, 0.0, 0.0, 0.0, 0.0, nan, nan, nan, joining=False)
    for bucket in Bucket:
        rules = [rule for rule in RULES if rule.bucket is bucket]
        if rules:
            assert advice(bucket, unknown) == rules[-1].words.format(**unknown.words())


@pytest.mark.parametrize("bucket", Bucket)
def test_every_loss_has_advice_that_fits_a_line_and_nothing_else_has(bucket: Bucket) -> None:
    is_loss = bucket not in (*GOOD, Bucket.NO_WORK, Bucket.RUNNING)
    assert bool(advice(bucket, PLAIN)) == is_loss
    for rule in RULES:
        assert len(rule.words.format(**PLAIN.words())) <= 100
        assert rule.words.isascii()
        assert {name for _, name, _, _ in string.Formatter().parse(rule.words) if name} <= PLAIN.words().keys()


def test_every_rule_names_a_heading_of_the_documentation() -> None:
    text = (Path(__file__).parents[2] / "docs" / "buckets.md").read_text(encoding="utf-8")
    headings = {line.lstrip("# ").strip("`") for line in text.splitlines() if line.startswith("#")}
    for rule in RULES:
        page, _, anchor = rule.page.partition("#")
        assert page == "docs/buckets.md"
        assert anchor in headings


def test_losses_below_five_percent_get_no_advice() -> None:
    assert list(advised(report_of(seconds(thread_cpu=90, spill=6, idle=4)))) == ["spill"]


def test_the_facts_of_a_report_worked_out_by_hand() -> None:
    # Two workers of three threads for 10 s: a keeps one core busy with all of them, b a task for a third of the time.
    report = report_of(
        seconds(thread_cpu=10, thread_noncpu=20),
        seconds(thread_cpu=4, thread_noncpu=4, spill=2, idle=20),
        cluster_seconds=10.0,
        window_seconds=10.0,
        nthreads={"w0": 3, "w1": 3},
        tasks={"succeeded": 14, "failed": 1},
        cores=2.0,
        details={"thread-noncpu: GPU wait": 6.0, "thread-noncpu: waiting for a core": 12.0},
        outside={"CPU of other threads": 2.0, "other threads waiting for a core": 1.6},
        path=PathSummary("It took long", 10.0, {}, 9.0, 2.0, 8.0),
    )
    facts = facts_of(report)
    assert facts.task_seconds == pytest.approx(38 / 15)
    assert (facts.threads, facts.held_threads) == (6.0, 4.0)
    assert facts.one_core == pytest.approx(20 / 24)
    assert (facts.gpu_waiting, facts.core_waiting) == (0.25, 0.5)
    assert facts.libraries == pytest.approx(0.15)
    assert facts.spilling == pytest.approx(2 / 60)
    assert facts.load_balance == pytest.approx(20 / 30)
    assert (facts.chain, facts.longest_task) == (pytest.approx(0.9), pytest.approx(0.2))


def test_one_task_that_is_most_of_the_chain_is_no_chain() -> None:
    facts = facts_of(
        report_of(seconds(thread_cpu=4, idle=5), path=PathSummary("It took long", 10.0, {}, 9.0, 8.0, 8.0))
    )
    assert math.isnan(facts.chain)
    assert facts.longest_task == 0.8


@given(reports)
def test_any_report_has_advice_for_losses_only(report: EfficiencyReport) -> None:
    found = advised(report)
    assert set(found) <= {str(loss.bucket) for loss in report.losses}
    assert all(text and text.isprintable() for text in found.values())
