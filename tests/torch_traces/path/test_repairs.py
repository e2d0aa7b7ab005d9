"""Clocks of GPUs are moved by what launches and waits show, and durations that cannot be are cut."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_efficiency.torch_traces import critical_path as torch_critical_path
from dask_efficiency.torch_traces import load_kineto
from dask_efficiency.torch_traces.kineto.trace import Category, KinetoTrace, RankTrace
from dask_efficiency.torch_traces.path.repairs import MAX_CLOCK_ERROR, repaired
from tests.torch_traces.path.programs import rank_of, written
from tests.torch_traces.path.public import FOLDER, NAMES, path_of, shares
from tests.torch_traces.path.samples import TESTS

FILES = [
    *(FOLDER / f"{name}.json" for name in NAMES),
    *sorted((TESTS / "data/kineto").glob("*.gz")),
    *sorted((TESTS / "gpu/data").glob("*.gz")),
    TESTS / "data/kineto/dlrm",
]
WORK = "cudaLaunchKernel 0-3 #1, gemm 8-60 #1, cudaLaunchKernel 5-7 #2, relu 62-95 #2, cudaDeviceSynchronize 20-100 #3"


def moved(trace: RankTrace, microseconds: int) -> RankTrace:
    """All instants of GPUs, against those of the CPU."""
    events = trace.events
    by = np.where(events.is_gpu_work | np.isin(events.category, (Category.SYNC, Category.GPU_ANNOTATION)), 1, 0)
    by *= 1000 * microseconds
    return replace(trace, events=replace(events, start=events.start + by, stop=events.stop + by))


def instants(trace: RankTrace) -> list[tuple[int, int]]:
    """Of the work on a GPU, in microseconds."""
    works = trace.events.is_gpu_work
    pairs = zip(trace.events.start[works].tolist(), trace.events.stop[works].tolist(), strict=True)
    return [(start // 1000, stop // 1000) for start, stop in pairs]


@pytest.mark.parametrize("file", FILES, ids=lambda path: Path(path).name.partition(".")[0])
def test_no_share_depends_on_ten_microseconds_of_the_gpus_clock(file: Path) -> None:
    trace = load_kineto(file)
    before = shares(torch_critical_path(trace))
    for microseconds in (-10, -3, 3, 10):
        ranks = tuple(moved(rank, microseconds) for rank in trace.ranks)
        after = shares(torch_critical_path(KinetoTrace(ranks)))
        assert {kind: after.get(kind, 0.0) for kind in before} == pytest.approx(before, abs=2), microseconds
        assert sum(after.get(kind, 0.0) for kind in set(after) - set(before)) <= 2


def test_work_that_ends_just_after_the_call_that_waited_for_it_was_waited_for() -> None:
    found, control = path_of("01-work-ends-2us-after-its-wait"), path_of("01-control")
    assert shares(found) == pytest.approx(shares(control), abs=0.2)
    assert found.headline == control.headline
    assert "The clock of GPU 0 was 2 us late" in " ".join(str(found).split())
    assert not control.trace.ranks[0].notes


def test_a_clock_without_contradictions_stays() -> None:
    trace = rank_of(written(WORK))
    assert repaired(trace) is trace


@pytest.mark.parametrize("microseconds", [-9, -500, 6, 15, 500, 5000])
def test_a_clock_is_moved_by_the_least_that_launches_and_waits_allow(microseconds: int) -> None:
    trace = repaired(moved(rank_of(written(WORK)), microseconds))
    # a launch takes 8 us, and the wait returns 5 us after the work
    by = -8 if microseconds < 0 else 5
    assert instants(trace) == [(8 + by, 60 + by), (62 + by, 95 + by)]
    word = "early" if microseconds < 0 else "late"
    assert len(trace.notes) == 1
    assert f" {word}, by its launches and by calls that waited for it" in trace.notes[0]


def test_more_than_a_clocks_error_moves_nothing() -> None:
    far = moved(rank_of(written(WORK)), 2 * MAX_CLOCK_ERROR // 1000)
    assert repaired(far) is far


def test_a_clock_that_contradicts_itself_is_as_wrong_for_launches_as_for_waits() -> None:
    tight = "cudaLaunchKernel 10-12 #1, gemm 4-60 #1, cudaDeviceSynchronize 20-56 #2"
    trace = repaired(rank_of(written(tight)))
    # 6 us early, 4 us late: moved by 1, and the rest is cut off at the wait's return
    assert instants(trace) == [(5, 56)]


@settings(max_examples=40, deadline=None)
@given(errors=st.lists(st.integers(0, 10), min_size=12, max_size=12))
def test_waits_are_waits_for_their_work_whatever_each_instants_error(errors: list[int]) -> None:
    events, at = [], 0
    for number, error in enumerate(errors):
        start, stop = at + 20 + error, at + 2000 + error
        events.append(f"cudaLaunchKernel {at}-{at + 5} #{2 * number + 1}, gemm {start}-{stop} #{2 * number + 1}")
        events.append(f"cudaDeviceSynchronize {at + 8}-{at + 2002} #{2 * number + 2}")
        at += 2010
    path = torch_critical_path(KinetoTrace((rank_of(written(", ".join(events))),)))
    assert shares(path)["gpu-compute"] > 97


def test_a_duration_that_runs_over_what_follows_is_cut_and_noted() -> None:
    path = path_of("11-impossible-duration")
    assert path.window_seconds == pytest.approx(0.003)
    assert shares(path)["gpu-compute"] == pytest.approx(83, abs=1)
    assert path.trace.ranks[0].notes == (
        "1 kernel ran over what followed on the same stream, which cannot be: cut where the next one began.",
    )


def test_work_that_may_overlap_is_not_cut() -> None:
    calls = ", ".join(f"cudaLaunchKernel {at}-{at + 1} #{at}" for at in range(1, 6))
    followed = "a {} #1, b 20-30 #2, c 32-40 #3"
    ends_later = rank_of(written(f"{calls}, {followed.format('10-35')}"))
    one_graph = rank_of(written("cudaGraphLaunch 0-5 #1, a 10-90 #1, b 20-30 #1, c 32-40 #1"))
    collective = rank_of(written(f"{calls}, ncclKernel 10-90 #1, b 20-30 #2, c 32-40 #3"))
    often = rank_of(written(f"{calls}, a 10-90 #1, b 15-80 #2, c 20-30 #3, d 32-40 #4"))
    for trace in (ends_later, one_graph, collective, often):
        assert repaired(trace) is trace
    cut = repaired(rank_of(written(f"{calls}, {followed.format('10-90')}")))
    assert instants(cut) == [(10, 20), (20, 30), (32, 40)]
