import gc
import gzip
import json
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_efficiency import CriticalPath, RunTrace, critical_path, load_report
from dask_efficiency.report.sections.groups import operators as shown
from dask_efficiency.runs.path.kinds import CODES, COMPUTE, KINDS, Kind
from dask_efficiency.runs.trace.run_trace import TaskProfile
from dask_efficiency.torch_traces.path import join
from dask_efficiency.torch_traces.path import join as module
from dask_efficiency.torch_traces.path.join import operators, read_profile, with_gpu_times
from tests.report.samples import by_hand
from tests.simulated_traces import MS, SAMPLES
from tests.torch_traces.path.programs import Event, call, on_cpu, work, written

US = 1_000
#: The task's thread, another one, and one of autograd's.
THREAD, OTHER, AUTOGRAD = 77, 88, 99
#: The trace's clock is so far ahead of that of Kineto, which is behind by half a day and some.
AHEAD = 43_200_000_000_123


def simulated() -> tuple[RunTrace, int]:
    """A run of which a task is on the path for at least 20 ms, and the position of that task's run."""
    trace = SAMPLES["tree"]()
    path = critical_path(trace)
    computing = np.isin(path.segments.kind, [CODES[kind] for kind in COMPUTE])
    runs, lengths = path.segments.run[computing], (path.segments.stop - path.segments.start)[computing]
    run = int(runs[np.argmax(lengths)])
    assert trace.runs.stop[run] - trace.runs.start[run] >= 20 * MS
    return trace, run


TRACE, RUN = simulated()
START, STOP = int(TRACE.runs.start[RUN]), int(TRACE.runs.stop[RUN])


def profiled(events: list[Event], start: int = START + MS, stop: int = STOP - 2 * MS, **kwargs: Any) -> RunTrace:
    base = start - AHEAD
    text = json.dumps({"schemaVersion": 1, "baseTimeNanoseconds": base, "traceEvents": events})
    found = TaskProfile(RUN, THREAD, start, stop, base, gzip.compress(text.encode()))
    return replace(TRACE, profiles=(replace(found, **kwargs),))


def parts(path: CriticalPath) -> list[tuple[Kind, int, int]]:
    """Kinds of the run's own time on the path, from its start."""
    rows = path.segments.take((path.segments.run == RUN) & np.isin(path.segments.kind, [CODES[k] for k in COMPUTE]))
    columns = (rows.kind, rows.start - START, rows.stop - START)
    return [(KINDS[kind], start, stop) for kind, start, stop in zip(*(c.tolist() for c in columns), strict=True)]


def assert_tiles(path: CriticalPath) -> None:
    segments = path.segments
    assert (segments.start[1:] == segments.stop[:-1]).all()
    assert (segments.stop > segments.start).all()
    assert (segments.start[0], segments.stop[-1]) == (path.scope.start, path.scope.stop)


#: An operator that launches a kernel and waits for it, then nothing of torch's.
STEP = written(
    """aten::mm 100-1000 @77, cudaLaunchKernel 200-300 #1 @77, gemm 350-6000 #1,
    cudaDeviceSynchronize 1100-6050 #2 @77, Context_Sync 1110-6040 #2 @-1"""
)


def test_a_profiled_task_is_followed_into_its_kernels_and_the_rest_of_it_stays() -> None:
    before, path = critical_path(TRACE), critical_path(profiled(STEP))
    assert_tiles(path)
    assert path.notes == ()
    in_the_profile = [
        (Kind.KERNEL_LAUNCH, MS + 200 * US, MS + 350 * US),
        (Kind.GPU_COMPUTE, MS + 350 * US, MS + 6_000 * US),
        (Kind.GPU_SYNC, MS + 6_000 * US, MS + 6_050 * US),
    ]
    assert [part for part in parts(path) if part[0] not in (Kind.COMPUTE_CPU, Kind.COMPUTE_NONCPU)] == in_the_profile
    outside = ~np.isin(before.segments.run, [RUN])
    others = ~np.isin(path.segments.run, [RUN])
    for name, column in before.segments.take(outside).columns().items():
        np.testing.assert_array_equal(column, path.segments.take(others).columns()[name])


