import math
import string
from dataclasses import replace
from pathlib import Path

import pytest

from dask_efficiency.accounts.buckets import GOOD, Bucket
from dask_efficiency.accounts.cluster.scheduler_loop import LoopBlock, LoopPart, SchedulerLoop
from dask_efficiency.accounts.lines import EVENT_LOOP, NATIVE, NO_CORE, PYTHON, Frame
from dask_efficiency.report.conditions import NOTHING_KNOWN
from dask_efficiency.report.conditions_of import conditions_of
from dask_efficiency.report.findings import find
from dask_efficiency.report.kinds import BESIDE, KINDS, advice, page_of
from dask_efficiency.report.memory_needs import NO_NEEDS
from dask_efficiency.report.sizes import Sizes
from dask_efficiency.report.turnover import LostWorker
from dask_efficiency.report.values import Amount, ClientRow, GilHolder, HeldFor, LongHold, ProfileRow
from dask_efficiency.runs.path.parts import PathSummary
from tests.report.samples import causes, changed, report_of, seconds, skew, waiting_for_the_gil

#: A run of which nothing stands out.
PLAIN = replace(
    replace(NOTHING_KNOWN, task_seconds=0.05, threads=2.0, held_threads=1.5, cores=2.0),
    spilled=Amount(2**30, 1),
    read_back=Amount(2**30, 1),
    loop_busy=0.3,
    loop_by="task-finished",
)

HELD = replace(
    NO_NEEDS, held=HeldFor("load", "future", "Client-7d24439e-e94a-11f1-8458-02fc00000001", "", 1.0, 1.0, 3 * 2**30)
)
SHORT = replace(
    NO_NEEDS, limit=4 * 2**30, needed=5 * 2**30, enough=round(5.3 * 2**30), peak=3 * 2**30, overcounted=2**26
)
AHEAD = replace(SHORT, kept=HeldFor("read", "ahead", "sum", "", 1.0, 1.0, 2**30))
RAN_FREELY = {"memory": AHEAD, "saturation": math.inf}
SECOND = replace(SHORT, kept=HeldFor("x", "blocked", "sub", "mean", 1.0, 1.0, 2**30), kept_seconds=5.1, reduced=True)
HUNGRY = replace(SHORT, unmanaged=0.9, threads=2, hungriest="fit", working=2.0**30)
HUNGRIER = replace(HUNGRY, threads=1, working=2.0**31)
REPLAYED = {"saturation": 1.1, "saturation_needed": 3.0, "saturation_saves": 0.2}
SHARED = {"short_of_cores": True, "gil_of_text": 0.2}
STARVED = {"blocked": 0.9, "starved": 0.6}
HOGGED = {"loop_busy": 0.9, "loop_share": 0.6}
FILLED = {"fills_workers": True, "waited_for": "fit"}

