"""Small traces to the letter: events by hand in microseconds, and programs as PyTorch's users write them."""

import io
import json
import random
from collections.abc import Iterable
from typing import Any

from dask_efficiency.torch_traces.kineto.load import read_rank
from dask_efficiency.torch_traces.kineto.trace import KinetoTrace, RankTrace
from dask_efficiency.torch_traces.path.build import build_graph
from dask_efficiency.torch_traces.path.graph import EdgeKind, TorchGraph
from dask_efficiency.torch_traces.path.region import find_region
from dask_efficiency.torch_traces.path.stretches import seconds_by
from dask_efficiency.torch_traces.path.tiling import tile

Event = dict[str, Any]

HOST, MAIN = 4_000, 4_000


def rank_of(events: Iterable[Event]) -> RankTrace:
    return read_rank(io.BytesIO(json.dumps({"traceEvents": list(events)}).encode()), "small.json")


def on_cpu(name: str, start: float, stop: float, *, cat: str = "cpu_op", thread: int = MAIN, **args: Any) -> Event:
    when = {"ts": start, "dur": stop - start, "pid": HOST, "tid": thread}
    return {"ph": "X", "cat": cat, "name": name, **when, "args": args}


def call(name: str, start: float, stop: float, number: int, *, thread: int = MAIN, cat: str = "cuda_runtime") -> Event:
    return on_cpu(name, start, stop, cat=cat, thread=thread, correlation=number)


def work(
    name: str, start: float, stop: float, number: int, *, stream: int = 7, cat: str = "kernel", device: int = 0
) -> Event:
    """Work on the GPU, with the correlation of its call."""
    when = {"ts": start, "dur": stop - start, "pid": device, "tid": stream}
    args = {"device": device, "stream": stream, "correlation": number}
    return {"ph": "X", "cat": cat, "name": name, **when, "args": args}


def graph_of(
    trace: RankTrace, annotation: str = "", instance: int | tuple[int, int] | None = None, **options: Any
) -> TorchGraph:
    return build_graph(trace, find_region(trace, annotation, instance), **options)


def seconds_of(graph: TorchGraph) -> dict[str, float]:
    """Seconds of the tiling by kind."""
    return seconds_by("kind", tile(graph), KinetoTrace((graph.trace,)))


def written(text: str) -> list[Event]:
    """Events as tests write them: "cudaLaunchKernel 5-8 #1 @9" is call 1, on thread 9, and "gemm 9-60 #1 @7" its work.

    What is not CUDA's and has no number is an operator, an annotation or a function. "$1" is another device than 0;
    "<5" and "~7" are the call that recorded an event and its stream. A space in a name is "_".
    """
    events = []
    for each in filter(None, text.replace("\n", " ").split(", ")):
        name, when, *marks = each.split()
        start, stop = map(float, when.split("-"))
        of = {mark[0]: int(mark[1:]) for mark in marks}
        lane = {"thread": of.get("@", MAIN)}
        if name.startswith("cuda"):
            events.append(call(name, start, stop, of["#"], **lane))
        elif "#" in of:
            waits = "_Sync" in name or "_Wait" in name
            cat = "cuda_sync" if waits else "gpu_memcpy" if name.startswith("Memcpy") else "kernel"
            name = name if name.startswith("nccl") else name.replace("_", " ")
            on = {"stream": of.get("@", 7), "device": of.get("$", 0)}
            events.append(work(name, start, stop, of["#"], cat=cat, **on))
            if "<" in of:
                events[-1]["args"] |= {"wait_on_cuda_event_record_corr_id": of["<"], "wait_on_stream": of["~"]}
        elif name.startswith("__"):
            events.append(on_cpu(name, start, stop, cat="python_function", **lane))
        else:
            cat = "user_annotation" if name.startswith(("ProfilerStep", "gloo:", "enumerate")) else "cpu_op"
            events.append(on_cpu(name, start, stop, cat=cat, **lane))
    return events


def edges_of(text: str) -> dict[tuple[str, str], tuple[EdgeKind, int, int]]:
    """Edges of a graph of all that is written: by the two instants ("3" is where row 3 begins, "3." where it ends), the
    kind, the microseconds, and the row whose time it is.
    """
    graph = graph_of(rank_of(written(text)), infer=False)
    nodes, edges = graph.nodes, graph.edges
    instants = [
        f"{event}" if is_start else f"{event}."
        for event, is_start in zip(nodes.event.tolist(), nodes.is_start.tolist(), strict=True)
    ]
    found = {}
    for source, target, kind, weight, event in zip(
        *(getattr(edges, name).tolist() for name in ("source", "target", "kind", "weight", "event")), strict=True
    ):
        pair = instants[source], instants[target]
        assert pair not in found
        found[pair] = EdgeKind(kind), weight // 1000, event
    return found


