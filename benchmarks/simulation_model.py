"""Claim: each part of the model is needed: what a simulation without it predicts of a real run is wrong.

``python -m benchmarks.simulation_model`` makes a small real run of each case on a local cluster, and another one on the
cluster that is to be predicted; prints both with the prediction, and with what it would be without the part of the
model that the case is about. ``--folder RUNS`` keeps the traces, and makes only those that are not there yet.

Where it can, a case does not depend on how busy the machine is: its tasks sleep, hold Python's lock (GIL) while they
sleep, or have results that sleep while they are pickled. ``pure-python`` and ``releasing`` compute, and need two cores
of their own.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import statistics
import tempfile
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from distributed import Client, LocalCluster, Nanny, as_completed, get_worker, secede, wait

from benchmarks.figures import figure
from dask_efficiency import EfficiencyPlugin, RunTrace, critical_path, efficiency_report, load_trace
from dask_efficiency.simulation.engine.launch import simulate_jobs
from dask_efficiency.simulation.model.cluster import ClusterSpec
from dask_efficiency.simulation.model.ensemble import SeededJob, SimulationJob, Wanted

MB = 1_000_000


@dataclass(frozen=True)
class Setting:
    workers: int
    threads: int = 1
    memory: int = 2_000 * MB
    resources: tuple[tuple[str, float], ...] = ()

    def cluster(self, trace: RunTrace) -> ClusterSpec:
        """The recorded cluster, changed to this one."""
        spec = ClusterSpec.from_trace(trace).with_workers(self.workers, nthreads=self.threads, memory_limit=self.memory)
        return replace(spec, workers=tuple(replace(w, resources=dict(self.resources)) for w in spec.workers))

    def __str__(self) -> str:
        return f"{self.workers}x{self.threads}-{self.memory // MB}MB"


def nap(seconds: float, *inputs: Any) -> bytes:
    time.sleep(seconds)
    return b"x" * 1_000


def hold(seconds: float, number: int) -> int:
    """Hold the lock without computing, as pure Python does, 4 ms at a time."""
    for _ in range(round(seconds / 0.004)):
        ctypes.PyDLL(None).usleep(4_000)
    return number


def count(number: int) -> int:
    total = 0
    for i in range(2_000_000):
        total += i
    return total


def compress(number: int) -> int:
    content = os.urandom(MB)
    return sum(len(zlib.compress(content, 1)) for _ in range(4))


class Slow:
    """10 MB that take 0.1 s to a disk and half as long back; memory has none of them."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __sizeof__(self) -> int:
        return 10 * MB

    def __getstate__(self) -> dict[str, int]:
        time.sleep(0.1)
        return {"number": self.number}

    def __setstate__(self, state: dict[str, int]) -> None:
        time.sleep(0.05)
        self.__dict__.update(state)


def make(number: int) -> Slow:
    time.sleep(0.05)
    return Slow(number)


def look(large: Slow) -> int:
    time.sleep(0.05)
    return large.number


def fail_often(number: int) -> int:
    """Fails twice of three times on each worker."""
    time.sleep(0.1)
    worker = get_worker()
    tried = worker.__dict__.setdefault("benchmark_tried", {})
    tried[number] = tried.get(number, 0) + 1
    if tried[number] < 3:
        raise ValueError(number)
    return number


def leave_slot(number: int) -> int:
    """Leaves its slot for others, and goes on."""
    time.sleep(0.05)
    secede()
    time.sleep(0.3)
    return number


def naps(client: Client) -> None:
    client.gather(client.map(nap, [0.1] * 40, pure=False))


def holding(client: Client) -> None:
    client.gather(client.map(hold, [0.1] * 24, range(24), pure=False))


def python(client: Client) -> None:
    client.gather(client.map(count, range(24), pure=False))


def releasing(client: Client) -> None:
    client.gather(client.map(compress, range(24), pure=False))


def spilling(client: Client) -> None:
    """More results than fit, each needed again."""
    large = client.map(make, range(40), pure=False)
    wait(large)
    client.gather(client.map(look, large, pure=False))


def failing(client: Client) -> None:
    """Tasks that fail and are tried again."""
    with suppress(ValueError):
        client.gather(client.map(fail_often, range(16), retries=3, pure=False))


def seceding(client: Client) -> None:
    client.gather(client.map(leave_slot, range(24), pure=False))


def bound(client: Client) -> None:
    """Half of the tasks may only run where there is a resource."""
    some = client.map(nap, [0.1] * 12, resources={"licence": 1}, pure=False)
    rest = client.map(nap, [0.1] * 12, pure=False)
    client.gather([*some, *rest])


def restricted(client: Client) -> None:
    """Half of the tasks may only run on one worker."""
    first = min(client.scheduler_info(n_workers=-1)["workers"])
    some = client.map(nap, [0.1] * 20, workers=[first], pure=False)
    rest = client.map(nap, [0.1] * 20, pure=False)
    client.gather([*some, *rest])


def scattered(client: Client) -> None:
    """Tasks that need data that was there before."""
    client.gather(client.map(nap, [0.1] * 40, client.benchmark_data, pure=False))


def losing(client: Client) -> None:
    """A worker is lost with what it had; its nanny starts another one."""
    first = client.map(nap, [0.1] * 40, pure=False)
    second = client.map(nap, [0.1] * 40, first, pure=False)
    wait(first)
    lost = min(client.scheduler_info(n_workers=-1)["workers"])
    os.kill(client.run(os.getpid, workers=[lost])[lost], signal.SIGKILL)
    client.gather(second)


