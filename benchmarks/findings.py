"""Claim: a run's first finding is the fault that it has, and its cure saves what was promised.

``python -m benchmarks.findings [NAME ...] [--scale 0.2] [--repeats 3] [--json FILE] [--save DIR]`` runs each
workload of :mod:`benchmarks.diagnoses` in a process of its own: as it is, and with the cure of its first finding really
applied, at the same work. By a stopwatch, it exits with 1 unless

- the first finding is the workload's fault in every one;
- what was saved lies in the finding's interval in nine of ten that have one, whose median width is at most 25 % of the
  run; and what was replayed is off by at most 10 % of the run (median).

How often no more was saved than a bound ("saves up to") says is printed, and no claim: a cure that leaves less useful
work, such as fewer tasks, may save more.

It also runs three programs that nobody here wrote, for a person to judge: they have no known fault, and count where
their first finding has a cure here. ``--save DIR`` keeps each report as ``NAME.json``, its trace as ``NAME.trace`` and
what else is known as ``NAME.known.json``; ``--recorded DIR`` runs nothing, and judges the first findings of what was
kept. It needs Linux, and two cores that do nothing else.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import diagnoses
from benchmarks.diagnoses import Diagnosis
from benchmarks.figures import figure
from benchmarks.real_programs import PROGRAMS
from benchmarks.workload_runs import Ran, cluster, in_a_process, lacking, measured, parser_of, recorded, write
from dask_efficiency.show.finding import WORTH_FINDING, Basis

#: Of a workload's process, which runs it twice.
TIMEOUT_SECONDS = 900.0

#: The kind of a first finding where there is none.
NOTHING = "nothing"

#: Shares of what has an interval, and of the run.
INSIDE, MAX_WIDTH, MAX_ERROR = 0.9, 0.25, 0.1

#: Difference of two runs of one workload, as a share of the run.
NOISE = 0.05


@dataclass(frozen=True, slots=True)
class Cure:
    """A change that mends a workload's fault, at the same work."""

    #: Of the findings that name the fault.
    kinds: tuple[str, ...]
    words: str
    #: Options of the workload with the cure; None where there is no cure, and the words say why.
    options: Mapping[str, Any] | None = field(default_factory=lambda: {"mended": True})


SMALL_TASKS = ("small-tasks",)
OVERHEAD = ("overhead", "overhead/event-loop", "overhead/hand-over", "idle/scheduler")
TOO_FEW_TASKS = ("idle/parallelism", "long-task")
CORE = "thread-noncpu/core"
#: The second of these in reports of earlier versions.
DASKS_LOCK = ("thread-noncpu/cluster", "thread-noncpu/lock")

