"""Ranks that were merged into one file, in the forms that tools give them, are those of the files."""

import gzip
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from dask_efficiency.torch_traces.kineto.load import read_ranks
from dask_efficiency.torch_traces.kineto.merged import label_of
from dask_efficiency.torch_traces.kineto.trace import RankTrace

DLRM = Path(__file__).parents[2] / "data" / "kineto" / "dlrm"
#: Some of its ranks; of the kernels of 1 and 3, some calls were not recorded.
FILES = [DLRM / f"rank{rank}.json.gz" for rank in range(4)]

Trace = dict[str, Any]
Form = Callable[[Sequence[Trace]], Trace]


def plain(traces: Sequence[Trace]) -> Trace:
    """One after another."""
    return {**traces[-1], "traceEvents": [event for trace in traces for event in trace["traceEvents"]]}


def changed(change: Callable[[Trace, int], Trace]) -> Form:
    """Each event changed by its rank."""

    def form(traces: Sequence[Trace]) -> Trace:
        events = [change(event, rank) for rank, trace in enumerate(traces) for event in trace["traceEvents"]]
        return {"traceEvents": events, "baseTimeNanoseconds": traces[0].get("baseTimeNanoseconds", 0)}

    return form


def moved(event: Trace, by: int, text: str = "{}") -> Trace:
    lanes = {key: event[key] for key in ("pid", "tid") if key in event}
    return event | {key: lane + by if isinstance(lane, int) else text.format(lane) for key, lane in lanes.items()}


def process(text: str) -> Form:
    return changed(lambda event, rank: event | {"pid": text.format(rank, event.get("pid"))})


def with_names(form: str) -> Form:
    """Numbers of processes moved apart, and the ranks in their names."""

    def merge(traces: Sequence[Trace]) -> Trace:
        merged = changed(lambda event, rank: moved(event, rank * 10**8))(traces)
        pids = {event["pid"] for event in merged["traceEvents"] if isinstance(event.get("pid"), int)}
        names = [
            {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": form.format(pid // 10**8)}} for pid in pids
        ]
        return merged | {"traceEvents": [*names, *merged["traceEvents"]]}

    return merge


def with_rank(event: Trace, rank: int) -> Trace:
    arguments = {**event.get("args", {}), "rank": rank}
    if "correlation" in arguments:
        arguments["correlation"] += rank * 10**8
    return moved(event, rank * 10**7) | {"args": arguments}


FORMS: dict[str, Form] = {
    "one after another": plain,
    "processes moved apart": changed(lambda event, rank: moved(event, 10_000 * rank, f"rank_{rank}_{{}}")),
    "[R1] aten::mm": changed(
        lambda event, rank: moved(event, 1000 * rank) | {"name": f"[R{rank}] {event.get('name')}"}
    ),
    "args.rank": changed(with_rank),
    "RANK 1 - GPU": with_names("RANK {} - GPU"),
    "python_rank1": with_names("python_rank{}"),
    **{text: process(text) for text in ("[TP{:02d}] {}", "[TP{:02d}-DP00] {}", "rank {}: {}", "Rank {}", "rank_{}")},
    "rank{}_{}": process("rank{}_{}"),
}


def read(trace: Trace) -> tuple[RankTrace, ...]:
    return read_ranks(io.BytesIO(json.dumps(trace).encode()), "merged.json")


def loaded(path: Path) -> Trace:
    found: Trace = json.loads(gzip.decompress(path.read_bytes()))
    return found


@pytest.fixture(scope="module")
def traces() -> list[Trace]:
    return [loaded(path) for path in FILES]


def rows(rank: RankTrace) -> list[tuple[Any, ...]]:
    events = rank.events
    names = [rank.names[name] for name in events.name.tolist()]
    columns = (
        events.category,
        events.start,
        events.stop,
        events.stream,
        events.call,
        events.nbytes,
        events.elements_in,
    )
    return list(zip(names, *(column.tolist() for column in columns), strict=True))


@pytest.mark.parametrize("form", FORMS)
def test_ranks_in_one_file_are_those_of_the_files(form: str, traces: list[Trace]) -> None:
    apart = [read(trace)[0] for trace in traces]
    found = read(FORMS[form](traces))
    assert [rank.rank for rank in found] == [0, 1, 2, 3]
    for one, other in zip(found, apart, strict=True):
        assert rows(one) == rows(other)
    by_process = form in ("one after another", "processes moved apart")
    assert [bool(rank.notes) for rank in found] == [by_process, False, False, False]
    assert all(not rank.left_out for rank in found)


def test_of_devices_with_one_number_no_work_is_said_to_be_of_a_rank(traces: list[Trace]) -> None:
    def one_device(event: Trace, _: int) -> Trace:
        return event | {"pid": 0} if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset") else event

    found = read(changed(one_device)(traces[:2]))
    assert [int(rank.events.is_gpu_work.sum()) for rank in found] == [0, 0]
    work = sum(int(read(trace)[0].events.is_gpu_work.sum()) for trace in traces[:2])
    assert found[0].left_out == {"on a GPU of which the file does not tell the rank": work}
    assert found[0].notes == ("The 2 processes of the file are read as ranks, in the order of their ids.",)


def test_a_rank_that_runs_ahead_of_another_does_not_get_its_work() -> None:
    """Two ranks do the same, with the same correlations; the calls of the second precede the work of both."""

    def rank(number: int, ahead: int) -> list[Trace]:
        events: list[Trace] = []
        for call in range(1, 40):
            at = 100 * call - ahead
            cpu = {"ph": "X", "pid": 50 + number, "tid": 1, "ts": at, "args": {"correlation": call}}
            events += [
                {**cpu, "cat": "cpu_op", "name": "aten::mm", "dur": 20, "args": {}},
                {**cpu, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "dur": 5},
                {**cpu, "cat": "kernel", "name": "gemm", "dur": 50, "pid": number, "tid": 7, "ts": at + 8},
            ]
        return events

    ranks = read({"traceEvents": rank(0, 0) + rank(1, 5000)})
    assert [set(each.events.device[each.events.is_gpu_work].tolist()) for each in ranks] == [{0}, {1}]
    assert all((each.events.call[each.events.is_gpu_work] >= 0).all() for each in ranks)


def test_one_process_with_a_rank_in_its_names_is_one_rank(traces: list[Trace]) -> None:
    for form in ("args.rank", "python_rank1", "[TP{:02d}] {}", "[R1] aten::mm", "one after another"):
        (rank,) = read(FORMS[form](traces[:1]))
        assert len(rank.events) == len(read(traces[0])[0].events)


def test_a_process_with_ranges_alone_is_no_rank() -> None:
    step = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 9, "tid": 9, "ts": 0, "dur": 100}
    (rank,) = read({"traceEvents": [step, {**step, "cat": "cpu_op", "name": "aten::mm", "pid": 5}]})
    assert len(rank.events) == 2
    assert rank.notes == ()


@pytest.mark.parametrize(
    ("text", "label"),
    [
        *(
            ("[TP00-DP01] 5000", "[TP00-DP01]"),
            ("rank 1: 5000", "rank 1"),
            ("Rank 3", "Rank 3"),
            ("rank_0_7", "rank_0"),
        ),
        *(("Spans", ""), ("stream 7", ""), ("franken1", ""), ("[stack]", ""), ("rank 12345678", "")),
    ],
)
def test_labels_of_ranks(text: str, label: str) -> None:
    assert label_of(text) == label
