import re
from dataclasses import replace
from typing import Any

import pytest

from dask_efficiency import ClusterSpec, simulate
from dask_efficiency.show.finding import MAX_HEADLINE
from dask_efficiency.show.terminal import plain
from dask_efficiency.simulation import Prediction
from dask_efficiency.simulation.model.topology import ConstantNetwork
from dask_efficiency.simulation.sections.prediction import (
    certainty,
    context,
    document,
    headline,
    kinds_table,
    notes,
    page,
    plus_minus,
    size,
    where,
)
from tests.simulation.fake_engine import FakeEngine, recorded
from tests.simulation.simulation_samples import elsewhere, predicted, simulated_by


def simulated(seeds: int = 4, **changes: Any) -> Prediction:
    with simulated_by(FakeEngine()):
        return simulate(recorded(), seeds=seeds, **changes)


def test_the_headline_has_the_cluster_the_time_its_interval_and_the_efficiency() -> None:
    found = elsewhere()
    assert re.fullmatch(
        r"On 16 workers of 2 threads: \d+\.\d ms \+- \d+\.\d, \d+ % efficient; 1\.\d\dx as fast as recorded",
        headline(found),
    )
    assert context(found).startswith("recorded: 434 ms on 4 workers of 2 threads; ")
    # The interval is written with its larger half.
    half = max(found.interval[1] - found.makespan_seconds, found.makespan_seconds - found.interval[0])
    assert plus_minus(found) == f"{1000 * found.makespan_seconds:.1f} ms +- {1000 * half:.1f}"
    # Tasks that wait are distinguished from idle threads.
    trace = replace(found.trace, runs=replace(found.trace.runs, cpu_ns=found.trace.runs.cpu_ns // 10))
    waits = headline(replace(found, trace=trace))
    assert f"% efficient, slots {round(100 * found.busy)} % busy; " in waits


def test_a_single_run_has_no_interval() -> None:
    found = simulated(seeds=1, workers=8)
    assert "+-" not in headline(found)
    assert "there is no interval" in " ".join(certainty(found).lines)
    assert "90 of 100 runs" not in dict(page(found).stats)


def test_a_run_without_changes_is_as_it_was() -> None:
    found = simulated()
    assert headline(found).endswith("% efficient; recorded: 434 ms")
    assert context(found) == "as it was; 4 simulated runs"


def test_changes_are_in_the_headline() -> None:
    cluster = ClusterSpec.from_trace(recorded()).with_config({"distributed.scheduler.worker-saturation": 2.0})
    cluster = cluster.with_network(ConstantNetwork(1e9))
    found = simulated(seeds=2, cluster=cluster, without=["transfer"], speed_up={"sum": 2.0})
    changes = "without transfer with sum 2x as fast over its own network with worker-saturation=2.0"
    assert where(found) == f"On 4 workers of 2 threads {changes}"
    assert headline(found).startswith("On 4 workers of 2 thread...")
    assert len(headline(found)) == MAX_HEADLINE


@pytest.mark.parametrize(
    ("workers", "nthreads", "words"),
    [(1, 1, "1 worker"), (3, 3, "3 workers"), (3, 12, "3 workers of 4 threads"), (3, 7, "3 workers with 7 threads")],
)
def test_the_size_of_a_cluster_takes_the_fewest_words(workers: int, nthreads: int, words: str) -> None:
    assert size(workers, nthreads) == words


def test_the_error_on_its_own_cluster_is_always_shown_and_notes_are_a_caveat() -> None:
    found = replace(elsewhere(), notes=("Rows are missing.",))
    assert f"{found.self_replay.outcome}." in " ".join(certainty(found).lines)
    assert not certainty(found).caveat
    with pytest.warns(UserWarning, match="own cluster"):
        doubted = predicted(recorded(), 8, factor=1.1)
    assert certainty(doubted).caveat
    assert notes(found.notes).caveat
    assert notes(found.notes).lines == ("Rows are missing.",)
    assert "Rows are missing." in plain(document(found))
    assert not notes(()).blocks


def rows(was: dict[str, float], now: dict[str, float]) -> list[tuple[str, ...]]:
    return [tuple(map(str, row)) for row in kinds_table(was, now).rows]


def test_the_kinds_of_both_runs_stand_in_one_table_and_add_up() -> None:
    was, now = {"compute-cpu": 3.0, "transfer": 1.0}, {"compute-cpu": 1.0, "report": 0.25}
    assert rows(was, now) == [
        ("compute-cpu", "3.00", "1.00", "-2.00"),
        ("transfer", "1.00", "0.00", "-1.00"),
        ("report", "0.00", "0.25", "+0.25"),
        ("total", "4.00", "1.25", "-2.75"),
    ]
    drawings = kinds_table(was, now).drawings
    assert [drawing.share for drawing in drawings if drawing] == [-1.0, -0.5, 0.125]  # type: ignore[union-attr]


def test_kinds_beyond_the_largest_and_those_too_small_for_a_row_are_summed_up() -> None:
    kinds = ("compute-cpu", "compute-noncpu", "transfer", "spill", "unspill", "report", "graph-update", "ready-wait")
    kinds += (
        "worker-loop",
        "client-submit",
        "result-gather",
        "scheduler-queue",
        "scheduler-to-worker",
        "executor-handoff",
    )
    assert rows(dict.fromkeys(kinds, 1.0), {})[-2][:2] == ("2 more", "2.0")
    small = dict.fromkeys(("transfer", "report", "spill", "unspill", "ready-wait"), 0.004)
    assert rows({"compute-cpu": 3.0} | small, {"compute-cpu": 2.0}) == [
        ("compute-cpu", "3.00", "2.00", "-1.00"),
        ("others", "0.02", "0.00", "-0.02"),
        ("total", "3.02", "2.00", "-1.02"),
    ]
