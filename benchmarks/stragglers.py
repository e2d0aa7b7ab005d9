"""Claim: stragglers are found in others' runs with injected faults (FlowBench, ByteDance), and nobody else is accused.

Thresholds are chosen on one part of FlowBench's runs and reported on the other (:class:`LabelledRun`). A fault counts
where it has an effect. A worker counts as accused of a CPU fault if its finding names a cause that has to do with
computing, of a disk fault if it names the disk. The fault-free runs of the first part are the detector's history. The
second part was looked at before earlier settings were made.

A capped disk makes all workers of its host wait. Where the kernel counted that as waiting for the disk, the capped
worker shows; where it did not (casa-nowcast, montage, most of pycbc and somospie), the host shows and its workers are
alike, so that accusing the right ones is chance. The rows of the hosts tell how often the host is right.

    python -m benchmarks.stragglers --data ../shared/data
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.figures import figure
from dask_efficiency.accounts.slow_worker import Cause
from dask_efficiency.runs.stragglers.offline import FACTOR, find_stragglers, judge_run, usual
from dask_efficiency.runs.stragglers.tables import ObservedRun, run_of_table
from dask_efficiency.straggler.score import Usual

#: A fault has an effect on a workflow when it makes the work of its workers longer by this factor.
EFFECT = 1.10

KINDS = {"cpu": "cpu", "hdd": "disk"}


@dataclass(frozen=True, slots=True)
class LabelledRun:
    """One run of a workflow, and which of its workers were tampered with."""

    workflow: str
    number: int
    #: What was injected, such as ``cpu_3`` or ``hdd_5``; empty in a fault-free run.
    fault: str
    faulty: frozenset[str]
    frame: pd.DataFrame

    @property
    def kind(self) -> str:
        return KINDS.get(self.fault.partition("_")[0], "")

    @property
    def for_choosing(self) -> bool:
        """True if thresholds may be chosen by this run; they are judged by the others.

        The split is by run within each workflow, by a checksum that knows nothing of labels. It was committed
        before anything was tuned.
        """
        return zlib.crc32(f"{self.workflow}/{self.number}".encode()) % 2 == 0


def flowbench(folder: Path) -> Iterator[LabelledRun]:
    """All runs of FlowBench that have at least two workers."""
    table = pd.read_parquet(folder / "compute_tasks.parquet")
    for name in ("wf", "lab", "worker", "prefix"):
        table[name] = table[name].astype(str)
    table = table[table.execute_start.notna()]
    for (workflow, number), rows in table.groupby(["wf", "run"], sort=True):
        faults = sorted(set(rows.lab) - {"none"})
        if rows.worker.nunique() > 1:
            faulty = frozenset(rows.worker[rows.lab != "none"])
            yield LabelledRun(workflow, int(number), faults[0] if faults else "", faulty, _columns(rows))


def _columns(rows: pd.DataFrame) -> pd.DataFrame:
    """Staging is outside of start and stop; whole seconds."""
    stage_in, stage_out = rows.stage_in_delay.fillna(0.0), rows.stage_out_delay.fillna(0.0)
    start, stop = rows.execute_start + stage_in, rows.execute_end - stage_out
    return pd.DataFrame(
        {
            "worker": rows.worker,
            "host": rows.worker.str.partition("-container")[0],
            "prefix": rows.prefix,
            "key": rows.job,
            "start": start,
            "stop": np.maximum(stop, start),
            "cpu_seconds": rows.cpu_time,
            "disk_seconds": stage_in + stage_out,
            "io_wait_seconds": rows.iowait.fillna(0.0),
            "input_bytes": rows.stage_in_bytes,
        }
    ).reset_index(drop=True)


def effective_cells(runs: list[LabelledRun]) -> dict[tuple[str, str], float]:
    """Workflows and faults in which the fault matters, with the factor by which it does.

    A fault of the CPU is judged by the time between start and stop, one of the disk with staging added: the ratio of
    faulty workers to healthy ones of the same run and prefix (geometric means), and of these the median over the
    runs. Labels decide, no detector has a say.
    """
    ratios: dict[tuple[str, str], list[float]] = {}
    for run in runs:
        if not run.faulty:
            continue
        took = run.frame.stop - run.frame.start + (run.frame.disk_seconds if run.kind == "disk" else 0.0)
        is_faulty = run.frame.worker.isin(run.faulty)
        means = np.log(took.clip(lower=1.0)).groupby([run.frame.prefix, is_faulty]).mean().unstack()
        if means.shape[1] == 2:
            ratio = float(np.exp((means[True] - means[False]).mean()))
            ratios.setdefault((run.workflow, run.fault), []).append(ratio)
    medians = {cell: float(np.nanmedian(values)) for cell, values in ratios.items()}
    return {cell: ratio for cell, ratio in medians.items() if ratio >= EFFECT}


def bytedance(file: Path) -> pd.DataFrame:
    """The compute of a training job, with its stage as the group: ranks of one stage do the same work."""
    table = pd.read_parquet(file)
    table = table[table.optype.astype(str).str.endswith("compute")]
    return pd.DataFrame(
        {
            "worker": "rank " + table["rank"].astype(str),
            "group": "stage " + table.stage.astype(str),
            "prefix": table.optype.astype(str),
            "start": table.start_ts.astype(float),
            "stop": (table.start_ts + table.duration).astype(float),
        }
    ).reset_index(drop=True)


FACTORS = tuple(round(float(factor), 2) for factor in np.arange(0.1, 2.01, 0.1))
LIMITS = tuple(round(float(limit), 3) for limit in np.arange(1.02, 4.0, 0.02))
RESAMPLES = 2000
SEED = 20250714

GOALS = {"cpu": (0.74, 0.80), "disk": (0.68, 0.75)}

#: Accused workers of a run.
Detector = Callable[[LabelledRun], frozenset[str]]


@dataclass(frozen=True, slots=True)
class Counts:
    """By run: workers rightly accused, wrongly accused, and overlooked; shape (runs, 3)."""

    rows: np.ndarray

    def rates(self) -> tuple[float, float, float]:
        """Precision, recall and F1 over all runs together."""
        return _rates(self.rows.sum(axis=0))

    def interval(self) -> tuple[float, float]:
        """95 % of F1 when the runs are drawn again with replacement."""
        draws = np.random.default_rng(SEED).integers(0, len(self.rows), (RESAMPLES, len(self.rows)))
        found = [_rates(self.rows[draw].sum(axis=0))[2] for draw in draws]
        low, high = np.percentile(found, [2.5, 97.5])
        return float(low), float(high)


def _rates(total: np.ndarray) -> tuple[float, float, float]:
    right, wrong, overlooked = map(float, total)
    precision, recall = right / max(right + wrong, 1.0), right / max(right + overlooked, 1.0)
    return precision, recall, 2 * precision * recall / max(precision + recall, 1e-12)


def count(runs: Iterable[LabelledRun], detector: Detector) -> Counts:
    rows = []
    for run in runs:
        accused = detector(run)
        rows.append((len(accused & run.faulty), len(accused - run.faulty), len(run.faulty - accused)))
    return Counts(np.array(rows).reshape(-1, 3))


class Ours:
    """`find_stragglers` with what was usual in each workflow's fault-free runs."""

    def __init__(self, history: list[LabelledRun]) -> None:
        by_workflow: dict[str, list[LabelledRun]] = defaultdict(list)
        for run in history:
            by_workflow[run.workflow].append(run)
        self._usual: dict[str, dict[str, Usual]] = {
            workflow: usual([run.frame for run in runs]) for workflow, runs in by_workflow.items()
        }
        self._read: dict[tuple[str, int], ObservedRun] = {}

    def accuse(self, kind: str, factor: float, *, with_history: bool = True) -> Detector:
        """Workers whose finding names a cause of this kind."""

        def detector(run: LabelledRun) -> frozenset[str]:
            key = (run.workflow, run.number)
            read = self._read.get(key) or self._read.setdefault(key, run_of_table(run.frame))
            known = self._usual.get(run.workflow, {}) if with_history else {}
            findings = judge_run(read, known, factor).slow_workers
            accused = {one.worker for one in findings if kind_of(one.cause) == kind and one.worker}
            hosts = {one.host for one in findings if kind_of(one.cause) == kind and not one.worker}
            accused |= {name for name, host in zip(read.workers, read.hosts, strict=True) if host in hosts}
            return frozenset(accused)

        return detector


