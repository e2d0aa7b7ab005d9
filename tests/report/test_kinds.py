import math
import string
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from dask_efficiency.accounts.buckets import CAUSE_NAMES, FINALIZED, GOOD, Bucket
from dask_efficiency.accounts.lines import EVENT_LOOP, Frame
from dask_efficiency.cli import main
from dask_efficiency.report.facts import NOTHING_KNOWN, facts_of
from dask_efficiency.report.kinds import BESIDE, KINDS, advice, explain, page_of
from dask_efficiency.report.turnover import LostWorker
from dask_efficiency.report.values import Amount, GilHolder, HeldResult, LongHold
from dask_efficiency.runs.path.parts import PathSummary
from tests.report.samples import causes, report_of, seconds, skew, waiting_for_the_gil

#: A run of which nothing stands out.
PLAIN = replace(
    replace(NOTHING_KNOWN, task_seconds=1.0, threads=2.0, held_threads=1.5, cores=2.0),
    spilled=Amount(2**30, 1),
    read_back=Amount(2**30, 1),
    loop_busy=0.3,
    loop_by="task-finished",
)

HELD = HeldResult("load", "Client-7d24439e-e94a-11f1-8458-02fc00000001", 3.0 * 2**30, 0.6)
SMALL = {"saturation": 1.1, "saturation_needed": 3.0, "task_seconds": 0.005}
SHARED = {"short_of_cores": True, "gil_of_text": 0.2}
HOGGED = {"loop_busy": 0.9, "loop_share": 0.6}
FILLED = {"fills_workers": True, "waited_for": "fit"}

#: Kinds, the first words of their advice, and what must be so for it to be given.
CURES = [
    ("spill", "Persist less, or use results at once", {"read_back": Amount(3 * 2**30, 3)}),
    ("thread-noncpu thread-noncpu/lock thread-noncpu/unknown", "Mostly, tasks wait for GPUs", {"gpu_waiting": 0.6}),
    ("thread-noncpu/gil", "Use fewer and longer tasks with smaller results", {"gil_of_loops": 0.6}),
    ("thread-noncpu/gil", "Find which other threads run", {"one_thread_each": True}),
    ("thread-noncpu/gil", "Use fewer threads: they wait even longer for cores", SHARED),
    ("thread-noncpu/gil", "Use processes", {"gil_of_text": 0.2}),
    ("thread-noncpu/core", "Give libraries' threads less to do", {"libraries": 0.9, "threads": 16.0}),
    ("thread-noncpu/lock", "Give libraries' threads less to do", {"libraries": 0.9}),
    ("thread-noncpu/core", "Find them: other processes use 40 %", {"others": 0.4, "libraries": 0.9}),
    ("thread-noncpu/core", "Use fewer threads, or more cores: 16 threads share 2 cores.", {"threads": 16.0}),
    ("overhead overhead/event-loop overhead/unknown", "Give workers more memory, or make", {"spilling": 0.1}),
    ("idle", "Split or salt the key: the input of the longest task is 30 times", {"larger_input": 30.0}),
    ("idle/parallelism", "Split or salt the key", {"larger_input": 30.0, "longest_task": 0.6}),
    ("idle idle/parallelism", "Split the task that took 60 % of the makespan", {"longest_task": 0.6}),
    ("idle idle/parallelism", "More workers do not help: one chain of tasks is 90 %", {"chain": 0.9}),
    ("idle/scheduler", "Import modules before the work", {"importing": 0.6, "task_seconds": 0.001}),
    ("paused spill", "Release what is not used again: Client-7d24439e holds 3.0 GiB of load that", {"held": HELD}),
    ("idle/round-trips", "Set distributed.scheduler.worker-saturation to 3.0, from 1.1: tasks take 5.0 ms", SMALL),
    (
        "idle/scheduler idle/graph",
        "Do without it, or speed it up: it took 60 % of the scheduler's event loop, busy",
        HOGGED,
    ),
    (
        "idle/scheduler",
        "Use fewer and longer tasks: the scheduler was busy 90 % of the time, most with",
        {"loop_busy": 0.9},
    ),
    ("idle/parallelism", "Use fewer threads per worker, or run other work with fit", FILLED),
    ("idle/parallelism", "Split the tasks of join, which all waited for", {"waited_for": "join"}),
    ("idle idle/parallelism", "One task ran at a time on 4 threads", {"held_threads": 1.0, "threads": 4.0}),
    ("lost-worker recomputed", "Give workers more memory, or make partitions smaller", {"lost_for_memory": 0.6}),
    ("unmeasured", "Workers were joining", {"joining": True}),
]
CASES = {(kind, words): facts for kinds, words, facts in CURES for kind in kinds.split()}