def test_as_much_of_a_thread_s_time_computed_as_its_clock_counted() -> None:
    def seconds(path: CriticalPath) -> dict[Kind, int]:
        found: dict[Kind, int] = {}
        for kind, start, stop in parts(path):
            found[kind] = found.get(kind, 0) + stop - start
        return found

    half = replace(TRACE, runs=replace(TRACE.runs, cpu_ns=(TRACE.runs.stop - TRACE.runs.start) // 4))
    before, after = (seconds(critical_path(trace)) for trace in (half, replace(half, profiles=profiled(STEP).profiles)))
    assert after[Kind.COMPUTE_CPU] == before[Kind.COMPUTE_CPU]
    assert sum(after.values()) == sum(before.values())
    assert after[Kind.GPU_COMPUTE] == 5_650 * US


def test_work_on_the_gpu_for_other_threads_of_the_process_is_not_the_tasks() -> None:
    unknown = "unknown 11000-11100 #99"
    # the first call of autograd's thread is in no operator of the task's
    events = STEP + written(
        f"""cudaLaunchKernel 2000-2100 #10 @88, theirs 6010-9000 #10, cudaLaunchKernel 3000-3100 #11 @99,
        theirs 9000-9500 #11, MmBackward0 4000-4500 @99, cudaLaunchKernel 4100-4200 #12 @99, ours 10000-10100 #12,
        {unknown}"""
    )
    assert with_gpu_times(profiled(events)).runs.gpu_ns[RUN] == (5_650 + 100) * US
    assert with_gpu_times(profiled(STEP + written(unknown))).runs.gpu_ns[RUN] == (5_650 + 100) * US
    path = critical_path(profiled(events))
    assert_tiles(path)
    gpu = [(start, stop) for kind, start, stop in parts(path) if kind is Kind.GPU_COMPUTE]
    assert (MS + 350 * US, MS + 6_000 * US) in gpu
    assert not any(start < MS + 9_500 * US and stop > MS + 6_100 * US for start, stop in gpu)


def test_the_gpu_time_of_a_profiled_run_is_the_union_of_its_kernels_in_the_profile() -> None:
    more = STEP + written(
        """cudaLaunchKernel 400-450 #3 @77, at_once 5000-7000 #3 @8,
        cudaLaunchKernel 500-550 #4 @77, after_the_profile 10000-1000000 #4 @8"""
    )
    trace = profiled(more, stop=START + 12 * MS)
    found = with_gpu_times(trace)
    assert found.runs.gpu_ns[RUN] == (7_000 - 350) * US + (11_000 - 10_000) * US
    others = np.arange(len(TRACE.runs)) != RUN
    np.testing.assert_array_equal(found.runs.gpu_ns[others], TRACE.runs.gpu_ns[others])
    assert with_gpu_times(TRACE) is TRACE
    assert type(found) is RunTrace


def test_a_profile_without_a_gpu_leaves_the_gpus_time_unknown() -> None:
    trace = profiled(written("aten::mm 100-1000 @77"))
    np.testing.assert_array_equal(with_gpu_times(trace).runs.gpu_ns, TRACE.runs.gpu_ns)
    assert {kind for kind, _, _ in parts(critical_path(trace))} == {kind for kind, _, _ in parts(critical_path(TRACE))}


@pytest.mark.parametrize("events", [[], written("aten::mm 100-1000 @88")])
def test_a_profile_in_which_the_thread_used_no_torch_changes_nothing(events: list[Event]) -> None:
    path = critical_path(profiled(events))
    assert parts(path) == parts(critical_path(TRACE))
    assert path.notes == ()


@pytest.mark.parametrize("content", [b"", b"\x1f\x8b damaged", b'{"traceEvents": [{"ph"'])
def test_a_damaged_profile_gives_a_note_and_the_path_stays(content: bytes) -> None:
    trace = profiled(STEP, content=content)
    path = critical_path(trace)
    assert parts(path) == parts(critical_path(TRACE))
    assert len(path.notes) == 1
    assert TRACE.keys[int(TRACE.runs.task[RUN])] in path.notes[0]
    assert "profile" in str(path)
    assert with_gpu_times(trace).runs.gpu_ns[RUN] == TRACE.runs.gpu_ns[RUN]


def test_a_profile_is_read_once_for_many_paths_and_goes_with_its_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    monkeypatch.setattr(join, "read_profile", lambda profile, name: read.append(name) or read_profile(profile, name))
    trace = profiled(STEP, stop=STOP - 3 * MS)
    first, second = critical_path(trace), critical_path(trace)
    assert parts(first) == parts(second)
    assert len(read) == 1
    seen = weakref.ref(trace.profiles[0])
    del trace, first, second
    gc.collect()
    assert seen() is None


def test_a_profile_of_a_run_that_is_not_on_the_path_is_not_even_read() -> None:
    off = int(np.flatnonzero(~np.isin(np.arange(len(TRACE.runs)), critical_path(TRACE).segments.run))[0])
    trace = replace(TRACE, profiles=(TaskProfile(off, THREAD, START, STOP, START, b"damaged"),))
    assert critical_path(trace).notes == ()


def test_a_replay_of_a_profiled_run_has_other_times_and_no_profile() -> None:
    trace = profiled(STEP)
    assert critical_path(trace).what_if(speed_up={"sum": 2.0}).trace.profiles == ()


@settings(max_examples=40)
@given(data=st.data())
def test_with_any_profile_the_path_tiles_and_the_time_of_others_stays(data: st.DataObject) -> None:
    at = st.integers(-5_000, 40_000)
    events = []
    for correlation in range(data.draw(st.integers(0, 12))):
        start, length, wait = data.draw(at), data.draw(st.integers(0, 4_000)), data.draw(st.integers(-100, 8_000))
        thread = data.draw(st.sampled_from([THREAD, THREAD, OTHER, AUTOGRAD]))
        name = data.draw(st.sampled_from(["cudaLaunchKernel", "cudaDeviceSynchronize", "cudaMemcpyAsync"]))
        events.append(on_cpu("aten::mm", start, start + length + 100, thread=thread))
        events.append(call(name, start + 10, start + 90, correlation + 1, thread=thread))
        if name != "cudaDeviceSynchronize":
            events.append(work("gemm", start + wait, start + wait + length, correlation + 1))
    start = START + data.draw(st.integers(-2 * MS, 10 * MS))
    trace = profiled(events, start=start, stop=start + data.draw(st.integers(0, 30 * MS)))
    before, path = critical_path(TRACE), critical_path(trace)
    assert_tiles(path)
    for by in ("prefix", "worker"):
        assert path.seconds(by) == pytest.approx(before.seconds(by))
    assert sum(stop - start for _, start, stop in parts(path)) == sum(stop - start for _, start, stop in parts(before))


PREFIX = TRACE.prefixes[TRACE.tasks.prefix[TRACE.runs.task[RUN]]]
#: An operator in another one, on a thread without a GPU.
ON_A_CPU = written("aten::linear 100-1000 @77, aten::addmm 200-900 @77")


def in_us(trace: RunTrace) -> list[tuple[str, str, int]]:
    found = operators(trace)
    assert {(one.prefix, one.runs) for one in found} <= {(PREFIX, 1)}
    return [(one.name, one.kind, round(one.seconds * 1e6)) for one in found]


def lasting(events: list[Event]) -> RunTrace:
    """A task whose profile lasts for 10 ms."""
    trace = profiled(events)
    (profile,) = trace.profiles
    return replace(trace, profiles=(replace(profile, stop=profile.start + 10_000 * US),))


def test_operators_without_a_gpu_have_the_time_that_is_their_own() -> None:
    assert in_us(lasting(ON_A_CPU)) == [
        ("", "compute-cpu", 9_100),
        ("aten::addmm", "compute-cpu", 700),
        ("aten::linear", "compute-cpu", 200),
    ]


def test_kernels_and_waits_for_them_are_told_from_operators_and_all_adds_up() -> None:
    found = in_us(lasting(STEP))
    assert ("gemm", "gpu-compute", 5_650) in found
    assert sum(us for _, _, us in found) == 10_000


def test_a_profile_without_torch_is_time_in_no_operator_and_a_damaged_one_is_left_out() -> None:
    assert in_us(lasting([])) == [("", "", 10_000)]
    assert operators(replace(TRACE, profiles=(replace(lasting([]).profiles[0], content=b"no gzip"),))) == ()


def test_few_profiles_are_read_and_small_rows_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = lasting(ON_A_CPU)
    many = replace(trace, profiles=trace.profiles * 9)
    assert {one.runs for one in operators(many)} == {module.MAX_OF_PREFIX}
    monkeypatch.setattr(module, "ROWS_ON_A_SCREEN", 1)
    assert in_us(trace) == [("", "compute-cpu", 9_100), ("2 more", "", 900)]


def test_a_report_shows_them_by_prefix_and_keeps_them_in_its_file(tmp_path: Path) -> None:
    report = by_hand(operators=operators(lasting(ON_A_CPU)))
    section = shown(report)
    assert section.lines == (
        f"{PREFIX}: 1 run read",
        "Kernels, launches and copies are not in a saved report: summarise the trace of its run",
    )
    assert section.rows[:2] == (
        (PREFIX, "(no operator)", "compute-cpu", "9.1 ms", "91 %"),
        (PREFIX, "aten::addmm", "compute-cpu", "0.7 ms", "7.0 %"),
    )
    report.save(tmp_path / "report.json")
    assert load_report(tmp_path / "report.json") == report
    assert not shown(by_hand()).blocks
