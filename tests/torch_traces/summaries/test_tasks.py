import gzip
import json
from dataclasses import replace

import pytest

from dask_efficiency import RunTrace
from dask_efficiency.report.sections import groups
from dask_efficiency.runs.trace.errors import EmptyTraceError
from dask_efficiency.runs.trace.run_trace import TaskProfile
from dask_efficiency.show.document import PAGE, SCREEN
from dask_efficiency.show.terminal import plain
from dask_efficiency.torch_traces import summary
from tests.report.samples import by_hand
from tests.torch_traces.path.programs import Event, written
from tests.torch_traces.path.samples import RECORDED
from tests.torch_traces.path.test_join import ON_A_CPU, STEP, TRACE, profiled

NCCL = written("cudaLaunchKernel 10-20 #1 @77, ncclDevKernel_AllReduce_Sum_f32_RING_LL(x) 30-90 #1")


def run_of(*profiles: list[Event]) -> RunTrace:
    """A run with some profiled tasks."""
    found = [profiled(events).profiles[0] for events in profiles]
    return replace(TRACE, profiles=tuple(found))


def of_ranks(*ranks: int) -> RunTrace:
    """A run whose tasks were ranks of a job."""

    def profile(number: int, rank: int) -> TaskProfile:
        about = {"rank": rank, "world_size": 2, "backend": "nccl"}
        text = json.dumps({"distributedInfo": about, "traceEvents": NCCL})
        return TaskProfile(0, 77, number, number + 1, number, gzip.compress(text.encode()))

    return replace(TRACE, profiles=tuple(profile(*each) for each in enumerate(ranks)))


def test_profiles_of_a_run_are_summarised_one_by_one() -> None:
    found = summary(run_of(STEP, [], ON_A_CPU))
    assert found.numbers == (0, 1)
    assert found.to_frame()["on"].tolist() == ["GPU", "CPU"]
    assert "Summary of 2 profiled tasks" in str(found)
    assert "the profile of" in found.to_dict()["files"][0]
    assert found.rank(1).to_frame("operators")["name"].tolist() == ["aten::addmm", "aten::linear"]


def test_tasks_of_no_job_are_in_no_collective_together() -> None:
    found = summary(run_of(NCCL, NCCL))
    assert found.to_frame("collectives")["calls"].sum() == 2
    assert not found.to_frame("collectives")["matched"].any()
    assert not any("late" in finding.kind for finding in found.findings)


def test_tasks_that_were_ranks_of_a_job_are_its_ranks() -> None:
    assert summary(of_ranks(1, 0)).to_frame("collectives")["matched"].sum() == 1
    assert "Summary of 2 ranks" in str(summary(of_ranks(1, 0)))
    twice = summary(of_ranks(1, 1))
    assert (twice.numbers, twice.ranks.what) == ((0, 1), "profiled task")


@pytest.mark.parametrize("trace", [TRACE, run_of([]), profiled(STEP, content=b"no gzip")])
def test_a_run_without_profiles_of_torch_has_no_summary(trace: RunTrace) -> None:
    report = replace(by_hand(), trace=trace)
    assert report.torch is None
    assert not groups.torch(report).blocks
    with pytest.raises(EmptyTraceError):
        summary(trace)


def test_a_report_has_the_summary_of_its_profiles_and_a_section(monkeypatch: pytest.MonkeyPatch) -> None:
    report = replace(by_hand(), trace=run_of(STEP))
    assert report.torch is not None
    assert report.torch.to_dict() == summary(report.trace).to_dict()
    titles = [section.title for section in groups.torch(report, SCREEN).sections]
    assert titles == ["Where the time went", "Kernels", "Operators", "Notes"]
    assert "Launches" in [section.title for section in groups.torch(report, PAGE).sections]
    assert "gemm" in plain(replace(report.document, sections=(groups.torch(report),)))
    monkeypatch.setattr(groups, "MAX_SUMMARISED_BYTES", 1)
    assert "report.torch" in str(groups.torch(report).lines)


def test_a_profile_is_read_once() -> None:
    trace = run_of(STEP)
    assert summary(trace).ranks[0].breakdown is summary(trace).ranks[0].breakdown


def test_what_all_ranks_have_together_is_worked_out_once() -> None:
    ranks = summary(RECORDED["dlrm"]).ranks
    assert ranks.collectives is ranks.collectives
    assert ranks.work is ranks.work