@pytest.mark.parametrize(("case", "facts"), CASES.items(), ids=[f"{kind}: {words}" for kind, words in CASES])
def test_a_cure_is_given_where_its_condition_holds_and_nowhere_else(case: tuple[str, str], facts: dict) -> None:
    kind, words = case
    assert advice(kind, replace(PLAIN, **facts)).startswith(words)
    assert not advice(kind, PLAIN).startswith(words)


@pytest.mark.parametrize(
    ("kind", "words", "below", "at"),
    [
        ("overhead", "Give workers more memory", {"spilling": 0.049}, {"spilling": 0.05}),
        ("thread-noncpu/core", "Find them", {"others": 0.19}, {"others": 0.2}),
        ("spill", "Persist less, or use", {"read_back": Amount(149, 1)}, {"read_back": Amount(150, 1)}),
    ],
)
def test_a_cure_is_given_from_a_share_or_ratio(kind: str, words: str, below: dict, at: dict) -> None:
    plain = replace(PLAIN, spilled=Amount(100, 1))
    assert [advice(kind, replace(plain, **facts)).startswith(words) for facts in (below, at)] == [False, True]


def test_every_cure_with_a_condition_has_a_case() -> None:
    conditional = [name for name, kind in KINDS.items() for _ in kind.cures]
    assert sorted(conditional) == sorted(kind for kind, _ in CASES)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_and_no_other_has_advice_that_claims_nothing_of_the_run(kind: str) -> None:
    nan = math.nan
    unknown = replace(PLAIN, task_seconds=nan, threads=nan, held_threads=nan, cores=nan)
    assert advice(kind, unknown) == KINDS[kind].advice.format(**unknown.words())
    assert advice(kind) == KINDS[kind].advice.format(**NOTHING_KNOWN.words())
    for other in (*GOOD, Bucket.NO_WORK, Bucket.RUNNING, "thread-noncpu/weather", "spill/gil"):
        assert advice(other, PLAIN) == ""


def test_advice_is_a_sentence_that_fits_a_line() -> None:
    for kind in (*KINDS.values(), *BESIDE.values()):
        for words in (kind.advice, *(cure for _, cure in kind.cures)):
            text = words.format(**PLAIN.words())
            assert len(text) <= 106
            assert (text[0].upper(), text[-1], text.isascii()) == (text[0], ".", True)
            assert {name for _, name, _, _ in string.Formatter().parse(words) if name} <= PLAIN.words().keys()


@pytest.mark.parametrize("kind", [*KINDS, *BESIDE])
def test_every_kind_leads_to_a_place_in_the_documentation(kind: str) -> None:
    text = (Path(__file__).parents[2] / "docs" / "buckets.md").read_text(encoding="utf-8")
    page, _, anchor = page_of(kind).partition("#")
    assert page == "docs/buckets.md"
    below = "/" in kind or kind in BESIDE
    assert (f"({anchor})=\n### `{kind}`\n" if below else f"## `{kind}`\n") in text


@pytest.mark.parametrize(("seconds_of_threads", "threads"), [(18.05, "4"), (17.95, "4"), (18.4, "4.09")])
def test_edges_of_windows_make_no_more_threads_than_there_are(seconds_of_threads: float, threads: str) -> None:
    facts = facts_of(report_of(seconds(thread_cpu=seconds_of_threads), cores=4.0))  # in 4.5 s
    assert facts.words()["threads"] == threads
    assert advice("thread-noncpu/core", facts).startswith("Use fewer threads, or more") == (threads != "4")


@pytest.mark.parametrize(("count", "longest", "fills"), [(2, 1.5, True), (3, 1.5, False), (2, 2.5, False)])
def test_tasks_of_which_each_worker_has_one_fill_workers(count: int, longest: float, fills: bool) -> None:
    workers = [seconds(thread_cpu=4, idle=5)] * 2
    one = skew(count=count, median_seconds=1.0, max_seconds=longest)
    assert facts_of(report_of(*workers, waited_for={"fit": 5}, skew={"fit": one})).fills_workers == fills
    assert not facts_of(report_of(workers[0], waited_for={"fit": 5}, skew={"fit": one})).fills_workers
    # and tasks with threads of their own do
    for library, own in ((4.0, True), (1.0, False), (0.0, False)):
        whole = seconds(thread_cpu=4, library_threads=library)
        assert facts_of(report_of(whole, by_prefix={"fit": whole}, waited_for={"fit": 5})).fills_workers == own


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
    # one task that is most of the chain is no chain
    facts = facts_of(replace(report, path=PathSummary("It took long", 10.0, {}, 9.0, 8.0, 8.0)))
    assert math.isnan(facts.chain)
    assert facts.longest_task == 0.8


