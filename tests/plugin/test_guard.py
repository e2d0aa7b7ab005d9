from __future__ import annotations

import ast
import asyncio
import copy
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency import EfficiencyReport, efficiency_report, load_report, snapshot
from dask_efficiency.accounts.cluster.timeline import TimelineRecorder
from dask_efficiency.accounts.cluster.windows import ClusterWindow
from dask_efficiency.accounts.slow_worker import Cause, SlowWorker
from dask_efficiency.plugin.guard import MAX_NOTE, MAX_REASON, DataGuard, Decoration, Guard, decorate
from dask_efficiency.plugin.scheduler import replies
from dask_efficiency.plugin.wings import offered
from dask_efficiency.report import efficiency_report as client_half
from dask_efficiency.report import replies as reports
from dask_efficiency.report.client_watch import ClientObserver
from dask_efficiency.report.making import MAKING
from dask_efficiency.report.replies import ask_history
from dask_efficiency.runs.recording.scheduler.recording import RecordingPart
from dask_efficiency.show.terminal import plain
from tests.plugin.loops import metered_cluster
from tests.plugin.tasks import increment, nap


def boom(*args: object) -> None:
    raise ValueError(*args)


@pytest.fixture
def guard():
    return Guard("the part", "we go on without the part")


def test_a_function_is_called_with_its_arguments_until_the_guard_is_closed(guard):
    called = []
    guard(lambda *args, **kwargs: called.append((args, kwargs)), 1, two=2)
    guard.close()
    guard(boom)
    assert (called, guard.off) == ([((1,), {"two": 2})], None)


def test_the_first_failure_is_logged_and_nothing_is_called_after_it(caplog):
    ended, called = [], []
    guard = Guard("the part", "we go on without the part", lambda: ended.append(True))
    with caplog.at_level(logging.ERROR):
        guard(boom, "injected" * 1_000)
        guard(boom, "another")
        guard.fail(RuntimeError("a third"))
        guard(called.append, 1)
    assert guard.off == f"the part failed: ValueError: {'injected' * 1_000}"[:MAX_REASON]
    assert (ended, called) == ([True], [])
    (record,) = caplog.records
    assert record.getMessage() == "we go on without the part"
    assert record.exc_info is not None


def interrupt() -> None:
    raise KeyboardInterrupt


def test_interrupts_pass(guard):
    with pytest.raises(KeyboardInterrupt):
        guard(interrupt)
    with pytest.raises(KeyboardInterrupt):
        decorate([Decoration("code", "source listing", interrupt)])


#: Fields of a report that are no figures.
DECORATED = {
    *(
        "arrivals",
        "by_span",
        "causes_by_span",
        "client",
        "code",
        "computed_by",
        "cores",
        "environment",
        "facts",
        "gil_holders",
        "gpu",
        "graphs",
    ),
    *(
        "gil_holds",
        "lock_looks",
        "long_tail",
        "made",
        "loop_blocks",
        "notes",
        "path",
        "phases",
        "profile",
        "savings",
        "skew",
        "rounds",
        "sent_by",
    ),
    *(
        "cluster_peak",
        "held_at_peaks",
        "held_for",
        "memory_timeline",
        "scheduler_loop",
        "stragglers",
        "timeline",
        "trace",
    ),
}
#: What a broken decoration raises; the first is what CPython's ``ast.parse`` does in many threads at once.
ERRORS = [SystemError("AST constructor recursion depth mismatch"), RecursionError("too deep"), KeyError("x")]


class Odd(Exception):
    """Of no known kind."""


@given(st.lists(st.sampled_from([None, *ERRORS, Odd(), MemoryError(), ValueError("long" * 1000)])))
def test_each_decoration_is_made_on_its_own(errors):
    def make(error: Exception | None) -> str:
        if error is not None:
            raise error
        return "made"

    made, notes = decorate([Decoration(str(i), f"part {i}", lambda e=e: make(e)) for i, e in enumerate(errors)])
    assert made == {str(i): "made" for i, error in enumerate(errors) if error is None}
    failed = [i for i, error in enumerate(errors) if error is not None]
    assert [note.partition(":")[0] for note in notes] == [f"there is no part {i}" for i in failed]
    assert all(len(note) <= MAX_NOTE for note in notes)


def test_a_missing_decoration_is_logged_once_with_its_reason(caplog):
    with caplog.at_level(logging.ERROR):
        made, notes = decorate([Decoration("code", "source listing", lambda: boom("AST"))])
    assert (made, notes) == ({}, ["there is no source listing: ValueError: AST"])
    (record,) = caplog.records
    assert record.exc_info is not None
    assert "source listing" in record.getMessage()


# -- reports of a cluster in this process ---------------------------------------------------------


