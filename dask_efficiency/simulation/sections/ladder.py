"""What a ladder says: what each part of Dask, and a cluster without bounds, would be worth to a run."""

from __future__ import annotations

from dataclasses import replace

from dask_efficiency.show.document import Document, Label, Section, Share, Table, section, with_content
from dask_efficiency.show.figures import format_seconds, format_share, time_scale
from dask_efficiency.simulation.model.ladder import (
    ANY_CLUSTER,
    FULL_SLOTS,
    MEASURED,
    NO_WAITING,
    SIMULATED,
    IdealLadder,
)
from dask_efficiency.simulation.sections.data import ladder as to_dict
from dask_efficiency.simulation.sections.prediction import notes, title, was

#: What each step is, for a reader.
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

#: A step that is worth less of the run is not worth naming.
HARDLY = 0.01


def headline(ladder: IdealLadder) -> str:
    """Which step of those that Dask takes is worth most, without a full stop."""
    measured = ladder.recorded.makespan_seconds
    steps = {name: saved for name, saved in ladder.worth.items() if name.startswith("no ") and name != NO_WAITING}
    name = max(steps, key=lambda step: steps[step])
    left = min(rung.seconds for rung in ladder.rungs if rung.name in steps)
    if steps[name] < HARDLY * measured:
        share = sum(steps.values()) / measured if measured else 0.0
        return (
            f"Spilling, transfers and scheduling together take {format_share(share)} of the "
            f"{format_seconds(measured)}: what is left is tasks, and how they fit on the slots"
        )
    what = {"no spill": "spilling takes", "no transfers": "transfers take", "no scheduling": "scheduling takes"}[name]
    return (
        f"Of {format_seconds(measured)}, {what} {format_seconds(steps[name])}, the most of all that is not tasks; "
        f"without spilling, transfers and scheduling it would be {format_seconds(left)}"
    )


def document(ladder: IdealLadder) -> Document:
    """What each step is worth."""
    sections = with_content(steps(ladder), sure(ladder), notes(ladder.notes))
    return Document(title(ladder.recorded), was(ladder.recorded), headline(ladder), sections)


def page(ladder: IdealLadder) -> Document:
    """The same for a page of its own."""
    return replace(document(ladder), data=to_dict(ladder))


def steps(ladder: IdealLadder) -> Section:
    """From the recorded run down to the fastest that there could be."""
    longest = max(rung.seconds for rung in ladder.rungs)
    measured = ladder.recorded.makespan_seconds
    scale = time_scale(longest)
    rows = []
    for rung in ladder.rungs:
        saved = ladder.worth.get(rung.name, 0.0)
        label = Label(rung.name, hint=MEANINGS.get(rung.name, ""))
        there = scale.steps(saved) != 0
        share = f"{100 * saved / measured:.1f}" if there and measured else ""
        worth = scale.figure(saved) if there else ""
        rows.append((label, scale.figure(rung.seconds), worth, share))
    bars = tuple(Share(rung.seconds / longest if longest else 0.0) for rung in ladder.rungs)
    heads = ("step", f"time, {scale.unit}", f"saves, {scale.unit}", "% of the run")
    return section(
        "From the run to the fastest that there could be",
        Table(heads, tuple(rows), drawings=bars, drawn_behind=1, hint_head="what it is"),
    )


def sure(ladder: IdealLadder) -> Section:
    """How far the ladder can be trusted, and what was done so that it never rises."""
    seeds = len(ladder.self_replay.runs.makespans)
    lines = [
        f"Simulated on its own cluster, the run takes {ladder.self_replay.said}.",
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
    return section("How sure this is", *lines, caveat=bool(ladder.self_replay.doubt))