PICKLE = "/lib/python3.12/site-packages/distributed/protocol/pickle.py"
#: Kinds, the first words of their advice, and what must be so for it to be given.
BLOCKED = {"blocked": 0.9, "overhead_blocked": 0.9, "blocked_by": "`clog` in etl.py:8", "own_code_blocks": True}
GIL_HELD = BLOCKED | {"own_code_blocks": False, "task_blocks": True}
OVERHEAD = "overhead overhead/hand-over overhead/event-loop overhead/unknown"
CURES = [
    (
        "idle/parallelism",
        "Break up the chain, such as by adding up in pairs",
        {"waited_for": "add", "ran_in_turn": True},
    ),
    ("paused spill", "Persist less, or use results at once", {"read_back": Amount(3 * 2**30, 3)}),
    (
        "paused spill",
        "Find what keeps memory in tasks of parse",
        {"memory": replace(NO_NEEDS, grown=1.0, left_by="tasks of parse")},
    ),
    ("paused spill", "Turn off distributed.worker.memory.target", {"memory": replace(SHORT, overcounted=2**30)}),
    ("paused spill", "Give workers 5.3 GiB each, make partitions smaller", {"memory": SHORT}),
    ("paused spill", "Set distributed.scheduler.worker-saturation to 1.1, from inf", RAN_FREELY),
    ("paused spill", "Give workers 5.3 GiB each, or read in the tasks", {"memory": AHEAD, "saturation": 1.1}),
    ("paused spill", "Give workers 5.3 GiB each, or compute mean before: x was kept 5.1 s for sub", {"memory": SECOND}),
    ("paused spill", "Give workers 5.3 GiB each, or fewer threads: 2 tasks of fit", {"memory": HUNGRY}),
    ("paused spill", "Give workers 5.3 GiB each, or make partitions smaller: a task of fit", {"memory": HUNGRIER}),
    ("paused", "Give workers more memory, or make partitions smaller: they were above", {"one_thread_each": True}),
    ("thread-noncpu thread-noncpu/lock thread-noncpu/unknown", "Mostly, tasks wait for GPUs", {"gpu_waiting": 0.6}),
    ("thread-noncpu/gil", "Use fewer and longer tasks with smaller results", {"gil_of_loops": 0.6}),
    ("thread-noncpu/gil", "Look for large results, or a busy host", {"gil_of_loops": 0.6, "task_seconds": 1.0}),
    (OVERHEAD, "Find them: other processes use 40 %", {"others": 0.4}),
    ("thread-noncpu/gil", "Find which other threads run", {"one_thread_each": True}),
    ("thread-noncpu/gil", "Use fewer threads: they wait even longer for cores", SHARED),
    ("thread-noncpu/gil", "Make this code do less: the cores are in use", {"cores_used": 0.95, "gil_of_text": 0.2}),
    ("thread-noncpu/gil", "Use processes", {"gil_of_text": 0.2}),
    ("thread-noncpu/gil", "Make fewer calls, of more data each", {"under_gil": 0.2, "gil_of_text": 0.2}),
    (OVERHEAD, "Look for large results, or a busy host", {"under_gil": 0.2}),
    ("idle/round-trips idle/scheduler", "Look for a busy host, or large graphs", {"task_seconds": 1.0}),
    ("idle/graph", "Build smaller graphs", {"task_seconds": 1.0}),
    ("thread-noncpu/core", "Give libraries' threads less to do", {"libraries": 0.9, "threads": 16.0}),
    ("thread-noncpu/lock", "Give libraries' threads less to do", {"libraries": 0.9}),
    ("thread-noncpu/lock", "Compute before the transaction", {"places": {"lock": "database"}, "libraries": 0.9}),
    ("thread-noncpu/lock", "See what that thread does", {"places": {"lock": "thread"}}),
    ("thread-noncpu/lock", "See what it guards: if each process has one", {"places": {"lock": "library-lock"}}),
    ("thread-noncpu/lock", "See who else takes it", {"places": {"lock": "library-lock"}, "one_thread_each": True}),
    ("thread-noncpu/lock", "Give the library less to do", {"places": {"lock": "library"}}),
    ("thread-noncpu/cluster", "Return futures", {"places": {"cluster": "tasks"}}),
    ("thread-noncpu/cluster", "Hold it shorter", {"places": {"cluster": "dask-lock"}}),
    ("thread-noncpu/cluster", "Make what they wait for an argument", {"places": {"cluster": "messages"}}),
    ("thread-noncpu/cluster", "Shuffle fewer bytes", {"places": {"cluster": "shuffle"}}),
    ("thread-noncpu/child-process", "Run no more of them at once than cores", {"children_share": 0.9}),
    ("thread-noncpu/child-process", "See what they do, and whether they start", {"children_seconds": 3.0}),
    ("thread-noncpu/core", "Find them: other processes use 40 %", {"others": 0.4, "libraries": 0.9}),
    (
        "thread-noncpu/core",
        "Use more cores: 16 threads share 2 cores. Fewer threads are no slower.",
        {"threads": 16.0},
    ),
    ("idle/graph", "Compute all of it together", {"graphs": 220, "tasks_per_graph": 2.0}),
    ("idle/graph", "Load data in tasks", {"data_in_graphs": True}),
    ("thread-noncpu/core", "Leave a core to the client", {"libraries": 0.0}),
    ("overhead overhead/event-loop overhead/unknown", "Give workers more memory, or make", {"spilling": 0.1}),
    (
        "overhead overhead/event-loop overhead/unknown",
        "Give workers 5.3 GiB each: event loops are late",
        {"spilling": 0.1, "memory": SHORT},
    ),
    ("idle", "Split or salt the key: the input of the longest task is 30 times", {"larger_input": 30.0}),
    ("idle/parallelism", "Split or salt the key", {"larger_input": 30.0, "alone": 0.6}),
    ("idle idle/parallelism", "Split that task: for 60 % of the makespan", {"alone": 0.6}),
    ("idle idle/parallelism", "More workers do not help: one chain of tasks is 90 %", {"chain": 0.9}),
    ("thread-noncpu/sleep", "Avoid the sleep. Before a retry, it is better that a Semaphore", {"longest_slept": True}),
    ("thread-noncpu/sleep", "Avoid the sleep: more threads do not help", {"threads_save": 0.005}),
    ("thread-noncpu/sleep", "Avoid the sleep: more threads do not help", {"chain": 0.9}),
    ("thread-noncpu/network", "Prefetch, or ask for more at a time: more threads do not", {"threads_save": 0.0}),
    ("idle/scheduler", "Import modules before the work", {"importing": 0.6, "task_seconds": 0.001}),
    ("paused spill", "Release what is not used again: Client-7d24439e holds 3.0 GiB of load that", {"memory": HELD}),
    ("idle/round-trips", "Set distributed.scheduler.worker-saturation to 3.0, from 1.1: a replay", REPLAYED),
    ("idle/round-trips", "Raise distributed.scheduler.worker-saturation, from 1.1", {"saturation": 1.1}),
    ("idle/round-trips", "Import modules", REPLAYED | {"importing": 0.6, "blocked": 0.9}),
    ("idle/round-trips idle/scheduler", "See what blocked the workers' event loops", REPLAYED | {"blocked": 0.9}),
    ("idle/round-trips idle/scheduler", "Submit that function as a task", BLOCKED | {"run_blocks": True}),
    ("idle/round-trips idle/scheduler", "Do that in a task, or in a thread of its own", BLOCKED),
    (OVERHEAD, "Submit that function as a task, or make it a coroutine", BLOCKED | {"run_blocks": True}),
    (OVERHEAD, "Do that in a task, or in a thread of its own", BLOCKED),
    (OVERHEAD, "Hold the GIL for less time there", GIL_HELD),
    ("idle/round-trips idle/scheduler", "Hold the GIL for less time there", GIL_HELD),
    (OVERHEAD, "See what blocked the workers' event loops", BLOCKED | {"own_code_blocks": False}),
    ("idle/round-trips idle/scheduler", "Find them: other processes use 40 %", STARVED | {"others": 0.4}),
    ("idle/round-trips idle/scheduler", "Use fewer threads, or more cores: event loops waited for one.", STARVED),
    ("idle/round-trips idle/scheduler", "Do it in a task, or another process", REPLAYED | {"gil_held": 0.9}),
    (
        "idle/scheduler idle/graph idle/round-trips",
        "Send fewer, as by logging at a coarser level, or to files: they took 60 % of the scheduler's event loop.",
        HOGGED | {"loop_of_events": True},
    ),
    (
        "idle/scheduler idle/graph idle/round-trips",
        "Do without it, or speed it up: it took 60 % of the scheduler's event loop, busy",
        HOGGED,
    ),
    (
        "idle/scheduler idle/round-trips",
        "Reduce results before, or use gather(direct=True): they pass the scheduler, busy 90 % of the time",
        {"loop_busy": 0.9, "loop_of_results": True},
    ),
    (
        "idle/scheduler idle/round-trips",
        "Use fewer and longer tasks: the scheduler was busy 90 % of the time, most with",
        {"loop_busy": 0.9},
    ),
    ("cancelled", "Let workers finish before they close", {"came_and_went": True}),
    ("idle/parallelism", "Use fewer threads per worker, or run other work with fit", FILLED),
    (
        "idle/parallelism",
        "Pass split_out=4 to that aggregation: all waited for unique-tree",
        {"waited_for": "unique-tree", "threads": 4.0, "sizes": Sizes(in_one=frozenset(["unique-tree"]))},
    ),
    (
        "idle/parallelism",
        "Ask for several at once, if none needs another, or split the longest tasks: 30 graphs",
        {"in_turn": True, "rounds": 30, "graphs": 30, "waited_for": "join", "sent_by": "DataArray.load"},
    ),
    (
        "idle/parallelism",
        "Split the longest tasks, or persist() what stays the same: each of 30 graphs needs the one before.",
        {"in_turn": True, "rounds": 30, "graphs": 30, "needs_last": True},
    ),
    (
        "idle/graph",
        "Do more in each step, and persist() what stays the same: each of 30 graphs needs the one before.",
        {"graphs": 30, "tasks_per_graph": 9.0, "needs_last": True},
    ),
    ("idle/parallelism", "Split the tasks of join, which all waited for", {"waited_for": "join"}),
    ("idle/parallelism", "Shuffle fewer bytes", {"waited_for": "shuffle-barrier", "alone": 0.6}),
    ("idle/parallelism", "Reduce the result, write it to files", {"waited_for": "finalize-hlg", "alone": 0.6}),
    ("idle idle/parallelism", "One task ran at a time on 4 threads", {"held_threads": 1.0, "threads": 4.0}),
    ("idle/parallelism", "Make partitions 3 times smaller", {"sizes": Sizes(smaller=3)}),
    (
        "lost-worker recomputed",
        "Give workers more memory, or make partitions smaller",
        {"memory": replace(NO_NEEDS, lost_for_memory=0.6)},
    ),
    ("unmeasured", "Workers were joining", {"joining": True}),
]
CASES = {(kind, words): facts for kinds, words, facts in CURES for kind in kinds.split()}


