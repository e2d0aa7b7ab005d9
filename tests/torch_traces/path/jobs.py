"""Jobs that are made up: ranks that compute and then wait for one another, with clocks that are known."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from dask_efficiency.torch_traces.kineto.trace import Category, Events, KinetoTrace, RankTrace

#: When made-up jobs begin: instants of today do not fit into floats.
BEGIN = 1_700_000_000_000_000_000
MAIN, BACKGROUND = 100, 101
MILLISECOND = 1_000_000
#: What ranks do after each all-reduce, and how many events a step has.
UPDATE = 10_000
EVENTS = 4


@dataclass
class Recording:
    """Events of one rank, put together one by one."""

    rank: int
    offset: int = 0
    host: str = ""
    rows: list[dict[str, Any]] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def name(self, text: str) -> int:
        return self.names.setdefault(text, len(self.names))

    def add(self, category: Category, name: str, start: int, stop: int, **columns: Any) -> int:
        """An event on the clock of the job, which this rank's is behind by its offset; its row."""
        row = {"index": len(self.rows), "category": category, "name": self.name(name)}
        row |= {"start": start - self.offset, "stop": stop - self.offset, "process": self.rank, "thread": MAIN}
        self.rows.append(row | columns)
        return len(self.rows) - 1

    def kernel(self, name: str, start: int, stop: int, *, stream: int = 7, **columns: Any) -> int:
        """A kernel with its call, a microsecond before."""
        call = self.add(Category.RUNTIME, "cudaLaunchKernel", start - 1000, start - 500)
        return self.add(
            Category.KERNEL, name, start, stop, **{"stream": stream, "device": self.rank, "call": call} | columns
        )

    def trace(self) -> RankTrace:
        missing = Events.missing()
        columns = {name: [row.get(name, missing[name]) for row in self.rows] for name in Events.dtypes()}
        events = Events(**{name: np.array(column, Events.dtypes()[name]) for name, column in columns.items()})
        about = {"host_name": self.host} if self.host else {}
        return RankTrace(
            self.rank, None, f"rank{self.rank}", events, tuple(self.names), groups=self.groups, about=about
        )


def job(recordings: Sequence[Recording]) -> KinetoTrace:
    return KinetoTrace(tuple(recording.trace() for recording in recordings))


@dataclass(frozen=True)
class Plan:
    """Plan of a job: in each step ranks compute, leave an all-reduce some time after the last arrival, and update."""

    #: By rank, nanoseconds; the first rank's clock is the job's.
    offsets: tuple[int, ...]
    #: By step and rank, nanoseconds.
    computing: tuple[tuple[int, ...], ...]
    leaving: tuple[tuple[int, ...], ...]

    @property
    def arrivals(self) -> list[list[int]]:
        """When ranks come to each all-reduce, by step and rank, on the clock of the job."""
        found, begin = [], [BEGIN] * len(self.offsets)
        for computing, leaving in zip(self.computing, self.leaving, strict=True):
            found.append([at + took for at, took in zip(begin, computing, strict=True)])
            begin = [max(found[-1]) + after + UPDATE for after in leaving]
        return found

    def recordings(self, host: str = "") -> list[Recording]:
        """As gloo would do it: the main thread waits for another one."""
        ranks = [Recording(rank, offset, host) for rank, offset in enumerate(self.offsets)]
        for step, (computing, leaving, arrivals) in enumerate(
            zip(self.computing, self.leaving, self.arrivals, strict=True)
        ):
            for rank, took, after, at in zip(ranks, computing, leaving, arrivals, strict=True):
                until = max(arrivals) + after
                rank.add(Category.ANNOTATION, f"ProfilerStep#{step}", at - took, until + UPDATE)
                rank.add(Category.OPERATOR, "aten::mm", at - took, at)
                rank.add(Category.OPERATOR, "aten::add_", until, until + UPDATE)
                rank.add(Category.ANNOTATION, "gloo:all_reduce", at, until, thread=BACKGROUND)
        return ranks


@st.composite
def plans(draw: st.DrawFn, *, max_jitter: int = MILLISECOND // 10) -> Plan:
    """Two to five ranks on any clocks, three to eight steps, one late rank in each."""
    ranks, steps = draw(st.integers(2, 5)), draw(st.integers(3, 8))
    offsets = (0, *(draw(st.integers(-(10**10), 10**10)) for _ in range(ranks - 1)))
    computing, leaving = [], []
    for _ in range(steps):
        took = [draw(st.integers(MILLISECOND, 5 * MILLISECOND)) for _ in range(ranks)]
        took[draw(st.integers(0, ranks - 1))] += draw(st.integers(10, 200)) * MILLISECOND
        computing.append(tuple(took))
        leaving.append(tuple(MILLISECOND + draw(st.integers(0, max_jitter)) for _ in range(ranks)))
    return Plan(offsets, tuple(computing), tuple(leaving))
