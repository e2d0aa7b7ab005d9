"""Claims: a torch trace's critical path takes at most a tenth of HTA's time, and at most half of its memory.

``python -m benchmarks.torch_critical_path [TRACE]`` asks both for the longest path of a whole trace, from its file to
the path: of a recorded trace, and of copies of it one after the other, as large as ``--sizes`` says. Each run is a
fresh process, ours and HTA's in turn; printed are medians and ranges of seconds and of the peak of resident memory.
Seconds are the process's CPU time after imports, which other work on the machine does not lengthen; neither uses a
second core. Further claims, for ours alone: a million events take at most 15 s and 1.5 GB, and an event of a million
takes at most 1.3 times as long as one of a hundred thousand.

HTA (package ``traceinsight``, dependency group ``oracle``) takes six minutes and 4 GB for a million events, so it is
asked for at most ``--largest`` events. TRACE is by default a small one that tests have; HTA takes no CPU-only trace
and none with categories of old versions.
"""

from __future__ import annotations

import argparse
import importlib
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.torch_copies import read, timed, write_copies

MILLION = 1_000_000
MIN_TIMES_AS_FAST = 10.0
MAX_SHARE_OF_MEMORY = 0.5
MAX_SECONDS_A_MILLION = 15.0
MAX_BYTES_A_MILLION = 1.5e9
MAX_GROWTH = 1.3
#: Of more events than that, HTA is asked once.
REPEATED = 300_000

#: Columns after a row's first two.
ROW = "{:9.2f} [{:7.2f},{:7.2f}] {:8.2f} {:8.0f}"

#: Of the traces that tests have, the one of most events that HTA can do.
DEFAULT = Path(__file__).parent.parent / "tests" / "data" / "kineto" / "h100.json.gz"


class Run(NamedTuple):
    """What one process took, and what it found."""

    seconds: float
    wall: float
    nbytes: int
    nodes: int
    #: Microseconds, in which HTA counts.
    path: float


class Size(NamedTuple):
    """Runs over one file."""

    events: int
    ours: list[Run]
    theirs: list[Run]


def ours(path: str) -> Callable[[], tuple[int, float]]:
    """How many nodes there are, and how long the path is."""
    from dask_efficiency.torch_traces.kineto.load import load_kineto
    from dask_efficiency.torch_traces.path.build import build_graph
    from dask_efficiency.torch_traces.path.longest import longest_path, path_edges, summary
    from dask_efficiency.torch_traces.path.region import find_region

    # What opens files is imported by then, as pandas is for HTA.
    importlib.import_module("fsspec.implementations.local")

    def run() -> tuple[int, float]:
        rank = load_kineto(path).ranks[0]
        graph = build_graph(rank, find_region(rank))
        edges = path_edges(graph, longest_path(graph))
        summary(graph, edges)
        return len(graph.nodes.at), int(graph.edges.weight[edges].sum()) / 1e3

    return run


def theirs(path: str) -> Callable[[], tuple[int, float]]:
    """The same of HTA, with all steps of the profiler."""
    import logging

    from hta.analyzers.critical_path_analysis import CriticalPathAnalysis
    from hta.common.trace import Trace
    from hta.configs.env_options import HTAEnvOptions

    logging.disable(logging.CRITICAL)
    HTAEnvOptions.instance().set_critical_path_add_zero_weight_launch_edges(True)

    def run() -> tuple[int, float]:
        trace = Trace(trace_files={0: path}, trace_dir="")
        trace.parse_traces()
        # What loading does besides: by default it drops the last step.
        trace._align_all_ranks()
        trace.traces[0] = trace.traces[0].set_index("index", drop=False)
        trace.traces[0].index.names = [None]
        found = CriticalPathAnalysis.critical_path_analysis(trace, 0, "", None)
        assert found is not None
        graph, valid = found
        assert valid, "HTA cannot do this trace"
        graph.summary()
        return len(graph.node_list), float(sum(max(edge.weight, 0) for edge in graph.critical_path_edges_set))

    return run


def in_this_process(who: str, path: str) -> None:
    """Run one of them, and print what it took as the last line."""
    run = {"ours": ours, "theirs": theirs}[who](str(Path(path).resolve()))
    began, began_wall = time.process_time(), time.perf_counter()
    nodes, length = run()
    took = time.process_time() - began, time.perf_counter() - began_wall
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    print("\nTOOK", json.dumps(Run(*took, peak, nodes, length)))