@dataclass
class Closed:
    """A window that was closed: what the scheduler and the client made a report of."""

    window: tuple[Any, ...]
    report: efficiency_report
    payload: dict[str, Any]
    stopped: int


def without_notes_on_cures(patch: pytest.MonkeyPatch) -> None:
    """Let savings make no note: which cures are worth a simulation follows from decorations, and from the load."""

    def quiet(name: str) -> Any:
        found = offered(name)
        if name != "savings/simulation" or found is None:
            return found
        return lambda report, notes, **simulated: found(report, **simulated)

    patch.setattr(client_half, "offered", quiet)


@pytest.fixture(scope="module")
def closed() -> Closed:
    """The accounts of a window, with a trace and a straggler, after its cluster has gone."""
    kept: dict[str, Any] = {}
    of_window, made_of = replies.of_window, efficiency_report._report_from

    def keep_window(*args: Any) -> Any:
        kept["window"] = args
        return of_window(*args)

    def keep_payload(self: Any, payload: dict[str, Any], stopped: int) -> EfficiencyReport:
        kept.update(payload=payload, stopped=stopped)
        return made_of(self, payload, stopped)

    async def run() -> efficiency_report:
        async with metered_cluster(2) as (_, _, mine), efficiency_report(mine, trace=True, savings=0) as report:
            await mine.gather(mine.map(nap, [0.02] * 6, pure=False))
        return report

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replies, "of_window", keep_window)
        patch.setattr(efficiency_report, "_report_from", keep_payload)
        without_notes_on_cures(patch)
        report = asyncio.run(run())
    finding = SlowWorker("only", "host", Cause.SLOW_CPU, score=2.0, confidence=0.9, since=0.0, effect=2.0)
    kept["payload"]["stragglers"] = [finding.to_dict()]
    return Closed(report=report, **kept)


def reply_of(closed: Closed) -> dict[str, Any]:
    """What the client is sent of a window."""
    return reports.unpacked(asyncio.run(replies.packed(replies.of_window(*closed.window))))


#: Views of the facts that need no decoration.
OF_FACTS = {"by_worker", "by_prefix", "causes_by_worker", "causes_by_prefix", "outside", "details", "moved", "metered"}


def figures(report: EfficiencyReport) -> dict[str, Any]:
    fields = {*EfficiencyReport.__dataclass_fields__, *OF_FACTS} - DECORATED
    return {name: getattr(report, name) for name in fields}


def raising(error: Exception) -> Any:
    """Make a function that raises an error."""

    def fail(*args: Any, **kwargs: Any) -> Any:
        raise error

    return fail


def in_turn(patch: pytest.MonkeyPatch, module: Any, make: Any) -> Iterator[tuple[Decoration, Any]]:
    """What is made while one decoration of a module after the other raises an error, each of another kind in turn."""
    whole: list[Decoration] = []

    def seen(decorations: Any) -> Any:
        whole.extend(found := list(decorations))
        return decorate(found)

    patch.setattr(module, "decorate", seen)
    make()
    assert len(whole) > 1
    for broken, error in zip(whole, cycle(ERRORS), strict=False):

        def breaking(decorations: Any, words: str = broken.words, error: Exception = error) -> Any:
            return decorate([d._replace(make=raising(error)) if d.words == words else d for d in decorations])

        patch.setattr(module, "decorate", breaking)
        yield broken, make()


@pytest.mark.cluster
def test_the_schedulers_figures_do_not_depend_on_any_decoration(closed, monkeypatch):
    def make() -> dict[str, Any]:
        return reply_of(closed)

    def without(payload: dict[str, Any], *names: str) -> dict[str, Any]:
        return {name: value for name, value in payload.items() if name not in names}

    whole = make()
    assert not whole["notes"]
    names = set()
    for broken, found in in_turn(monkeypatch, replies, make):
        names.add(broken.name)
        (note,) = found["notes"]
        assert note.startswith(f"there is no {broken.words}: ")
        lost = {"paths": ("facts",), "alone": ("skew",)}.get(broken.name, (broken.name,))
        assert without(found, *lost, "notes") == without(whole, *lost, "notes")
        report = reports.report_of(found, name="x", started=0.0)
        assert figures(report) == figures(reports.report_of(whole, name="x", started=0.0))
        assert note in report.notes
    assert ", ".join(sorted(names)) == (
        "alone, arrivals, code, cores, environment, gpu, graphs, kept, memory_timeline, of_facts, paths, profiles, "
        "running, scheduler_loop, seceded, skew, stragglers, timeline"
    )


