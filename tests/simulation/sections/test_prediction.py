from __future__ import annotations

import re
from dataclasses import replace

import pytest

from dask_efficiency import ClusterSpec, simulate
from dask_efficiency.show.finding import MAX_HEADLINE
from dask_efficiency.show.terminal import plain
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


def test_the_headline_has_the_cluster_the_time_its_interval_and_the_efficiency() -> None:
    found = elsewhere()
    assert re.fullmatch(
        r"On 16 workers of 2 threads: \d+\.\d ms \+- \d+\.\d, \d+ % efficient; 1\.\d\dx as fast as recorded",
        headline(found),
    )
    assert context(found).startswith("recorded: 434 ms on 4 workers of 2 threads; ")


def test_the_interval_is_written_with_its_larger_half() -> None:
    found = elsewhere()
    low, high = found.interval
    half = max(high - found.makespan_seconds, found.makespan_seconds - low)
    assert plus_minus(found) == f"{1000 * found.makespan_seconds:.1f} ms +- {1000 * half:.1f}"


def test_tasks_that_wait_are_distinguished_from_idle_threads() -> None:
    found = elsewhere()
    assert "busy" not in headline(found)
    trace = replace(found.trace, runs=replace(found.trace.runs, cpu_ns=found.trace.runs.cpu_ns // 10))
    waits = replace(found, trace=trace)
    assert f"% efficient, slots {round(100 * found.busy)} % busy; " in headline(waits)


def test_a_single_run_has_no_interval() -> None:
    with simulated_by(FakeEngine()):
        found = simulate(recorded(), ClusterSpec.from_trace(recorded()).with_workers(8), seeds=1)
    assert "+-" not in headline(found)
    assert "there is no interval" in " ".join(certainty(found).lines)
    assert "90 of 100 runs" not in dict(page(found).stats)


def test_a_run_as_it_was_is_called_that() -> None:
    with simulated_by(FakeEngine()):
        found = simulate(recorded(), seeds=4)
    assert headline(found).endswith("% efficient; recorded: 434 ms")
    assert context(found) == "as it was; 4 simulated runs"


def test_changes_are_in_the_headline() -> None:
    trace = recorded()
    cluster = ClusterSpec.from_trace(trace).with_config({"distributed.scheduler.worker-saturation": 2.0})
    with simulated_by(FakeEngine()):
        found = simulate(
            trace, cluster.with_network(ConstantNetwork(1e9)), seeds=2, without=["transfer"], speed_up={"sum": 2.0}
        )
    changes = "without transfer with sum 2x as fast over its own network with worker-saturation=2.0"
    assert where(found) == f"On 4 workers of 2 threads {changes}"
    assert headline(found).startswith("On 4 workers of 2 thread...")
    assert len(headline(found)) == MAX_HEADLINE


@pytest.mark.parametrize(
    ("workers", "nthreads", "said"),
    [(1, 1, "1 worker"), (3, 3, "3 workers"), (3, 12, "3 workers of 4 threads"), (3, 7, "3 workers with 7 threads")],
)
def test_the_size_of_a_cluster_takes_the_fewest_words(workers: int, nthreads: int, said: str) -> None:
    assert size(workers, nthreads) == said


def test_the_error_on_its_own_cluster_is_always_shown() -> None:
    found = elsewhere()
    assert f"the run takes {found.self_replay.in_words}." in " ".join(certainty(found).lines)
    assert not certainty(found).caveat
    with pytest.warns(UserWarning, match="own cluster"):
        doubted = predicted(recorded(), 8, factor=1.1)
    assert certainty(doubted).caveat


def test_the_kinds_of_both_runs_stand_side_by_side_and_add_up() -> None:
    table = kinds_table({"compute-cpu": 3.0, "transfer": 1.0}, {"compute-cpu": 1.0, "report": 0.25})
    rows = [tuple(map(str, row)) for row in table.rows]
    assert rows == [
        ("compute-cpu", "3.00", "1.00", "-2.00"),
        ("transfer", "1.00", "0.00", "-1.00"),
        ("report", "0.00", "0.25", "+0.25"),
        ("total", "4.00", "1.25", "-2.75"),
    ]
    assert [drawing.share for drawing in table.drawings if drawing] == [-1.0, -0.5, 0.125]  # type: ignore[union-attr]


def test_many_kinds_are_summed_up() -> None:
    found = elsewhere()
    kinds = dict.fromkeys(("compute-cpu", "compute-noncpu", "transfer", "spill", "unspill", "report"), 1.0)
    kinds |= dict.fromkeys(("graph-update", "ready-wait", "worker-loop", "client-submit", "result-gather"), 1.0)
    kinds |= dict.fromkeys(("scheduler-queue", "scheduler-to-worker", "executor-handoff"), 1.0)
    table = kinds_table(kinds, found.breakdown)
    assert str(table.rows[-2][0]) == "2 more"
    assert table.rows[-2][1] == "2.0"


def test_what_is_too_little_for_a_row_is_in_the_sum_of_the_rows() -> None:
    many = {"compute-cpu": 3.0} | dict.fromkeys(("transfer", "report", "spill", "unspill", "ready-wait"), 0.004)
    table = kinds_table(many, {"compute-cpu": 2.0})
    assert [tuple(map(str, row)) for row in table.rows] == [
        ("compute-cpu", "3.00", "2.00", "-1.00"),
        ("others", "0.02", "0.00", "-0.02"),
        ("total", "3.02", "2.00", "-1.02"),
    ]


def test_notes_are_a_caveat() -> None:
    found = replace(elsewhere(), notes=("Rows are missing.",))
    assert notes(found.notes).caveat
    assert notes(found.notes).lines == ("Rows are missing.",)
    assert "Rows are missing." in plain(document(found))
    assert not notes(()).blocks