def kind_of(cause: Cause) -> str:
    """Which kind of injected fault a cause would be."""
    return "disk" if cause is Cause.DISK else "cpu" if cause not in (Cause.NETWORK, Cause.MEMORY) else ""


def of_hosts(runs: Iterable[LabelledRun], detector: Detector) -> Counts:
    """:func:`count` by host: hosts with an accused worker against those with a tampered one."""
    rows = []
    for run in runs:
        host = dict(zip(run.frame.worker, run.frame.host, strict=True))
        accused, faulty = ({host[worker] for worker in workers} for workers in (detector(run), run.faulty))
        rows.append((len(accused & faulty), len(accused - faulty), len(faulty - accused)))
    return Counts(np.array(rows).reshape(-1, 3))


def choose(runs: list[LabelledRun], settings: Iterable[float], make: Callable[[float], Detector]) -> float:
    return max(settings, key=lambda setting: count(runs, make(setting)).rates()[2])


def nvrx(kind: str, limit: float) -> Detector:
    """Workers beyond a limit by the rule of NVIDIA's resiliency extension.

    Medians over the fastest worker's, weighted by time, over the work that all workers did; the inverse of NVRx's
    score, so that larger is worse. Compared is the time on which the fault has its effect.
    """

    def detector(run: LabelledRun) -> frozenset[str]:
        frame = run.frame
        took = (frame.stop - frame.start + (frame.disk_seconds if kind == "disk" else 0.0)).clip(lower=1.0)
        table = took.groupby([frame.worker, frame.prefix]).median().unstack()
        common = table.dropna(axis=1)
        table = common if common.shape[1] else table
        score, weight = table.min() / table, table.notna() * table.sum()
        found = 1.0 / ((score * weight).sum(axis=1) / weight.sum(axis=1))
        return frozenset(found.index[found > limit])

    return detector


