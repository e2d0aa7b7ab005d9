"""Runner of programs after public reports; the package's docstring says what is claimed and judged."""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import dask

import benchmarks.public_reports
from benchmarks.figures import figure
from benchmarks.public_reports.judging import FIRST, FIRST_THREE, SAVINGS, Judged, Told, claims, judged, together
from benchmarks.public_reports.programs import (
    FOLDER_VARIABLE,
    SCALE_VARIABLE,
    SETS,
    Program,
    Variant,
    names_of,
    program_of,
)
from benchmarks.workload_runs import Ran, cluster, in_a_process, measured, parser_of, recorded, write
from dask_efficiency.report.findings import leading
from dask_efficiency.report.kinds import OTHERS
from dask_efficiency.show.finding import MAX_SHOWN, Finding

#: Seconds of a program's process, which runs it twice and prepares its data.
TIMEOUT_SECONDS = 600.0

#: Kind of a finding that other programs cause on a crowded machine.
CORE = "thread-noncpu/core"


def ran(program: Program, variant: Variant, shape: Mapping[str, Any], *, trace: bool) -> tuple[Ran, float]:
    """Run a variant on a LocalCluster of its own with these arguments; with its result."""
    results: list[float] = []
    names = {"n_workers": "workers", "threads_per_worker": "threads"}
    with cluster(**{names.get(name, name): value for name, value in shape.items()}) as client:
        client.run(import_module, program.module)
        run = measured(client, lambda: results.append(variant(client)), trace=trace)
    return run, float(results[0])


def alone(program: Program, options: argparse.Namespace) -> Judged | str:
    """Run both variants in this process; keep the runs if that is asked for."""
    dask.config.set(program.config)
    with tempfile.TemporaryDirectory(prefix="public-reports-") as place:
        os.environ[FOLDER_VARIABLE] = place
        program.prepare()
        bad, of_bad = ran(program, program.bad, program.cluster, trace=options.trace)
        good, of_good = ran(program, program.good, program.good_cluster, trace=options.trace)
    if not math.isclose(of_bad, of_good, rel_tol=1e-4, abs_tol=1e-9):
        return f"failed: it is not the same work, as the results are {of_bad!r} and {of_good!r}"
    if options.save:
        bad.save(options.save, program.name, with_trace=options.trace)
        good.save(options.save, f"{program.name}-good", with_trace=options.trace)
    return of_runs(program, bad, good, crowded=options.crowded)


def of_runs(program: Program, bad: Ran, good: Ran, *, crowded: bool) -> Judged:
    """Judge two runs by the rules of today."""
    return judged(
        program.name,
        program.expected,
        bad.report.headline,
        first_screen(bad, crowded=crowded),
        bad.stopwatch_seconds,
        good.stopwatch_seconds,
        shown_good=first_screen(good, crowded=crowded),
        others_share=bad.report.others_share,
    )


def first_screen(run: Ran, *, crowded: bool) -> Sequence[Finding]:
    """Findings on the first screen; on a crowded machine, those there would be if nobody waited for others' cores."""
    if not crowded or (run.report.others_share or 0.0) < OTHERS:
        return leading(run.report)
    return [one for one in run.report.findings if one.kind != CORE][:MAX_SHOWN]


def kept_runs(program: Program, options: argparse.Namespace) -> Judged | str:
    """Judge runs that were saved."""
    bad, good = (recorded(name, options.recorded) for name in (program.name, f"{program.name}-good"))
    if isinstance(bad, str):
        return bad
    return good if isinstance(good, str) else of_runs(program, bad, good, crowded=options.crowded)


def elsewhere(program: Program, options: argparse.Namespace) -> Judged | str:
    """Run a program in processes of its own; why there is nothing to tell, where there is not."""
    words = [f"--{name}" for name in ("trace", "crowded") if getattr(options, name)]
    words += ["--save", str(options.save)] if options.save else []
    runs = []
    for _ in range(options.repeats):
        answer = in_a_process("benchmarks.public_reports", options.which, program.name, *words, timeout=options.timeout)
        if isinstance(answer, str) or "error" in answer:
            return answer if isinstance(answer, str) else str(answer["error"])
        runs.append(replace(Judged(**answer), told=[Told(**one) for one in answer["told"]]))
    return together(runs)


# -- printing --------------------------------------------------------------------------------------


