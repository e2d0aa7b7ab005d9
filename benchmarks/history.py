"""Since which run a job is slower: alarms in histories without a change, planted changes that are found, and the index.

    python -m benchmarks.history                          # 300 simulated histories of each kind, and 10,000 files
    python -m benchmarks.history --real RUNS --nights 10  # runs of three programs, five of which change half way

A simulated history is of 8 to 80 runs with noise of 1 to 10 %: normal, with heavy tails, to one side, with one odd run
in twenty, and where a run is like the one before it. Planted changes begin 4 to 20 runs before the end.

The real programs run in turns, a night each turn, each as a process with a cluster of its own. A slower disk is one
that sleeps longer for each block; a library is a folder on the path, and its version a label.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.figures import figure
from dask_efficiency import EfficiencyReport, history
from dask_efficiency.accounts.facts import Facts
from dask_efficiency.histories.folder import SavedRun
from dask_efficiency.histories.history import RunSeries
from dask_efficiency.report.head import run_head

KINDS = ("normal", "heavy tails", "to one side", "odd runs", "like the one before")
NIGHT = 86_400.0
EMPTY = EfficiencyReport("job", 0.0, 60.0, 60.0, Facts.of_views({}, {}), nthreads={"w": 4})


def noise(rng: np.random.Generator, kind: str, runs: int, deviation: float) -> np.ndarray:
    """Logarithms of what runs take over the usual."""
    if kind == "heavy tails":
        return rng.standard_t(3, runs) * deviation / 1.3
    if kind == "to one side":
        return rng.exponential(deviation, runs)
    found = rng.normal(0, deviation, runs)
    if kind == "odd runs":
        found += (rng.random(runs) < 1 / 20) * rng.uniform(0.3, 1.5, runs)
    if kind == "like the one before":
        for i in range(1, runs):
            found[i] = 0.3 * found[i - 1] + 0.95 * found[i]
    return found


def simulated(walls: np.ndarray, peaks: np.ndarray) -> RunSeries:
    """RunSeries of runs of a minute and of 4 GiB a worker, times these."""
    head = run_head(EMPTY)
    heads = (
        replace(head, started=i * NIGHT, wall_clock_seconds=60.0 * wall, worker_peak_bytes=(4 << 30) * peak)
        for i, (wall, peak) in enumerate(zip(walls.tolist(), peaks.tolist(), strict=True))
    )
    return RunSeries("job", tuple(SavedRun(f"{i}.json", each) for i, each in enumerate(heads)))


def without_a_change(rng: np.random.Generator, kind: str, histories: int) -> tuple[int, int]:
    """Histories of one kind of noise in which a change is told, and those whose latest run is."""
    told = worse = 0
    for _ in range(histories):
        runs, deviation = int(rng.integers(8, 81)), float(rng.uniform(0.01, 0.1))
        one = simulated(*(np.exp(noise(rng, kind, runs, of)) for of in (deviation, deviation / 3)))
        told += bool(one.changes)
        worse += any(one.worse(figure, 0.1) for figure in ("wall_clock_seconds", "worker_peak_bytes"))
    print(
        f"{kind}: a change in {told} of {histories}, --fail-on-worse 10% in {worse} ({worse / histories:.1%})",
        flush=True,
    )
    return told, worse


def with_a_change(rng: np.random.Generator, rise: float, histories: int) -> int:
    """Histories in which a planted rise is told at its run, or at the one beside it."""
    found: Counter[str] = Counter()
    for _ in range(histories):
        since, kind, deviation = int(rng.integers(4, 21)), KINDS[rng.integers(4)], float(rng.uniform(0.01, 0.05))
        runs = since + int(rng.integers(10, 61))
        walls = np.exp(noise(rng, kind, runs, deviation))
        walls[runs - since :] *= 1 + rise
        told = [change.since for change in simulated(walls, np.ones(runs)).changes]
        near = len(told) == 1 and abs(told[0] - since) <= 1
        found["at its run" if told == [since] else "beside it" if near else "elsewhere" if told else "not"] += 1
    print(f"{rise:.0%} slower: " + ", ".join(f"{number} {where}" for where, number in found.most_common()), flush=True)
    return found["at its run"]


def files(number: int) -> tuple[float, float]:
    """Seconds that reading so many reports takes, without an index and with it."""
    with tempfile.TemporaryDirectory() as folder:
        EMPTY.save(Path(folder) / "0.json")
        text = (Path(folder) / "0.json").read_text()
        for i in range(1, number):
            (Path(folder) / f"{i}.json").write_text(text.replace('"started": 0.0', f'"started": {i * NIGHT}'))
        took = []
        for _ in range(2):
            began = time.perf_counter()
            assert len(history(folder).runs) == number
            took.append(time.perf_counter() - began)
    return took[0], took[1]


PROGRAM = """
import os, sys, time
import numpy as np
from dask import delayed
from distributed import Client, LocalCluster
sys.path.insert(0, os.environ["LIBRARY"])

def read(i, blocks):
    for _ in range(blocks):
        time.sleep(float(os.environ["DISK"]))
    return np.random.default_rng(i).random(200_000)

def clean(x):
    import cleaning
    return cleaning.cleaned(x)

def keep(i, mib):
    return np.random.default_rng(i).random(mib << 17)