def at_equal_alarms(kind: str, healthy: list[LabelledRun], most: int) -> float:
    """The least limit of NVRx's rule at which it accuses somebody in no more of the healthy runs."""
    return next(
        limit
        for limit in (*LIMITS, *np.arange(4.0, 1000.0))
        if sum(bool(nvrx(kind, limit)(run)) for run in healthy) <= most
    )


def alarms_line(name: str, wrong: list[int]) -> None:
    """Print how many fault-free runs have somebody accused, with 95 % after Wilson."""
    n, some, z = len(wrong), sum(map(bool, wrong)), 1.96
    middle, half = some / n + z * z / 2 / n, z * math.sqrt(some / n * (1 - some / n) / n + z * z / 4 / n / n)
    low, high = (max((middle + sign * half) / (1 + z * z / n), 0.0) for sign in (-1, 1))
    print(f"  fault-free, {name}: somebody accused in {some} of {n} runs [{low:.1%}, {high:.1%}], {sum(wrong)} workers")


def line(name: str, counts: Counts, note: str = "") -> None:
    precision, recall, f1 = counts.rates()
    low, high = counts.interval()
    print(f"  {name:34} {precision:9.3f} {recall:7.3f} {f1:7.3f}  [{low:.3f}, {high:.3f}]  {note}")


