"""Other people's labelled runs as tables for find_stragglers: FlowBench's workflows and ByteDance's training jobs."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

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
        """``cpu``, ``disk``, or empty."""
        return KINDS.get(self.fault.partition("_")[0], "")

    @property
    def for_choosing(self) -> bool:
        """Whether thresholds may be chosen by this run; by the others they are judged.

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
