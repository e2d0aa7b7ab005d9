"""What a prediction says: how long a run would take on another cluster, how sure that is, and what the time goes to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dask_efficiency.runs.sections.by_kind import kind_label
from dask_efficiency.runs.sections.path import along_the_run, by_host, by_name
from dask_efficiency.show.document import Change, Document, Section, Table, section, with_content
from dask_efficiency.show.figures import (
    format_count,
    format_seconds,
    format_share,
    format_times,
    name_of,
    named,
    sentence,
    shorten,
    time_scale,
)
from dask_efficiency.show.finding import MAX_HEADLINE
from dask_efficiency.simulation.model.accuracy import SelfReplay
from dask_efficiency.simulation.model.cluster import ClusterSpec
from dask_efficiency.simulation.model.result import Prediction
from dask_efficiency.simulation.model.run_figures import RunFigures
from dask_efficiency.simulation.model.sweeps import worker_seconds

#: Rows of the table by kind.
MAX_KINDS = 12

#: By less than this share two makespans are the same to a reader.
SAME = 0.005

#: Seconds that grew, and that shrank, in a drawing: as a loss and as useful time.
GREW, SHRANK = "#ff4508", "#549857"


def title(recorded: RunFigures) -> str:
    """The run's name."""
    return f"Simulation of {name_of(recorded.name) or 'a run'}"


def context(prediction: Prediction) -> str:
    """What it was made from."""
    runs = format_count(len(prediction.makespans), "simulated run")
    if prediction.is_self_replay:
        return f"as it was; {runs}"
    return f"{was(prediction.recorded)}; {runs}, and {len(prediction.self_replay.runs.makespans)} of the run as it was"


def was(recorded: RunFigures) -> str:
    """The recorded run in half a sentence."""
    return f"recorded: {format_seconds(recorded.makespan_seconds)} on {size(recorded.workers, recorded.nthreads)}"


def size(workers: int, nthreads: int) -> str:
    """How large a cluster is, in words: threads are said where workers have several."""
    if nthreads == workers:
        return format_count(workers, "worker")
    if nthreads % workers == 0:
        return f"{format_count(workers, 'worker')} of {format_count(nthreads // workers, 'thread')}"
    return f"{format_count(workers, 'worker')} with {format_count(nthreads, 'thread')}"


def of_cluster(cluster: ClusterSpec) -> str:
    """How large a cluster is, in words."""
    return size(len(cluster.workers), cluster.nthreads)


def plus_minus(prediction: Prediction) -> str:
    """The makespan with the larger half of its interval: ``3.10 s +- 0.21``."""
    low, high = prediction.interval
    seconds = prediction.makespan_seconds
    if math.isnan(low):
        return format_seconds(seconds)
    scale = time_scale(seconds)
    half = max(high - seconds, seconds - low)
    return f"{scale.figure(seconds)} {scale.unit} +- {scale.figure(half)}"


def headline(prediction: Prediction) -> str:
    """The prediction, in at most 100 characters without a full stop."""
    said = f": {plus_minus(prediction)}, {format_share(prediction.efficiency)} efficient"
    if prediction.efficiency < prediction.busy / 2:
        said += f", slots {format_share(prediction.busy)} busy"
    if prediction.is_self_replay:
        said += f"; recorded: {format_seconds(prediction.recorded.makespan_seconds)}"
    else:
        times = "as fast" if abs(prediction.speedup - 1) < SAME else f"{format_times(prediction.speedup)} as fast"
        said += f"; {times} as recorded"
    return shorten(where(prediction), MAX_HEADLINE - len(said)) + said


def where(prediction: Prediction) -> str:
    """On which cluster and with what changes, as the beginning of a sentence."""
    return " ".join([f"On {of_cluster(prediction.cluster)}", *_changes(prediction)])


def _changes(prediction: Prediction) -> list[str]:
    job, parts = prediction.job, []
    if job.without:
        parts.append("without " + " and ".join(sorted(job.without)))
    if job.prefixes:
        faster = [f"{name_of(prefix)} {1 / factor:.3g}x as fast" for prefix, factor in job.prefixes.items()]
        parts.append(f"with {named(faster)}")
    if job.cluster.network is not None:
        parts.append("over its own network")
    if job.cluster.config:
        settings = [f"{name_of(key.rpartition('.')[2])}={value}" for key, value in job.cluster.config.items()]
        parts.append(f"with {named(settings)}")
    return parts


def document(prediction: Prediction) -> Document:
    """What a run would take, and what its time would go to."""
    path = prediction.path
    sections = with_content(
        sure(prediction),
        spent(prediction),
        by_name(path, "prefix"),
        by_name(path, "worker"),
        by_host(path),
        notes(prediction.notes),
    )
    return Document(title(prediction.recorded), context(prediction), headline(prediction), sections)


def page(prediction: Prediction) -> Document:
    """The same for a page of its own."""
    return replace(document(prediction), stats=_stats(prediction), data=to_dict(prediction))


def in_report(prediction: Prediction) -> Section:
    """What a report's page says of it."""
    parts = (sure(prediction), spent(prediction), notes(prediction.notes))
    return section(where(prediction), f"{headline(prediction)}.", *(block for part in parts for block in part.blocks))


def _stats(prediction: Prediction) -> tuple[tuple[str, str], ...]:
    low, high = prediction.interval
    found = [("predicted makespan", format_seconds(prediction.makespan_seconds))]
    if not math.isnan(low):
        found.append(("90 of 100 runs", between(low, high)))
    found += [
        ("recorded", format_seconds(prediction.recorded.makespan_seconds)),
        ("efficiency", format_share(prediction.efficiency)),
        ("threads in tasks", format_share(prediction.busy)),
        ("self replay", f"{100 * prediction.self_replay_error:+.1f} %"),
    ]
    return tuple(found)


