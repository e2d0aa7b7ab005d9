"""Chosen tasks run under torch's own profiler, on real processes, and the path leads into them."""

import gzip
import io
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from distributed import Client, LocalCluster, wait

import tests.torch_traces.training
from dask_efficiency import EfficiencyPlugin, RunTrace, critical_path, efficiency_report, get_trace, load_trace
from dask_efficiency.runs.path.kinds import Kind
from dask_efficiency.runs.trace.run_trace import TaskProfile
from dask_efficiency.torch_traces.kineto.load import read_rank
from dask_efficiency.torch_traces.kineto.trace import Category
from tests.torch_traces.training import Trainer, fails_in_training, imports_torch, train_step, trains_in_a_coroutine

pytestmark = pytest.mark.cluster

pytest.importorskip("torch", reason="torch is not installed")
cloudpickle.register_pickle_by_value(tests.torch_traces.training)


def prefix_of(trace: RunTrace, profile: TaskProfile) -> str:
    return trace.prefixes[int(trace.tasks.prefix[trace.runs.task[profile.run]])]


def by_prefix_and_worker(trace: RunTrace) -> Counter[tuple[str, int]]:
    return Counter((prefix_of(trace, profile), int(trace.runs.worker[profile.run])) for profile in trace.profiles)


def operators(profile: TaskProfile) -> list[dict[str, Any]]:
    content = json.loads(gzip.decompress(profile.content))
    return [event for event in content["traceEvents"] if event.get("cat") == "cpu_op"]


def run(client: Client, function: Any, count: int, **kwargs: Any) -> list[Any]:
    futures = client.map(function, range(count), pure=False, **kwargs)
    wait(futures)
    return [future.result() for future in futures if future.status == "finished"]


@pytest.fixture(scope="module")
def training(cluster: LocalCluster) -> Any:
    """A traced run of chosen tasks and others, what its tasks say of themselves, and what was asked for when."""
    with Client(cluster) as client:
        client.register_plugin(EfficiencyPlugin(profile={"train_step": 2}))
        with efficiency_report(client, name="before torch", trace=True) as before:
            assert run(client, imports_torch, 4, key="train_step") == [False] * 4
        run(client, train_step, 4)
        with efficiency_report(client, name="training", trace=True) as report:
            with pytest.raises(ValueError, match=r"efficiency.profile is {'x': 0}: expected a whole number"):
                report.profile("x", per_worker=0)
            report.profile("fails_in_training", per_worker=1)
            for prefix in ("trains_in_a_coroutine", "Trainer"):
                report.profile(prefix, per_worker=4)
            # One at a time, so that none finds another one at work.
            steps = [
                one
                for address in client.nthreads()
                for one in run(client, train_step, 3, nap=0.005, resources={"slot": 1}, workers=[address])
            ]
            assert run(client, fails_in_training, 4) == []
            assert run(client, trains_in_a_coroutine, 2) == [0, 1]
            assert client.submit(Trainer, actor=True).result().step().result() == 1
            run(client, train_step, 1, key="nothing-more")
            report.profile("last", per_worker=1)
            steps.append(client.submit(train_step, nap=0.02, key=("last", 1)).result())
        yield before.trace, report, steps


def test_the_number_of_profiled_tasks_counts_by_prefix_and_worker(training):
    _, report, _ = training
    counts = by_prefix_and_worker(report.trace)
    assert [count for (prefix, _), count in counts.items() if prefix == "train_step"] == [2, 2]
    assert sum(count for (prefix, _), count in counts.items() if prefix == "last") == 1
    assert not {prefix for prefix, _ in counts} & {"nothing", "trains_in_a_coroutine"}
    assert any("took longer, as torch.profiler was asked for" in note for note in report.notes)


def test_the_methods_of_an_actor_are_not_profiled(training):
    _, report, _ = training
    assert not any(operators(p) for p in report.trace.profiles if prefix_of(report.trace, p) == "Trainer")