@pytest.mark.parametrize(("case", "facts"), CASES.items(), ids=[f"{kind}: {words}" for kind, words in CASES])
def test_a_cure_is_given_where_its_condition_holds_and_nowhere_else(case: tuple[str, str], facts: dict) -> None:
    kind, words = case
    assert advice(kind, replace(PLAIN, **facts)).startswith(words)
    assert not advice(kind, PLAIN).startswith(words)


def test_a_client_that_needs_each_result_for_the_next_graph_is_not_told_to_send_them_together() -> None:
    facts = replace(PLAIN, graphs=30, client_phase="calls", needs_last=True)
    words = "each of 30 graphs needs the one before."
    assert BESIDE["client"].advised(facts) == f"Do more in each step, and persist() what stays the same: {words}"
    assert BESIDE["one-by-one"].advised(facts) == f"Do more in each step, or run the loop in one task: {words}"


def test_only_graphs_of_the_loop_are_said_to_need_the_one_before() -> None:
    facts = replace(PLAIN, graphs=32, client_phase="calls", needs_last=True, in_loop=30)
    assert BESIDE["client"].advised(facts).endswith("each of 30 graphs needs the one before.")


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


def test_more_threads_help_a_long_chain_if_a_replay_says_so() -> None:
    facts = replace(PLAIN, chain=0.9, threads_save=0.1)
    assert advice("thread-noncpu/sleep", facts).startswith("Avoid the sleep, or use more threads")


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