def judge_flowbench(folder: Path) -> None:
    runs = list(flowbench(folder))
    choosing = [run for run in runs if run.for_choosing]
    reporting = [run for run in runs if not run.for_choosing]
    cells = effective_cells(choosing)
    ours = Ours([run for run in choosing if not run.fault])
    for kind in GOALS:
        of_kind = [run for run in runs if run.kind == kind and (run.workflow, run.fault) in cells]
        first = [run for run in of_kind if run.for_choosing]
        second = [run for run in of_kind if not run.for_choosing]
        workflows = {run.workflow for run in of_kind}
        healthy = [run for run in reporting if not run.fault and run.workflow in workflows]
        print(f"\nFlowBench, {kind} faults: chosen on {len(first)} runs, reported on {len(second)}; goal {GOALS[kind]}")
        print(f"  {'':34} {'precision':>9} {'recall':>7} {'F1':>7}  95 % of F1")
        factor = choose(first, FACTORS, lambda value, kind=kind: ours.accuse(kind, value))
        best = ours.accuse(kind, factor)
        line("find_stragglers", count(second, best), f"factor {factor}, chosen")
        line("find_stragglers", count(second, ours.accuse(kind, FACTOR)), f"factor {FACTOR}, the default")
        line("find_stragglers, hosts", of_hosts(second, ours.accuse(kind, FACTOR)), f"factor {FACTOR}, the default")
        reached = count(second, ours.accuse(kind, FACTOR)).rates()[2]
        figure(f"F1, {kind} faults", reached, at_least=GOALS[kind][0])
        alone = ours.accuse(kind, FACTOR, with_history=False)
        line("find_stragglers, no history", count(second, alone), f"factor {FACTOR}, the default")
        alarms = [len(alone(run)) for run in healthy]
        limit = at_equal_alarms(kind, healthy, sum(map(bool, alarms)))
        line(
            "NVRx's score", count(second, nvrx(kind, limit)), f"limit {limit:g}: as many fault-free runs with an alarm"
        )
        for name, setting in (("chosen", factor), ("default", FACTOR)):
            alarms_line(f"{name} factor", [len(ours.accuse(kind, setting)(run)) for run in healthy])
        alarmed = sum(bool(ours.accuse(kind, FACTOR)(run)) for run in healthy)
        figure(f"healthy runs with an alarm, {kind}", alarmed, of=len(healthy))
        alarms_line("default factor, no history", alarms)
        print("  by workflow and fault, chosen factor:")
        for cell in sorted({(run.workflow, run.fault) for run in second}):
            part = [run for run in second if (run.workflow, run.fault) == cell]
            precision, recall, f1 = count(part, best).rates()
            print(f"    {' '.join(cell):38} {len(part):3} runs {precision:6.2f} {recall:6.2f} {f1:6.2f}")


def judge_bytedance(folder: Path) -> bool:
    """One slow worker in AR; nobody in SE, where sequences differ."""
    print("\nByteDance, without history, the default factor")
    accused = {}
    for name in ("AR", "SE"):
        findings = find_stragglers(bytedance(folder / f"trace-{name}.parquet"))
        accused[name] = [one.worker for one in findings]
        listed = ", ".join(f"{one.worker} ({one.effect:.2f} times as long)" for one in findings) or "nobody"
        print(f"  {name}: {listed}")
    return accused == {"AR": ["rank 0"], "SE": []}


def main() -> int:
    """Print the tables; 1 where ByteDance's jobs are judged wrongly."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("STRAGGLER_DATA", "../shared/data")))
    data = parser.parse_args().data
    if not (data / "flowbench").is_dir():
        print(
            f"skipped: there is no folder {data / 'flowbench'}; give --data or STRAGGLER_DATA the folder that has it: "
            "flowbench/compute_tasks.parquet with the compute tasks of https://github.com/PoSeiDon-Workflows/FlowBench "
            "in the columns that `flowbench` reads"
        )
        return 0
    judge_flowbench(data / "flowbench")
    return 0 if judge_bytedance(data / "bytedance") else 1


if __name__ == "__main__":
    sys.exit(main())
