"""Claim: in 90 of 100 looks in the second half of a run, its real rest lies in the interval that is shown.

    python -m benchmarks.time_left tests/data/diagnoses/*.trace tests/data/simulation/*.trace
    python -m benchmarks.time_left --flowbench ../shared/data/flowbench

Recorded runs are replayed as the scheduler sees them: at each of :data:`LOOKS` instants, how many tasks of each prefix
are known and have not ended, how long those that run have run, and how long those that ended took. A trace has several
runs where nothing was outstanding in between. The constants were chosen on the runs in `tests/data`, and on
every eighth run of the half of FlowBench's that :class:`~benchmarks.stragglers.LabelledRun` gives for choosing; the
other half, of workflows in stages of which most prefixes are never seen before they begin, is reported.

Beside it stands the guess that a progress bar makes: what is left takes as long a task as what is done.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures import figure
from dask_efficiency import RunTrace, load_trace
from dask_efficiency.accounts.cluster.time_left import PrefixTasks, TimeLeftEstimate
from dask_efficiency.accounts.tables import MISSING

#: Looks at a run, evenly spaced, of which those in its second half are judged.
LOOKS = 100
#: Share of the shown intervals that must have the real rest.
RIGHT = 0.9
#: Tasks of a run that is judged, at least.
MIN_TASKS = 20

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Run:
    """Tasks of a run: when each was known, began and ended, in seconds, and its prefix; and the number of threads."""

    name: str
    known: Floats
    start: Floats
    stop: Floats
    prefix: NDArray[np.int64]
    nthreads: int


@dataclass(slots=True)
class Judged:
    """Looks in the second half: how many, of which something was shown, of which right; with errors and widths."""

    looks: int = 0
    shown: int = 0
    right: int = 0
    errors: list[float] = field(default_factory=list)
    naive: list[float] = field(default_factory=list)
    widths: list[float] = field(default_factory=list)

    def add(self, other: Judged) -> None:
        self.looks += other.looks
        self.shown += other.shown
        self.right += other.right
        for mine, more in ((self.errors, other.errors), (self.naive, other.naive), (self.widths, other.widths)):
            mine += more

    def __str__(self) -> str:
        if not self.shown:
            return f"nothing shown in {self.looks} looks"
        error, naive, width = (100 * statistics.median(one) for one in (self.errors, self.naive, self.widths))
        return (
            f"shown in {self.shown} of {self.looks} looks, right in {self.right / self.shown:.0%} of these; "
            f"off by {error:.0f} % (median; progress bar {naive:.0f} %), interval {width:.0f} % of the rest wide"
        )


def of_trace(trace: RunTrace) -> Iterator[Run]:
    """Runs of a trace; a task that ran again is one more, known when it was given to a worker."""
    runs, tasks = trace.runs, trace.tasks
    ended = (runs.start != MISSING) & (runs.stop != MISSING)
    task, start, stop = runs.task[ended], runs.start[ended], runs.stop[ended]
    again = np.ones(len(task), dtype=bool)
    again[np.unique(task, return_index=True)[1]] = False
    graph = tasks.graph[task]
    known = np.where(runs.assigned[ended] == MISSING, start, runs.assigned[ended])
    with_graph = ~again & (graph != MISSING)
    known[with_graph] = trace.graphs.taken_in[graph[with_graph]]
    known = np.minimum(known, start)
    threads = sum(worker.nthreads for worker in trace.workers)
    known, start, stop = ((column - trace.start) / 1e9 for column in (known, start, stop))
    yield from _apart(Run(trace.name, known, start, stop, tasks.prefix[task].astype(np.int64), threads))


def _apart(run: Run) -> Iterator[Run]:
    """Runs between instants at which nothing was outstanding."""
    order = np.argsort(run.known, kind="stable")
    until = np.maximum.accumulate(run.stop[order])
    cuts = np.flatnonzero(run.known[order][1:] > until[:-1]) + 1
    for number, part in enumerate(np.split(order, cuts)):
        if len(part) >= MIN_TASKS:
            columns = (run.known[part], run.start[part], run.stop[part], run.prefix[part])
            yield Run(f"{run.name} {number}", *columns, run.nthreads)


def looks(run: Run) -> Iterator[tuple[float, dict[str, PrefixTasks]]]:
    """Tasks by prefix at each instant, as a scheduler knows them."""
    first, last = float(run.known.min()), float(run.stop.max())
    for at in np.linspace(first, last, LOOKS + 1)[:-1].tolist():
        found = {}
        for prefix in np.unique(run.prefix).tolist():
            mine = (run.prefix == prefix) & (run.known <= at)
            ended = mine & (run.stop <= at)
            running = mine & ~ended & (run.start <= at)
            found[str(prefix)] = PrefixTasks(
                int(mine.sum() - ended.sum()),
                tuple((at - run.start[running]).tolist()),
                int(ended.sum()),
                float((run.stop - run.start)[ended].sum()),
            )
        yield at, found


def judged(run: Run) -> Judged:
    """Looks at a run, of which those in its second half count."""
    estimate, found = TimeLeftEstimate(), Judged()
    first, last = float(run.known.min()), float(run.stop.max())
    for at, prefixes in looks(run):
        left = estimate.look(at, prefixes, run.nthreads)
        if at < (first + last) / 2:
            continue
        found.looks += 1
        if left is not None:
            rest = last - at
            done, tasks = (sum(getattr(one, name) for one in prefixes.values()) for name in ("ended", "tasks"))
            found.shown += 1
            found.right += left.least <= rest <= left.most
            found.errors.append(abs(left.seconds - rest) / rest)
            found.naive.append(abs((at - first) * tasks / max(done, 1) - rest) / rest)
            found.widths.append((left.most - left.least) / rest)
    return found


def of_flowbench(folder: Path, *, for_choosing: bool) -> Iterator[tuple[str, Run]]:
    """Runs of FlowBench by workflow: all tasks known from the start, as many threads as tasks ran at once."""
    from benchmarks.stragglers import flowbench

    for run in flowbench(folder):
        frame: Any = run.frame
        if run.for_choosing is for_choosing and len(frame) >= MIN_TASKS:
            start, stop = (frame[name].to_numpy(dtype=float) for name in ("start", "stop"))
            turns = np.repeat([1, -1], len(start))
            turns = turns[np.lexsort((turns, np.concatenate([start, stop])))]  # of one instant, ends come first
            prefix = np.unique(frame["prefix"].to_numpy(dtype=str), return_inverse=True)[1].astype(np.int64)
            known, threads = np.full(len(start), start.min()), int(np.cumsum(turns).max())
            yield run.workflow, Run(f"{run.workflow} {run.number}", known, start, stop, prefix, threads)


def report(named: Iterable[tuple[str, Run]]) -> Judged:
    """Print what was judged by name, and all together."""
    by_name: dict[str, Judged] = {}
    for name, run in named:
        by_name.setdefault(name, Judged()).add(judged(run))
    everything = Judged()
    for name, found in by_name.items():
        print(f"{name}: {found}", flush=True)
        everything.add(found)
    print(f"all: {everything}")
    return everything


def holds(found: Judged, of: str) -> bool:
    """True if what is shown is right often enough; prints both."""
    figure(f"shown, {of}", found.shown, of=found.looks)
    return figure(f"right where shown, {of}", found.right, of=found.shown, at_least=RIGHT * found.shown)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="*", type=Path, metavar="TRACE")
    parser.add_argument("--flowbench", type=Path, metavar="FOLDER")
    parser.add_argument("--for-choosing", action="store_true", help="the half that the constants were chosen on")
    options = parser.parse_args()
    kept = True
    if options.traces:
        found = report((path.stem, run) for path in options.traces for run in of_trace(load_trace(path)))
        kept = holds(found, "recorded runs")
    if options.flowbench:
        found = report(of_flowbench(options.flowbench, for_choosing=options.for_choosing))
        kept &= holds(found, "FlowBench")
    return int(not kept)


if __name__ == "__main__":
    sys.exit(main())