@pytest.mark.parametrize(("seconds_of_threads", "threads"), [(18.05, "4"), (17.95, "4"), (18.4, "4.09"), (25.5, "6")])
def test_edges_of_windows_make_no_more_threads_than_there_are(seconds_of_threads: float, threads: str) -> None:
    facts = conditions_of(report_of(seconds(thread_cpu=seconds_of_threads), cores=4.0))  # in 4.5 s
    assert facts.words()["threads"] == threads
    assert advice("thread-noncpu/core", facts).startswith("Use more cores: ") == (threads != "4")


@pytest.mark.parametrize(("count", "longest", "fills"), [(2, 1.5, True), (3, 1.5, False), (2, 2.5, False)])
def test_tasks_of_which_each_worker_has_one_fill_workers(count: int, longest: float, fills: bool) -> None:
    workers = [seconds(thread_cpu=4, idle=5)] * 2
    one = skew(count=count, median_seconds=1.0, max_seconds=longest)
    assert conditions_of(report_of(*workers, waited_for={"fit": 5}, skew={"fit": one})).fills_workers == fills
    assert not conditions_of(report_of(workers[0], waited_for={"fit": 5}, skew={"fit": one})).fills_workers
    # A barrier waits: what libraries' threads computed meanwhile is a small part of its time.
    barrier = seconds(thread_cpu=0.002, library_threads=0.05, thread_noncpu=0.712)
    assert not conditions_of(report_of(barrier, by_prefix={"fit": barrier}, waited_for={"fit": 5})).fills_workers
    # and tasks with threads of their own do
    for library, own in ((4.0, True), (1.0, False), (0.0, False)):
        whole = seconds(thread_cpu=4, library_threads=library)
        assert conditions_of(report_of(whole, by_prefix={"fit": whole}, waited_for={"fit": 5})).fills_workers == own


