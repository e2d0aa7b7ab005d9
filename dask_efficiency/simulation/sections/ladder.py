"""Document of a ladder: the worth of each part of Dask, and of an unbounded cluster, to a run."""

from __future__ import annotations

from typing import Any

from dask_efficiency.runs.path.findings import TITLES
from dask_efficiency.show.columns import TypedColumn, as_records, as_table, names, seconds
from dask_efficiency.show.document import Document, Label, Section, section, with_content
from dask_efficiency.show.figures import format_seconds, time_scale
from dask_efficiency.show.finding import MAX_SHOWN, WORTH_FINDING, Basis, Finding
from dask_efficiency.simulation.model.ladder import (
    ANY_CLUSTER,
    FULL_SLOTS,
    MEASURED,
    NO_WAITING,
    SIMULATED,
    STEPS,
    IdealLadder,
)
from dask_efficiency.simulation.sections.prediction import about_run, how_sure, notes, recorded_in_words, title

#: By step: its meaning, for a reader.
MEANINGS = {
    MEASURED: "the recorded run",
    SIMULATED: "what the simulation is off by; no saving",
    "no spill": "results are never written to disk",
    "no transfers": "also, inputs are where they are needed at once",
    "no scheduling": "also, messages, scheduler and event loops take no time",
    FULL_SLOTS: "also, every slot computes all the time: the work divided by the slots",
    ANY_CLUSTER: "the longest chain of tasks that need one another",
    NO_WAITING: "that chain, with its CPU and GPU time only",
}

#: By step: kind of finding, the overhead that it removes, and advice.
FINDINGS = {
    "no spill": ("ladder/spill", "Spilling to disk", TITLES["path/spill"][1]),
    "no transfers": ("ladder/transfer", "Transfers, once nothing spills", TITLES["path/transfer"][1]),
    "no scheduling": ("ladder/scheduler", "Scheduling, once nothing spills or moves", TITLES["path/scheduler"][1]),
    FULL_SLOTS: ("ladder/empty-slots", "Slots without a task", "Run more tasks at a time, or split the longest ones."),
    ANY_CLUSTER: ("ladder/few-slots", "Too few slots for the tasks", "Use more workers."),
    NO_WAITING: ("ladder/waiting", "Waiting in the tasks of the longest chain", TITLES["path/task-noncpu"][1]),
}


def findings(ladder: IdealLadder) -> tuple[Finding, ...]:
    """Make a finding of each step, the largest saving first; each adds to those above it, so that they add up."""
    simulated = {rung.name for rung in ladder.rungs if rung.simulated_seconds is not None}
    savings = [
        Finding(
            kind=kind,
            title=what,
            saves_seconds=ladder.worth[name],
            basis=Basis.REPLAYED if name in simulated else Basis.BOUNDED,
            advice=advice,
            page="docs/simulation.md",
        )
        for name, (kind, what, advice) in FINDINGS.items()
        if ladder.worth[name] >= WORTH_FINDING * ladder.recorded.makespan_seconds > 0
    ]
    return tuple(sorted(savings, key=lambda finding: -(finding.saves_seconds or 0.0)))


def headline(ladder: IdealLadder) -> str:
    """Word the run's time, the largest part of Dask in it, and its time without all parts; without a full stop."""
    measured = format_seconds(ladder.recorded.makespan_seconds)
    steps = {name.removeprefix("no "): ladder.worth[name] for _, name in STEPS}
    name = max(steps, key=lambda step: steps[step])
    left = format_seconds(next(rung.seconds for rung in ladder.rungs if rung.name == STEPS[-1][1]))
    takes = f"{name} {'take' if name == 'transfers' else 'takes'} {format_seconds(steps[name])}"
    return f"{measured}, of which {takes}; {left} without spill, transfers and scheduling"


def document(ladder: IdealLadder) -> Document:
    """Make the document of a ladder, and its page."""
    sections = with_content(steps(ladder), certainty(ladder), notes(ladder.notes))
    first, recorded = tuple(finding.lines for finding in findings(ladder)[:MAX_SHOWN]), ladder.recorded
    about = title(recorded), recorded_in_words(recorded), headline(ladder)
    return Document(*about, sections, findings=first, data=to_dict(ladder))


page = document


def steps(ladder: IdealLadder) -> Section:
    """Section of the steps, from the recorded run down to the lower bound."""
    figures, measured = columns(ladder), ladder.recorded.makespan_seconds
    saved = figures["saved_seconds"]
    cells = zip(saved.values, saved.cells, strict=True)
    percent = (f"{100 * value / measured:.1f}" if cell and measured else "" for value, cell in cells)
    heads = {"step": "step", "seconds": "time", "saved_seconds": "saves", "percent": "% of the run"}
    table = as_table(figures | {"percent": TypedColumn(percent)}, heads, bar="seconds", hint_head="what it is")
    return section("From the run to the fastest that there could be", table)


def columns(ladder: IdealLadder) -> dict[str, TypedColumn]:
    """Seconds of each step, and those that it saves; the first saves None."""
    rungs, scale = ladder.rungs, time_scale(max(rung.seconds for rung in ladder.rungs))

    def worth(saved: float) -> str:
        return scale.figure(saved) if scale.steps(saved) else ""

    return {
        "step": names((rung.name for rung in rungs), text=lambda name: Label(name, hint=MEANINGS.get(name, ""))),
        "seconds": seconds((rung.seconds for rung in rungs), scale),
        "saved_seconds": TypedColumn(
            (ladder.worth.get(rung.name) for rung in rungs), worth, float, scale.unit, unknown=""
        ),
        "simulated_seconds": seconds((rung.simulated_seconds for rung in rungs), scale),
    }


def certainty(ladder: IdealLadder) -> Section:
    """Section on the certainty of the ladder, with the steps that were bounded."""
    seeds = len(ladder.self_replay.runs.makespans)
    lines = [
        f"{ladder.self_replay.outcome}.",
        f"Each simulated step is the median of {seeds} runs, held between the bound below it and the step above it.",
    ]
    upper = float("inf")
    for rung in ladder.rungs[1:]:
        if rung.simulated_seconds is not None and rung.simulated_seconds > 1.001 * upper:
            lines.append(
                f"{rung.name}: simulated, it takes {format_seconds(rung.simulated_seconds)}, longer than the step "
                "above: with less to do, tasks become ready in another order, and that can take longer."
            )
        upper = min(upper, rung.seconds)
    return how_sure(ladder.self_replay, *lines)


def to_dict(ladder: IdealLadder) -> dict[str, Any]:
    """The steps of the ladder, ready for JSON."""
    summary = {"headline": ladder.headline, "findings": [finding.to_dict() for finding in ladder.findings]}
    return summary | about_run(ladder.self_replay, ladder.notes) | {"steps": as_records(columns(ladder))}
