from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.torch_copies import read, timed, write_copies
from dask_efficiency.torch_traces.kineto.load import load_kineto
from dask_efficiency.torch_traces.path.build import build_graph
from dask_efficiency.torch_traces.path.graph import EdgeKind
from dask_efficiency.torch_traces.path.region import find_region

TRACE = Path(__file__).parent.parent / "data" / "kineto" / "event_sync.json.gz"


def test_each_copy_is_the_trace_again_and_follows_the_one_before_it(tmp_path: Path) -> None:
    once = read(TRACE)
    events = len(timed(once))
    assert write_copies(once, 2 * events + 1, tmp_path / "copies.json.gz") == 3 * events
    single, copies = (load_kineto(path).ranks[0] for path in (TRACE, tmp_path / "copies.json.gz"))
    starts = copies.events.start.reshape(3, events)
    assert np.all(np.diff(starts, axis=0) == starts[1, 0] - starts[0, 0])
    assert copies.events.stop[:events].max() < starts[1].min()
    steps = [name for name in copies.names if name.startswith("ProfilerStep#")]
    assert steps == ["ProfilerStep#100", "ProfilerStep#101", "ProfilerStep#102"]
    kinds, many = (build_graph(rank, find_region(rank)).edges.kind for rank in (single, copies))
    for kind in (EdgeKind.LAUNCH_DELAY, EdgeKind.SYNC):
        assert np.count_nonzero(many == kind) == 3 * np.count_nonzero(kinds == kind) > 0
