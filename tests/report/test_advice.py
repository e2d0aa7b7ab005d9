from __future__ import annotations

import math
import string
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given

from dask_efficiency import EfficiencyReport
from dask_efficiency.accounts.buckets import GOOD, Bucket
from dask_efficiency.accounts.causes import CAUSES, name_of
from dask_efficiency.accounts.profile import EVENT_LOOP, Frame
from dask_efficiency.report.advice import RULES, Facts, advice, advised, cause_advice, facts_of, page_of, read_on
from dask_efficiency.report.profile import GilHolder, Hold
from dask_efficiency.runs.path.summary import PathSummary
from tests.report.samples import causes, report_of, reports, seconds, skew, waiting_for_the_gil

#: A run of which nothing stands out.
PLAIN = Facts(
    task_seconds=1.0,
    threads=2.0,
    held_threads=1.5,
    cores=2.0,
    others=0.0,
    libraries=0.0,
    gil_of_loops=math.nan,
    gil_of_text=math.nan,
    one_thread_each=False,
    gpu_waiting=0.0,
    spilling=0.0,
    chain=math.nan,
    longest_task=math.nan,
    larger_input=math.nan,
    waited_for="",
    fills_workers=False,
    importing=0.0,
    joining=False,
)

#: By bucket, cause and the first words of a rule, what must be so for it to be given.
CASES = {
    ("thread-noncpu", "", "mostly waiting for GPUs"): {"gpu_waiting": 0.6},
    ("thread-noncpu", "lock", "mostly waiting for GPUs"): {"gpu_waiting": 0.6},
    ("thread-noncpu", "unknown", "mostly waiting for GPUs"): {"gpu_waiting": 0.6},
    ("thread-noncpu", "gil", "fewer and longer tasks with smaller results"): {"gil_of_loops": 0.6},
    ("thread-noncpu", "gil", "see which threads beside the tasks"): {"one_thread_each": True},
    ("thread-noncpu", "gil", "processes"): {"gil_of_text": 0.2},
    ("thread-noncpu", "core", "less for libraries' threads to do"): {"libraries": 0.9, "threads": 16.0},
    ("thread-noncpu", "lock", "less for libraries' threads to do"): {"libraries": 0.9},
    ("thread-noncpu", "core", "other processes use 40 % of these cores"): {"others": 0.4, "libraries": 0.9},
    ("thread-noncpu", "core", "fewer threads, or more cores (16 threads share 2 cores)"): {"threads": 16.0},
    ("overhead", "", "bigger partitions, or fuse tasks (those of 1.0 ms"): {"task_seconds": 0.001},
    ("overhead", "hand-over", "bigger partitions, or fuse tasks (those of 1.0 ms"): {"task_seconds": 0.001},
    ("overhead", "event-loop", "bigger partitions, or fuse tasks (those of 1.0 ms"): {"task_seconds": 0.001},
    ("overhead", "unknown", "bigger partitions, or fuse tasks (those of 1.0 ms"): {"task_seconds": 0.001},
    ("overhead", "", "more memory or smaller partitions (event loops"): {"spilling": 0.1},
    ("overhead", "event-loop", "more memory or smaller partitions (event loops"): {"spilling": 0.1},
    ("overhead", "unknown", "more memory or smaller partitions (event loops"): {"spilling": 0.1},
    ("idle", "", "split or salt the key (the input of the longest task is 30 times"): {"larger_input": 30.0},
    ("idle", "parallelism", "split or salt the key"): {"larger_input": 30.0, "longest_task": 0.6},
    ("idle", "", "split the task that took 60 % of the makespan"): {"longest_task": 0.6},
    ("idle", "parallelism", "split the task that took 60 % of the makespan"): {"longest_task": 0.6},
    ("idle", "", "more workers do not help, tasks waited for one another (90 %"): {"chain": 0.9, "longest_task": 0.1},
    ("idle", "parallelism", "more workers do not help, tasks waited for one another (90 %"): {"chain": 0.9},
    ("idle", "scheduler", "import modules on the workers before the work"): {"importing": 0.6, "task_seconds": 0.001},
    ("idle", "", "bigger partitions, or fuse tasks (those of 1.0 ms"): {"task_seconds": 0.001},
    ("idle", "scheduler", "bigger partitions, or fuse tasks (those of 1.0 ms"): {"task_seconds": 0.001},
    ("idle", "unknown", "bigger partitions, or fuse tasks (those of 1.0 ms"): {"task_seconds": 0.001},
    ("idle", "parallelism", "fewer threads per worker, as each task of fit fills one"): {
        "fills_workers": True,
        "waited_for": "fit",
    },
    ("idle", "parallelism", "split the tasks of join, for which all waited"): {"waited_for": "join"},
    ("idle", "", "one task at a time on 4 threads"): {"held_threads": 1.0, "threads": 4.0},
    ("idle", "parallelism", "one task at a time on 4 threads"): {"held_threads": 1.0, "threads": 4.0},
    ("unmeasured", "", "workers that were joining"): {"joining": True},
}