def growing(client: Client) -> None:
    """A second worker comes while tasks run."""
    tasks = client.map(nap, [0.1] * 60, pure=False)
    for number, _ in enumerate(as_completed(tasks)):
        if number == 9:
            client.cluster.scale(2)


def shrinking(client: Client) -> None:
    tasks = client.map(nap, [0.1] * 60, pure=False)
    for number, _ in enumerate(as_completed(tasks)):
        if number == 19:
            client.retire_workers([min(client.scheduler_info(n_workers=-1)["workers"])])


@dataclass(frozen=True)
class Case:
    """A part of the model, and runs that need it."""

    work: Callable[[Client], None]
    before: Setting
    after: Setting
    #: What is known, and what it is without this part.
    job: dict[str, Any] = field(default_factory=dict)
    job_without: dict[str, Any] | None = None


LICENCE = (("licence", 1.0),)

CASES: dict[str, Case] = {
    "naps": Case(naps, Setting(1), Setting(2)),
    "lock, 2 threads": Case(holding, Setting(2), Setting(1, 2), {"gil": {"hold": 1.0}}, {"gil": {"hold": 0.0}}),
    "lock, 2 workers": Case(holding, Setting(1, 2), Setting(2), {"gil": {"hold": 1.0}}, {"gil": {"hold": 0.0}}),
    "pure-python": Case(python, Setting(2), Setting(1, 2), {}, {"gil": {"count": 0.0}}),
    "releasing": Case(releasing, Setting(1, 2), Setting(2), {}, {"gil": {"compress": 1.0}}),
    "spill": Case(spilling, Setting(2, 1, 300 * MB), Setting(1, 1, 300 * MB), {}, {"without": frozenset({"spill"})}),
    "memory": Case(spilling, Setting(1, 1, 300 * MB), Setting(1, 1, 2_000 * MB)),
    "failures": Case(failing, Setting(1), Setting(1, 2)),
    "secede": Case(seceding, Setting(1), Setting(2)),
    "resources": Case(bound, Setting(2, 1, resources=LICENCE), Setting(1, 2, resources=LICENCE)),
    "restrictions": Case(restricted, Setting(2), Setting(3)),
    "data": Case(scattered, Setting(1), Setting(2)),
    "lost": Case(losing, Setting(2), Setting(2)),
    "growing": Case(growing, Setting(1), Setting(1)),
    "shrinking": Case(shrinking, Setting(2), Setting(2)),
}


def record(case: Case, setting: Setting) -> RunTrace:
    options = {"resources": dict(setting.resources)} if setting.resources else {}
    with (
        LocalCluster(
            n_workers=setting.workers,
            threads_per_worker=setting.threads,
            memory_limit=setting.memory,
            dashboard_address=":0",
            worker_class=Nanny,
            **options,
        ) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(setting.workers)
        client.register_plugin(EfficiencyPlugin())
        client.gather(client.map(nap, [0.01] * 4 * setting.workers, pure=False))
        client.benchmark_data = client.scatter([b"x" * 10_000 for _ in range(40)])
        with efficiency_report(client, trace=True) as report:
            case.work(client)
    assert report.trace is not None
    return report.trace


def runs(folder: Path, name: str, case: Case, setting: Setting, repeats: int) -> list[RunTrace]:
    """Real runs of a case, made where they are not there."""
    found = []
    for repeat in range(repeats):
        path = folder / f"{name.replace(', ', '-').replace(' ', '-')}_{setting}_r{repeat}.trace"
        if not path.exists():
            record(case, setting).save(path)
        found.append(load_trace(path))
    return found


def predicted(trace: RunTrace, case: Case, *, seeds: int, **job: Any) -> float:
    """Seconds; where the cluster is the same, as it was recorded."""
    same = case.before == case.after
    cluster = ClusterSpec.from_trace(trace) if same else case.after.cluster(trace)
    seeded = SeededJob(SimulationJob(cluster, validate=True, **job), range(seeds), Wanted.NOTHING)
    (runs,) = simulate_jobs(trace, [seeded])
    return runs.median


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[*CASES])
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="of real runs")
    options = parser.parse_args()
    errors, needed = {}, {}
    print(f"{'case':16} {'recorded':>9} {'real':>7} {'predicted':>9} {'error':>7} {'without':>8}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name in options.only:
            case = CASES[name]
            before = runs(folder, name, case, case.before, options.repeats)
            real = runs(folder, name, case, case.after, options.repeats)
            recorded, there = (
                statistics.median(critical_path(one).makespan_seconds for one in of) for of in (before, real)
            )
            found = statistics.median(predicted(one, case, seeds=options.seeds, **case.job) for one in before)
            errors[name] = 100 * abs(found / there - 1)
            line = f"{name:16} {recorded:9.3f} {there:7.3f} {found:9.3f} {found / there - 1:+7.1%}"
            if case.job_without is not None:
                without = statistics.median(
                    predicted(one, case, seeds=options.seeds, **case.job_without) for one in before
                )
                line += f" {without / there - 1:+8.1%}"
                needed[name] = 100 * abs(without / there - 1) > errors[name]
            print(line, flush=True)
    figure("errors with all parts", sorted(errors.values()), "%")
    figure("cases that are worse without their part", sum(needed.values()), of=len(needed), at_least=len(needed))


if __name__ == "__main__":
    main()