def test_all_waited_for_one_prefix_only_where_it_was_most_of_the_time() -> None:
    assert conditions_of(report_of(waited_for={"join": 5, "sum": 4})).waited_for == "join"
    assert conditions_of(report_of(waited_for={"join": 5, "sum": 5})).waited_for == ""
    assert conditions_of(report_of()).waited_for == ""


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
    facts = conditions_of(report)
    assert facts.task_seconds == pytest.approx(38 / 15)
    assert (facts.threads, facts.held_threads) == (6.0, 4.0)
    assert (facts.cores, facts.gpu_waiting, facts.waited_for) == (2.0, 0.25, "join")
    assert facts.spilling == pytest.approx(2 / 60)
    assert (facts.chain, facts.alone) == (pytest.approx(0.9), 0.0)
    # A task that runs alone for most of the time is no chain; one beside which others ran is part of it.
    path = PathSummary("It took long", 10.0, {}, 9.0, 8.0, 8.0)
    for alone, chain in ((8.0, pytest.approx(math.nan, nan_ok=True)), (1.0, pytest.approx(0.9))):
        joins = skew(longest_key="join-1", max_seconds=8.0, alone_seconds=alone)
        facts = conditions_of(replace(report, path=path, skew={"join": joins, "sum": skew(alone_seconds=0.5)}))
        assert (facts.chain, facts.alone) == (chain, alone / 10)


def test_the_cost_of_workers_killed_by_their_nannies_or_the_kernel_is_for_memory() -> None:
    other = LostWorker("b", "killed by SIGKILL", False, 2, {}, 0, 0)
    kernel = (
        "killed by SIGKILL, by the kernel: out of memory",
        "killed by SIGKILL, probably by the kernel: out of memory",
    )
    for reason in ("killed by its nanny at 96% of its memory limit", *kernel):
        killed = LostWorker("a", reason, False, 2, {}, 4, 1)
        assert conditions_of(report_of(lost_workers=(killed, other))).memory.lost_for_memory == 0.75


@pytest.mark.parametrize(("block", "share"), [("import", 0.8), ("own", 0.8), ("read", 0.0), ("(thread)", 0.0)])
def test_while_event_loops_import_their_threads_wait_for_them(block: str, share: float) -> None:
    frozen = Frame("_find_and_load", "<frozen importlib._bootstrap>", 1165)
    module = Frame("<module>", "/usr/lib/python3.12/site-packages/xgboost/__init__.py", 9)
    own = Frame("<module>", "/home/me/etl.py", 3)  # a module of the user's that computes as it is imported
    stacks = {"import": (frozen, module), "own": (frozen, own), "read": (module,), "(thread)": ()}
    report = report_of(
        seconds(thread_cpu=4, idle=5),
        causes_by_worker={"w0": causes(**{"idle/scheduler": 5.0})},
        nthreads={"w0": 2},
        loop_blocks=(LongHold("w0", EVENT_LOOP, stacks[block], 2.0),),
    )
    facts = conditions_of(report)
    assert (facts.importing, facts.blocked) == (share, 0.8)
    of_scheduler = SchedulerLoop(10.0, 2.0, 0.0, 0.2, 0.0, 0.0, 0.0, blocks=(LoopBlock(2.0, stacks[block]),))
    assert conditions_of(replace(report, loop_blocks=(), scheduler_loop=of_scheduler)).importing == share
    # What explains the waiting for the scheduler explains the round trips, too.
    twice = {"w0": causes(**{"idle/scheduler": 2.0, "idle/round-trips": 3.0})}
    assert conditions_of(changed(report, causes_by_worker=twice)).importing == share