def run(who: str, path: Path) -> Run:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.torch_critical_path", "run", who, str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr[-2_000:])
    return Run(*json.loads(done.stdout.rpartition("TOOK ")[2]))


def measure(path: Path, events: int, repeats: int, largest: int) -> Size:
    """Both in turn, and which comes first in turn."""
    size = Size(events, [], [])
    for number in range(repeats):
        asked: list[tuple[str, list[Run]]] = [("ours", size.ours)]
        if events <= largest and not (number and events > REPEATED):
            asked.insert(number % 2, ("theirs", size.theirs))
        for who, runs in asked:
            runs.append(run(who, path))
    return size


def median(runs: list[Run], what: str) -> float:
    """Of one of the columns."""
    return statistics.median(getattr(each, what) for each in runs)


def show(size: Size) -> None:
    """A line for each of the two."""
    for who, runs in (("ours", size.ours), ("HTA", size.theirs)):
        if not runs:
            continue
        seconds = sorted(each.seconds for each in runs)
        figures = (median(runs, "seconds"), seconds[0], seconds[-1], median(runs, "wall"), median(runs, "nbytes") / 1e6)
        first = runs[0]
        print(f"{size.events:9}  {who:4} " + ROW.format(*figures) + f"{first.nodes:10} {first.path:13.0f}", flush=True)


class Claim(NamedTuple):
    """What is claimed, what was found, and what it may be at most, or at least."""

    what: str
    value: float
    limit: float
    at_least: bool = False

    def __bool__(self) -> bool:
        return self.value >= self.limit if self.at_least else self.value <= self.limit


def claims(sizes: list[Size]) -> list[Claim]:
    """Of all sizes with HTA; of the largest; and of the growth from the one before it."""
    found = []
    for size in sizes:
        # Pairs of one round, which had the machine in the same state.
        pairs = list(zip(size.ours, size.theirs, strict=False))
        if pairs:
            faster = statistics.median(b.seconds / a.seconds for a, b in pairs)
            share = statistics.median(a.nbytes / b.nbytes for a, b in pairs)
            found.append(Claim(f"{size.events} events: times as fast", faster, MIN_TIMES_AS_FAST, at_least=True))
            found.append(Claim(f"{size.events} events: share of memory", share, MAX_SHARE_OF_MEMORY))
    last = sizes[-1]
    if last.events >= MILLION:
        found.append(Claim(f"{last.events} events: wall seconds", median(last.ours, "wall"), MAX_SECONDS_A_MILLION))
        found.append(Claim(f"{last.events} events: bytes", median(last.ours, "nbytes"), MAX_BYTES_A_MILLION))
    if len(sizes) > 2:
        each, before = (median(size.ours, "seconds") / size.events for size in (last, sizes[-2]))
        found.append(Claim(f"an event of {last.events}, to one of {sizes[-2].events}", each / before, MAX_GROWTH))
    return found


def main() -> None:
    """Print figures and claims, and end with 1 if one does not hold."""
    if sys.argv[1:2] == ["run"]:
        return in_this_process(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", nargs="?", type=Path, default=DEFAULT, help="a file of Kineto's")
    parser.add_argument("--sizes", type=int, nargs="*", default=[100_000, 1_000_000], help="events of the copies")
    parser.add_argument("--largest", type=int, default=100_000, help="of more events than that, HTA is not asked")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    path: Path = options.trace
    trace: dict[str, Any] = read(path)
    print(f"{path.name}, and copies of it")
    print("   events  who      CPU s [         range]   wall s  peak MB     nodes      path, us")
    sizes = []
    with tempfile.TemporaryDirectory() as folder:
        for wanted in [0, *sorted(options.sizes)]:
            file = path
            # A copy may be a few events larger than asked for.
            events, largest = len(timed(trace)), options.largest if wanted else sys.maxsize
            if wanted:
                file = Path(folder, f"{wanted}.json.gz")
                events = write_copies(trace, wanted, file)
                largest += events - wanted
            sizes.append(measure(file, events, options.repeats, largest))
            show(sizes[-1])
    found = claims(sizes)
    for claim in found:
        limit = f"at {'least' if claim.at_least else 'most'} {claim.limit:g}"
        print(f"{'holds' if claim else 'FAILS'}  {claim.what}: {claim.value:.4g} ({limit})")
    sys.exit(not all(found))


if __name__ == "__main__":
    main()