#: By workload, written by hand: what mends it, whatever is promised of that.
CURES: Mapping[str, tuple[Cure, ...]] = {
    "object_strings": (
        Cure(("thread-noncpu/gil",), "four processes with one thread each"),
        Cure(("computing",), "text as string[pyarrow]", {"dtype": "string[pyarrow]"}),
    ),
    "threads_beyond_cores": (
        Cure((NOTHING, CORE, "busy"), "as many threads as cores, which saves nothing: the cores were busy"),
    ),
    "parquet": (Cure(("thread-noncpu/lock",), "tasks decode in their own threads, not in those of Arrow"),),
    "own_threads": (Cure((NOTHING, "idle/parallelism", CORE), "none, as there is no fault", None),),
    "slow_server": (Cure(("thread-noncpu/network",), "twice the threads"),),
    "distributed_lock": (Cure(DASKS_LOCK, "no task needs the lock"),),
    "lock_and_sleep": (
        Cure(DASKS_LOCK, "no task needs the lock"),
        Cure(("thread-noncpu/sleep",), "twice the threads", {"threads": 4}),
    ),
    "spilling": (Cure(("spill",), "memory enough for all of the data"),),
    "skew": (Cure(TOO_FEW_TASKS, "the large partition in 20"),),
    "skewed_shuffle": (Cure(TOO_FEW_TASKS, "the key salted"),),
    "flood": (Cure(SMALL_TASKS, "a hundred tasks fused into one"),),
    "client_at_80_percent": (Cure(("client",), "the next graph is built while the last one is computed"),),
    "client_at_48_percent": (Cure(("client",), "the next graph is built while the last one is computed"),),
    "chain": (Cure(TOO_FEW_TASKS, "two chains of half the length"),),
    "cpu_hog": (Cure(("slow-worker", CORE), "no other processes"),),
    "stopped_worker": (Cure(("slow-worker", "thread-noncpu/stopped"), "nothing stops it"),),
    "busy_host": (Cure((CORE,), "no other processes"),),
    "half_waiting": (Cure(("thread-noncpu/sleep",), "twice the threads"),),
    "no_workers_at_first": (Cure(("no-workers",), "workers that are there before the work"),),
    "repeated_computes": (Cure(("repeats",), "persist() before the first computation"),),
    "thinking_client": (Cure(("client",), "none, as nobody knows what the script waits for", None),),
    "timeseries_shuffle": (
        Cure(("idle/scheduler",), "modules imported before the work", {"imports": ("dask.dataframe",)}),
        Cure(TOO_FEW_TASKS, "the key salted", {"salts": 40}),
        Cure(("thread-noncpu/gil",), "four processes with one thread each", {"workers": 4, "threads": 1}),
    ),
    "climatology": (
        Cure((*SMALL_TASKS, *OVERHEAD, "client"), "chunks of places, and a task for all days of each", {"fused": True}),
    ),
    "joblib_search": (
        Cure((*SMALL_TASKS, *OVERHEAD), "a task for each fit, not for each tree", {"whole_fits": True}),
        Cure(("thread-noncpu/gil",), "four processes with one thread each", {"workers": 4, "threads": 1}),
    ),
}


def run_program(
    name: str, scale: float, *, workers: int = 0, threads: int = 0, imports: Sequence[str] = (), **options: Any
) -> Ran:
    """Run one of the programs, on a cluster of its shape or another."""
    program = PROGRAMS[name]
    with (
        tempfile.TemporaryDirectory() as place,
        cluster(workers=workers or program.workers, threads=threads or program.threads) as client,
    ):
        for module in imports:
            client.run(import_module, module)
        return measured(client, program.prepare(client, Path(place), scale, **options))


FOREIGN = tuple(
    Diagnosis(name, partial(run_program, name), f"not known ({PROGRAMS[name].about})", {}, "", PROGRAMS[name].needs)
    for name in ("timeseries_shuffle", "climatology", "joblib_search")
)
NAMED = {one.name: one for one in (*diagnoses.DIAGNOSES, *FOREIGN)}


@dataclass(frozen=True, slots=True)
class Judged:
    """A workload's first finding, and what its cure saved by a stopwatch."""

    name: str
    screen: str
    #: Of the first finding of each run.
    kinds: list[str]
    saves_seconds: float | None
    saves_interval: list[float] | None
    basis: str
    cure: str
    took_seconds: float
    #: None where there is no cure.
    cured_seconds: float | None = None

    @property
    def right(self) -> bool:
        """True if the first finding was the fault in all runs."""
        return {*self.kinds} <= {kind for cure in CURES[self.name] for kind in cure.kinds}

    @property
    def saved_seconds(self) -> float | None:
        """Seconds that the cure really saved; None without a cure."""
        return None if self.cured_seconds is None else self.took_seconds - self.cured_seconds

    @property
    def kept(self) -> bool | None:
        """True if the saving is in the interval, or not above the bound; None where there is neither."""
        low, high = self.saves_interval or (-math.inf, math.nan)
        if self.basis == Basis.BOUNDED and self.saves_seconds is not None:
            high = self.saves_seconds + NOISE * self.took_seconds
        return None if self.saved_seconds is None or math.isnan(high) else low <= self.saved_seconds <= high

    @property
    def error(self) -> float | None:
        """Error of a replay as a share of the run; None where nothing was replayed or cured."""
        if self.basis != Basis.REPLAYED or self.saved_seconds is None or self.saves_seconds is None:
            return None
        return abs(self.saved_seconds - self.saves_seconds) / self.took_seconds

    @property
    def width(self) -> float | None:
        """Width of the interval as a share of the run."""
        if self.saves_interval is None:
            return None
        low, high = self.saves_interval
        return (high - low) / self.took_seconds