@pytest.mark.parametrize("how", ["run", "own", "library", "core", "task"])
def test_a_worker_whose_event_loop_is_blocked_is_named_with_the_line(how: str) -> None:
    clog, library = Frame("clog", "/home/me/etl.py", 8), Frame("poll", "/usr/lib/python3.12/site-packages/bus.py", 3)
    by_run = Frame("run", "/usr/lib/python3.12/site-packages/distributed/worker.py", 3000)
    stack = {"run": (by_run, clog), "own": (clog,), "library": (library,), "core": (), "task": (clog,)}[how]
    holder = {"core": NO_CORE, "task": "parse"}.get(how, EVENT_LOOP)
    blocks = tuple(LongHold("w1", holder, stack, 0.5) for _ in range(8))
    report = report_of(
        seconds(thread_cpu=12, overhead=2),
        seconds(thread_cpu=4, overhead=10),
        causes_by_worker={f"w{i}": causes(**{"overhead/event-loop": ns}) for i, ns in enumerate((2.0, 10.0))},
        nthreads={"w0": 2, "w1": 2},
        cluster_seconds=7.0,
        window_seconds=7.0,
        loop_blocks=(*blocks, LongHold("w0", EVENT_LOOP, (library,), 0.2)),
    )
    found = next(one for one in find(report) if one.kind == "overhead/event-loop")
    cures = {
        "run": "Submit that function as a task, or make it a coroutine",
        "own": "Do that in a task, or in a thread of its own",
        "library": "See what blocked the workers' event loops",
        "core": "Look for tasks that hold the GIL",
        "task": "Hold the GIL for less time there",
    }
    held = "`clog` in etl.py:8 (prefix parse), on worker w1"
    places = {"library": "`poll` in bus.py:3, on worker w1", "core": "", "task": held}
    assert found.advice.startswith(cures[how])
    assert found.where == places.get(how, "`clog` in etl.py:8, on worker w1")
    rarely = replace(report, loop_blocks=blocks[:2])
    assert next(one for one in find(rarely) if one.kind == "overhead/event-loop").where == ""


def test_a_worker_is_named_with_what_blocked_it_and_not_with_what_blocked_another() -> None:
    clog, poll = (Frame("clog", "/home/me/etl.py", 8),), (Frame("poll", "/home/me/etl.py", 3),)
    often = tuple(LongHold("w1", EVENT_LOOP, poll, 0.5) for _ in range(6))
    for blocks, where in (
        ((*often, LongHold("w0", EVENT_LOOP, clog, 0.6)), "`poll` in etl.py:3, on worker w1"),
        ((*often, LongHold("w1", EVENT_LOOP, clog, 0.6)), "`poll` in etl.py:3, on worker w1"),
        ((*often, LongHold("w0", EVENT_LOOP, clog, 2.0)), "`poll` in etl.py:3"),
        (tuple(replace(one, stack=()) for one in often), "worker w1"),
    ):
        assert conditions_of(report_of(seconds(idle=5), loop_blocks=blocks)).blocked_by == where


def test_where_event_loops_wait_for_a_core_no_line_that_blocked_them_is_named() -> None:
    clog = (Frame("clog", "/home/me/etl.py", 8),)
    report = report_of(
        seconds(thread_cpu=4, idle=5),
        causes_by_worker={"w0": causes(**{"idle/scheduler": 5.0})},
        nthreads={"w0": 2},
        loop_blocks=(LongHold("w0", NO_CORE, (), 1.4), LongHold("w0", EVENT_LOOP, clog, 0.6)),
    )
    (found,) = (one for one in find(report) if one.kind == "idle/scheduler")
    assert (found.where, found.advice[:18]) == ("", "Use fewer threads,")


