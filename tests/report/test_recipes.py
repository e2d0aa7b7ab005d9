"""Recipes: each fits the stacks that it is for, and not those that look alike."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import dask
import pytest
from click.testing import CliRunner

from dask_efficiency import EfficiencyReport
from dask_efficiency.accounts.buckets import CAUSE_NAMES, FINALIZED
from dask_efficiency.accounts.cluster.scheduler_loop import LoopBlock, SchedulerLoop
from dask_efficiency.accounts.lines import EVENT_LOOP, Frame, Stack
from dask_efficiency.cli import main
from dask_efficiency.report import kinds, own_recipes
from dask_efficiency.report.client_sampler import activity_of
from dask_efficiency.report.cures import REPLAYED, with_recipe
from dask_efficiency.report.explanations import explain
from dask_efficiency.report.findings import find
from dask_efficiency.report.kinds import BESIDE, KINDS
from dask_efficiency.report.recipe_text import FACTS, GROUPS, MAX_ADVICE, Recipe, RecipeError, read_recipes
from dask_efficiency.report.recipes import RECIPES, known_recipes, recipe_for
from dask_efficiency.report.values import ClientRow, GilHolder, LongHold, ProfileRow, Saved
from dask_efficiency.show.finding import MAX_TITLE, Basis, Finding
from tests.report.recipe_stacks import HEALTHY, SEEN, stack_of
from tests.report.samples import SECOND, causes, report_of, seconds

OWN = """
archive: Waiting for the archive
    kinds: thread-noncpu/*
    stack: our_archive/client.py Client.fetch*|Client.send > *
    unless: our_archive/cache.py
    page: https://example.org/archive
    Fetch whole years at a time.
"""


@pytest.mark.parametrize(("name", "kind", "stacks"), SEEN, ids=lambda value: value if isinstance(value, str) else "")
def test_a_recipe_is_found_for_what_it_is_for(name: str, kind: str, stacks: dict[Stack, int]) -> None:
    found = recipe_for(kind, stacks.items())
    assert (found.name if found else None) == name


def as_sampled(stack: Stack) -> Stack:
    """Stack as a client's sampler keeps it, with Dask where it is installed here."""
    folder = f"{Path(dask.__file__).parents[1]}/"
    there = (
        frame._replace(file=frame.file.replace("/opt/venv/lib/python3.12/site-packages/", folder)) for frame in stack
    )
    return activity_of(tuple(there), waits=False)[1]


@pytest.mark.parametrize(("name", "stacks"), [(name, stacks) for name, kind, stacks in SEEN if kind == "client"])
def test_a_clients_sampler_keeps_what_its_recipes_look_for(name: str, stacks: dict[Stack, int]) -> None:
    found = recipe_for("client", [(as_sampled(stack), weight) for stack, weight in stacks.items()])
    assert (found.name if found else None) == name


@pytest.mark.parametrize("stacks", [stacks for kind, stacks in HEALTHY if kind == "client"])
def test_a_clients_healthy_stacks_have_none_as_sampled(stacks: dict[Stack, int]) -> None:
    assert recipe_for("client", [(as_sampled(stack), weight) for stack, weight in stacks.items()]) is None


@pytest.mark.parametrize(("kind", "stacks"), HEALTHY, ids=lambda value: value if isinstance(value, str) else "")
def test_what_looks_like_it_and_is_healthy_or_something_else_has_none(kind: str, stacks: dict[Stack, int]) -> None:
    assert recipe_for(kind, stacks.items()) is None


def test_every_recipe_has_a_case_of_its_own_and_a_kind_that_there_is() -> None:
    by_tasks = {one.name for one in RECIPES if one.tasks}
    assert {name for name, _, _ in SEEN} | by_tasks == {one.name for one in RECIPES}
    known = {*map(str, FINALIZED), *CAUSE_NAMES, *BESIDE}
    for one in RECIPES:
        assert all(any(one.is_of(kind) for kind in known) for _ in one.kinds)
        assert [name for name in one.kinds if not name.endswith("*") and name not in known] == []
    assert {kind for group in GROUPS.values() for kind in group if not kind.endswith("*")} <= known


def test_titles_and_advice_fit_their_lines_and_the_page_has_each() -> None:
    for one in RECIPES:
        assert len(one.title) <= MAX_TITLE
        assert len(one.advice) <= MAX_ADVICE
        assert (one.title + one.advice).isascii()
        assert one.page == f"docs/recipes.md#{one.name}"
    assert len({one.title for one in RECIPES}) == len(RECIPES)


def test_tasks_by_prefix_are_enough_for_some() -> None:
    assert recipe_for("small-tasks", prefixes={"read_parquet-fused": 3, "sum": 2}).name == "parquet-files"
    assert recipe_for("small-tasks", prefixes={"read_parquet-getitem": 60, "chunk": 120}).name == "parquet-files"
    assert recipe_for("small-tasks", prefixes={"read_parquet": 60, "chunk": 300}) is None
    windows = {"getitem-overlap-sum": 480, "rechunk-split": 960, "sum": 2_000}
    assert recipe_for("small-tasks", prefixes=windows).name == "overlaps"
    picked = {"shuffle-split": 2025.0, "shuffle-taker": 2025.0, "sum": 90.0}
    assert recipe_for("small-tasks", prefixes=picked).name == "rows-in-any-order"
    assert recipe_for("small-tasks", prefixes={**windows, "getitem-overlap-sum": 1}).name == "rechunked"
    by_tasks = {"split-stage": 2197, "split-taskshuffle": 2080, "sort_index": 160, "repartitionquantiles": 209}
    assert recipe_for("small-tasks", prefixes=by_tasks).name == "shuffled-by-tasks"
    sorting = {
        "p2pshuffle": 190,
        "repartitionquantiles": 245,
        "set_partitions_pre": 190,
        "read-csv": 380,
        "getitem": 570,
    }
    assert recipe_for("small-tasks", prefixes=sorting).name == "sorted-by-small-tasks"
    assert recipe_for("small-tasks", prefixes={**sorting, "repartitionquantiles": 0, "getitem": 5_000}) is None
    assert recipe_for("small-tasks", prefixes={"p2pshuffle": 190, "min": 190, "max": 190}) is None
    cut = {"getitem": 5664, "concatenate": 1088, "getitem-overlap": 64, "mean": 150}
    assert recipe_for("small-tasks", prefixes=cut).name == "cut-overlaps"
    assert recipe_for("small-tasks", prefixes={"getitem": 5664, "concatenate": 1088}) is None
    for most, name in (("rechunk-merge", "rechunked"), ("repartition", "repartition")):
        assert recipe_for("small-tasks", prefixes={most: 9900, "overlap": 60}).name == name
    assert recipe_for("small-tasks", prefixes={"work": 9900, "overlap": 60, "rechunk-split": 40}) is None
    assert recipe_for("small-tasks", prefixes={"getitem-overlap-sum": 5, "sum": 2_000}) is None
    reshaped = {"rechunk-merge-reshape-stack": 351, "rechunk-split": 400, "getitem": 200}
    assert recipe_for("small-tasks", prefixes=reshaped).name == "reshaped"
    assert recipe_for("small-tasks", prefixes={"reshape": 20, "sum": 900}) is None
    assert recipe_for("small-tasks", prefixes={"reshape_image": 5000, "rechunk-split": 1}) is None
    cut = {"rechunk-split": 960, "rechunk-merge": 480, "reshape": 3}
    assert recipe_for("small-tasks", prefixes=cut).name == "rechunked"
    assert (
        recipe_for("small-tasks", prefixes={"rechunk-split": 960, "rechunk-merge": 480, "sum": 900}).name == "rechunked"
    )
    assert recipe_for("small-tasks") is None


def test_many_small_arrays_of_numbers_are_not_told_to_be_numbers() -> None:
    (advice,) = (one.advice for one in RECIPES if one.name == "compared-objects")
    assert advice.startswith("Use larger arrays in fewer calls or, where values are Python objects, numbers")


def test_the_lines_that_sent_the_tasks_are_enough_for_others() -> None:
    lines = {"`rows = len(table)` in etl.py:8 and 3 more lines": 3.0, "": 2.0}
    assert recipe_for("repeats", lines=lines).name == "len-of-frame"
    for own in ("`len(df)` in a.py:1", "`print(len(df))` in a.py:1", "`if len(df) > 3:` in a.py:1"):
        assert recipe_for("repeats", lines={own: 1.0}).name == "len-of-frame"
    for loop in ("`for i in range(len(paths)):` in a.py:1", "`x = [f(i) for i in range(len(paths))]` in a.py:1"):
        assert recipe_for("one-by-one", lines={loop: 1.0}) is None
    assert recipe_for("repeats", lines={"`d = f(x, n=len(x)).compute()` in a.py:1": 1.0}) is None
    for other in ({"`table.index.size.compute()` in etl.py:8": 3.0}, {"`strlen(table)` in etl.py:8": 3.0}, {}):
        assert recipe_for("repeats", lines=other) is None


def test_more_than_half_of_what_was_seen_must_fit_and_what_was_not_seen_does_not_count() -> None:
    there, other = stack_of("numpy/lib/_shape_base_impl.py apply_along_axis"), stack_of("pandas/core/frame.py f")
    for weights, fits in (((5, 5, 0), False), ((6, 5, 0), True), ((6, 5, 100), True), ((0, 0, 5), False)):
        found = recipe_for("thread-noncpu/gil", zip((there, other, ()), weights, strict=True))
        assert (found is not None) == fits


def test_a_folder_of_the_users_own_is_no_library() -> None:
    stack = (Frame("fetch", "/home/me/project/requests/api.py", 3), Frame("get", "/home/me/project/requests/api.py", 9))
    assert recipe_for("thread-noncpu/network", [(stack, 1)]) is None
    assert recipe_for("thread-noncpu/network", [(stack_of("requests/api.py get"), 1)]).name == "http"
    windows = (Frame("get", r"C:\Python312\Lib\site-packages\requests\api.py", 9),)
    assert recipe_for("thread-noncpu/network", [(windows, 1)]).name == "http"


def test_the_finding_of_a_loss_has_the_recipe_of_its_stacks_and_the_gils_of_its_holders() -> None:
    lock, rows = stack_of("xarray/backends/netCDF4_.py NetCDF4ArrayWrapper._getitem"), SEEN_BY_NAME["pandas-rows"]
    report = report_of(
        seconds(thread_cpu=4, thread_noncpu=14),
        by_prefix={"open": seconds(thread_cpu=4, thread_noncpu=14)},
        causes_by_worker={"w0": causes(**{"thread-noncpu/lock": 7, "thread-noncpu/gil": 7})},
        causes_by_prefix={"open": causes(**{"thread-noncpu/lock": 7, "thread-noncpu/gil": 7})},
        nthreads={"w0": 4},
        profile=(
            ProfileRow("thread-noncpu", "lock", "open", lock, 5),
            ProfileRow("thread-noncpu", "gil", "open", lock, 5),
        ),
        gil_holders=tuple(GilHolder("open", "open", stack, ns) for stack, ns in rows.items()),
    )
    titles = {one.kind: (one.title, one.page) for one in find(report)}
    assert titles["thread-noncpu/lock"] == (
        "Waiting for xarray's lock on netCDF and HDF5 files",
        "docs/recipes.md#xarray-lock",
    )
    assert titles["thread-noncpu/gil"][0] == "Python by row, in DataFrame.apply(axis=1)"


def title_of(report: EfficiencyReport, kind: str) -> str:
    return next(one.title for one in find(report) if one.kind == kind)


def test_blocks_of_event_loops_have_the_recipe_if_they_explain_what_waited_for_them() -> None:
    pickles = stack_of("distributed/protocol/pickle.py dumps", "sklearn/base.py BaseEstimator.__getstate__")
    for seconds_blocked, is_it in ((3.0, True), (0.2, False)):
        loop = SchedulerLoop(10.0, 4.0, 0.0, 0.4, 0.0, 0.0, 0.0, blocks=(LoopBlock(seconds_blocked, pickles),))
        report = report_of(
            seconds(thread_cpu=4, idle=9),
            causes_by_worker={"w0": causes(**{"idle/scheduler": 9.0})},
            nthreads={"w0": 2},
            scheduler_loop=loop,
        )
        assert (title_of(report, "idle/scheduler") == "Models that travel, pickled") == is_it
    report = report_of(
        seconds(thread_cpu=4, overhead=9),
        causes_by_worker={"w0": causes(**{"overhead/event-loop": 9.0})},
        nthreads={"w0": 2},
        loop_blocks=(LongHold("w0", EVENT_LOOP, pickles, 3.0),),
    )
    assert title_of(report, "overhead/event-loop") == "Models that travel, pickled"


def test_what_the_client_does_while_no_task_is_ready_has_its_recipe() -> None:
    (indexes,) = SEEN_BY_NAME["set-index"]
    report = report_of(
        seconds(thread_cpu=8, idle=9),
        causes_by_worker={"w0": causes(**{"idle/parallelism": 9.0})},
        nthreads={"w0": 2},
        client=(ClientRow("wait", indexes, 8 * SECOND, SECOND, 0), ClientRow("compute", (), 9 * SECOND, 9 * SECOND, 0)),
    )
    assert title_of(report, "computed-first") == "set_index computes its column first"
    assert "idle/parallelism" not in {one.kind for one in find(report)}


def test_tasks_and_lines_that_sent_them_are_known_of_every_loss_of_tasks(tmp_path: Path) -> None:
    file = tmp_path / "recipes.txt"
    file.write_text(
        "net: Fetching pages\n    kinds: thread-noncpu/network\n    tasks: fetch*\n    Do it.\n"
        "naps: Sleeping at the gate\n    kinds: thread-noncpu/sleep\n    sent: *gate*\n    Do it at once.\n"
    )
    report = report_of(
        seconds(thread_cpu=4, thread_noncpu=18),
        by_prefix={"fetch": seconds(thread_cpu=4, thread_noncpu=18)},
        causes_by_worker={"w0": causes(**{"thread-noncpu/network": 9, "thread-noncpu/sleep": 9})},
        causes_by_prefix={"fetch": causes(**{"thread-noncpu/network": 9, "thread-noncpu/sleep": 9})},
        nthreads={"w0": 4},
        computed_by={"fetch": "`gate.compute()` in etl.py:8"},
    )
    with dask.config.set({"efficiency.recipes": str(file)}):
        assert title_of(report, "thread-noncpu/network") == "Fetching pages"
        assert title_of(report, "thread-noncpu/sleep") == "Sleeping at the gate"


def test_advice_on_threads_gives_way_where_more_or_fewer_of_them_do_not_help() -> None:
    def advised(cause: str, frame: str, **fields: Any) -> tuple[str, str]:
        waits = causes(**{f"thread-noncpu/{cause}": 14})
        whole = seconds(thread_cpu=4, thread_noncpu=14)
        given = {"nthreads": {"w0": 4}, "profile": (ProfileRow("thread-noncpu", cause, "open", stack_of(frame), 5),)}
        rows = {"by_prefix": {"open": whole}, "causes_by_worker": {"w0": waits}, "causes_by_prefix": {"open": waits}}
        (found,) = find(report_of(whole, **rows, **given | fields))
        return found.title, found.advice

    lock = ("lock", "xarray/backends/netCDF4_.py NetCDF4ArrayWrapper._getitem")
    title, advice = advised(*lock)
    assert advice.startswith("Use workers with one thread each")
    assert advised(*lock, nthreads={"w0": 1}) == (title, KINDS["thread-noncpu/lock"].cures[-1][1])
    get = ("network", "requests/sessions.py Session.send")
    title, advice = advised(*get)
    assert advice.startswith("Use more threads per worker")
    in_vain = advised(*get, savings={"thread-noncpu/network": Saved(0.0, 0.0, 0.0)})
    assert in_vain[0] == title
    assert in_vain[1].startswith("Prefetch, or ask for more at a time: more threads do not help")
    assert {*FACTS} <= kinds._CONDITIONS.keys()


@pytest.mark.parametrize("cause", ["file", "sleep", "child-process", "cluster"])
def test_waits_for_something_else_are_not_for_the_network(cause: str) -> None:
    for frame in ("requests/sessions.py Session.send", "sqlalchemy/engine/default.py DefaultDialect.do_execute"):
        assert recipe_for(f"thread-noncpu/{cause}", [(stack_of(frame), 1)]) is None


SEEN_BY_NAME = {name: stacks for name, _, stacks in SEEN}


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("    kinds: client\n", "line 1: 'kinds: client' belongs to no recipe; expected NAME: TITLE before it"),
        ("Two words: x\n    y.\n", "line 1: 'Two words: x' begins no recipe; expected NAME: TITLE, in letters"),
        ("a: b\n", "line 1: 'a' has no advice; expected it as its last line"),
        ("a: b\n    kinds: client\n    Do it\n", "line 3: the advice of 'a' is 'Do it'; expected a sentence of up to"),
        (
            "a: b\n    kind: client\n    Do it.\n",
            "line 2: 'kind: client' is not known here; expected one of kinds, stack",
        ),
        (
            "a: b\n    stack: c.py\n    Do it.\n",
            "line 1: 'a' is of no use; expected kinds:, and stack:, sent:",
        ),
        ("a: b\n    kinds: client\n    stack: c.py f g\n    Do it.\n", "line 3: 'c.py f g' is no pattern of a stack"),
        (
            "a: b\n    kinds: small-tasks\n    tasks: c\n    share: 2\n    Do it.\n",
            "line 4: share is '2'; expected a number",
        ),
        (
            "a: b\n    kinds: client\n    kinds: waits thread-noncpu/netwrk\n    stack: c.py\n    Do it.\n",
            "line 3: 'thread-noncpu/netwrk' is no kind of finding that recipes are for; expected one of python, busy,",
        ),
        (
            "a: b\n    kinds: loops\n    stack: c.py\n    tasks: d\n    Do it.\n",
            "line 4: 'tasks' fits nothing: no task has a loss of kinds idle/scheduler idle/round",
        ),
        ("a: b\n    kinds: computing\n    sent: c\n    Do it.\n", "line 3: 'sent' fits nothing: no task has a loss of"),
        (
            "a: b\n    kinds: client\n    stack: c\n    unless-fact: rain\n    Do it.\n",
            "line 4: 'rain' is no fact; expected one of threads-in-vain, one-thread-each",
        ),
        (f"{OWN}{OWN}", "line 9: 'archive' is given twice"),
    ],
)
def test_a_mistake_is_named_with_its_line(text: str, wrong: str) -> None:
    with pytest.raises(RecipeError) as caught:
        read_recipes(text)
    assert str(caught.value).startswith(wrong)


def test_comments_stand_anywhere() -> None:
    lines = OWN.strip().splitlines()
    text = "\n".join(f"# about it\n{line}\n    # more" for line in lines)
    assert read_recipes(text) == read_recipes(OWN)


def test_a_users_own_recipes_come_from_a_file_and_go_before_others(tmp_path: Path) -> None:
    file = tmp_path / "recipes.txt"
    file.write_text(OWN)
    stack = stack_of("requests/api.py get", "our_archive/client.py Client.send", "ssl.py read")
    with dask.config.set({"efficiency.recipes": str(file)}):
        found = recipe_for("thread-noncpu/network", [(stack, 1)])
        assert (found.name, found.page) == ("archive", "https://example.org/archive")
        assert known_recipes()[1:] == RECIPES
        shown = CliRunner().invoke(main, ["explain", "the archive"]).output
        listed = CliRunner().invoke(main, ["explain"]).output
    assert shown.startswith("archive: Waiting for the archive\n\nFetch whole years at a time.\n")
    assert "our_archive/client.py Client.fetch*|Client.send > * *" in " ".join(shown.split())
    assert "\narchive: Waiting for the archive\npandas-" not in listed
    assert "Recipes:\narchive: Waiting for the archive\nxarray-compares: " in listed
    assert recipe_for("thread-noncpu/network", [(stack, 1)]).name == "http"


def test_a_mistake_in_a_file_is_logged_and_ends_explain_with_its_line(tmp_path: Path, caplog) -> None:
    file = tmp_path / "recipes.txt"
    file.write_text("# ours\nnonsense\n")
    for value in (str(file), [str(file), str(tmp_path / "none.txt")], 3, "no\0path"):
        with dask.config.set({"efficiency.recipes": value}):
            assert known_recipes() == RECIPES
    assert f"{file}, line 2: 'nonsense' begins no recipe" in caplog.text
    assert "none.txt" in caplog.text
    with dask.config.set({"efficiency.recipes": str(file)}):
        result = CliRunner().invoke(main, ["explain", "sleep"])
    assert (result.exit_code, "line 2: 'nonsense' begins no recipe" in result.output) == (1, True)


def test_packages_bring_recipes_as_text_by_an_entry_point(monkeypatch, caplog) -> None:
    class Point:
        def __init__(self, name: str, value: object) -> None:
            self.name, self._value = name, value

        def load(self) -> object:
            if isinstance(self._value, Exception):
                raise self._value
            return self._value

    points = [Point("good", OWN), Point("code", print), Point("broken", ImportError("no such module"))]
    monkeypatch.setattr(own_recipes, "entry_points", lambda group: points if group == "dask_efficiency.recipes" else [])
    own_recipes._of_packages.cache_clear()
    try:
        assert [one.name for one in known_recipes()[: -len(RECIPES)]] == ["archive"]
    finally:
        own_recipes._of_packages.cache_clear()
    assert "'code' are left out: line 0: it is a builtin_function_or_method; expected recipes as text" in caplog.text
    assert "'broken' are left out: ImportError('no such module')" in caplog.text


def test_a_recipe_is_explained_by_name_title_or_a_part_of_it() -> None:
    for name in ("pandas-rows", "Python by row, in DataFrame.apply(axis=1)", "DataFrame.apply"):
        result = CliRunner().invoke(main, ["explain", name])
        assert result.output.startswith("pandas-rows: Python by row, in DataFrame.apply(axis=1)\n\nWrite it for whole")
    assert CliRunner().invoke(main, ["explain", "Python by"]).exit_code == 1


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_every_recipe_is_explained_by_its_name_and_its_title(recipe: Recipe) -> None:
    for name in (recipe.name, recipe.title, f"{recipe.title}."):
        assert explain(name).title == f"{recipe.name}: {recipe.title}"


def test_a_users_file_may_be_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "recipes.txt").write_text(OWN)
    for variable in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, str(tmp_path))
    with dask.config.set({"efficiency.recipes": "~/recipes.txt"}):
        assert [one.name for one in known_recipes()[: -len(RECIPES)]] == ["archive"]


def test_the_form_in_the_documentation_is_the_one_that_is_read() -> None:
    page = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text(encoding="utf-8")
    text = page.split("# Our archive")[1].split("```")[0]
    (one,) = read_recipes(textwrap.dedent(f"# Our archive{text}"))
    assert (one.name, one.kinds) == ("archive", ("thread-noncpu/network", "thread-noncpu/lock"))


@pytest.mark.parametrize(
    ("kind", "stack", "replayed"),
    [
        ("thread-noncpu/network", "requests/api.py request > urllib3/connectionpool.py urlopen", True),
        ("thread-noncpu/gil", "json/__init__.py loads > json/decoder.py JSONDecoder.decode", False),
    ],
    ids=["more threads", "another library"],
)
def test_what_a_replay_saves_is_promised_of_the_cure_that_it_has(kind: str, stack: str, replayed: bool) -> None:
    lost = Finding(
        kind, "Waiting", lost_seconds=4.0, saves_seconds=0.2, saves_interval=(0.1, 0.3), basis=Basis.REPLAYED
    )
    stacks = [(stack_of("me/a.py f", *stack.split(" > ")), 1.0)]
    report = report_of(seconds(thread_cpu=4, thread_noncpu=4), cluster_seconds=8.0, window_seconds=8.0)
    found = with_recipe(report, lost, stacks)
    assert found.title != lost.title
    assert found.advice
    if replayed:
        assert (found.saves_seconds, found.saves_interval, found.basis) == (0.2, (0.1, 0.3), Basis.REPLAYED)
    else:
        assert (found.saves_seconds, found.saves_interval, found.basis) == (4.0, None, Basis.BOUNDED)


def test_recipes_whose_cure_is_replayed_are_there() -> None:
    assert {recipe.name for recipe in RECIPES} >= REPLAYED
