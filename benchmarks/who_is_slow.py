"""Every figure of who is slow, by tasks, heartbeats, metrics and measurements, without a cluster; and what got worse.

Prints the detectors' figures on recorded or generated data: F1, precision and recall, runs without a fault that
have somebody accused, seconds until the name, CPU seconds. Each has its spread: 95 % by resampling or after Wilson, the
least and the most of several runs, or a quarter of a CPU time. All settings are as shipped, and the seeds and runs are
those that figures are reported of; ``--tuning`` takes those by which settings are chosen.

``python -m benchmarks.who_is_slow [PART ...] [--data FOLDER] [--tuning] [--save FILE] [--against FILE]``
runs ``tasks``
(FlowBench's and ByteDance's runs where FOLDER has them, and the runs in ``tests/data``), ``heartbeats`` (recordings of
injected faults, and workers by a fake clock), ``metrics`` (three generators, healthy fleets of eight, Minder where
torch is installed) and ``measurements`` (simulated preflights). ``--against`` compares with figures saved before, and
exits with 1 if one is worse than their spread, or gone from a part that ran; words, as who was named, are for reading.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from random import Random

# one core, as others share the machine
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from benchmarks import preflight_simulated, read_intervals, stragglers
from benchmarks.heartbeat_recordings import read_recording, replayed
from benchmarks.studies import generator, outliers, strangers
from benchmarks.studies.outliers import FIRST, SECOND, SEEDS, THIRD, wilson
from benchmarks.worker_bed import FAULTS
from dask_efficiency import load_trace
from dask_efficiency.accounts.slow_worker import SlowWorker
from dask_efficiency.fleet.outliers.metric_series import MetricSeries
from dask_efficiency.fleet.outliers.outliers import find_outliers
from dask_efficiency.runs.stragglers.offline import FACTOR, find_stragglers
from tests.preflights.simulated import Workers

TESTS = Path(__file__).parents[1] / "tests" / "data"
#: Windows of each generator, machines of a task at most, and seconds of a past.
WINDOWS, MACHINES, PAST = 120, 100, 3600


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure with its spread; ``better`` is 1 if more is better, -1 if less is, 0 if another one is only another.

    A share is one ``of`` so many. The ``part`` is that of the command.
    """

    name: str
    value: float | str
    low: float = math.nan
    high: float = math.nan
    better: int = 0
    of: int = 0
    part: str = ""

    def __str__(self) -> str:
        if isinstance(self.value, str):
            return f"  {self.name:58} {self.value}"
        spread = f" [{self.low:.4g}, {self.high:.4g}]" if math.isfinite(self.low) else ""
        return f"  {self.name:58} {self.value:.4g}{f' of {self.of}' if self.of else ''}{spread}"

    def is_worse_than(self, before: Figure) -> bool:
        """True if it lies beyond the spread of the figure before, on the worse side."""
        if isinstance(self.value, str) or isinstance(before.value, str):
            return False
        beyond = self.value < before.low if self.better > 0 else self.value > before.high
        return bool(self.better) and beyond


def share(name: str, some: int, of: int, better: int = -1) -> Figure:
    """A share with its interval after Wilson."""
    return Figure(name, some / max(of, 1), *wilson(some, max(of, 1)), better, of)


def rates(name: str, rows: np.ndarray) -> Iterator[Figure]:
    """Precision, recall and F1 of right, wrong and overlooked ones by case."""
    drawn = np.random.default_rng(0).integers(0, len(rows), (1000, len(rows)))
    resampled = [stragglers._rates(rows[draw].sum(axis=0)) for draw in drawn]
    low, high = np.quantile(resampled, (0.025, 0.975), axis=0)
    for i, what in enumerate(("precision", "recall", "F1")):
        yield Figure(f"{name}: {what}", stragglers._rates(rows.sum(axis=0))[i], float(low[i]), float(high[i]), 1)


def named(findings: Iterable[SlowWorker]) -> str:
    """Names with their causes."""
    return ", ".join(f"{one.subject} ({one.cause})" for one in findings) or "nobody"


# ---------------------------------------------------------------- parts