if __name__ == "__main__":
    how = sys.argv[1]
    limit = int(os.environ["LIMIT"]) << 20
    workers = int(os.environ["WORKERS"])
    with LocalCluster(n_workers=workers, threads_per_worker=1, memory_limit=limit, dashboard_address=":0") as cluster:
        with Client(cluster) as client:
            client.wait_for_workers(workers)
            parts = int(os.environ["PARTS"])
            if how == "read":
                client.gather(client.map(len, client.map(read, range(parts), blocks=240 // parts)))
            elif how == "clean":
                client.gather(client.map(np.sum, client.map(clean, client.map(read, range(parts), blocks=1))))
            else:
                held = client.map(keep, range(12), mib=32)
                client.gather(client.map(np.sum, held))
                client.gather(client.map(np.mean, held))
"""
LIBRARY = "import numpy as np\n\ndef cleaned(x):\n    for _ in range({times}):\n        x = np.sqrt(x)\n    return x\n"
USUAL = {"DISK": "0.02", "LIMIT": "1000", "WORKERS": "2", "PARTS": "24", "library": "1"}
#: By name: the program, what is usual of it, what changes, and a pattern of what is said to have changed with it.
PLANTED: dict[str, tuple[str, dict[str, str], dict[str, str], str]] = {
    "a slower disk": ("read", {}, {"DISK": "0.03"}, r"[Ss]leeping"),
    "one worker fewer": ("read", {"WORKERS": "3"}, {"WORKERS": "2"}, r"2 workers instead of 3"),
    "a partition size": ("read", {"PARTS": "40"}, {"PARTS": "3"}, r"tasks succeeded instead of"),
    "a library's version": ("clean", {}, {"library": "2"}, r"library 1 -> 2"),
    "a memory limit": ("keep", {}, {"LIMIT": "320"}, r"memory limit of a worker"),
    "nothing, reading": ("read", {}, {}, ""),
    "nothing, cleaning": ("clean", {}, {}, ""),
    "nothing, keeping": ("keep", {}, {}, ""),
}


def real(folder: Path, nights: int) -> None:
    """Run every program each night, in the second half with what is planted; goes on where it was stopped."""
    folder.mkdir(parents=True, exist_ok=True)
    for version, times in (("1", 600), ("2", 1200)):
        (folder / f"library-{version}").mkdir(exist_ok=True)
        (folder / f"library-{version}" / "cleaning.py").write_text(LIBRARY.format(times=times))
    for name in PLANTED:
        (folder / f"{name.replace(' ', '_')}.py").write_text(PROGRAM)
    for night in range(nights):
        for name, (how, usual, change, _) in PLANTED.items():
            stem = name.replace(" ", "_")
            if len([*(folder / "runs").glob(f"{stem}-*.json")]) > night:
                continue
            settings = USUAL | usual | (change if night >= nights // 2 else {})
            version = settings.pop("library")
            settings["LIBRARY"] = settings["PYTHONPATH"] = str(folder / f"library-{version}")
            label = ["--label", f"library={version}"] if how == "clean" else []
            script = str(folder / f"{stem}.py")
            starts = "from dask_efficiency.cli import main; main()"
            options = ["run", "--save-to", str(folder / "runs"), *label, script, how]
            command = [sys.executable, "-c", starts, *options]
            subprocess.run(command, env=os.environ | settings, capture_output=True, timeout=120)
        print(f"night {night + 1} of {nights}", flush=True)
    print(history(folder / "runs"))
    planted = [name for name, (_, _, change, _) in PLANTED.items() if change]
    judged = {name: judge(folder, name, nights) for name in PLANTED}
    told = sum(judged[name][0] for name in planted)
    figure("changes told at their run", told, of=len(planted), at_least=len(planted))
    said = sum(judged[name][1] for name in planted)
    figure("changes told with what they were", said, of=len(planted), at_least=len(planted))
    figure("other changes told", sum(others for _, _, others in judged.values()), at_most=0)


def judge(folder: Path, name: str, nights: int) -> tuple[bool, bool, int]:
    """Whether a planted change is told at its run, and with what it was, and how many others are told."""
    found = history(folder / "runs", name=f"{name.replace(' ', '_')}.py")
    *_, change, says = PLANTED[name]
    told = [one.first for one in found.changes if one.lasts]
    right = told.count(found.runs[nights // 2]) if change else 0
    said = re.search(says, " ".join(str(found).split())) is not None
    print(f"{name}: {len(told)} told, {right} of them at its run{', with what it was' * (said and bool(right))}")
    return bool(right), said and bool(right), len(told) - right


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--histories", type=int, default=300)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=61)
    parser.add_argument("--real", type=Path, metavar="FOLDER", help="run the programs, and keep their reports here")
    parser.add_argument("--nights", type=int, default=10)
    arguments = parser.parse_args()
    if arguments.real is not None:
        real(arguments.real, arguments.nights)
        return
    rng = np.random.default_rng(arguments.seed)
    found = {kind: without_a_change(rng, kind, arguments.histories) for kind in KINDS}
    told, worse = (sum(column) for column in zip(*found.values(), strict=True))
    whole = len(KINDS) * arguments.histories
    at_its_run = {rise: with_a_change(rng, rise, arguments.histories) for rise in (0.1, 0.2, 0.31)}
    read, indexed = files(arguments.files)
    figure("told without a change", told, of=whole, at_most=0)
    figure("failed without a change", worse, of=whole, at_most=0.05 * whole)
    figure("failed of the kind that fails most", max(each[1] for each in found.values()), of=arguments.histories)
    for rise, number in at_its_run.items():
        figure(f"{rise:.0%} slower told at its run", number, of=arguments.histories)
    figure(f"{arguments.files:,} files", read, "s", at_most=10)
    figure("with the index", indexed, "s")


if __name__ == "__main__":
    main()