@pytest.mark.parametrize(("case", "facts"), CASES.items(), ids=[f"{b}/{c}: {w}" for b, c, w in CASES])
def test_a_rule_is_given_where_its_condition_holds_and_nowhere_else(case: tuple[str, str, str], facts: dict) -> None:
    bucket, cause, words = case
    assert advice(bucket, replace(PLAIN, **facts), cause).startswith(words)
    assert not advice(bucket, PLAIN, cause).startswith(words)


def test_every_rule_with_a_condition_has_a_case_for_each_of_its_causes() -> None:
    conditional = [(rule.bucket, cause) for rule in RULES if not rule.holds(PLAIN) for cause in rule.causes]
    assert sorted(conditional) == sorted((bucket, cause) for bucket, cause, _ in CASES)


#: Every cause that advice may be asked for, and every bucket as a whole.
LOSSES = [bucket for bucket in Bucket if bucket not in (*GOOD, Bucket.NO_WORK, Bucket.RUNNING)]
PAIRS = [(bucket, cause) for bucket in LOSSES for cause in ("", *CAUSES.get(bucket, ()))]


@pytest.mark.parametrize(("bucket", "cause"), PAIRS)
def test_every_cause_has_advice_that_claims_nothing_of_the_run(bucket: Bucket, cause: str) -> None:
    rules = [rule for rule in RULES if rule.bucket is bucket and cause in rule.causes]
    nan = math.nan
    unknown = replace(PLAIN, task_seconds=nan, threads=nan, held_threads=nan, cores=nan)
    assert advice(bucket, unknown, cause) == rules[-1].words.format(**unknown.words())
    if cause:
        assert cause_advice(bucket, cause) == rules[-1].words
        assert not set("{};:") & set(rules[-1].words), "it stands in a sentence, after a colon"


def test_what_is_no_loss_and_what_is_no_cause_has_no_advice() -> None:
    for bucket in (*GOOD, Bucket.NO_WORK, Bucket.RUNNING):
        assert advice(bucket, PLAIN) == ""
    assert cause_advice("thread-noncpu", "weather") == cause_advice("spill", "gil") == ""


def test_advice_fits_a_line() -> None:
    for rule in RULES:
        assert len(rule.words.format(**PLAIN.words())) <= 100
        assert rule.words.isascii()
        assert {name for _, name, _, _ in string.Formatter().parse(rule.words) if name} <= PLAIN.words().keys()
        assert set(rule.causes) <= {"", *CAUSES.get(rule.bucket, ())}


@pytest.mark.parametrize(("bucket", "cause"), PAIRS)
def test_every_advice_leads_to_a_place_in_the_documentation(bucket: Bucket, cause: str) -> None:
    text = (Path(__file__).parents[2] / "docs" / "buckets.md").read_text(encoding="utf-8")
    page, _, anchor = page_of(bucket, cause).partition("#")
    assert page == "docs/buckets.md"
    heading = f"## `{bucket}`\n" if not cause else f"({anchor})=\n### `{name_of(bucket, cause)}`\n"
    assert heading in text


def test_losses_below_five_percent_get_no_advice() -> None:
    assert list(advised(report_of(seconds(thread_cpu=90, spill=6, idle=4)))) == ["spill"]


def test_causes_of_five_percent_get_advice_each_and_a_bucket_of_smaller_ones_one() -> None:
    whole = seconds(thread_cpu=60, thread_noncpu=30, idle=10)
    report = report_of(
        whole,
        causes_by_worker={
            "w0": causes(
                **{"thread-noncpu/gil": 20, "thread-noncpu/file": 6, "thread-noncpu/sleep": 4},
                **{"idle/graph": 4, "idle/scheduler": 3, "idle/unknown": 3},
            )
        },
    )
    assert list(advised(report)) == ["thread-noncpu/gil", "thread-noncpu/file", "idle"]
    assert read_on(report) == "Read on: dask-efficiency explain thread-noncpu/gil | thread-noncpu/file | idle"


@pytest.mark.parametrize(("seconds_of_threads", "threads"), [(18.05, "4"), (17.95, "4"), (18.4, "4.09")])
def test_edges_of_windows_make_no_more_threads_than_there_are(seconds_of_threads: float, threads: str) -> None:
    facts = facts_of(report_of(seconds(thread_cpu=seconds_of_threads), cores=4.0))  # in 4.5 s
    assert facts.words()["threads"] == threads
    assert advice("thread-noncpu", facts, "core").startswith("fewer threads, or more") == (threads != "4")


