"""Timeline, environment and code of reports of a real cluster, and the files that they are written to."""

import re
import time
import zipfile
from pathlib import Path
from typing import Any

import dask.array
import pytest
from distributed import Client

from dask_efficiency import EfficiencyPlugin, EfficiencyReport, efficiency_report, load_report, load_trace, snapshot
from tests.plugin import tasks
from tests.plugin.watch import Window, addresses, kill, silence, timed_report
from tests.runs.trace.equal import assert_same
from tests.runs.trace.perfetto import FAULTS, query

pytestmark = pytest.mark.cluster


def seconds(report: EfficiencyReport) -> dict[str, float]:
    assert report.timeline is not None
    return {name: sum(row) / 1e9 for name, row in report.timeline.activity.items()}


def whole(report: EfficiencyReport) -> float:
    return sum(seconds(report).values())


def tolerance(report: EfficiencyReport, window: Window) -> float:
    """A tenth of the whole, and the time of asking the workers at the two ends."""
    return 0.1 * report.breakdown.total + sum(report.nthreads.values()) * (window.most - window.least)


def test_the_timeline_agrees_with_the_accounts(client: Client) -> None:
    with timed_report(client) as (found, window):
        client.gather(client.map(tasks.spin, [0.3] * 8, pure=False))
        time.sleep(0.6)
    report = found.report
    threads = sum(report.nthreads.values())
    assert report.timeline is not None
    assert whole(report) == pytest.approx(threads * report.timeline.elapsed_ns / 1e9, abs=1e-6)
    # The timeline is of the scheduler's window; the report is of the workers' own, which begin as each answers.
    assert whole(report) == pytest.approx(threads * report.window_seconds, abs=threads * (window.most - window.least))
    known = seconds(report)
    # a task's CPU is booked to the heartbeats in which it ran: the same, as nothing ran before or after
    for bucket in ("thread-cpu", "idle", "no-work"):
        assert known[bucket] == pytest.approx(report.breakdown[bucket], abs=tolerance(report, window))


def test_work_in_a_window_is_not_spread_over_the_time_since_a_heartbeat_before_it(client: Client) -> None:
    client.run(lambda dask_worker: dask_worker.periodic_callbacks["heartbeat"].stop())
    try:
        time.sleep(2)
        with timed_report(client) as (found, window):
            client.gather(client.map(tasks.spin, [0.1] * 4, pure=False))
    finally:
        client.run(lambda dask_worker: dask_worker.periodic_callbacks["heartbeat"].start())
    # It is spread over the time in which the workers answered at the two ends.
    least = found.breakdown["thread-cpu"] * window.least / window.most
    # Spread over the time since the heartbeat, a tenth of it would be there; a busy machine takes a part as well.
    assert seconds(found.report)["thread-cpu"] >= 0.5 * least


def test_tasks_of_collections_have_the_lines_that_computed_them_also_where_several_did(client: Client) -> None:
    numbers = dask.array.ones((400, 400), chunks=200)
    with efficiency_report(client) as report:
        (numbers + 1).sum().compute()
        numbers.mean().compute()
        client.gather(client.map(tasks.spin, [0.01, 0.02]))
    lines = {prefix: re.sub(r"\.py:\d+", ".py", text) for prefix, text in report.computed_by.items()}
    here = Path(__file__).name
    assert lines["spin"] == f"`client.gather(client.map(tasks.spin, [0.01, 0.02]))` in {here}"
    assert {f"`(numbers + 1).sum().compute()` in {here}", f"`numbers.mean().compute()` in {here}"} < set(lines.values())
    assert set(report.by_prefix) <= set(lines)


def test_the_life_of_a_cluster_has_a_timeline(client: Client) -> None:
    # When each worker was metered is known as well as its first snapshot travelled quickly.
    time.sleep(max(0.0, 3 - snapshot(client).window_seconds))
    asked = time.monotonic()
    life = snapshot(client)
    took = time.monotonic() - asked
    # Less than the time since registration: its accounts begin as each worker is metered.
    assert whole(life) == pytest.approx(life.breakdown.total, abs=0.1 * life.breakdown.total + 4 * took)
    assert life.breakdown.total < 4 * life.window_seconds
    assert life.code == ()


def test_a_name_in_html_gets_a_page_and_others_json(client: Client, tmp_path: Path) -> None:
    page, data = tmp_path / "run.HTML", tmp_path / "run.json"
    # The file may come first, as with Dask's performance_report.
    with efficiency_report(client, filename=page) as one, efficiency_report(str(data), client=client) as other:
        client.submit(tasks.spin, 0.05).result()
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert one.headline in page.read_text()
    assert "client.submit(tasks.spin, 0.05)" in page.read_text()
    assert load_report(data) == other.report


