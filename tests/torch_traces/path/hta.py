"""Answers of HTA (package ``traceinsight``, module ``hta``) about traces, from its own process, as plain data.

``python -m tests.torch_traces.path.hta QUESTIONS ANSWERS`` reads a JSON list of questions and writes a list of
answers, so that pandas is imported once for many traces. :func:`ask` does that; HTA is no dependency of the package,
and where the tests' own Python lacks it, their fixture skips with the reason.

Two things are done to HTA so that its answers do not depend on chance: pandas' sorts are made stable (its default
leaves events of equal times in any order), and no profiler step is dropped on loading (by default HTA drops what comes
after the start of the last one, and puts the rest in another order).
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import logging
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

#: HTA's names of the kinds of edges by the number of an ``EdgeKind``.
KINDS = (
    "critical_path_operator",
    "critical_path_dependency",
    "critical_path_kernel_launch_delay",
    "critical_path_kernel_kernel_delay",
    "critical_path_sync_dependency",
)


@dataclass(frozen=True)
class Question:
    """A critical path that HTA is asked for."""

    path: str
    annotation: str = ""
    instance: int | tuple[int, int] | None = None
    #: Patterns of the names of events that load data.
    data_loading: tuple[str, ...] = ()


@dataclass(frozen=True)
class Edge:
    """Two positions in the nodes; kind by number; its weight, which HTA counts as 0 in paths where it is negative."""

    source: int
    target: int
    kind: int
    weight: int
    #: The event whose time HTA says it is, and what it says that it is bound by ("" where it says nothing).
    event: int | None
    bound_by: str


@dataclass(frozen=True)
class Answer:
    """HTA's answer; times in microseconds on the file's clock, events by their position in ``traceEvents``."""

    #: Why there is no answer, or "".
    error: str = ""
    #: Events of the region.
    events: tuple[int, ...] = ()
    #: (event, time, whether it is its start), in HTA's order.
    nodes: tuple[tuple[int, int, bool], ...] = ()
    #: In the order in which HTA added them.
    edges: tuple[Edge, ...] = ()
    #: Positions in the nodes of the longest path.
    longest: tuple[int, ...] = ()
    #: Percent by category.
    summary: dict[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, data: dict[str, Any]) -> Answer:
        """From what :func:`answer` made, by way of JSON."""
        edges = tuple(Edge(*edge) for edge in data.pop("edges", ()))
        nodes = tuple(tuple(node) for node in data.pop("nodes", ()))
        lists = {name: tuple(value) for name, value in data.items() if isinstance(value, list)}
        return cls(**{**data, **lists, "edges": edges, "nodes": nodes})

    @property
    def length(self) -> int:
        """Microseconds of the longest path, as HTA's search counts them."""
        weights = {(edge.source, edge.target): max(edge.weight, 0) for edge in self.edges}
        return sum(weights[pair] for pair in pairwise(self.longest))


def missing() -> str:
    """Reason why this Python cannot run HTA; "" if it can."""
    found = subprocess.run([sys.executable, "-c", "import hta.analyzers.critical_path_analysis"], capture_output=True)
    return "" if found.returncode == 0 else found.stderr.decode().strip().rpartition("\n")[2]


def ask(questions: Sequence[Question]) -> list[Answer]:
    with tempfile.TemporaryDirectory() as folder:
        asked, answered = Path(folder, "questions.json"), Path(folder, "answers.json")
        asked.write_text(json.dumps([asdict(question) for question in questions]))
        command = [sys.executable, "-m", "tests.torch_traces.path.hta", str(asked), str(answered)]
        root = Path(__file__).parents[3]
        environment = os.environ | {"PYTHONWARNINGS": "ignore"}
        done = subprocess.run(command, capture_output=True, text=True, cwd=root, env=environment)
        assert done.returncode == 0, done.stderr[-2_000:]
        return [Answer.read(data) for data in json.loads(answered.read_text())]


def load(path: str) -> Any:
    """HTA's trace of one rank, with all its steps."""
    from hta.common.trace import Trace

    trace = Trace(trace_files={0: path}, trace_dir="")
    trace.parse_traces()
    trace._align_all_ranks()
    trace.traces[0] = trace.traces[0].set_index("index", drop=False)
    trace.traces[0].index.names = [None]
    return trace


def answer(question: Question) -> dict[str, Any]:
    """Run HTA; an exception of its own is the answer's ``error``."""
    from hta.analyzers.critical_path_analysis import CriticalPathAnalysis
    from hta.configs.env_options import HTAEnvOptions

    # A call that no kernel waited for is joined to its kernel too, by an edge without weight.
    HTAEnvOptions.instance().set_critical_path_add_zero_weight_launch_edges(True)
    instance = tuple(question.instance) if isinstance(question.instance, Sequence) else question.instance
    try:
        trace = load(question.path)
        found = CriticalPathAnalysis.critical_path_analysis(
            trace, 0, question.annotation, instance, list(question.data_loading) or None
        )
        if found is None:
            return {"error": "HTA finds no such annotation"}
        graph, whether = found
        if not whether:
            return {"error": "HTA says that the graph is not valid"}
        return _plain(trace, graph)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:500]}


def _plain(trace: Any, graph: Any) -> dict[str, Any]:
    summary = {name: float(share) for name, share in graph.summary().items() if name}
    critical = graph.critical_path_edges_set
    edges = [graph.edges[pair]["object"] for pair in graph.edges]
    # HTA says for critical edges only what they are bound by, so for once all are.
    graph.critical_path_edges_set = edges
    bound_by = graph.get_critical_path_breakdown().bound_by.tolist()
    graph.critical_path_edges_set = critical
    kinds = {name: number for number, name in enumerate(KINDS)}
    plain_edges = [
        (e.begin, e.end, kinds[e.type.value], int(e.weight), graph.get_event_attribution_for_edge(e), why)
        for e, why in zip(edges, bound_by, strict=True)
    ]
    return {
        "events": [int(index) for index in graph.trace_df.index],
        "nodes": [(int(n.ev_idx), int(n.ts + trace.min_ts), bool(n.is_start)) for n in graph.node_list],
        "edges": plain_edges,
        "longest": list(graph.critical_path_nodes),
        "summary": summary,
    }


def _make_deterministic() -> None:
    """pandas' sorts keep the order of equals."""
    import pandas as pd

    sort = pd.DataFrame.sort_values

    @functools.wraps(sort)
    def stable(self: Any, *args: Any, **options: Any) -> Any:
        return sort(self, *args, **{"kind": "stable", **options})

    pd.DataFrame.sort_values = stable


def main() -> None:
    asked, answered = map(Path, sys.argv[1:])
    questions = [Question(**question) for question in json.loads(asked.read_text())]
    warnings.simplefilter("ignore")
    with contextlib.redirect_stdout(io.StringIO()):
        logging.disable(logging.CRITICAL)
        _make_deterministic()
        answers = [answer(question) for question in questions]
    answered.write_text(json.dumps(answers))


if __name__ == "__main__":
    main()
