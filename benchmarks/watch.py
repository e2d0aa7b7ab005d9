"""Claim: 1500 machines x 15 minutes x 7 metrics are pulled in at most 30 s, in at most 1 GB; each fault is named soon.

``python -m benchmarks.watch`` starts a real Prometheus whose past is written by promtool from generated machines.
``size`` pulls and judges the last 15 minutes, one sample a second, in a process of its own, and prints both times apart
and the most memory that it had. ``faults`` replays two and a half hours of 64 machines for each type of fault of
Minder's table, a round in 8 minutes over 15 minutes and an hour of history, and prints in which round after the onset
that can see four and a half minutes of it the machine was named, and who else was, before and after it. The faults are
the first of the seeds that last five minutes, as most do in the paper, and leave time for two such rounds.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures import figure
from benchmarks.studies.generator import SEVEN
from benchmarks.studies.generator import generate as seven_metrics
from dashboards.monitor.prometheus import running
from dask_efficiency.fleet.assembly import outlier_detector
from dask_efficiency.fleet.outliers.outliers import find_outliers
from dask_efficiency.fleet.prometheus.prometheus_query import PrometheusClient
from dask_efficiency.fleet.prometheus.prometheus_source import PrometheusSource
from dask_efficiency.fleet.rounds.metrics_file import read_metrics_file
from dask_efficiency.fleet.rounds.rounds import Event, FindingChange
from dask_efficiency.fleet.settings import WatchSettings
from dask_efficiency.fleet.watch import FleetWatch, instants
from tests.fleet import generated as generator
from tests.fleet.generated import FAULTS

#: When generated time begins.
START = 1_700_000_000

EVERY, WINDOW, HISTORY = 480.0, 900.0, 3600.0

#: Seconds of a fault that a window must have for naming it, and least seconds of a fault.
SEEN, LASTS = 270.0, 300.0

#: Machines of a replay, and its seconds before those in which the fault begins.
MACHINES, QUIET, LIVE = 64, 5400, 3600


@contextmanager
def prometheus_of(series: Iterator[tuple[str, NDArray[np.float32]]], *, step: int) -> Iterator[tuple[str, Path]]:
    """URL of a Prometheus that has these series since :data:`START`, and a folder; gauges in the order of names."""
    with tempfile.TemporaryDirectory(prefix="dask-efficiency-watch-") as name:
        folder = Path(name)
        past = folder / "past.txt"
        with past.open("w") as file:
            known = ""
            for key, values in series:
                metric = key.partition("{")[0]
                if metric != known:
                    file.write(f"# TYPE {metric} gauge\n")
                    known = metric
                samples = enumerate(values[::step].tolist())
                file.writelines(f"{key} {x:.6g} {START + i * step}\n" for i, x in samples if x == x)
            file.write("# EOF\n")
        (folder / "data").mkdir()
        command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(past), str(folder / "data")]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        past.unlink()
        config = folder / "prometheus.yml"
        config.write_text("scrape_configs: []\n")
        with running(config) as server:
            yield server.url, folder


def written(folder: Path, names: tuple[str, ...], *, step: int, fleet: str = "") -> Path:
    chosen = f'{{fleet="{fleet}"}}' if fleet else ""
    path = folder / f"{fleet.replace(' ', '-') or 'all'}.yaml"
    rows = [f"  {name}: {{query: '{name}{chosen}'}}" for name in names]
    path.write_text("\n".join([f"step: {step}s", "machine: m", "metrics:", *rows, ""]))
    return path


def size(machines: int) -> None:
    values = seven_metrics(3001, machines=machines, faulty=True).metrics(SEVEN)
    keyed = (
        (f'{name}{{m="{i}"}}', row) for name, rows in zip(SEVEN, values, strict=True) for i, row in enumerate(rows)
    )
    with prometheus_of(keyed, step=1) as (url, folder):
        file = written(folder, SEVEN, step=1)
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.watch", "pull", url, str(file)],
            check=True,
            capture_output=True,
            text=True,
        )
        print(f"{machines} machines x 900 s x {len(SEVEN)} metrics:\n{done.stdout.strip()}")


def pull(url: str, file: str) -> None:
    """Print the times of a pull and a judgement, and the most memory of this process."""
    source = PrometheusSource(PrometheusClient(url), read_metrics_file(file))
    began = time.perf_counter()
    series = source.pull(start=START, stop=START + 899)
    pulled = time.perf_counter()
    found = find_outliers(series)
    judged = time.perf_counter()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(
        f"{series.values.shape} values, {np.isfinite(series.values).mean():.1%} of them known; pulled in "
        f"{pulled - began:.1f} s, judged in {judged - pulled:.2f} s ({len(found)} found), at most {memory:.2f} GB"
    )
    figure("pulling", pulled - began, "s", at_most=30)
    figure("memory", memory, "GB", at_most=1)


def windows_by_kind(count: int) -> dict[str, list[generator.FleetWindow]]:
    found: dict[str, list[generator.FleetWindow]] = {kind: [] for kind in FAULTS}
    for seed in generator.REPORT:
        if all(len(known) >= count for known in found.values()):
            return found
        kind = generator.generate(seed, machines=5, seconds=30, faults=True).kind
        if kind is None or len(found[kind]) >= count:
            continue
        window = generator.generate(seed, machines=MACHINES, seconds=LIVE, past_seconds=QUIET, faults=True)
        assert window.onset is not None
        assert window.stop is not None
        if window.stop - window.onset >= LASTS and window.onset + SEEN + 2 * EVERY <= LIVE:
            found[kind].append(window)
    raise ValueError(f"there are no {count} windows of each type")


def faults(count: int, step: int = 10) -> None:
    """Replay hours for each type of fault."""
    windows = {
        f"{kind} {number}": window
        for kind, several in windows_by_kind(count).items()
        for number, window in enumerate(several, 1)
    }
    hours = {
        fleet: np.concatenate([one.past, one.values], axis=2) for fleet, one in windows.items() if one.past is not None
    }
    names = generator.NAMES
    keyed = (
        (f'{name}{{fleet="{fleet}",m="{i}"}}', row)
        for j, name in enumerate(names)
        for fleet, values in hours.items()
        for i, row in enumerate(values[j])
    )
    soon = quiet = 0
    with prometheus_of(keyed, step=step) as (url, folder):
        for fleet, window in windows.items():
            file = read_metrics_file(written(folder, names, step=step, fleet=fleet))
            onset = START + QUIET + (window.onset or 0)
            events = replayed(PrometheusSource(PrometheusClient(url), file))
            begun = [event for event in events if event.change is FindingChange.BEGINS]
            faulty = set(map(str, window.faulty))
            right = [event.at for event in begun if event.finding.subject in faulty and event.at >= onset]
            wrong = [event.at for event in begun if event.finding.subject not in faulty or event.at < onset]
            rounds = [at for at in instants(START + WINDOW, START + QUIET + LIVE, every_seconds=EVERY) if at >= onset]
            first = next(number for number, at in enumerate(rounds) if at >= onset + SEEN)
            number = rounds.index(right[0]) - first + 1 if right else None
            named = "never" if number is None else "sooner" if number < 1 else f"in round {number}"
            soon += number is not None and number <= 2
            quiet += sum(at < onset for at in wrong)
            print(
                f"{fleet:<24} lasts {(window.stop or 0) - (window.onset or 0):5.0f} s  named {named:<11} others: "
                f"{sum(at < onset for at in wrong)} in the quiet hours, {sum(at >= onset for at in wrong)} afterwards",
                flush=True,
            )
    figure("named within two rounds", soon, of=len(windows), at_least=len(windows))
    figure("others named in the quiet hours", quiet)


def replayed(source: PrometheusSource) -> list[Event]:
    """All events of the hours that Prometheus has."""
    events: list[Event] = []
    settings = WatchSettings(window=WINDOW, history=HISTORY)
    watch = FleetWatch(source, outlier_detector(), settings, events.append, print, time.perf_counter)
    for at in instants(START + WINDOW, START + QUIET + LIVE, every_seconds=EVERY):
        watch.round(at)
    return events


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="?", choices=("size", "faults", "pull"), help="both, if not given")
    parser.add_argument("where", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--machines", type=int, default=1500)
    parser.add_argument("--windows", type=int, default=1, help="of each type of fault")
    given = parser.parse_args()
    if given.what == "pull":
        pull(*given.where)
        return
    if given.what in (None, "size"):
        size(given.machines)
    if given.what in (None, "faults"):
        faults(given.windows)


if __name__ == "__main__":
    main()