def test_messages_that_block_event_loops_are_said_in_the_place_of_a_line() -> None:
    doing = "receiving tasks of quote (PriceList)"
    report = report_of(
        seconds(thread_cpu=4, idle=5),
        causes_by_worker={"w0": causes(**{"idle/scheduler": 5.0})},
        nthreads={"w0": 2},
        loop_blocks=(LongHold("w0", EVENT_LOOP, (Frame("loads", PICKLE, 9),), 2.0, doing),),
    )
    assert conditions_of(report).blocked_by == f"{doing}, on worker w0"
    assert not conditions_of(report).own_code_blocks


def test_a_thread_that_holds_the_gil_of_the_schedulers_process_holds_all_threads_up() -> None:
    parse = (Frame("parse", "etl.py", 6),)
    blocks = (LoopBlock(3.0, parse, "(thread MainThread)"), LoopBlock(9.0, ()))
    loop = SchedulerLoop(10.0, 1.0, None, 0.1, 0.0, 0.0, 0.0, blocks=blocks)
    report = report_of(
        seconds(thread_cpu=4, idle=16),
        causes_by_worker={"w0": causes(**{"idle/round-trips": 6.0, "idle/scheduler": 1.5})},
        nthreads={"w0": 2},
        cluster_seconds=10.0,
        scheduler_loop=loop,
    )
    facts = conditions_of(report)
    assert (facts.gil_held, facts.gil_held_by) == (0.8, "`parse` in etl.py:6 (thread MainThread)")
    assert facts.no_scheduling
    # of which the client has samples, if it is in that process
    sort = (Frame("ranks", "/home/me/etl.py", 9), Frame("sort_values", "/opt/lib/python3.12/site-packages/x.py", 1))
    for stack, held, by in (
        (sort, 2.0, "the client's own code, `sort_values` in etl.py:9"),
        (sort, 0.5, facts.gil_held_by),
        (parse, 0.0, "the client's own code, `parse` in etl.py:6"),
    ):
        row = ClientRow("compute", stack, 5_000_000_000, 0, round(held * 1e9))
        assert conditions_of(replace(report, client=(row,))).gil_held_by == by


def test_events_that_workers_send_are_one_thing_that_holds_the_loop_with_the_line_that_logs() -> None:
    wrapper = LoopPart("callback", "wrapper", "", "", 0, 3.0, 8)
    sends = LoopPart("stream handler", "log-event", "Scheduler.log_worker_event", "scheduler.py", 1, 3.0, 500)
    takes = LoopPart("receiving", "event", "", "", 0, 2.5, 70)
    loop = SchedulerLoop(10.0, 9.0, None, 0.9, 0.0, 9.0, 0.0, handlers=(wrapper, sends, takes))
    logs = (
        Frame("fit", "/home/me/etl.py", 8),
        Frame("Logger.info", "/usr/lib/python3.12/logging/__init__.py", 5),
        Frame("Worker.log_event", "/opt/lib/python3.12/site-packages/distributed/worker.py", 899),
    )
    report = report_of(
        seconds(thread_cpu=4, idle=16),
        causes_by_worker={"w0": causes(**{"idle/scheduler": 9.0})},
        nthreads={"w0": 2},
        cluster_seconds=10.0,
        scheduler_loop=loop,
        profile=(ProfileRow(Bucket.THREAD_CPU, "", "fit", logs, 10**9),),
    )
    facts = conditions_of(report)
    assert facts.loop_held
    assert (facts.loop_by, facts.loop_of_events) == ("500 events that workers sent, most at etl.py:8", True)
    assert "or to files: they took 61 % of the scheduler" in advice("idle/scheduler", facts)
    to_a_file = replace(report.profile[0], stack=logs[:2], ns=10**10)
    assert conditions_of(replace(report, profile=(to_a_file, *report.profile))).loop_by == facts.loop_by
    # fewer events, or a plugin of the user's that takes most of their time, and not of other time
    hook = LoopPart("hook of a plugin", "Progress.log_event", "Progress.log_event", "/home/me/plugin.py", 3, 5.0, 500)
    for other in (replace(loop, handlers=(wrapper, sends)), replace(loop, hooks=(hook,))):
        assert not conditions_of(replace(report, scheduler_loop=other)).loop_of_events
    results = LoopPart("receiving", "results in passing", "", "", 0, 5.0, 100)
    assert not facts.loop_of_results
    assert conditions_of(replace(report, scheduler_loop=replace(loop, handlers=(results, sends)))).loop_of_results
    of_tasks = replace(hook, name="Progress.transition", function="Progress.transition")
    assert conditions_of(replace(report, scheduler_loop=replace(loop, hooks=(of_tasks,)))).loop_of_events