def cure_of(name: str, kind: str) -> Cure | None:
    """The cure of a workload whose first finding is of that kind."""
    return next((cure for cure in CURES[name] if kind in cure.kinds), None)


def judged(name: str, ran: Ran) -> Judged:
    """The first finding of a run; where there is none, nothing saves as much as a finding has to."""
    report, first = ran.report, next(iter(ran.report.findings), None)
    kind = NOTHING if first is None else first.kind
    cure = cure_of(name, kind)
    return Judged(
        name,
        screen=str(report),
        kinds=[kind],
        saves_seconds=WORTH_FINDING * report.wall_clock_seconds if first is None else first.saves_seconds,
        saves_interval=list(first.saves_interval) if first is not None and first.saves_interval else None,
        basis=str(Basis.BOUNDED if first is None else first.basis),
        cure="none for this finding" if cure is None else cure.words,
        took_seconds=ran.stopwatch_seconds,
    )


def alone(name: str, scale: float, folder: Path | None = None) -> Judged:
    """Run one workload in this process, and once more with the cure of its first finding; keep the first run."""
    ran = NAMED[name].run(scale)
    if folder is not None:
        ran.save(folder, name, with_trace=NAMED[name].traced)
    found = judged(name, ran)
    cure = cure_of(name, found.kinds[0])
    if cure is None or cure.options is None:
        return found
    return replace(found, cured_seconds=NAMED[name].run(scale, **cure.options).stopwatch_seconds)


