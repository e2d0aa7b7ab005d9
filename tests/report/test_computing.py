"""Useful time that a recipe would spare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from dask_efficiency import EfficiencyReport, Finding
from dask_efficiency.accounts.lines import NATIVE, PYTHON, UNDER_GIL, Stack
from dask_efficiency.accounts.skew import Skew
from dask_efficiency.report.findings import find, headline, leading
from dask_efficiency.report.kinds import BESIDE
from dask_efficiency.report.values import GilHolder, ProfileRow
from tests.report.recipe_stacks import SEEN, stack_of
from tests.report.samples import causes, report_of, seconds

ROWS = next([*stacks] for name, _, stacks in SEEN if name == "pandas-rows")
SVD = stack_of("me/fit.py fit", "numpy/linalg/_linalg.py svd")


def by_row(
    *, cpu: float = 30.0, gil: float = 6.0, sleep: float = 0.0, how: str = PYTHON, other: float = 0.0, **fields: Any
) -> EfficiencyReport:
    """Four threads for 10 s, of which ``apply`` computes by row, and waits for the GIL at the same lines."""
    idle = 40.0 - cpu - gil - sleep - other
    whole = {"thread_cpu": cpu, "thread_noncpu": gil + sleep}
    waits = causes(**{"thread-noncpu/gil": gil, "thread-noncpu/sleep": sleep})
    rows = [
        *(ProfileRow("thread-cpu", how, "apply", stack, 5) for stack in ROWS),
        *(ProfileRow("thread-noncpu", "gil", "apply", stack, 5) for stack in ROWS),
        ProfileRow("thread-cpu", NATIVE, "fit", SVD, 5),
    ]
    given: dict[str, Any] = {
        "by_worker": {"w0": seconds(**whole | {"thread_cpu": cpu + other}, idle=idle)},
        "by_prefix": {"apply": seconds(**whole), "fit": seconds(thread_cpu=other)},
        "causes_by_worker": {"w0": waits | causes(**{"idle/parallelism": idle})},
        "causes_by_prefix": {"apply": waits},
        "nthreads": {"w0": 4},
        "cores": 4.0,
        "cluster_seconds": 10.0,
        "window_seconds": 10.0,
        "profile": tuple(rows),
        "gil_holders": tuple(GilHolder("apply", "apply", stack, 5) for stack in ROWS),
    }
    return report_of(**(given | fields))


def test_python_by_row_that_computes_for_most_of_the_time_is_the_first_finding_with_its_line_and_no_promise() -> None:
    report = by_row()
    first, *others = find(report)
    assert str(first) == (
        "Python by row, in DataFrame.apply(axis=1). 90 % of all thread time: `body_mass_index`, bmi.py:1\n"
        "Write it for whole columns, such as df.a / df.b ** 2: that needs no Python by row, and no GIL."
    )
    assert (first.saves_seconds, first.lost_seconds, first.page) == (None, 0.0, "docs/recipes.md#pandas-rows")
    assert first.evidence == {
        "share_of_thread_time": pytest.approx(0.9),
        "share_under_gil": 1.0,
        "wall_clock_seconds": pytest.approx(9.0),
    }
    crowded = find(by_row(cpu=16.0, gil=24.0))[0]
    assert crowded.where == "100 % of all thread time: `body_mass_index`, bmi.py:1, 60 % of it waiting for the GIL"
    # the wait for the GIL has the same cure, and is part of it
    assert "thread-noncpu/gil" not in {one.kind for one in others}
    assert leading(report)[0] == first
    assert headline(report) == "10.0 s, 75 % efficient (1 worker x 4 threads)"


def test_a_lock_of_the_library_that_computes_is_part_of_it_but_none_of_the_users_own() -> None:
    parsing = stack_of("me/log.py when", "~_strptime.py _strptime_datetime", "~_strptime.py _strptime")
    in_own_code = stack_of("me/log.py when", "~_strptime.py _strptime_datetime", "me/log.py Zone.__init__")
    within = stack_of("me/log.py when", "~_strptime.py _strptime_datetime", "~threading.py Semaphore.__enter__")

    def told(at: Stack) -> list[Finding]:
        waits, whole = causes(**{"thread-noncpu/lock": 16.0}), {"thread_cpu": 14.0, "thread_noncpu": 16.0}
        rows = (
            ProfileRow("thread-cpu", PYTHON, "apply", parsing, 5),
            ProfileRow("thread-noncpu", "lock", "apply", at, 5),
        )
        fields = {
            "by_worker": {"w0": seconds(**whole, idle=10.0)},
            "by_prefix": {"apply": seconds(**whole)},
            "causes_by_worker": {"w0": waits | causes(**{"idle/parallelism": 10.0})},
            "causes_by_prefix": {"apply": waits},
        }
        return [*find(by_row(profile=rows, gil_holders=(), **fields))]

    first, *others = told(parsing)
    assert first.where == "75 % of all thread time: `when`, log.py:1, 53 % of it waiting for a lock in it"
    assert "thread-noncpu/lock" not in {one.kind for one in others}
    for at in (in_own_code, within):
        found = told(at)
        assert "thread-noncpu/lock" in {one.kind for one in found}
        assert next(one.where for one in found if one.kind == "computing").startswith("35 % of all thread time: `when`")


def test_it_is_no_finding_where_it_is_little_of_the_time_or_computes_outside_of_the_gil() -> None:
    assert "computing" in {one.kind for one in find(by_row(cpu=12.0, gil=1.0))}
    for report in (
        by_row(cpu=10.0, gil=1.0),
        by_row(how=NATIVE),
        by_row(profile=()),
        by_row(cpu=4.0, gil=0.0, other=30.0),
    ):
        assert "computing" not in {one.kind for one in find(report)}
    assert "computing" in {one.kind for one in find(by_row(how=UNDER_GIL))}


def test_a_loss_that_is_likely_to_save_more_goes_before_it() -> None:
    report = by_row(cpu=13.0, gil=1.0, sleep=24.0)
    assert [one.kind for one in find(report)][:2] == ["thread-noncpu/sleep", "computing"]


def test_where_no_line_of_the_users_is_seen_the_line_that_sent_the_tasks_stands() -> None:
    bare = tuple(frame for frame in ROWS[1] if "/home/me" not in frame.file)
    rows = (ProfileRow("thread-cpu", PYTHON, "apply", bare, 5),)
    report = by_row(profile=rows, computed_by={"apply": "`df.apply(f, axis=1).mean().compute()` in bmi.py:40"})
    (one,) = (one for one in find(report) if one.kind == "computing")
    assert one.where.endswith("of all thread time: `df.apply(f, axis=1).mean().compute()` in bmi.py:40")


def test_what_waits_for_a_core_because_of_other_processes_is_neither_the_codes_nor_the_runs() -> None:
    """Two cores, of which others use all but 15 %: that is the first fault, and the rows have a part of the rest."""
    waits = causes(**{"thread-noncpu/core": 30.0})
    given: dict[str, Any] = {
        "by_worker": {"w0": seconds(thread_cpu=3.0, thread_noncpu=30.0, idle=7.0)},
        "by_prefix": {"apply": seconds(thread_cpu=3.0, thread_noncpu=30.0)},
        "causes_by_worker": {"w0": waits | causes(**{"idle/parallelism": 7.0})},
        "causes_by_prefix": {"apply": waits},
        "gil_holders": (),
        "cores": 2.0,
        "others_share": 0.85,
    }
    ways = ("thread-cpu", PYTHON), ("thread-noncpu", "core")
    rows = tuple(ProfileRow(*way, "apply", stack, 5) for way in ways for stack in ROWS)
    alone, *others = find(by_row(profile=rows, **given | {"others_share": 0.0}))
    assert (alone.kind, alone.where[:24]) == ("computing", "82 % of all thread time:")
    core, *others = find(by_row(profile=rows, **given))
    assert (core.kind, core.saves_seconds) == ("thread-noncpu/core", pytest.approx(30.0 / 4 - 3.0 * 0.65 / 4))
    (one,) = (one for one in others if one.kind == "computing")
    assert one.where.startswith("41 % of all thread time but what other processes took: `body_mass_index`, bmi.py:1")


OWN_LOOP = stack_of("me/count.py count")


@pytest.mark.parametrize(
    ("how", "stack"), [(NATIVE, OWN_LOOP), (PYTHON, stack_of("me/count.py count", "numpy/x.py f"))]
)
def test_plain_python_in_the_users_functions_is_a_finding_of_what_it_computes_but_no_other_code(
    how: str, stack: Stack
) -> None:
    def of(*row: Any) -> EfficiencyReport:
        return by_row(cpu=16.0, gil=12.0, profile=(ProfileRow("thread-cpu", *row, 5),), gil_holders=())

    found = find(of(PYTHON, "apply", OWN_LOOP))
    (one,) = (one for one in found if one.kind == "computing")
    assert one.title == "Computing in Python"
    assert one.where == "40 % of all thread time: `count`, count.py:1"
    assert one.page == "docs/buckets.md#computing"
    # the cure of the waiting for the GIL is another one
    assert "thread-noncpu/gil" in {one.kind for one in found}
    assert "computing" not in {one.kind for one in find(of(how, "apply", stack))}


def test_shuffles_that_have_much_of_the_time_are_a_finding_with_the_line_that_sent_them() -> None:
    def of(prefix: str, held: float) -> EfficiencyReport:
        waits = causes(**{"thread-noncpu/cluster": held / 2, "thread-noncpu/core": 8.0})
        whole = seconds(thread_cpu=held / 2, thread_noncpu=held / 2)
        rest = seconds(thread_noncpu=8.0)
        stack = stack_of("distributed/shuffle/_merge.py hash_join_p2p", "distributed/shuffle/_limiter.py acquire")
        return by_row(
            by_worker={"w0": seconds(thread_cpu=held / 2, thread_noncpu=held / 2 + 8.0, idle=32.0 - held)},
            by_prefix={prefix: whole, "read": rest},
            causes_by_worker={"w0": waits},
            causes_by_prefix={prefix: causes(**{"thread-noncpu/cluster": held / 2}), "read": {}},
            profile=(ProfileRow("thread-noncpu", "cluster", prefix, stack, 5),),
            computed_by={prefix: "`a.merge(b).sum().compute()` in join.py:7"},
            cores=2.0,
            gil_holders=(),
        )

    first, *others = find(of("hash-join-transfer", 20.0))
    assert (first.kind, first.saves_seconds, first.title) == ("shuffling", None, "Shuffling rows between workers")
    assert first.where == "50 % of all thread time: computed by `a.merge(b).sum().compute()` in join.py:7"
    # its waits for data are part of it; those of other tasks for cores are not
    assert {one.kind for one in others} == {"idle", "thread-noncpu/core"}
    # what is shuffled is seen in what tasks compute
    grouped = stack_of("pandas/core/groupby/ops.py BaseGrouper._unob_index_and_ids")
    rows = [ProfileRow("thread-cpu", NATIVE, "hash-join-transfer", stack, 5) for stack in (grouped, SVD)]
    first, *others = find(replace(of("hash-join-transfer", 20.0), profile=tuple(rows)))
    assert first.kind == "shuffling"
    assert first.title == "Groups for all pairs of categories, whether they occur or not"
    assert "shuffling" not in {one.kind for one in find(of("hash-join-transfer", 10.0))}
    assert "shuffling" not in {one.kind for one in find(of("merge", 20.0))}


FIT = stack_of("me/fit.py fit", "numpy/linalg/_linalg.py svd")
PARSE = stack_of("me/price.py price", "pandas/io/parsers/readers.py read_csv")


SKEW = Skew(count=12, median_seconds=2.0, p95_seconds=3.0, max_seconds=3.0, longest_key="fit-1")


def at_work(
    stack: Stack, *, cpu: float = 28.0, waits: Mapping[str, float] | None = None, **fields: Any
) -> EfficiencyReport:
    """Four threads on four cores for 10 s; tasks of ``fit`` compute, and wait at the same lines."""
    waits = {"core": 4.0, "gil": 2.0} if waits is None else waits
    at = causes(**{f"thread-noncpu/{cause}": each for cause, each in waits.items()})
    whole = {"thread_cpu": cpu, "thread_noncpu": sum(waits.values())}
    rows = [ProfileRow("thread-cpu", NATIVE, "fit", stack, 5)]
    rows += [ProfileRow("thread-noncpu", cause, "fit", stack, 5) for cause in waits]
    idle = 40.0 - sum(whole.values())
    given: dict[str, Any] = {
        "by_worker": {"w0": seconds(**whole, idle=idle)},
        "by_prefix": {"fit": seconds(**whole)},
        "causes_by_worker": {"w0": at | causes(**{"idle/parallelism": idle})},
        "causes_by_prefix": {"fit": at},
        "skew": {"fit": SKEW},
        "profile": tuple(rows),
        "gil_holders": (),
    }
    return by_row(**(given | fields))


def test_a_function_that_keeps_the_threads_busy_is_named_and_explains_their_waits_for_cores() -> None:
    first, *others = find(at_work(FIT, cpu=33.0))
    assert str(first) == (
        "Mostly computing. 92 % of all thread time: `fit`, fit.py:1, mostly in `svd` (12 tasks of fit)\n"
        "Do once what its tasks repeat, and no more than is needed: else, only more cores help."
    )
    assert (first.kind, first.saves_seconds) == ("busy", None)
    assert {one.kind for one in others} <= {"idle/parallelism"}


def test_a_function_that_computes_as_much_for_each_of_several_lines_is_likely_to_compute_the_same() -> None:
    def of(*counts: int, lines: Mapping[str, str], called: Mapping[str, Stack] | None = None) -> EfficiencyReport:
        stacks = {"a": FIT, "b": FIT} if called is None else called
        rows = tuple(
            ProfileRow("thread-cpu", NATIVE, prefix, stacks[prefix], n) for prefix, n in zip("ab", counts, strict=True)
        )
        cpu = {prefix: 32.0 * n / sum(counts) for prefix, n in zip("ab", counts, strict=True)}
        tasks = {prefix: replace(SKEW, count=n) for prefix, n in zip("ab", counts, strict=True)}
        by_prefix = {prefix: seconds(thread_cpu=each) for prefix, each in cpu.items()}
        return at_work(
            FIT,
            cpu=32.0,
            waits={},
            profile=rows,
            by_prefix=by_prefix,
            skew=tasks,
            computed_by=lines,
            causes_by_prefix={},
        )

    two = {"a": "`x.max().compute()` in etl.py:7", "b": "`x.sum().compute()` in etl.py:8"}
    first = find(of(10, 12, lines=two))[0]
    assert first.title == "The same functions compute for several computations, as much for each"
    assert (first.kind, first.evidence["wall_clock_seconds"]) == ("busy", pytest.approx(0.4 * 8.0))
    # Functions that call the same one are not the same.
    called = {prefix: (*stack_of(f"me/jobs.py {prefix}"), *FIT) for prefix in "ab"}
    one_line = {"a": two["a"], "b": two["a"]}
    others = (of(10, 30, lines=two), of(10, 12, lines=one_line), of(10, 12, lines={}))
    for other in (*others, of(10, 12, lines=two, called=called)):
        assert "Mostly computing" in {one.title for one in find(other)}


def test_python_that_computes_as_much_for_each_of_several_lines_is_computed_again() -> None:
    route = stack_of("me/rivers.py route")

    def of(*counts: int, names: str = "ab", stack: Stack = route) -> EfficiencyReport:
        rows = tuple(ProfileRow("thread-cpu", PYTHON, one, stack, n) for one, n in zip(names, counts, strict=True))
        by_prefix = {one: seconds(thread_cpu=32.0 * n / sum(counts)) for one, n in zip(names, counts, strict=True)}
        lines = {one: f"`x.max().compute()` in rivers.py:{n}" for n, one in enumerate(names)}
        skew = dict.fromkeys(names, SKEW)
        return at_work(
            FIT,
            cpu=32.0,
            waits={},
            profile=rows,
            by_prefix=by_prefix,
            skew=skew,
            computed_by=lines,
            causes_by_prefix={},
        )

    first = find(of(10, 12))[0]
    assert (first.kind, first.title) == ("computing", BESIDE["busy-again"].title)
    assert first.where.endswith(": `route`, rivers.py:1")
    for other in (of(10, 30), of(10, names="a"), of(10, 12, stack=stack_of("me/rivers.py a", "me/rivers.py route"))):
        assert find(other)[0].title == "Computing in Python"


def test_what_is_known_to_have_a_cure_comes_before_processes_that_use_few_of_the_cores() -> None:
    written = stack_of("me/films.py write", "h5py/_hl/dataset.py Dataset.__setitem__")
    kinds = [
        [one.kind for one in find(at_work(written, cpu=22.0, waits={"core": 10.0}, cores=4.0, others_share=share))]
        for share in (0.21, 0.5)
    ]
    assert [each[0] for each in kinds] == ["busy", "thread-noncpu/core"]
    assert all({"busy", "thread-noncpu/core"} <= {*each} for each in kinds)


def test_where_most_of_the_time_is_useful_a_part_of_it_is_named() -> None:
    def of(*stacks: Stack, lines: Mapping[str, str]) -> EfficiencyReport:
        names = "abcd"[: len(stacks)]
        rows = tuple(
            ProfileRow("thread-cpu", NATIVE, name, stack, 5) for name, stack in zip(names, stacks, strict=True)
        )
        each = seconds(thread_cpu=32.0 / len(stacks))
        by_prefix, skew = dict.fromkeys(names, each), dict.fromkeys(names, SKEW)
        return at_work(FIT, cpu=32.0, waits={}, profile=rows, by_prefix=by_prefix, skew=skew, computed_by=lines)

    other = stack_of("me/fit.py score", "numpy/linalg/_linalg.py svd")
    (one,) = (one for one in find(of(FIT, other, lines={})) if one.kind == "busy")
    assert one.where.startswith("40 % of all thread time: `fit`, fit.py:1")
    # what no function of the user's is in is that of one line together
    line = "`x.std().compute()` in etl.py:7"
    (one,) = (one for one in find(of(*[FIT[1:]] * 3, FIT, lines=dict.fromkeys("abc", line))) if one.kind == "busy")
    assert one.where == f"60 % of all thread time: 12 tasks of a, mostly in `svd`, computed by {line}"
    # a task of a function of C, which Dask calls itself
    of_c = stack_of("dask/_task_spec.py Task.__call__", "<built-in> where(array(bool),array(float64))")
    (one,) = (one for one in find(of(*[of_c] * 3, FIT, lines=dict.fromkeys("abc", line))) if one.kind == "busy")
    assert f"12 tasks of a, mostly in `where(array(bool),array(float64))`, computed by {line}" in one.where
    parts = [stack_of(f"me/fit.py part{i}", "numpy/linalg/_linalg.py svd") for i in range(4)]
    assert "busy" not in {one.kind for one in find(of(*parts, lines={}))}


def test_where_threads_outnumber_cores_the_advice_says_so() -> None:
    (one,) = (one for one in find(at_work(FIT, cpu=20.0, waits={"core": 18.0}, cores=2.0)) if one.kind == "busy")
    assert one.advice.endswith("More threads than cores, 4 for 2, are no faster.")
    # event loops and the client take turns at the cores, too, but not half of the time
    for waits, there in ((17.0, True), (24.0, False)):
        found = {one.kind for one in find(at_work(FIT, cpu=14.0, waits={"core": waits}, cores=2.0))}
        assert ("busy" in found) is there


def test_of_what_computes_or_waits_for_its_turn_for_most_of_the_time_a_part_is_named() -> None:
    def kinds(other: float) -> set[str]:
        fit = {"thread_cpu": 9.0, "thread_noncpu": 10.0}
        rows = [
            ProfileRow("thread-cpu", NATIVE, prefix, stack, 5)
            for prefix, stack in (("fit", FIT), ("load", stack_of("me/io.py load", "numpy/fft/_pocketfft.py fft")))
        ]
        fields = {
            "by_worker": {"w0": seconds(**fit | {"thread_cpu": 9.0 + other}, idle=21.0 - other)},
            "by_prefix": {"fit": seconds(**fit), "load": seconds(thread_cpu=other)},
            "profile": (*rows, ProfileRow("thread-noncpu", "core", "fit", FIT, 5)),
        }
        return {one.kind for one in find(at_work(FIT, cpu=9.0, waits={"core": 10.0}, cores=2.0, **fields))}

    assert "busy" in kinds(other=4.0)
    assert "thread-noncpu/core" not in kinds(other=4.0)
    assert "busy" not in kinds(other=0.5)


def test_it_comes_after_what_can_be_saved_unless_that_is_little() -> None:
    kinds = [one.kind for one in find(at_work(FIT, cpu=24.0, waits={"sleep": 8.0}))]
    assert kinds.index("thread-noncpu/sleep") < kinds.index("busy")
    kinds = [one.kind for one in find(at_work(FIT, cpu=38.0, waits={"sleep": 2.0}))]
    assert kinds[0] == "busy"
    assert "busy" not in {one.kind for one in find(at_work(FIT, cpu=18.0, waits={}))}


def test_what_reads_by_its_name_loads_data() -> None:
    (one,) = (one for one in find(at_work(PARSE)) if one.kind == "loading")
    assert (one.title, one.where) == (
        "Loading data",
        "80 % of all thread time: `price`, price.py:1, mostly in `read_csv` (12 tasks of fit)",
    )
    bare = at_work(PARSE[1:], computed_by={"fit": "`x.compute()` in job.py:3"})
    (one,) = (one for one in find(bare) if one.kind == "loading")
    assert (
        one.where
        == "80 % of all thread time: 12 tasks of fit, mostly in `read_csv`, computed by `x.compute()` in job.py:3"
    )


POOL = stack_of(
    "me/price.py price", "pandas/io/parsers/readers.py read_csv", "~concurrent/futures/_base.py Future.result"
)


def test_threads_of_a_library_that_tasks_wait_for_compute_where_cores_are_in_use() -> None:
    def kinds(cores: float) -> set[str]:
        whole = seconds(thread_cpu=4.0, thread_noncpu=24.0, library_threads=8.0, idle=4.0)
        return {
            one.kind for one in find(at_work(POOL, cpu=4.0, waits={"lock": 24.0}, cores=cores, by_worker={"w0": whole}))
        }

    assert "loading" in kinds(2.0)
    assert "thread-noncpu/lock" not in kinds(2.0)
    # threads of a pool that wait themselves, such as for a server
    assert "thread-noncpu/lock" in kinds(32.0)
    assert not kinds(32.0) & {"busy", "loading"}


def test_threads_of_a_library_that_crowd_the_cores_are_named_instead() -> None:
    kinds = {one.kind for one in find(at_work(FIT, cpu=8.0, waits={"core": 28.0}))}
    assert "busy" not in kinds
    assert "thread-noncpu/core" in kinds


@pytest.mark.parametrize("cause", ["gil", "core"])
def test_what_other_tasks_wait_for_is_still_a_finding(cause: str) -> None:
    waits = causes(**{f"thread-noncpu/{cause}": 14.0})
    report = at_work(
        FIT,
        cpu=24.0,
        waits={},
        by_worker={"w0": seconds(thread_cpu=24.0, thread_noncpu=14.0, idle=2.0)},
        by_prefix={"fit": seconds(thread_cpu=24.0), "clean": seconds(thread_noncpu=14.0)},
        causes_by_worker={"w0": waits},
        causes_by_prefix={"fit": {}, "clean": waits},
    )
    assert {"busy", f"thread-noncpu/{cause}"} <= {one.kind for one in find(report)}


@pytest.mark.parametrize(
    ("prefix", "stack", "kind"),
    [
        ("read-csv", FIT[1:], "loading"),
        ("read_parquet-fused", FIT[1:], "loading"),
        ("read_parquet-fit", FIT[1:], "busy"),
        ("read_parquet-fit", FIT, "busy"),
        ("fit", stack_of("me/m.py load_model"), "loading"),
        ("fit", stack_of("me/m.py load_and_fit", "numpy/linalg/_linalg.py svd"), "busy"),
        ("fit", stack_of("me/m.py process_workload"), "busy"),
        ("fit", stack_of("me/m.py price_spread", "pandas/core/frame.py DataFrame.__getitem__"), "busy"),
    ],
)
def test_tasks_load_where_what_they_call_does_and_not_for_the_name_of_a_task_that_does_more(
    prefix: str, stack: Stack, kind: str
) -> None:
    rows = (ProfileRow("thread-cpu", NATIVE, prefix, stack, 5),)
    whole = {prefix: seconds(thread_cpu=36.0)}
    report = at_work(stack, cpu=36.0, waits={}, profile=rows, by_prefix=whole, causes_by_prefix={prefix: {}}, skew={})
    assert {one.kind for one in find(report)} & {"busy", "loading"} == {kind}


def test_where_cores_are_free_more_threads_are_the_advice() -> None:
    (one,) = (one for one in find(at_work(FIT, cpu=38.0, waits={}, cores=32.0)) if one.kind == "busy")
    assert one.advice.startswith("Use more threads or workers, as 4 threads have 32 cores")


def test_collections_of_garbage_are_named_as_dask_sees_them_end() -> None:
    stack = stack_of("me/bill.py bill", "distributed/gc.py GCDiagnosis._gc_callback")
    first, *_ = find(by_row(profile=(ProfileRow("thread-cpu", PYTHON, "apply", stack, 5),), gil_holders=()))
    assert (first.kind, first.title) == ("computing", "Garbage collection of many objects")
    assert first.where.endswith("`bill`, bill.py:1")


def test_advice_that_a_fact_speaks_against_is_not_given() -> None:
    stack = stack_of("dask/bag/core.py map_chunk", "me/words.py words")
    rows = (ProfileRow("thread-cpu", PYTHON, "apply", stack, 5),)
    for threads, use in ((4, "or use processes"), (1, "functions of whole arrays")):
        (one,) = (one for one in find(by_row(profile=rows, nthreads={"w0": threads})) if one.kind == "computing")
        assert use in one.advice