@pytest.mark.cluster
@pytest.mark.parametrize("module", [client_half, reports])
def test_the_clients_figures_do_not_depend_on_any_decoration(closed, monkeypatch, tmp_path, module):
    def make() -> EfficiencyReport:
        return closed.report._report_from(copy.deepcopy(closed.payload), closed.stopped)

    without_notes_on_cures(monkeypatch)
    whole = make()
    assert whole.notes == closed.report.notes
    assert whole.trace is not None
    assert whole.stragglers
    names = set()
    for broken, found in in_turn(monkeypatch, module, make):
        names.add(broken.words)
        assert figures(found) == figures(whole)
        (note,) = set(found.notes) - set(whole.notes)
        assert note.startswith(f"there is no {broken.words}: ")
        assert "there is no" in plain(found.document)
        found.to_html(str(tmp_path / "report.html"))
        assert "there is no" in (tmp_path / "report.html").read_text()
    assert (
        ", ".join(sorted(names))
        == {
            client_half: (
                "critical path, list of lines that made collections, list of lines that sent graphs, list of the "
                "client's settings, list of workers that came, number of graphs, number of graphs by line, number of "
                "rounds, profile of the client, reading of torch's profiles, record of the client's phases, search for "
                "long tasks, search for stragglers in the trace, source listing, trace"
            ),
            reports: (
                "account of GPUs, account of the scheduler's event loop, comparison of tasks, environment, list of "
                "blocked event loops, list of long holds of the GIL, list of stragglers, list of who had the GIL, "
                "list of who held locks, memory over time, profile, source listing, timeline"
            ),
        }[module]
    )


@pytest.mark.cluster
@pytest.mark.parametrize("module", [client_half, reports])
def test_a_report_without_any_decoration_is_shown_in_a_notebook_saved_and_loaded(closed, monkeypatch, tmp_path, module):
    def breaking(decorations: Any) -> Any:
        return decorate([d._replace(make=raising(error)) for d, error in zip(decorations, cycle(ERRORS), strict=False)])

    monkeypatch.setattr(module, "decorate", breaking)
    report = closed.report._report_from(copy.deepcopy(closed.payload), closed.stopped)
    assert "there is no" in report._repr_html_()
    path = tmp_path / "report.json"
    report.save(str(path))
    assert set(report.notes) == set(load_report(path).notes)


# -- what really breaks, on both sides of a cluster ------------------------------------------------


#: What is broken, and what the report then says that there is not.
BROKEN = [
    (ast, "parse", "source listing"),
    (replies, "share_free_time", "list of spans"),
    (replies, "skew_by_prefix", "comparison of tasks"),
    (TimelineRecorder, "add", "timeline"),
    (TimelineRecorder, "timeline", "timeline"),
    (RecordingPart, "_read_clocks", "trace"),
    (RecordingPart, "_collect", "trace"),
    (ClientObserver, "add", "record of what the client did"),
    (ClientObserver, "remove", "record of what the client did"),
    (ClusterWindow, "cores", "count of cores"),
    (type(MAKING), "_begin", "list of lines that made collections"),
]


@pytest.mark.cluster
@pytest.mark.parametrize(("place", "name", "missing"), BROKEN)
def test_a_report_lacks_only_the_part_that_failed(place, name, missing, monkeypatch):
    async def run() -> tuple[EfficiencyReport, EfficiencyReport, EfficiencyReport]:
        async with metered_cluster(2) as (_, _, mine):
            async with efficiency_report(mine, trace=True, savings=0) as report:
                assert await mine.submit(increment, 1) == 2
            return report.report, await snapshot(mine), await ask_history(mine, None)

    monkeypatch.setattr(place, name, raising(SystemError("injected")))
    monkeypatch.setattr(MAKING._guard, "off", None)
    monkeypatch.setattr(MAKING, "_open", ())  # as other tests may have left some open
    for report in (found := asyncio.run(run())):
        assert report.breakdown.total > 0
        assert [note for note in report.notes if "injected" in note and missing not in note] == []
    assert found[0].tasks
    assert [note.partition(":")[0] for note in found[0].notes if "there is no" in note] == [f"there is no {missing}"]
    assert (found[0].trace is None) == (missing == "trace")
    assert (found[0].timeline is None) == (missing == "timeline")
    assert bool(found[0].by_span) == (missing != "list of spans")
    assert bool(found[0].skew) == (missing != "comparison of tasks")


def test_odd_data_cost_only_themselves_and_are_logged_once_of_each_kind(caplog):
    odd = DataGuard()
    assert odd("an answer", int, "7") == 7
    assert [odd(kind, int, "seven") for kind in ("an answer", "an answer", "an event")] == [None] * 3
    assert odd("an answer of another form", len, 7) is None
    *refused, unforeseen = caplog.records
    assert [record.getMessage().partition(": ")[0] for record in refused] == [
        "dask_efficiency ignores an answer",
        "dask_efficiency ignores an event",
    ]
    assert [bool(record.exc_info) for record in caplog.records] == [False, False, True]
    assert (
        unforeseen.getMessage()
        == "dask_efficiency ignores an answer of another form: object of type 'int' has no len()"
    )