def of_kind(edges: dict[tuple[str, str], tuple[EdgeKind, int, int]], kind: EdgeKind) -> dict[tuple[str, str], int]:
    return {pair: weight for pair, (of, weight, _) in edges.items() if of is kind}


class Program:
    """A program that trains on one GPU of several, at random; what it really waited for is recorded beside it."""

    COMPUTE, COLLECTIVES = 7, 20

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._now = 100
        self._number = 1
        #: By stream, when what it was asked for ends, and how long it has to wait.
        self._ends = {self.COMPUTE: 0, self.COLLECTIVES: 0}
        self.events: list[Event] = []
        self.syncs: list[Event] = []

    def train(self, steps: int) -> None:
        """Steps of forward, backward with collectives beside it, and now and then a look at the loss."""
        for step in range(steps):
            start = self._now
            self._operators(8)
            done = [self._collective() for _ in range(2) if self._operators(5) is None]
            for record in done:
                self._stream_waits(self.COMPUTE, self.COLLECTIVES, *record)
                self._operators(1)
            self._chance.choice((self._item, self._synchronise, self._timed, self._malloc))()
            self._now += 2
            self.events.append(on_cpu(f"ProfilerStep#{step}", start, self._now, cat="user_annotation"))
            self._now += 1

    def _operators(self, count: int) -> None:
        for _ in range(count):
            start = self._now
            self._now += self._chance.choice((3, 8, 15))
            self._launch(self.COMPUTE, "gemm", self._chance.choice((2, 10, 80)))
            self._now += self._chance.choice((1, 4))
            self.events.append(on_cpu("aten::mm", start, self._now))
            self._now += self._chance.choice((1, 6, 20))

    def _call(self, name: str, lasts: int) -> tuple[int, int]:
        """Number of a call and when it began; the program is at its end afterwards."""
        self._number += 1
        start = self._now
        self._now += lasts
        self.events.append(call(name, start, self._now, self._number))
        return self._number, start

    def _launch(self, stream: int, name: str, lasts: int, call: str = "cudaLaunchKernel", cat: str = "kernel") -> None:
        number, _ = self._call(call, 5)
        start = max(self._now + 1, self._ends[stream] + 1)
        self._ends[stream] = start + lasts
        self.events.append(work(name, start, start + lasts, number, stream=stream, cat=cat))

    def _wait(self, name: str, kind: str, until: int, **args: Any) -> None:
        lasts = max(until + 4 - self._now, 5)
        number, start = self._call(name, lasts)
        self._sync(kind, start + 1, self._now - 1, number, **args)

    def _sync(self, kind: str, start: int, stop: int, number: int, *, stream: int = -1, **args: Any) -> None:
        event = work(kind, start, stop, number, stream=stream, cat="cuda_sync")
        event["args"] |= {"cuda_sync_kind": kind, **args}
        self.syncs.append(event)

    def _record(self, stream: int) -> tuple[int, int]:
        number, _ = self._call("cudaEventRecord", 2)
        return number, self._ends[stream]

    def _stream_waits(self, stream: int, source: int, record: int, until: int) -> None:
        number, start = self._call("cudaStreamWaitEvent", 2)
        waits_on = {"wait_on_stream": source, "wait_on_cuda_event_record_corr_id": record}
        self._sync("Stream Wait Event", start, self._now, number, stream=stream, **waits_on)
        self._ends[stream] = max(self._ends[stream], until)

    def _collective(self) -> tuple[int, int]:
        self._stream_waits(self.COLLECTIVES, self.COMPUTE, *self._record(self.COMPUTE))
        self._launch(self.COLLECTIVES, "ncclDevKernel_AllReduce_Sum_f32", self._chance.choice((20, 300)))
        return self._record(self.COLLECTIVES)

    def _item(self) -> None:
        start = self._now
        self._launch(self.COMPUTE, "Memcpy DtoH (Device -> Pinned)", 2, "cudaMemcpyAsync", "gpu_memcpy")
        self._wait("cudaStreamSynchronize", "Stream Sync", self._ends[self.COMPUTE], stream=self.COMPUTE)
        self.events.append(on_cpu("aten::item", start, self._now))

    def _synchronise(self) -> None:
        self._wait("cudaDeviceSynchronize", "Context Sync", max(self._ends.values()))

    def _timed(self) -> None:
        self._record(self.COMPUTE)
        self._operators(1)
        record, until = self._record(self.COMPUTE)
        waits_on = {"wait_on_stream": self.COMPUTE, "wait_on_cuda_event_record_corr_id": record}
        self._wait("cudaEventSynchronize", "Event Sync", until, **waits_on)

    def _malloc(self) -> None:
        self._call("cudaMalloc", 150)