@pytest.mark.parametrize(("count", "longest", "said"), [(2, 1.5, True), (3, 1.5, False), (2, 2.5, False)])
def test_tasks_of_which_each_worker_has_one_need_no_splitting(count: int, longest: float, said: bool) -> None:
    workers = [seconds(thread_cpu=4, idle=5)] * 2
    one = skew(count=count, median_seconds=1.0, max_seconds=longest)
    assert facts_of(report_of(*workers, waited_for={"fit": 5}, skew={"fit": one})).fills_workers == said
    assert not facts_of(report_of(workers[0], waited_for={"fit": 5}, skew={"fit": one})).fills_workers


@pytest.mark.parametrize(("library", "said"), [(4.0, True), (1.0, False), (0.0, False)])
def test_tasks_with_threads_of_their_own_need_no_splitting(library: float, said: bool) -> None:
    whole = seconds(thread_cpu=4, library_threads=library)
    assert facts_of(report_of(whole, by_prefix={"fit": whole}, waited_for={"fit": 5})).fills_workers == said


def test_all_waited_for_one_prefix_only_where_it_was_most_of_the_time() -> None:
    assert facts_of(report_of(waited_for={"join": 5, "sum": 4})).waited_for == "join"
    assert facts_of(report_of(waited_for={"join": 5, "sum": 5})).waited_for == ""
    assert facts_of(report_of()).waited_for == ""


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
        details={"thread-noncpu: GPU wait": 6.0},
        waited_for={"join": 3, "sum": 2},
        path=PathSummary("It took long", 10.0, {}, 9.0, 2.0, 8.0),
    )
    facts = facts_of(report)
    assert facts.task_seconds == pytest.approx(38 / 15)
    assert (facts.threads, facts.held_threads) == (6.0, 4.0)
    assert (facts.cores, facts.gpu_waiting, facts.waited_for) == (2.0, 0.25, "join")
    assert facts.spilling == pytest.approx(2 / 60)
    assert (facts.chain, facts.longest_task) == (pytest.approx(0.9), pytest.approx(0.2))


def test_one_task_that_is_most_of_the_chain_is_no_chain() -> None:
    facts = facts_of(
        report_of(seconds(thread_cpu=4, idle=5), path=PathSummary("It took long", 10.0, {}, 9.0, 8.0, 8.0))
    )
    assert math.isnan(facts.chain)
    assert facts.longest_task == 0.8


@pytest.mark.parametrize(("block", "share"), [("import", 0.8), ("read", 0.0), ("(thread)", 0.0)])
def test_while_event_loops_import_their_threads_wait_for_them(block: str, share: float) -> None:
    frozen = Frame("_find_and_load", "<frozen importlib._bootstrap>", 1165)
    module = Frame("<module>", "/usr/lib/python3.12/site-packages/xgboost/__init__.py", 9)
    stacks = {"import": (frozen, module), "read": (module,), "(thread)": ()}
    report = report_of(
        seconds(thread_cpu=4, idle=5),
        causes_by_worker={"w0": causes(**{"idle/scheduler": 5.0})},
        nthreads={"w0": 2},
        loop_blocks=(Hold("w0", EVENT_LOOP, stacks[block], 2.0),),
    )
    assert facts_of(report).importing == share


@given(reports)
def test_any_report_has_advice_for_losses_only(report: EfficiencyReport) -> None:
    found = advised(report)
    assert {name.partition("/")[0] for name in found} <= {str(loss.bucket) for loss in report.losses}
    assert all(text and text.isprintable() for text in found.values())


def test_what_prints_more_of_each_advice_is_said_in_one_line() -> None:
    assert read_on(report_of(seconds(thread_cpu=5, spill=3, idle=2))) == "Read on: dask-efficiency explain spill | idle"
    assert read_on(report_of(seconds(thread_cpu=5))) == ""


def holding(holder: str, file: str, function: str) -> GilHolder:
    return GilHolder("clean", holder, (Frame(function, file, 1),), 10)


def test_what_helps_against_the_gil_follows_who_held_it() -> None:
    text = holding("clean", "/lib/site-packages/pandas/core/strings/object_array.py", "ObjectStringArrayMixin._str_map")
    numbers = holding("clean", "/home/me/etl.py", "add_up")
    loop = holding(EVENT_LOOP, "/lib/site-packages/distributed/comm/tcp.py", "read")

    def said(*holders: GilHolder, threads: int = 4) -> str:
        report = waiting_for_the_gil(gil_holders=holders, nthreads={"a": threads, "b": threads})
        return advised(report)["thread-noncpu/gil"]

    processes = "processes (more workers with fewer threads each)"
    assert said(text) == f"use string[pyarrow] for text, or {processes}"
    assert said() == said(text), "nobody was seen"
    assert said(numbers) == said(numbers, numbers, text) == processes
    assert said(loop, loop, text).startswith("fewer and longer tasks")
    assert "one thread" in said(numbers, threads=1)
