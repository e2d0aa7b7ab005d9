"""Claim: where workers are placed on a network is predicted within 5 % (median) and 15 % (at most), from one flat run.

``python -m benchmarks.studies.placement`` (as root; opt-in) builds ``placement_lab.yaml`` from network namespaces,
runs each workload on four placements, records the flat one, and predicts the others from that: with the topology, and
with the constant bandwidth that the flat run shows. Half of the latter's error is the goal, and that ``place`` ranks
the four as they really rank.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dask.base import tokenize

from benchmarks.figures import figure
from benchmarks.placement_bed import cluster, lacking, network
from dask_efficiency import (
    ClusterSpec,
    EfficiencyPlugin,
    RunTrace,
    critical_path,
    efficiency_report,
    load_trace,
    place,
    simulate,
)
from dask_efficiency.simulation.model.cluster_file import read_cluster_file

LAB = Path(__file__).with_name("placement_lab.yaml")

#: Hosts of the workers. The first is recorded, the others are predicted from it.
PLACEMENTS = {
    "flat": ("fast1", "fast2", "fast3", "fast4"),
    "one away": ("fast1", "fast2", "fast3", "away1"),
    "half away": ("fast1", "fast2", "away1", "away2"),
    "slow cards": ("slow1", "slow2", "slow3", "slow4"),
}

#: Goals: of the errors with the topology, and of these to those with constant bandwidth.
MEDIAN_ERROR, MAX_ERROR, PART_OF_CONSTANT = 0.05, 0.15, 0.5


def _bytes_after(seconds: float, nbytes: int, *inputs: Any) -> bytes:
    time.sleep(seconds)
    return bytes(nbytes)


def _length(*inputs: bytes) -> int:
    return sum(map(len, inputs))


def shuffle(blocks: int = 16, nbytes: int = 50_000) -> dict[Any, Any]:
    """Each output needs a piece of each input."""
    token = tokenize("shuffle", time.time())
    graph: dict[Any, Any] = {(f"make-{token}", i): (_bytes_after, 0.1, nbytes * blocks) for i in range(blocks)}
    for i in range(blocks):
        for j in range(blocks):
            graph[f"piece-{token}", i, j] = (_bytes_after, 0.005, nbytes, (f"make-{token}", i))
    for j in range(blocks):
        graph[f"join-{token}", j] = (_bytes_after, 0.1, 8, *((f"piece-{token}", i, j) for i in range(blocks)))
    graph[f"all-{token}"] = (_length, *((f"join-{token}", j) for j in range(blocks)))
    return graph


def tree(leaves: int = 64, nbytes: int = 400_000) -> dict[Any, Any]:
    """Pairs become one, until there is one."""
    token = tokenize("tree", time.time())
    graph: dict[Any, Any] = {(f"leaf-{token}", 0, i): (_bytes_after, 0.1, nbytes) for i in range(leaves)}
    level, names = 0, list(graph)
    while len(names) > 1:
        level += 1
        pairs = zip(names[::2], names[1::2], strict=True)
        merged = {(f"merge-{token}", level, i): (_bytes_after, 0.1, nbytes, *pair) for i, pair in enumerate(pairs)}
        graph |= merged
        names = list(merged)
    graph[f"all-{token}"] = (_length, names[0])
    return graph


def stencil(width: int = 16, steps: int = 12, nbytes: int = 200_000) -> dict[Any, Any]:
    """Each needs itself and its two neighbours of the step before."""
    token = tokenize("stencil", time.time())
    name = f"step-{token}"
    graph: dict[Any, Any] = {(name, 0, i): (_bytes_after, 0.05, nbytes) for i in range(width)}
    for step in range(1, steps):
        for i in range(width):
            around = ((name, step - 1, (i + d) % width) for d in (-1, 0, 1))
            graph[name, step, i] = (_bytes_after, 0.05, nbytes, *around)
    graph[f"all-{token}"] = (_length, *((name, steps - 1, i) for i in range(width)))
    return graph


WORKLOADS: dict[str, Callable[[], dict[Any, Any]]] = {"shuffle": shuffle, "tree": tree, "stencil": stencil}


def hostfile(folder: Path, placement: str) -> Path:
    path = folder / f"{placement.replace(' ', '-')}.txt"
    path.write_text("".join(f"{host}:1\n" for host in PLACEMENTS[placement]))
    return path


def measure(folder: Path, repeats: int) -> None:
    """Run all workloads on all placements; a trace for each in the folder, those that are there are not made again."""
    described = read_cluster_file(LAB)
    with network(described) as addresses:
        for repeat in range(repeats):
            for placement in PLACEMENTS:
                missing = [name for name in WORKLOADS if not _file(folder, name, placement, repeat).exists()]
                if not missing:
                    continue
                workers = ClusterSpec.from_file(LAB, hostfile(folder, placement)).workers
                with cluster(described, addresses, workers) as client:
                    client.register_plugin(EfficiencyPlugin())
                    # Workers import what the tasks need, and get to know each other.
                    client.run(_bytes_after, 0.0, 1)
                    run(client, shuffle(8, 1000))
                    for name in missing:
                        time.sleep(1.0)
                        gc.collect()
                        gc.freeze()
                        trace = run(client, WORKLOADS[name]())
                        trace.save(_file(folder, name, placement, repeat))
                        print(f"{placement} {name} {critical_path(trace).makespan_seconds:.3f} s", flush=True)


def run(client: Any, graph: dict[Any, Any]) -> RunTrace:
    last = next(reversed(graph))
    with efficiency_report(client, trace=True) as report:
        client.get(graph, last, optimize_graph=False)
    assert report.trace is not None
    return report.trace


def _file(folder: Path, workload: str, placement: str, repeat: int) -> Path:
    return folder / f"{workload}-{placement.replace(' ', '-')}-{repeat}.trace"


def judge(folder: Path, seeds: int) -> None:
    """Predict all placements from the flat runs, and print that with the real times."""
    topology_errors: list[float] = []
    constant_errors: list[float] = []
    ranked = 0
    for name in WORKLOADS:
        real = {placement: _real(folder, name, placement) for placement in PLACEMENTS}
        flat = load_trace(_middle(folder, name))
        hostfiles = {placement: hostfile(folder, placement) for placement in PLACEMENTS}
        placed = place(flat, LAB, list(hostfiles.values()), seeds=seeds, force=True)
        found_by_name = {one.name: one.prediction.makespan_seconds for one in placed.ranked}
        predicted = {placement: found_by_name[file.stem] for placement, file in hostfiles.items()}
        for placement, seconds in real.items():
            given = ClusterSpec.from_file(LAB, hostfile(folder, placement)).with_network(None)
            constant = simulate(flat, given, seeds=seeds, force=True).makespan_seconds
            errors = [one / seconds - 1 for one in (predicted[placement], constant)]
            topology_errors.append(abs(errors[0]))
            constant_errors.append(abs(errors[1]))
            print(
                f"{name:<8} {placement:<11} really {seconds:6.2f} s, predicted {predicted[placement]:6.2f} s "
                f"({errors[0]:+6.1%}), with constant bandwidth {constant:6.2f} s ({errors[1]:+6.1%})"
            )
        ranks = [sorted(PLACEMENTS, key=times.__getitem__) for times in (real, predicted)]
        ranked += ranks[0] == ranks[1]
        print(f"{name:<8} ranks {'as it really does' if ranks[0] == ranks[1] else f'{ranks[1]}, really {ranks[0]}'}")
    for kind, found in (("topology", topology_errors), ("constant bandwidth", constant_errors)):
        print(f"{kind}: median {statistics.median(found):.1%}, at most {max(found):.1%}")
    median, constant = (100 * statistics.median(found) for found in (topology_errors, constant_errors))
    figure("median error", median, "%", at_most=100 * min(MEDIAN_ERROR, PART_OF_CONSTANT * constant / 100))
    figure("largest error", 100 * max(topology_errors), "%", at_most=100 * MAX_ERROR)
    figure("median error with constant bandwidth", constant, "%")
    figure("workloads ranked as they really rank", ranked, of=len(WORKLOADS), at_least=len(WORKLOADS))


def _files(folder: Path, workload: str, placement: str) -> list[Path]:
    return sorted(folder.glob(f"{workload}-{placement.replace(' ', '-')}-*.trace"))


def _seconds(path: Path) -> float:
    return float(critical_path(load_trace(path)).makespan_seconds)


def _real(folder: Path, workload: str, placement: str) -> float:
    return statistics.median(map(_seconds, _files(folder, workload, placement)))


def _middle(folder: Path, workload: str) -> Path:
    """The flat run of the median time."""
    files = sorted(_files(folder, workload, next(iter(PLACEMENTS))), key=_seconds)
    return files[len(files) // 2]


def main() -> None:
    """Make the runs that are missing, and judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="keeps the traces; those that are in it are not made again")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--judge-only", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if not options.judge_only:
            if reason := lacking():
                raise SystemExit(f"no namespaces: {reason}")
            # What else the machine does shall not count; tasks sleep, so that this takes little from it.
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
            measure(folder, options.repeats)
        judge(folder, options.seeds)


if __name__ == "__main__":
    main()