def between(low: float, high: float) -> str:
    """Two times in one unit."""
    scale = time_scale(high)
    return f"{scale.figure(low)} to {scale.figure(high)} {scale.unit}"


def sure(prediction: Prediction) -> Section:
    """How far the prediction can be trusted."""
    lines = []
    makespans = list(prediction.makespans.values())
    low, high = prediction.interval
    if math.isnan(low):
        lines.append("One simulated run says nothing about how much runs differ: there is no interval.")
    else:
        lines.append(
            f"{len(makespans)} simulated runs take {between(min(makespans), max(makespans))}. A real one is expected "
            f"within {between(low, high)} in 90 of 100 cases."
        )
    lines.append(f"Simulated on its own cluster, the run takes {prediction.self_replay.said}.")
    return section("How sure this is", *lines, caveat=bool(prediction.self_replay.doubt))


def spent(prediction: Prediction) -> Section:
    """The makespan by kind, of the recorded run and of the simulated one, with the simulated one along its time."""
    path = prediction.path
    drawn = [along_the_run(path)] if len(path.segments) else []
    table = kinds_table(prediction.recorded.kinds, path.seconds("kind"))
    held, useful = format_share(prediction.busy), format_share(prediction.efficiency)
    # In as many figures as the headline.
    scale = time_scale(prediction.makespan_seconds)
    nearest = scale.figure(path.makespan_seconds)
    threads = f"Tasks hold {held} of the thread time, and compute in {useful} of it."
    which = (
        f"Shown is the simulated run nearest to their median: {nearest} {scale.unit}."
        if len(prediction.makespans) > 1
        else ""
    )
    return section("What the makespan would be spent on", *drawn, table, *filter(None, (which, threads)))


def kinds_table(was: Mapping[str, float], now: Mapping[str, float]) -> Table:
    """Seconds of two critical paths by kind, and how they differ; the largest first."""
    scale = time_scale(max(sum(was.values()), sum(now.values())))
    largest = {kind: max(was.get(kind, 0.0), now.get(kind, 0.0)) for kind in {**was, **now}}
    shown = sorted((kind for kind in largest if scale.steps(largest[kind])), key=lambda kind: -largest[kind])
    rest = shown[MAX_KINDS:]
    shown = shown[:MAX_KINDS]
    steps = [(kind_label(kind), scale.steps(was.get(kind, 0.0)), scale.steps(now.get(kind, 0.0))) for kind in shown]
    total_was, total_now = scale.steps(sum(was.values())), scale.steps(sum(now.values()))
    # With what is too little for a row of its own, the rows add up to the total.
    left_was = max(total_was - sum(before for _, before, _ in steps), 0)
    left_now = max(total_now - sum(after for _, _, after in steps), 0)
    if len(shown) < len(largest) and (left_was or left_now):
        steps.append((kind_label(f"{len(rest)} more" if rest else "others"), left_was, left_now))
    steps.append((kind_label("total"), total_was, total_now))
    changes = [after - before for _, before, after in steps]
    most = max(map(abs, changes[:-1]), default=0) or 1
    drawings = [Change(change / most, GREW if change > 0 else SHRANK) for change in changes[:-1]]
    cells = tuple(
        (label, scale.text(before), scale.text(after), _signed(scale.text(after - before), after - before))
        for label, before, after in steps
    )
    return Table(
        ("kind", f"recorded, {scale.unit}", f"simulated, {scale.unit}", "change"),
        cells,
        sums=(len(cells) - 1,),
        drawings=(*drawings, None),
        drawn_behind=3,
        hint_head="what it is",
    )


def _signed(text: str, steps: int) -> str:
    return f"+{text}" if steps > 0 else text if steps else ""


def notes(said: Sequence[str]) -> Section:
    """What a reader must know to trust a prediction."""
    return section("Notes", *map(sentence, said), caveat=True)


def to_dict(prediction: Prediction) -> dict[str, Any]:
    """The prediction's figures, ready for JSON: seconds, and shares in [0, 1]; None where a figure is unknown."""
    about = about_run(prediction.self_replay, prediction.notes)
    return about | figures(prediction) | {"seconds_by_kind": prediction.breakdown}


def about_run(self_replay: SelfReplay, notes: tuple[str, ...]) -> dict[str, Any]:
    """The recorded run, the error of its own simulation, and notes, ready for JSON."""
    recorded = self_replay.recorded
    return {
        "name": recorded.name,
        "recorded": {
            "makespan_seconds": recorded.makespan_seconds,
            "workers": recorded.workers,
            "threads": recorded.nthreads,
            "efficiency": recorded.efficiency,
            "busy": recorded.busy,
            "seconds_by_kind": dict(recorded.kinds),
        },
        "self_replay_error": self_replay.error,
        "notes": list(notes),
    }


def figures(prediction: Prediction) -> dict[str, Any]:
    """The simulated figures alone, ready for JSON."""
    low, high = prediction.interval
    job = prediction.job
    return {
        "workers": len(job.cluster.workers),
        "threads": job.cluster.nthreads,
        "without": sorted(job.without),
        "prefixes": dict(job.prefixes or {}),
        "config": dict(job.cluster.config),
        "makespan_seconds": prediction.makespan_seconds,
        "interval": None if math.isnan(low) else [low, high],
        "makespans": {str(seed): seconds for seed, seconds in prediction.makespans.items()},
        "speedup": prediction.speedup,
        "efficiency": prediction.efficiency,
        "busy": prediction.busy,
        "worker_seconds": worker_seconds(prediction),
    }
