"""Findings of what travels: tasks, results and graphs that keep event loops busy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dask_efficiency import EfficiencyReport
from dask_efficiency.accounts.cluster.scheduler_loop import RECEIVING, SENDING, LoopPart, SchedulerLoop
from dask_efficiency.accounts.lines import EVENT_LOOP, Frame
from dask_efficiency.accounts.metered import BYTES, COUNT, ITEMS, MESSAGES, SECONDS
from dask_efficiency.report.findings import find
from dask_efficiency.report.messages import loads
from dask_efficiency.report.values import LongHold, MeteredRow
from tests.report.samples import causes, changed, report_of, seconds


def part(kind: str, name: str, took: float, calls: int, **of: Any) -> LoopPart:
    function = ("PriceList.quote", "/home/me/prices.py", 43) if name == "tasks" else ("", "", 0)
    return LoopPart(kind, name, *function, took, calls, **of)


def row(worker: str, prefix: str, label: str, unit: str, value: float) -> MeteredRow:
    return MeteredRow(worker, MESSAGES, "", prefix, label, unit, value)


def run(*parts: LoopPart, metered: tuple[MeteredRow, ...] = (), idle: str = "idle/scheduler", **fields: Any):
    """Two workers of two threads for 10 s: 8 thread-seconds are useful, and 32 lost to one cause."""
    loop = SchedulerLoop(10.0, 8.0, 0.0, 0.8, 0.0, 8.0, 0.0, handlers=parts)
    lost = {"idle": 16} if idle.startswith("idle") else {idle.replace("-", "_"): 16}
    given: dict[str, Any] = {
        "causes_by_worker": {name: causes(**{idle: 16.0}) for name in ("w0", "w1")} if "/" in idle else {},
        "nthreads": {"w0": 2, "w1": 2},
        "cluster_seconds": 10.0,
        "window_seconds": 10.0,
        "scheduler_loop": loop,
        "metered": metered,
        **fields,
    }
    return report_of(seconds(thread_cpu=4, **lost), seconds(thread_cpu=4, **lost), **given)


def first(report: EfficiencyReport) -> tuple[str, str]:
    found = find(report)[0]
    return found.kind, found.where


QUOTES = {"of_prefix": "quote", "carries": "PriceList", "total_bytes": 800_000_000, "median_bytes": 5_000_000}


def test_tasks_that_carry_an_object_explain_the_waiting_for_the_scheduler() -> None:
    report = run(part(SENDING, "tasks", 6.0, 160, **QUOTES))
    where = "each task of quote carries 4.8 MiB (PriceList): `PriceList.quote`, prices.py:43"
    assert first(report) == ("heavy-tasks", where)
    assert not {"idle/scheduler", "small-tasks"} & {one.kind for one in find(report)}
    assert find(report)[0].saves_seconds == 8.0
    # One that is a small part of it explains nothing else.
    few = run(part(SENDING, "tasks", 1.0, 160, **QUOTES))
    assert first(few)[0] == "idle/scheduler"
    assert {one.kind: one.saves_seconds for one in find(few)}["heavy-tasks"] == 1.0
    none = run(part(SENDING, "tasks", 0.1, 160, **QUOTES))
    assert "heavy-tasks" not in {one.kind for one in find(none)}


def test_workers_that_unpickle_tasks_count_too() -> None:
    metered = tuple(row(worker, "quote", "receiving tasks: PriceList", SECONDS, 7.0) for worker in ("w0", "w1"))
    sent = part(SENDING, "tasks", 2.0, 160, **QUOTES)
    (load,) = loads(run(sent, metered=metered))
    assert (load.longest, load.whole, load.type_name) == (7.0, 16.0, "PriceList")
    (load,) = loads(run(sent, metered=metered, worker_saturation=1.1))
    # The scheduler sends them one after the other, and each worker takes in its own.
    assert (load.longest, load.whole, load.type_name) == (9.0, 16.0, "PriceList")


def test_small_tasks_that_take_long_to_pickle_have_another_cure() -> None:
    small = {**QUOTES, "total_bytes": 160_000, "median_bytes": 1_000, "carries": "function by value"}
    kind, where = first(run(part(SENDING, "tasks", 6.0, 160, **small)))
    where_to_look = "each task of quote carries 1000 B (function by value): `PriceList.quote`, prices.py:43"
    assert (kind, where) == ("slow-tasks", where_to_look)
    # A function of a module is pickled by name: what takes long is something else.
    assert first(run(part(SENDING, "tasks", 6.0, 160, **{**small, "carries": ""})))[0] == "idle/scheduler"


def test_pickled_results_explain_the_waiting_for_data_by_type() -> None:
    metered = (
        row("w0", "fit", "sending results to a worker: Forest", SECONDS, 6.0),
        row("w0", "fit", "sending results to a worker: Forest", BYTES, 40_000_000),
        row("w0", "fit", "sending results to a worker: Forest", COUNT, 4),
        row("w1", "fit", "receiving results: Forest", SECONDS, 5.0),
        row("w1", "fit", "receiving results: Forest", COUNT, 4),
    )
    report = run(metered=metered, idle="waiting-on-data")
    where = "4 results of fit (Forest, 9.5 MiB each), 11.0 s of pickling and unpickling"
    assert first(report) == ("pickled-results", where)
    (found, *_) = find(report)
    said = "Send arrays, or give Forest a __sizeof__, if it has none: tasks go to large inputs."
    assert found.advice == said
    small = tuple(replace(each, value=36_000_000) if each.unit == BYTES else each for each in metered)
    known = (
        tuple(replace(each, label=each.label.replace("Forest", name)) for each in metered)
        for name in ("list", "Dataset", "csr_matrix", "RangeIndex", "MaskedArray", "GeoDataFrame", "function")
    )
    for others in (small, *known):
        assert find(run(metered=others, idle="waiting-on-data"))[0].advice.startswith("Send arrays or tables")
    assert "waiting-on-data" not in {one.kind for one in find(report)}
    # large tables take as long as their bytes do
    large = tuple(replace(each, value=1e9) if each.unit == BYTES else each for each in metered)
    kind, where = first(run(metered=large, idle="waiting-on-data"))
    assert (kind, where.split(",")[:2]) == ("large-results", ["4 results of fit (Forest", " 238 MiB each)"])
    # so do arrays, which hold no objects
    of_arrays = tuple(replace(each, label=each.label.replace("Forest", "ndarray")) for each in metered)
    assert first(run(metered=of_arrays, idle="waiting-on-data"))[0] == "large-results"
    of_objects = (*large, row("w0", "fit", "sending results to a worker: Forest", ITEMS, 4e6))
    assert first(run(metered=of_objects, idle="waiting-on-data"))[0] == "pickled-results"
    arrays = tuple(replace(each, label=each.label.partition(":")[0]) for each in metered)
    assert first(run(metered=arrays, idle="waiting-on-data"))[0] == "waiting-on-data"


def test_what_is_imported_while_a_result_is_unpickled_is_no_pickling() -> None:
    result = (
        *(row("w0", "fit", "sending results to a worker: Model", unit, n) for unit, n in ((BYTES, 5e6), (COUNT, 1))),
        *(row(worker, "fit", "receiving results: Model", SECONDS, 5.0) for worker in ("w0", "w1")),
    )
    stack = (
        Frame("loads", "/lib/distributed/protocol/pickle.py", 90),
        Frame("_find_and_load", "<frozen importlib>", 7),
    )
    block = LongHold("w0", EVENT_LOOP, stack, 4.0, "receiving results of fit (Model)")
    assert first(run(metered=result, idle="waiting-on-data"))[0] == "pickled-results"
    (load,) = loads(run(metered=result, idle="waiting-on-data", loop_blocks=(block,)))
    assert load.seconds == {"w0": pytest.approx({"Model": 1.0}), "w1": {"Model": 5.0}}
    for other in (replace(block, stack=stack[:1]), replace(block, doing="receiving results of fits (Model)")):
        (load,) = loads(run(metered=result, idle="waiting-on-data", loop_blocks=(other,)))
        assert load.seconds == {"w0": {"Model": 5.0}, "w1": {"Model": 5.0}}


def test_large_graphs_are_one_finding_with_what_their_objects_do_on_the_way() -> None:
    large = {"total_bytes": 750_000_000, "median_bytes": 250_000_000, "largest_bytes": 250_000_000}
    report = run(
        part(SENDING, "graphs", 1.0, 3, **large),  # by the client, on the same event loop
        part(RECEIVING, "graphs", 1.0, 3, **large),
        part(SENDING, "tasks", 2.0, 3, of_prefix="original", carries="memmap", **large),
        metered=(row("w0", "original", "sending results to a worker", SECONDS, 4.0),),
        phases={"upload": 6.0, "run": 10.0},
        window_seconds=17.0,
        computed_by={"getitem": "`x.compute()` in etl.py:61", "original": "`x.compute()` in etl.py:61"},
    )
    where = "3 graphs of 238 MiB (original, memmap): `x.compute()` in etl.py:61"
    assert first(report) == ("large-graph", where)
    assert not {"client", "heavy-tasks", "idle/scheduler"} & {one.kind for one in find(report)}
    assert find(report)[0].saves_seconds == 8.0 + 6.0
    # of graphs of several lines, those of what is in each
    lines = {
        "mean": "`x.mean().compute()` in etl.py:61",
        "original": "`x.mean().compute()` in etl.py:61 and 2 more lines",
    }
    graphs = part(RECEIVING, "graphs", 6.0, 3, **large)
    assert first(run(graphs, computed_by=lines))[1] == f"3 graphs of 238 MiB: {lines['original']}"
    for count, others in ((2, {}), (3, {"f": "`y.sum().compute()` in etl.py:7 and 2 more lines"})):
        other = part(RECEIVING, "graphs", 6.0, count, **{**large, "total_bytes": count * 250_000_000})
        assert first(run(other, computed_by=lines | others))[1] == f"{count} graphs of 238 MiB"
    mixed = {**large, "median_bytes": 1_000, "total_bytes": 250_000_000}
    assert first(run(part(RECEIVING, "graphs", 6.0, 9, **mixed))) == ("large-graph", "9 graphs, the largest of 238 MiB")


def test_partitions_that_each_task_carries_once_are_data_in_the_graph() -> None:
    graph = part(RECEIVING, "graphs", 1.0, 1, total_bytes=90_000_000, largest_bytes=90_000_000)
    tasks = {"of_prefix": "from-pandas", "carries": "DataFrame", "total_bytes": 90_000_000, "median_bytes": 900_000}
    assert first(run(graph, part(SENDING, "tasks", 5.0, 100, **tasks)))[0] == "large-graph"
    # The same object in each of them is pickled as often as there are tasks.
    again = {**tasks, "total_bytes": 9_000_000_000}
    assert first(run(graph, part(SENDING, "tasks", 5.0, 100, **again)))[0] == "heavy-tasks"


def test_objects_of_each_task_are_data_in_graphs_however_small_these_are() -> None:
    graphs = part(RECEIVING, "graphs", 1.0, 100, total_bytes=90_000_000, largest_bytes=900_000)
    tasks = {"of_prefix": "f", "carries": "ndarray", "total_bytes": 90_000_000, "median_bytes": 900_000}
    report = run(graphs, part(SENDING, "tasks", 5.0, 100, **tasks))
    assert first(report) == ("large-graph", "100 graphs of 879 kiB (f, ndarray)")
    assert "heavy-tasks" not in {one.kind for one in find(report)}
    # without such tasks nothing is wrong with these graphs
    assert first(run(replace(graphs, seconds=6.0)))[0] == "idle/scheduler"


def test_no_load_saves_more_than_was_lost() -> None:
    # an event loop that was busy with tasks while all threads worked
    busy = run(part(SENDING, "tasks", 6.0, 160, **QUOTES), idle="spill")
    assert "heavy-tasks" not in {one.kind for one in find(busy)}
    little = causes(**{"idle/scheduler": 2.0})
    some = run(
        part(SENDING, "tasks", 6.0, 160, **QUOTES),
        by_worker={"w0": seconds(thread_cpu=18, idle=2), "w1": seconds(thread_cpu=18, idle=2)},
        causes_by_worker={"w0": little, "w1": little},
    )
    assert {one.kind: one.saves_seconds for one in find(some)} == {"heavy-tasks": 1.0}
    # of damaged files
    nothing = run(part(SENDING, "tasks", 6.0, 160, **QUOTES), by_worker={"w0": seconds(no_work=4)}, causes_by_worker={})
    assert find(nothing) == ()
    graphs = {"total_bytes": 750_000_000, "median_bytes": 250_000_000, "largest_bytes": 250_000_000}
    negative = run(part(RECEIVING, "graphs", 9.0, 3, **graphs), phases={"upload": -6.0}, window_seconds=17.0)
    assert first(negative)[0] == "large-graph"
    assert find(negative)[0].saves_seconds == 8.0


def test_tasks_of_no_known_prefix_or_size_are_said_without_them() -> None:
    nameless = {**QUOTES, "of_prefix": ""}
    assert first(run(part(SENDING, "tasks", 6.0, 160, **nameless)))[1].startswith("each task carries 4.8 MiB (PriceL")
    unknown = {**nameless, "total_bytes": 0, "median_bytes": 0, "carries": "function by value"}
    assert first(run(part(SENDING, "tasks", 6.0, 160, **unknown)))[0] == "idle/scheduler"


def test_what_was_fetched_is_said_with_its_objects() -> None:
    label = "sending results to a client: list"
    metered = (
        row("w0", "finalize-bag", label, SECONDS, 3.0),
        row("w0", "finalize-bag", label, BYTES, 33_000_000),
        row("w0", "finalize-bag", label, COUNT, 1),
        row("w0", "finalize-bag", label, ITEMS, 288_000),
    )
    report = run(metered=metered, phases={"gather": 8.0, "run": 2.0}, cluster_seconds=2.0, nthreads={"w0": 2, "w1": 2})
    found = next(one for one in find(report) if one.kind == "client")
    assert found.where == "1 result (list, 288000 objects, 31.5 MiB)"
    assert found.advice.startswith("Reduce them on the workers, or make arrays of them: 288000 objects")
    # What is put together for the client is not to be loaded in tasks instead.
    parts = (row("w0", "loads", "sending results to a worker: list", SECONDS, 6.0),)
    whole = replace(report, waited_for={"finalize-bag": 10**9})
    assert "pickled-results" not in {one.kind for one in find(changed(whole, metered=(*metered, *parts)))}