def test_a_report_that_cannot_be_written_is_still_there(client: Client, tmp_path: Path) -> None:
    page = tmp_path / "missing" / "run.html"
    with (
        pytest.warns(RuntimeWarning, match="FileNotFoundError") as warned,
        efficiency_report(client, filename=page) as found,
    ):
        client.submit(tasks.spin, 0.05).result()
    (message,) = [str(warning.message) for warning in warned if warning.category is RuntimeWarning]
    assert "the report is here, but not in" in message
    assert str(page) in message
    assert found.report.breakdown["thread-cpu"] > 0


@pytest.mark.parametrize("who", ["report", "client", "scheduler"])
def test_a_report_holds_no_source_if_the_user_the_client_or_the_scheduler_forbids_it(client, who, tmp_path):
    if who == "scheduler":
        client.register_plugin(EfficiencyPlugin(source=False))
    wanted = False if who == "report" else None
    settings = {"distributed.diagnostics.computations.nframes": 1}
    settings |= {"efficiency.source": False} if who == "client" else {}
    page = tmp_path / "r.html"
    try:
        with dask.config.set(settings), efficiency_report(page, client=client, source=wanted, trace=True) as found:
            secret_name = client.submit(tasks.spin, 0.0)
            secret_name.result()
    finally:
        client.register_plugin(EfficiencyPlugin())
    assert found.code == ()
    assert list(found.computed_by) == ["spin"]
    found.save(tmp_path / "r.json")
    found.trace.save(tmp_path / "r.trace")
    with zipfile.ZipFile(tmp_path / "r.trace") as archive:
        content = b"".join(archive.read(name) for name in archive.namelist())
    assert b"secret_name" not in content
    saved = (tmp_path / "r.json").read_text()
    assert Path(__file__).name in saved
    assert "secret_name" not in saved + page.read_text()


def test_code_that_dask_recorded_comes_first_and_versions_sizes_and_settings_are_named(client: Client) -> None:
    def work() -> Any:
        return client.submit(tasks.spin, 0.0, pure=False).result()

    settings = {"distributed.diagnostics.computations.nframes": 1, "optimization.fuse.ave-width": 7}
    with dask.config.set(settings), efficiency_report(client) as found:
        work()
    assert len(found.code) == 1
    assert found.code[0].startswith("def work()")
    assert found.environment["dask"] == dask.__version__
    assert found.environment["threads of a worker"] == "2"
    assert found.environment["distributed.worker.memory.pause"] == "0.8"
    assert found.environment["optimization.fuse.ave-width"] == "7 (default 1)"


def test_a_killed_workers_time_is_in_the_timeline(mortal_cluster: Any) -> None:
    with Client(mortal_cluster) as client, timed_report(client) as (found, window):
        client.gather(client.map(tasks.spin, [0.2] * 4, pure=False))
        killed = addresses(client)[0]
        silence(client, killed)
        kill(client, killed)
        client.gather(client.map(tasks.spin, [0.2] * 4, pure=False))
    report = found.report
    assert whole(report) == pytest.approx(report.breakdown.total, abs=tolerance(report, window))
    # what its last tasks were doing is known up to its last heartbeat, though they are lost
    assert 0 < seconds(report)["lost-worker"] <= report.breakdown["lost-worker"] + 0.05


def test_each_report_compares_the_tasks_of_its_own_window(client: Client) -> None:
    with efficiency_report(client) as first:
        client.gather(client.map(tasks.increment, range(5), pure=False))
        with efficiency_report(client) as second:
            client.gather(client.map(tasks.increment, range(7), pure=False))
    with efficiency_report(client) as third:
        pass
    assert {prefix: one.count for prefix, one in first.skew.items()} == {"increment": 12}
    assert {prefix: one.count for prefix, one in second.skew.items()} == {"increment": 7}
    assert third.skew == {}
    skew = first.skew["increment"]
    assert 0 < skew.median_seconds <= skew.p95_seconds <= skew.max_seconds
    assert 0 < skew.median_bytes <= skew.p95_bytes <= skew.max_bytes
    assert {skew.longest_key.partition("-")[0], skew.largest_key.partition("-")[0]} == {"increment"}


def test_a_recorded_run_is_explained_saved_and_drawn(client: Client, tmp_path: Path) -> None:
    with efficiency_report(name="naps", trace=True, filename=tmp_path / "run.html") as report:
        client.gather([client.submit(tasks.nap, 0.05, key=f"nap-{i}") for i in range(9)])

    path = report.critical_path()
    assert "nap" in path.by_prefix().index
    assert path.headline in " ".join(str(path).split())
    assert "Critical path: why it took so long" in (tmp_path / "run.html").read_text()

    report.trace.save(tmp_path / "run.trace")
    loaded = load_trace(tmp_path / "run.trace")
    assert_same(loaded, report.trace)

    written = loaded.to_chrome(tmp_path / "run.json")
    counts = [f"select count(*) from {table}" for table in ("slice", "flow")]
    slices, flows, faults = query(tmp_path / "run.json", *counts, FAULTS)
    assert slices == [[written.slices + written.instants]]
    assert flows == [[written.flows]]
    assert faults == []