def show(name: str, program: Program | None, one: Judged | str) -> None:
    """Print what a program's report says first, and what is right of it."""
    print(f"\n{name}")
    if program is not None:
        print(f"  cause       {program.expected.cause}\n  place       {program.expected.place}")
        print(f"  cure        {program.expected.cure}")
    if isinstance(one, str):
        print(f"  {one}", flush=True)
        return
    others = f"; other programs had {one.others_share:.0%} of the cores" if (one.others_share or 0.0) >= OTHERS else ""
    print(f"  a stopwatch {one.bad_seconds:.1f} s, {one.good_seconds:.1f} s with the cure{others}\n  | {one.headline}")
    for told in one.told:
        print(f"  | {told.title}{': ' if told.saving else ''}{told.saving}. {told.where}\n  |   {told.advice}")
        print(f"      {_verdict(told)}")
    for sentence in one.misleading:
        print(f"  misleads    {sentence}")
    for kept in one.kept:
        print(f"  saving      {'in' if kept else 'NOT in'} its interval")
    if one.still:
        print("  the cause is still named with the cure")
    sys.stdout.flush()


def _verdict(told: Told) -> str:
    flags = {"cause": told.cause, "place": told.place, "cure": told.cure}
    return ", ".join(f"{name} {'right' if right else '-'}" for name, right in flags.items())


def summary(results: Mapping[str, Judged | str]) -> str:
    """Row for each program: its times, its first finding, and the verdicts."""
    rows = [f"{'program':26} {'bad':>5} {'good':>5}  first three misleads saving  first finding"]
    for name, one in results.items():
        if isinstance(one, str):
            rows.append(f"{name:26} {one}")
            continue
        first = one.told[0] if one.told else None
        words = f"{first.title}. {first.where}" if first else "nothing"
        flags = (_yes(one.first_right), _yes(one.three_right), str(len(one.misleading) or "-"), _kept(one.kept))
        times = f"{one.bad_seconds:5.1f} {one.good_seconds:5.1f}"
        rows.append(f"{name:26} {times}  {flags[0]:5} {flags[1]:5} {flags[2]:8} {flags[3]:7} {words}")
    return "\n".join(rows)


def _yes(flag: bool) -> str:
    return "yes" if flag else "no"


def _kept(flags: Sequence[bool]) -> str:
    return "yes" if flags and all(flags) else "NO" if flags else "-"


def print_figures(found: Sequence[Judged]) -> None:
    """Print what is claimed, as figures."""
    of, kept = len(found), [one for result in found for one in result.kept]
    first, three = sum(one.first_right for one in found), sum(one.three_right for one in found)
    figure("cause and place right in the first finding", first, of=of, at_least=FIRST * of)
    figure("within the first three", three, of=of, at_least=FIRST_THREE * of)
    figure("with a sentence that misleads", sum(bool(one.misleading) for one in found), of=of, at_most=0)
    if kept:
        figure("savings in their interval", sum(kept), of=len(kept), at_least=SAVINGS * len(kept))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for; 1 where a program did not end, or a claim on the frozen ones fails."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    which = arguments.pop(0) if arguments[:1] and arguments[0] in SETS else SETS[0]
    names = names_of(which)
    parser = parser_of(benchmarks.public_reports.__doc__, names, timeout_seconds=TIMEOUT_SECONDS)
    parser.prog = "python -m benchmarks.public_reports [known|frozen]"
    parser.add_argument("--trace", action="store_true", help="record each task, so that savings are replayed")
    parser.add_argument("--crowded", action="store_true", help="leave out waiting for cores that other programs have")
    parser.add_argument("--repeats", type=int, default=1, help="runs of each; the worst is judged")
    parser.add_argument("--save", metavar="DIR", type=Path, help="where to keep the reports, and traces with --trace")
    parser.add_argument("--recorded", metavar="DIR", type=Path, help="judge what --save kept, and run nothing")
    options = parser.parse_args(arguments)
    options.which = which
    if not options.alone:
        os.environ[SCALE_VARIABLE] = str(options.scale)
    programs = {name: program_of(which, name) for name in options.names or names}
    if options.alone:
        (program,) = programs.values()
        answer: Any = alone(program, options) if isinstance(program, Program) else program
        write(options.json, {"error": answer} if isinstance(answer, str) else answer)
        return 0
    results: dict[str, Judged | str] = {}
    for name, program in programs.items():
        if isinstance(program, str):
            results[name] = program
        elif options.recorded:
            results[name] = kept_runs(program, options)
        else:
            results[name] = elsewhere(program, options)
        show(name, program if isinstance(program, Program) else None, results[name])
    found = [one for one in results.values() if isinstance(one, Judged)]
    verdicts = list(claims(found))
    print("", summary(results), "", f"of {len(found)} programs ({which}):", *verdicts, sep="\n")
    if which == "frozen" and found:
        print_figures(found)
    write(options.json, results)
    ended = all(one.startswith("skipped") for one in results.values() if isinstance(one, str))
    claimed = which == "frozen" and any(claim.holds is False for claim in verdicts)
    return 0 if ended and not claimed else 1


if __name__ == "__main__":
    sys.exit(main())
