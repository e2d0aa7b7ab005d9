from dataclasses import replace

import pytest

from dask_efficiency.show.html.render import fragment
from dask_efficiency.show.shown import Shown
from dask_efficiency.show.terminal import plain
from dask_efficiency.torch_traces import TorchComparison, TorchSummary, summary
from dask_efficiency.torch_traces.kineto.trace import KinetoTrace, RankTrace
from dask_efficiency.torch_traces.summaries.merged import RankSummaries
from dask_efficiency.torch_traces.summaries.sections import LACKED, TABLE_SECTIONS
from dask_efficiency.torch_traces.summaries.tables import TABLES
from tests.report.samples import HOSTILE_NAMES
from tests.torch_traces.path.programs import Event, call, on_cpu, rank_of, work
from tests.torch_traces.path.samples import RECORDED


def events(rank: int) -> list[Event]:
    """Operators, kernels, copies, collectives, steps and frames with hostile names."""
    found, at = [], 1_000 * rank
    for number, name in enumerate(HOSTILE_NAMES * 2, 1):
        found += [
            on_cpu(f"ProfilerStep#{number}", at, at + 90, cat="user_annotation"),
            on_cpu(name, at, at + 50, cat="user_annotation"),
            on_cpu(f"{name}.py(3): {name}", at, at + 49, cat="python_function"),
            on_cpu(name, at + 1, at + 30),
            call("cudaLaunchKernel", at + 2, at + 4, number),
            work(name, at + 5, at + 20, number),
            call("cudaMemcpyAsync", at + 21, at + 22, 100 + number),
            work(f"Memcpy {name}", at + 23, at + 29, 100 + number, cat="gpu_memcpy"),
            call("cudaLaunchKernel", at + 31, at + 34, 200 + number),
            work("ncclDevKernel_AllReduce", at + 36, at + 60, 200 + number, stream=9),
        ]
        found[-1]["args"] |= {"Process Group Name": name, "Collective name": name, "dtype": name}
        at += 100
    return found


def hostile(rank: int) -> RankTrace:
    trace = rank_of(events(rank))
    reasons, notes = {HOSTILE_NAMES[0]: 2}, HOSTILE_NAMES
    return replace(trace, rank=rank, path=HOSTILE_NAMES[rank], left_out=reasons, notes=notes)


def hostile_summary(*ranks: int) -> TorchSummary:
    return summary(KinetoTrace(tuple(map(hostile, ranks))))


@pytest.mark.parametrize(
    "shown",
    [
        hostile_summary(0),
        hostile_summary(0, 1),
        TorchComparison(hostile_summary(0, 1), hostile_summary(0, 1, 2)),
        TorchComparison(summary(RECORDED["dlrm"]), hostile_summary(0, 1)),
    ],
)
def test_hostile_names_are_harmless(shown: Shown) -> None:
    text, page = plain(shown.document), fragment(shown.document)
    for each in (text, page):
        assert not {"\x1b", "\u202e", "\r", "\ud800"} & {*each}
        assert "x" * 300 not in each
    assert "<script>alert" not in page
    assert "<img" not in page
    assert max(map(len, text.splitlines())) < 300


def absent(found: TorchSummary) -> str:
    """Line on what is not in a trace, which is in a terminal and on a page alike."""
    (line,) = (line for line in found.to_dict()["notes"] if line.startswith("Not in this trace: "))
    assert line in " ".join(str(found).split())
    assert line in fragment(found.document)
    return str(line)


def test_all_that_a_trace_of_a_cpu_lacks_is_said_in_one_line() -> None:
    found = absent(summary(KinetoTrace((rank_of([on_cpu("aten::mm", 0, 5)]),))))
    assert found == (
        "Not in this trace: kernels, launches, copies, collectives, steps (ProfilerStep), "
        "memory over time (profile_memory)."
    )


def test_what_is_in_a_trace_is_not_said_to_be_absent() -> None:
    launched = [on_cpu("aten::mm", 0, 5), call("cudaLaunchKernel", 1, 2, 1), work("gemm", 3, 9, 1)]
    found = absent(summary(KinetoTrace((rank_of(launched),))))
    assert found == (
        "Not in this trace: lines of Python (with_stack), copies, collectives, steps (ProfilerStep), "
        "memory over time (profile_memory)."
    )
    launched += [on_cpu("train.py(3): step", -1, 6, cat="python_function"), call("cudaMemcpyAsync", 10, 11, 2)]
    launched += [work("Memcpy HtoD (Pinned -> Device)", 12, 13, 2, cat="gpu_memcpy")]
    launched += [on_cpu("ProfilerStep#1", -2, 14, cat="user_annotation")]
    found = absent(summary(KinetoTrace((rank_of(launched),))))
    assert found == "Not in this trace: bytes of copies, collectives, memory over time (profile_memory)."


def test_copies_are_work_on_a_gpu_that_are_no_kernels() -> None:
    copied = [call("cudaMemcpyAsync", 0, 2, 1), work("Memcpy HtoD (Pinned -> Device)", 3, 9, 1, cat="gpu_memcpy")]
    assert absent(summary(KinetoTrace((rank_of(copied),)))).startswith("Not in this trace: kernels, operators, bytes")


def test_an_operator_that_launched_the_lesser_part_of_a_kernel_is_in_the_trace() -> None:
    launched = [on_cpu("aten::mm", 0, 5), call("cudaLaunchKernel", 1, 2, 1), work("gemm", 3, 9, 1)]
    found = summary(KinetoTrace((rank_of([*launched, work("gemm", 20, 90, 2)]),)))
    assert found.to_frame()["gpus"].tolist() == [1]
    assert found.to_frame("kernels")["operator"].tolist() == [None]
    assert "what launched kernels" not in absent(found)


@pytest.mark.parametrize("name", [*RECORDED])
def test_each_section_that_is_not_there_is_said_to_lack_its_data(name: str) -> None:
    found = summary(RECORDED[name])
    missing = absent(found).removeprefix("Not in this trace: ").removesuffix(".").split(", ")
    titles = {section.title for section in found.document.sections}
    for table, words in LACKED.items():
        if table in TABLE_SECTIONS:
            there = TABLE_SECTIONS[table].title in titles
            assert there == (next(iter(words.values())) not in missing)
    assert {*LACKED} <= {*TABLES}


def test_the_headline_tells_idle_time_between_works_from_that_before_and_after_all() -> None:
    launched = [on_cpu("aten::mm", 0, 100), call("cudaLaunchKernel", 1, 2, 1), work("gemm", 10, 20, 1)]
    later = [call("cudaLaunchKernel", 55, 58, 2), work("gemm", 60, 70, 2)]
    found = summary(KinetoTrace((rank_of([*launched, *later]),)))
    assert found.headline.endswith("80 % of the time is an idle GPU, 50 % of it before or after all work")
    whole = [on_cpu("aten::mm", 10, 70), call("cudaLaunchKernel", 9, 10, 1), launched[2], *later]
    assert summary(KinetoTrace((rank_of(whole),))).headline.endswith("an idle GPU")


def test_one_rank_lacks_no_collectives_of_several() -> None:
    assert type(hostile_summary(0, 1).rank(1).ranks) is RankSummaries