def of_tasks(data: Path, tuning: bool) -> Iterator[Figure]:
    for path in sorted(TESTS.rglob("*.trace")):
        yield Figure(path.stem, named(find_stragglers(load_trace(path))))
    if not (data / "flowbench").is_dir():
        print(f"  FlowBench and ByteDance are left out: there is no {data / 'flowbench'}")
        return
    runs = list(stragglers.flowbench(data / "flowbench"))
    choosing = [run for run in runs if run.for_choosing]
    judged = choosing if tuning else [run for run in runs if not run.for_choosing]
    cells = stragglers.effective_cells(choosing)
    ours = stragglers.Ours([run for run in choosing if not run.fault])
    for kind in stragglers.GOALS:
        faulty = [run for run in judged if run.kind == kind and (run.workflow, run.fault) in cells]
        workflows = {run.workflow for run in faulty}
        healthy = [run for run in judged if not run.fault and run.workflow in workflows]
        for history in (True, False):
            detector = ours.accuse(kind, FACTOR, with_history=history)
            name = f"FlowBench {kind}, {'' if history else 'no '}history"
            yield from rates(name, stragglers.count(faulty, detector).rows)
            if history:
                yield from rates(f"{name}, hosts", stragglers.of_hosts(faulty, detector).rows)
            yield share(f"{name}: runs with an alarm", sum(bool(detector(run)) for run in healthy), len(healthy))
    for name in ("AR", "SE"):
        yield Figure(
            f"ByteDance {name}", named(find_stragglers(stragglers.bytedance(data / f"bytedance/trace-{name}.parquet")))
        )


def of_heartbeats(data: Path, tuning: bool) -> Iterator[Figure]:
    rows, alarms, right = list[tuple[int, int, int]](), list[bool](), 0
    for path in sorted((TESTS / "heartbeats").glob("*.json.gz")):
        recording = read_recording(path)
        outcome = replayed(recording)
        seconds = "" if outcome.seconds is None else f", after {outcome.seconds:.1f} s"
        who = ("the victim" if name == recording.victim else "another" for name in outcome.found)
        causes = (f"{name} ({one.cause})" for name, one in zip(who, outcome.found.values(), strict=True))
        yield Figure(path.name.removesuffix(".json.gz"), (", ".join(causes) or "nobody") + seconds)
        hit = recording.victim in outcome.found
        if recording.fault:
            rows.append((int(hit), len(outcome.found) - hit, int(not hit)))
            right += hit and outcome.found[recording.victim].cause == FAULTS[recording.fault].cause
        else:
            alarms.append(bool(outcome.found))
    yield from rates("recorded faults", np.array(rows, np.int64))
    yield Figure("recorded faults with the right cause by signals alone", right, right, right, 1)
    yield share("recorded healthy runs with an alarm", sum(alarms), len(alarms))
    seeds = range(1000, 1012) if tuning else range(read_intervals.SEED, read_intervals.SEED + 12)
    for slowness, every in ((1.0, 1), (1.0, 3), (1.2, 1), (1.3, 1), (1.5, 1), (1.5, 3), (2.0, 1)):
        name = f"{slowness:g} times as long, heartbeats read every {6 * every} s"
        outcomes = [read_intervals.run(seed, 24, every, slowness, 2.0) for seed in seeds]
        known = [outcome.seconds for outcome in outcomes if outcome.seconds is not None]
        if slowness > 1:
            yield share(f"{name}: named", len(known), len(outcomes), 1)
        if known:
            yield Figure(f"{name}: seconds", statistics.median(known), min(known), max(known), -1)
        yield share(f"{name}: others named", sum(bool(outcome.alarms) for outcome in outcomes), len(outcomes))