def test_a_higher_saturation_is_advised_only_if_a_replay_says_so_or_none_was_made() -> None:
    def advised(**known: float) -> str:
        return advice("idle/round-trips", replace(NOTHING_KNOWN, **known))

    longer = "Use fewer and longer tasks, by bigger partitions or by fusing them."
    assert advised(saturation=1.1, saturation_needed=2.0, saturation_saves=0.0) == longer
    assert advised(saturation=2.0, saturation_needed=2.5) == longer
    assert "trace=True" in advised(saturation=1.1, saturation_needed=2.0)


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
    assert conditions_of(report).saturation_needed == pytest.approx(needed, nan_ok=True)


def test_advice_on_the_gil_depends_on_its_holder() -> None:
    def holding(holder: str, file: str, function: str) -> GilHolder:
        return GilHolder("clean", holder, (Frame(function, file, 1),), 10)

    text = holding("clean", "/lib/site-packages/pandas/core/strings/object_array.py", "ObjectStringArrayMixin._str_map")
    numbers = holding("clean", "/home/me/etl.py", "add_up")
    loop = holding(EVENT_LOOP, "/lib/site-packages/distributed/comm/tcp.py", "read")

    def advised(*holders: GilHolder, threads: int = 4) -> str:
        report = waiting_for_the_gil(gil_holders=holders, nthreads={"a": threads, "b": threads})
        return advice("thread-noncpu/gil", conditions_of(report))

    processes = "processes: more workers with fewer threads each."
    assert advised(text) == f"Use string[pyarrow] for text, or {processes}"
    assert advised() == advised(text), "nobody was seen"
    assert advised(numbers) == advised(numbers, numbers, text) == f"Use {processes}"
    assert advised(loop, loop, text).startswith("Look for large results, or a busy host")
    assert "one thread" in advised(numbers, threads=1)


@pytest.mark.parametrize(("holder", "words"), [("rows", "Use processes"), ("solve", "Make fewer calls, of more data")])
def test_calls_are_to_be_fewer_only_if_those_that_hold_the_gil_leave_it_to_others(holder: str, words: str) -> None:
    held = (GilHolder("solve", holder, (Frame(holder, "/home/me/etl.py", 1),), 10),)
    profile = (ProfileRow("thread-cpu", PYTHON, "rows", (), 22), ProfileRow("thread-cpu", NATIVE, "solve", (), 78))
    report = waiting_for_the_gil(gil_holders=held, nthreads={"a": 4, "b": 4}, profile=profile)
    assert advice("thread-noncpu/gil", conditions_of(report)).startswith(words)


def test_tasks_are_long_enough_if_most_of_them_are() -> None:
    def of(short: int) -> str:
        two = {"fit": skew(count=20, median_seconds=59.0), "load": skew(count=short, median_seconds=0.002)}
        report = report_of(seconds(thread_cpu=1200, idle=800), skew=two, tasks={"succeeded": 20 + short})
        return advice("idle/scheduler", conditions_of(report))

    assert of(19).startswith("Look for a busy host")
    assert of(5000).startswith("Use fewer and longer tasks")