def together(runs: Sequence[Judged]) -> Judged:
    """The run of median time, with the median time of the runs that had the same cure."""
    middle = sorted(runs, key=lambda one: one.took_seconds)[(len(runs) - 1) // 2]
    cured = [one.cured_seconds for one in runs if one.cure == middle.cure and one.cured_seconds is not None]
    return replace(
        middle, kinds=[kind for one in runs for kind in one.kinds], cured_seconds=median(cured) if cured else None
    )


def elsewhere(name: str, options: argparse.Namespace) -> Judged | str:
    """Run one workload in processes of its own; why there is nothing to tell, where there is not."""
    if lacks := lacking(NAMED[name].needs):
        return lacks
    runs = []
    for _ in range(options.repeats):
        words = ["--scale", str(options.scale), *(["--save", str(options.save)] if options.save else [])]
        answer = in_a_process("benchmarks.findings", name, *words, timeout=options.timeout)
        if isinstance(answer, str):
            return answer
        runs.append(Judged(**answer))
    return together(runs)


def recorded_as(name: str, folder: Path) -> Judged | str:
    """The first finding of a workload that was saved."""
    ran = recorded(name, folder)
    return ran if isinstance(ran, str) else judged(name, ran)


# -- printing --------------------------------------------------------------------------------------


def show(name: str, one: Judged | str) -> None:
    print(f"\n{name}\n  the fault   {NAMED[name].truth}")
    if isinstance(one, str):
        print(f"  {one}", flush=True)
        return
    print("\n".join(f"  | {line}" for line in one.screen.splitlines()))
    cured = "" if one.cured_seconds is None else f", {one.cured_seconds:.1f} s with it"
    print(f"  the cure    {one.cure}\n  a stopwatch {one.took_seconds:.1f} s{cured}", flush=True)


def summary(results: Mapping[str, Judged | str]) -> str:
    """A row for each workload: the promised saving, and the real one."""
    rows = [f"{'workload':20} {'first finding':22} {'took':>6} {'promised':>21} {'saved':>6}  kept"]
    for name, one in results.items():
        if isinstance(one, str):
            rows.append(f"{name:20} {one}")
            continue
        wrong = "" if one.right or name in PROGRAMS else " (another)"
        saved = "-" if one.saved_seconds is None else f"{one.saved_seconds:.2f}"
        kept = {None: "-", True: "yes", False: "NO"}[one.kept]
        kinds = ", ".join(dict.fromkeys(one.kinds)) + wrong
        rows.append(f"{name:20} {kinds:22} {one.took_seconds:6.2f} {_promised(one):>21} {saved:>6}  {kept}")
    return "\n".join(rows)


def _promised(one: Judged) -> str:
    if one.saves_seconds is None:
        return "-"
    if one.saves_interval is None:
        return f"{'up to ' if one.basis == Basis.BOUNDED else ''}{one.saves_seconds:.2f}"
    low, high = one.saves_interval
    return f"{one.saves_seconds:.2f} ({low:.2f} to {high:.2f})"


@dataclass(frozen=True, slots=True)
class Claim:
    words: str
    #: None where there is nothing to judge it by.
    holds: bool | None
    #: What :func:`benchmarks.figures.figure` prints of it.
    measured: dict[str, Any] = field(default_factory=dict)

    def print(self) -> None:
        if self.measured:
            figure(**self.measured)

    def __str__(self) -> str:
        return f"{ {True: 'holds', False: 'FAILS', None: 'open'}[self.holds]:6} {self.words}"


def claims(results: Sequence[Judged]) -> list[Claim]:
    kept = [(one.basis, one.kept) for one in results if one.kept is not None]
    return [
        _count("the first finding is the fault", [one.right for one in results if one.name not in PROGRAMS]),
        _count("what was saved lies in the interval", [it for basis, it in kept if basis == Basis.REPLAYED], INSIDE),
        _middle("the interval is as wide as", [one.width for one in results if one.width is not None], MAX_WIDTH),
        _middle("what was replayed is off by", [one.error for one in results if one.error is not None], MAX_ERROR),
        _count('no more was saved than "up to" says', [it for basis, it in kept if basis == Basis.BOUNDED], None),
    ]


def _count(words: str, flags: Sequence[bool], least: float | None = 1.0) -> Claim:
    """A count as a claim; open where no least share is given."""
    text = f"{words} in {sum(flags)} of {len(flags)}"
    if least is None:
        return Claim(text, None)
    if not flags:
        return Claim(f"{text} (at least {least:.0%})", None)
    measured = {"name": words, "measured": sum(flags), "of": len(flags), "at_least": least * len(flags)}
    return Claim(f"{text} (at least {least:.0%})", sum(flags) >= least * len(flags), measured)


def _middle(words: str, shares: Sequence[float], most: float) -> Claim:
    if not shares:
        return Claim(f"{words} at most {most:.0%} of the run", None)
    text = f"{words} {median(shares):.1%} of the run (median of {len(shares)}, at most {most:.0%})"
    measured = {"name": words, "measured": [100 * one for one in shares], "unit": "% of the run", "at_most": 100 * most}
    return Claim(text, median(shares) <= most, measured)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for; 1 where a claim fails or a workload did not end."""
    parser = parser_of(__doc__, NAMED, timeout_seconds=TIMEOUT_SECONDS)
    parser.add_argument("--repeats", type=int, default=1, help="pairs of runs of each; medians are judged")
    parser.add_argument("--save", metavar="DIR", type=Path, help="where to keep the reports and their traces")
    parser.add_argument("--recorded", metavar="DIR", type=Path, help="judge what --save kept, and run nothing")
    options = parser.parse_args(arguments)
    if options.alone:
        write(options.json, alone(options.names[0], options.scale, options.save))
        return 0
    results: dict[str, Judged | str] = {}
    for name in options.names or NAMED:
        results[name] = recorded_as(name, options.recorded) if options.recorded else elsewhere(name, options)
        show(name, results[name])
    verdicts = claims([one for one in results.values() if isinstance(one, Judged)])
    print("", summary(results), *verdicts, sep="\n")
    for claim in verdicts:
        claim.print()
    write(options.json, results)
    ended = all(one.startswith("skipped") for one in results.values() if isinstance(one, str))
    return 0 if ended and all(claim.holds is not False for claim in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