def of_metrics(data: Path, tuning: bool) -> Iterator[Figure]:
    which = "tune" if tuning else "report"
    for of, past in ((FIRST, 0), (SECOND, 0), (SECOND, PAST), (THIRD, 0), (THIRD, PAST)):
        began = time.process_time()
        windows = list(outliers.windows(of, SEEDS[of, which][:WINDOWS], most_machines=MACHINES, past_seconds=past))
        generated = time.process_time()
        cases = outliers.judged(iter(windows))
        name = f"{of} generator, {'a' if past else 'no'} past"
        yield from rates(name, outliers.rows(cases))
        healthy = [case for case in cases if not case.faulty]
        yield share(f"{name}: windows with an alarm", sum(bool(case.named) for case in healthy), len(healthy))
        yield cpu(name, time.process_time() - generated)
        del windows
        print(f"    (generated in {generated - began:.0f} s)", flush=True)
    start = [*outliers.windows(THIRD, SEEDS[THIRD, which][-WINDOWS // 2 :], most_machines=MACHINES, onset_before=True)]
    yield from rates("third generator, faults from the start", outliers.rows(outliers.judged(iter(start))))
    for every in () if tuning else (1, 15):
        fleets = list(strangers.eight(every))
        wrong = sum(bool(find_outliers(window, history=history)) for window, history in fleets)
        yield share(f"healthy fleets of eight, a sample in {every} s, with an alarm", wrong, len(fleets))
    yield from _of_minder(generator.TUNE if tuning else generator.REPORT)


def _of_minder(seeds: Sequence[int]) -> Iterator[Figure]:
    """Minder as shipped, trained on few windows of seven metrics."""
    if find_spec("torch") is None:
        print("  Minder is left out: torch is not installed")
        return
    from dask_efficiency.fleet.minder.train import train_minder

    def series(seed: int) -> tuple[MetricSeries, tuple[int, ...]]:
        window = generator.generate(seed, machines=outliers.drawn_machines(FIRST, seed, most=MACHINES))
        return MetricSeries.of(window.metrics(generator.SEVEN), metrics=generator.HOST_NAMES), window.faulty

    minder = train_minder([series(seed)[0] for seed in generator.TRAIN[:12]])
    rows = []
    for seed in seeds[:60]:
        given, faulty = series(seed)
        found = {int(one.worker) for one in minder.find(given)}
        rows.append((len(found & {*faulty}), len(found - {*faulty}), len({*faulty} - found)))
    yield from rates("first generator, Minder", np.array(rows, np.int64))


def of_measurements(data: Path, tuning: bool) -> Iterator[Figure]:
    seeds = range(1000, 1020) if tuning else range(20)
    for component in ("cpu", "send"):
        for slowdown in (1.3, 1.5, 2.0, 5.0):
            hits = others = 0
            for number in (4, 5, 8, 16):
                found = preflight_simulated.detected(component, slowdown, number, seeds, 0.03)
                hits, others = hits + found[0], others + found[1]
            name = f"{component} {slowdown:g} times as slow"
            yield share(f"{name}: named", hits, 80, 1)
            yield share(f"{name}: others named", others, 80)
    for moments in (0.03, 0.1):
        alarms = 0
        for number in range(5 * seeds.start, 5 * seeds.start + 100):
            hosts = {f"w{i}": f"h{i}" for i in range(4 + number % 13)}
            workers = Workers(hosts, {}, Random(number), moments)
            alarms += bool(preflight_simulated.tested(workers, number).findings)
        yield share(f"healthy, moments differ by {moments:.0%}: runs with an alarm", alarms, 100)


def cpu(name: str, seconds: float) -> Figure:
    return Figure(f"{name}: CPU seconds", seconds, 0.75 * seconds, 1.25 * seconds, -1)


PARTS: dict[str, Callable[[Path, bool], Iterator[Figure]]] = {
    "tasks": of_tasks,
    "heartbeats": of_heartbeats,
    "metrics": of_metrics,
    "measurements": of_measurements,
}


def compared(figures: Sequence[Figure], before: Path) -> bool:
    """Print what differs from figures saved before; True if none is worse than their spread, or gone."""
    known = {row["name"]: Figure(**row) for row in json.loads(before.read_text())}
    ran, names = {figure.part for figure in figures}, {figure.name for figure in figures}
    gone = [old for old in known.values() if old.part in ran and old.name not in names]
    for old in gone:
        print(f"GONE    {old}")
    worse = 0
    for figure in figures:
        old = known.get(figure.name)
        if old is None or old.value == figure.value:
            continue
        mark = "WORSE" if figure.is_worse_than(old) else "differs"
        worse += mark == "WORSE"
        print(f"{mark:8}{figure}\n  before{old}")
    print(f"{len(figures)} figures, {worse} worse than the spread of those before, {len(gone)} gone")
    return not worse and not gone


def main() -> int:
    """Print the figures; 1 if one is worse than before."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all if none is given")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("STRAGGLER_DATA", "../shared/data")))
    parser.add_argument("--tuning", action="store_true", help="by the seeds and runs that settings are chosen on")
    parser.add_argument("--save", type=Path, metavar="FILE")
    parser.add_argument("--against", type=Path, metavar="FILE")
    given = parser.parse_args()
    figures = []
    for part in given.parts or PARTS:
        print(f"by {part}", flush=True)
        began = time.process_time()
        for figure in PARTS[part](given.data, given.tuning):
            figures.append(replace(figure, part=part))
            print(figure, flush=True)
        figures.append(replace(cpu(f"all by {part}", time.process_time() - began), part=part))
        print(figures[-1], flush=True)
    if given.save:
        given.save.write_text(json.dumps([asdict(figure) for figure in figures], indent=1))
    return 0 if given.against is None or compared(figures, given.against) else 1


if __name__ == "__main__":
    sys.exit(main())