def test_torch_is_not_imported_for_a_profile_and_a_note_has_that(training):
    before, _, _ = training
    assert before.profiles == ()
    assert any("torch was not imported yet" in note for note in before.notes)


def test_a_profile_is_joined_with_its_run_by_thread_and_clock(training):
    _, report, steps = training
    trace = report.trace
    threads = {one["thread"] for one in steps}
    for profile in trace.profiles:
        if prefix_of(trace, profile) not in ("train_step", "last"):
            continue
        runs = trace.runs
        assert profile.thread == runs.thread[profile.run]
        assert profile.thread in threads
        assert runs.start[profile.run] <= profile.start < profile.stop <= runs.stop[profile.run]
        one = next(
            one for one in steps if profile.started <= one["began"] <= profile.started + profile.stop - profile.start
        )
        assert one["thread"] == profile.thread
        events = read_rank(io.BytesIO(profile.content), "a profile").events
        mine = events.take(events.category == Category.OPERATOR)
        assert len(mine) > 50
        assert set(mine.thread.tolist()) == {profile.thread}
        # Within 0.1 ms, as far as the clocks of a loaded machine are read together.
        assert one["began"] - 1_000_000 <= mine.start.min()
        assert mine.stop.max() <= one["ended"] + 1_000_000


def test_a_task_that_fails_under_the_profile_fails_as_ever_and_has_one(training):
    _, report, _ = training
    assert any(prefix_of(report.trace, profile) == "fails_in_training" for profile in report.trace.profiles)


def test_the_path_leads_into_a_profiled_task_and_tiles(training):
    _, report, _ = training
    trace = report.trace
    found = [profile for profile in trace.profiles if prefix_of(trace, profile) == "last"]
    assert len(found) == 1
    key = trace.keys[int(trace.runs.task[found[0].run])]
    path = critical_path(trace, target=key)
    segments = path.segments
    assert (segments.start[1:] == segments.stop[:-1]).all()
    assert (segments.start[0], segments.stop[-1]) == (path.scope.start, path.scope.stop)
    assert path.notes == ()
    assert path.seconds("kind").get(Kind.DATA_LOADING, 0.0) > 0
    assert "data-loading" in str(path) or path.seconds("kind")[Kind.DATA_LOADING] < 0.001 * path.makespan_seconds
    without = critical_path(replace(trace, profiles=()), target=key)
    assert path.seconds("prefix") == pytest.approx(without.seconds("prefix"))
    assert Kind.DATA_LOADING not in without.seconds("kind")


def test_profiles_are_saved_with_the_trace(training, tmp_path: Path):
    _, report, _ = training
    report.trace.save(tmp_path / "run.trace")
    assert load_trace(tmp_path / "run.trace").profiles == report.trace.profiles


def test_profiles_need_a_trace_and_an_open_report(cluster: LocalCluster, training):
    _, closed, _ = training
    assert not callable(closed.profile)
    with Client(cluster) as client:
        with efficiency_report(client, name="no trace") as report, pytest.raises(ValueError, match="trace=True"):
            report.profile("train_step")
        with pytest.raises(RuntimeError, match="inside its block"):
            efficiency_report(client, trace=True).profile("train_step")


def test_a_cluster_that_records_all_the_time_profiles_by_the_plugins_option(cluster: LocalCluster):
    with Client(cluster) as client:
        client.register_plugin(EfficiencyPlugin(trace=True, profile={"train_step": 1}))
        try:
            on_one = {"workers": [min(client.nthreads())], "resources": {"slot": 1}}
            run(client, train_step, 3, **on_one)
            assert list(by_prefix_and_worker(get_trace(client)).values()) == [1]
            client.register_plugin(EfficiencyPlugin(trace=True, profile={"train_step": 3}))
            run(client, train_step, 3, **on_one)
            assert list(by_prefix_and_worker(get_trace(client)).values()) == [3]
        finally:
            client.register_plugin(EfficiencyPlugin())