def test_the_cost_of_workers_killed_by_their_nannies_or_the_kernel_is_for_memory() -> None:
    other = LostWorker("b", "killed by SIGKILL", False, 2, {}, 0, 0)
    kernel = (
        "killed by SIGKILL, by the kernel: out of memory",
        "killed by SIGKILL, probably by the kernel: out of memory",
    )
    for reason in ("killed by its nanny at 96% of its memory limit", *kernel):
        killed = LostWorker("a", reason, False, 2, {}, 4, 1)
        assert facts_of(report_of(lost_workers=(killed, other))).lost_for_memory == 0.75


@pytest.mark.parametrize(("block", "share"), [("import", 0.8), ("read", 0.0), ("(thread)", 0.0)])
def test_while_event_loops_import_their_threads_wait_for_them(block: str, share: float) -> None:
    frozen = Frame("_find_and_load", "<frozen importlib._bootstrap>", 1165)
    module = Frame("<module>", "/usr/lib/python3.12/site-packages/xgboost/__init__.py", 9)
    stacks = {"import": (frozen, module), "read": (module,), "(thread)": ()}
    report = report_of(
        seconds(thread_cpu=4, idle=5),
        causes_by_worker={"w0": causes(**{"idle/scheduler": 5.0})},
        nthreads={"w0": 2},
        loop_blocks=(LongHold("w0", EVENT_LOOP, stacks[block], 2.0),),
    )
    assert facts_of(report).importing == share


@pytest.mark.parametrize(
    ("saturation", "waited", "needed"),
    [
        (1.0, 4.0, 3.0),  # a gap as long as a task: twice that beside the one that runs
        (1.0, 0.4, 2.0),  # never less than one beside each
        (1.0, 20.0, 11.0),
        (1.1, 4.0, 3.5),  # of two threads, three tasks: half a task beside each was not enough
        (2.0, 1.0, 2.5),
        (math.inf, 0.0, math.nan),
        (None, 4.0, math.nan),
    ],
)
def test_the_saturation_fills_twice_the_gap_between_two_tasks(saturation, waited, needed) -> None:
    report = report_of(
        seconds(thread_cpu=3, overhead=1, idle=waited),
        causes_by_worker={"w0": causes(**{"idle/round-trips": waited})},
        nthreads={"w0": 2},
        worker_saturation=saturation,
    )
    assert facts_of(report).saturation_needed == pytest.approx(needed, nan_ok=True)


def test_advice_on_the_gil_depends_on_its_holder() -> None:
    def holding(holder: str, file: str, function: str) -> GilHolder:
        return GilHolder("clean", holder, (Frame(function, file, 1),), 10)

    text = holding("clean", "/lib/site-packages/pandas/core/strings/object_array.py", "ObjectStringArrayMixin._str_map")
    numbers = holding("clean", "/home/me/etl.py", "add_up")
    loop = holding(EVENT_LOOP, "/lib/site-packages/distributed/comm/tcp.py", "read")

    def advised(*holders: GilHolder, threads: int = 4) -> str:
        report = waiting_for_the_gil(gil_holders=holders, nthreads={"a": threads, "b": threads})
        return advice("thread-noncpu/gil", facts_of(report))

    processes = "processes: more workers with fewer threads each."
    assert advised(text) == f"Use string[pyarrow] for text, or {processes}"
    assert advised() == advised(text), "nobody was seen"
    assert advised(numbers) == advised(numbers, numbers, text) == f"Use {processes}"
    assert advised(loop, loop, text).startswith("Use fewer and longer tasks")
    assert "one thread" in advised(numbers, threads=1)


@pytest.mark.parametrize("kind", [*FINALIZED, *CAUSE_NAMES, *BESIDE, "slow-worker"])
def test_every_bucket_every_cause_and_every_other_finding_is_explained(kind: str) -> None:
    lines = explain(kind).splitlines()
    assert lines[0].strip("# ") == f"`{kind}`"
    assert len(lines) > 2
    assert not any(")=" in line for line in lines)


def test_a_cause_alone_is_enough_where_one_bucket_has_it_and_the_command_prints_the_section_or_the_kinds() -> None:
    assert explain("sleep") == explain("thread-noncpu/sleep")
    assert "`thread-noncpu/file`" not in explain("sleep")
    with pytest.raises(ValueError, match="'unknown' is several kinds; expected one of thread-noncpu/unknown, "):
        explain("unknown")
    result = CliRunner().invoke(main, ["explain", "spill"])
    assert (result.exit_code, result.stdout) == (0, f"{explain('spill')}\n")
    result = CliRunner().invoke(main, ["explain", "spil"])
    assert result.exit_code != 0
    assert "'spil' is no kind; expected one of cancelled, client, constrained," in result.output
