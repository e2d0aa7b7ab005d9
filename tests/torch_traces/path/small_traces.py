"""Traces of a few events, as a test writes them down: times are nanoseconds."""

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.torch_traces.kineto.trace import Category, RankTrace
from dask_efficiency.torch_traces.path.build import build_graph
from dask_efficiency.torch_traces.path.graph import EdgeKind
from dask_efficiency.torch_traces.path.region import find_region
from tests.torch_traces.path.jobs import Recording

#: The process of all threads, and that of all devices.
PROGRAM, DEVICE = 100, 0


class SmallTrace(Recording):
    """Events that are added one by one; each method returns the row of what it added."""

    def __init__(self) -> None:
        super().__init__(0)

    def add(self, category: Category, name: str, start: int, stop: int, thread: int = 1, **columns: int) -> int:
        return super().add(category, name, start, stop, **{"process": PROGRAM, "thread": thread, **columns})

    def operator(self, name: str, start: int, stop: int, thread: int = 1) -> int:
        return self.add(Category.OPERATOR, name, start, stop, thread)

    def call(self, name: str, start: int, stop: int, thread: int = 1, correlation: int = MISSING) -> int:
        return self.add(Category.RUNTIME, name, start, stop, thread, correlation=correlation)

    def work(self, start: int, stop: int, call: int, stream: int = 7, device: int = 0, name: str = "gemm") -> int:
        where = {"process": DEVICE, "device": device, "stream": stream, "call": call}
        return self.add(Category.KERNEL, name, start, stop, stream, **where)

    def launched(self, at: int, start: int, stop: int, stream: int = 7, thread: int = 1, device: int = 0) -> int:
        """A kernel and its launch, which takes 2 ns; the row of the kernel, which is the one after its launch's."""
        return self.work(start, stop, self.call("cudaLaunchKernel", at, at + 2, thread), stream, device)

    def sync(self, name: str, call: int, stop: int, **columns: int) -> int:
        """A synchronisation that lasts from the beginning of its call."""
        where = {"process": DEVICE, "device": 0, "call": call, **columns}
        return self.add(Category.SYNC, name, self.rows[call]["start"], stop, -1, **where)


def edges_of(trace: RankTrace, *, infer: bool = False) -> dict[tuple[str, str], tuple[EdgeKind, int, int]]:
    """The edges of a graph of all of a trace: by the two instants ("3" is where row 3 begins, "3." where it ends), the
    kind, the weight, and the row whose time it is.
    """
    graph = build_graph(trace, find_region(trace), infer=infer)
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
        found[pair] = EdgeKind(kind), weight, event
    return found


def of_kind(edges: dict[tuple[str, str], tuple[EdgeKind, int, int]], kind: EdgeKind) -> dict[tuple[str, str], int]:
    return {pair: weight for pair, (of, weight, _) in edges.items() if of is kind}
