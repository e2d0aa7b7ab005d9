"""Document of a prediction: the makespan on another cluster, its certainty, and the use of the time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dask_efficiency.runs.sections.by_kind import kind_label
from dask_efficiency.runs.sections.path import along_the_run, by_host, by_name
from dask_efficiency.show.columns import TypedColumn, as_records, counts, multiples, nested, seconds, shares, sizes
from dask_efficiency.show.document import ChangeBar, Document, Section, Table, section, with_content
from dask_efficiency.show.figures import (
    Scale,
    format_bytes,
    format_count,
    format_number,
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
from dask_efficiency.simulation.model.cluster import ClusterSpec
from dask_efficiency.simulation.model.result import Prediction, SelfReplay
from dask_efficiency.simulation.model.run_figures import RunFigures
from dask_efficiency.simulation.model.sweeps import worker_seconds

#: Rows of the table by kind, the largest first; the rest is one row.
MAX_KINDS = 12
#: Share below which two makespans count as equal for a reader: no display shows the difference.
SAME = 0.005
#: Colours of seconds that grew, and that shrank, in a drawing: those of a loss and of useful time.
GREW, SHRANK = "#ff4508", "#549857"


def title(recorded: RunFigures) -> str:
    """Title with the run's name."""
    return f"Simulation of {name_of(recorded.name) or 'a run'}"


def context(prediction: Prediction) -> str:
    """Line with the source of the prediction."""
    runs = format_count(len(prediction.makespans), "simulated run")
    if prediction.is_self_replay:
        return f"as it was; {runs}"
    own_runs = len(prediction.self_replay.runs.makespans)
    return f"{recorded_in_words(prediction.recorded)}; {runs}, and {own_runs} of the run as it was"


def recorded_in_words(recorded: RunFigures) -> str:
    """Word the recorded run as half a sentence."""
    return f"recorded: {format_seconds(recorded.makespan_seconds)} on {size(recorded.workers, recorded.nthreads)}"


def size(workers: int, nthreads: int) -> str:
    """Word the size of a cluster, with threads if workers have several."""
    if nthreads == workers:
        return format_count(workers, "worker")
    if nthreads % workers == 0:
        return f"{format_count(workers, 'worker')} of {format_count(nthreads // workers, 'thread')}"
    return f"{format_count(workers, 'worker')} with {format_count(nthreads, 'thread')}"


def cluster_size(cluster: ClusterSpec) -> str:
    """Word the size of a cluster."""
    return size(len(cluster.workers), cluster.nthreads)


def plus_minus(prediction: Prediction) -> str:
    """Format the makespan with the larger half of its interval: ``3.10 s +- 0.21``."""
    low, high = prediction.interval
    seconds = prediction.makespan_seconds
    if math.isnan(low):
        return format_seconds(seconds)
    scale = time_scale(seconds)
    half = max(high - seconds, seconds - low)
    return f"{scale.figure(seconds)} {scale.unit} +- {scale.figure(half)}"


def headline(prediction: Prediction) -> str:
    """Word the prediction, in at most 100 characters without a full stop."""
    text = f": {plus_minus(prediction)}, {format_share(prediction.efficiency)} efficient"
    if prediction.efficiency < prediction.busy / 2:
        text += f", slots {format_share(prediction.busy)} busy"
    if prediction.is_self_replay:
        text += f"; recorded: {format_seconds(prediction.recorded.makespan_seconds)}"
    else:
        times = "as fast" if abs(prediction.speedup - 1) < SAME else f"{format_times(prediction.speedup)} as fast"
        text += f"; {times} as recorded"
    return shorten(where(prediction), MAX_HEADLINE - len(text)) + text


def where(prediction: Prediction) -> str:
    """Word the cluster and the changes as the beginning of a sentence."""
    return " ".join([f"On {cluster_size(prediction.cluster)}", *_changes(prediction)])


def _changes(prediction: Prediction) -> list[str]:
    job, parts = prediction.job, []
    if job.without:
        parts.append("without " + " and ".join(sorted(job.without)))
    if job.prefixes:
        faster = [f"{name_of(prefix)} {format_number(1 / factor)}x as fast" for prefix, factor in job.prefixes.items()]
        parts.append(f"with {named(faster)}")
    if (limit := _memory_limit(job.cluster)) and limit != prediction.recorded.memory_limit:
        parts.append(f"with {format_bytes(limit)} each")
    if job.cluster.network is not None:
        parts.append("over its own network")
    if job.cluster.config:
        settings = [f"{name_of(key.rpartition('.')[2])}={value}" for key, value in job.cluster.config.items()]
        parts.append(f"with {named(settings)}")
    return parts


def document(prediction: Prediction) -> Document:
    """Make the document of a prediction, and its page."""
    about, figures = (title(prediction.recorded), context(prediction), headline(prediction)), to_dict(prediction)
    paths = (by_name(prediction.path, "prefix"), by_name(prediction.path, "worker"), by_host(prediction.path))
    sections = with_content(certainty(prediction), spent(prediction), *paths, notes(prediction.notes))
    return Document(*about, sections, stats=_stats(prediction), data=figures)


page = document


def in_report(prediction: Prediction) -> Section:
    """Section for a report's page."""
    parts = (certainty(prediction), spent(prediction), notes(prediction.notes))
    return section(where(prediction), f"{headline(prediction)}.", *(block for part in parts for block in part.blocks))


def _stats(prediction: Prediction) -> tuple[tuple[str, str], ...]:
    low, high = prediction.interval
    stats = [("predicted makespan", format_seconds(prediction.makespan_seconds))]
    if not math.isnan(low):
        stats.append(("90 of 100 runs", between(low, high)))
    stats += [
        ("recorded", format_seconds(prediction.recorded.makespan_seconds)),
        ("efficiency", format_share(prediction.efficiency)),
        ("threads in tasks", format_share(prediction.busy)),
        ("self replay", f"{100 * prediction.self_replay_error:+.1f} %"),
    ]
    return tuple(stats)


def between(low: float, high: float) -> str:
    """Format two times in one unit."""
    scale = time_scale(high)
    return f"{scale.figure(low)} to {scale.figure(high)} {scale.unit}"


def certainty(prediction: Prediction) -> Section:
    """Section on the certainty of the prediction."""
    makespans, (low, high) = prediction.makespans.values(), prediction.interval
    line = "One simulated run says nothing about how much runs differ: there is no interval."
    if not math.isnan(low):
        line = (
            f"{len(makespans)} simulated runs take {between(min(makespans), max(makespans))}. A real one is expected "
            f"within {between(low, high)} in 90 of 100 cases."
        )
    return how_sure(prediction.self_replay, line, f"{prediction.self_replay.outcome}.")


def how_sure(judged: SelfReplay, *lines: str) -> Section:
    """Section on a certainty that depends on the run's own simulation."""
    return section("How sure this is", *lines, caveat=bool(judged.doubt))


def spent(prediction: Prediction) -> Section:
    """Section of the makespan by kind, recorded and simulated, with a strip along the simulated run."""
    path = prediction.path
    drawn = [along_the_run(path)] if len(path.segments) else []
    table = kinds_table(prediction.recorded.kinds, path.seconds("kind"))
    lines = []
    if len(prediction.makespans) > 1:
        scale = time_scale(prediction.makespan_seconds)  # with as many digits as the headline
        nearest = scale.figure(path.makespan_seconds)
        lines.append(f"Shown is the simulated run nearest to their median: {nearest} {scale.unit}.")
    held, useful = format_share(prediction.busy), format_share(prediction.efficiency)
    lines.append(f"Tasks hold {held} of the thread time, and compute in {useful} of it.")
    if needed := prediction.runs.memory_needed:
        lines.append(f"With {format_bytes(needed)} a worker or more, no simulated worker would spill or pause.")
    return section("What the makespan would be spent on", *drawn, table, *lines)


def kinds_table(was: Mapping[str, float], now: Mapping[str, float]) -> Table:
    """Tabulate the seconds of two critical paths by kind, and their differences; the largest first."""
    scale = time_scale(max(sum(was.values()), sum(now.values())))
    largest = {kind: max(was.get(kind, 0.0), now.get(kind, 0.0)) for kind in {**was, **now}}
    kinds = sorted((kind for kind in largest if scale.steps(largest[kind])), key=lambda kind: -largest[kind])
    shown = kinds[:MAX_KINDS]
    steps = [(kind_label(kind), scale.steps(was.get(kind, 0.0)), scale.steps(now.get(kind, 0.0))) for kind in shown]
    total_was, total_now = scale.steps(sum(was.values())), scale.steps(sum(now.values()))
    # A row for all that is too small for its own, so that the rows add up to the total.
    left_was = max(total_was - sum(before for _, before, _ in steps), 0)
    left_now = max(total_now - sum(after for _, _, after in steps), 0)
    if len(shown) < len(largest) and (left_was or left_now):
        more = len(kinds) - len(shown)
        steps.append((kind_label(f"{more} more" if more else "others"), left_was, left_now))
    steps.append((kind_label("total"), total_was, total_now))
    changes = [after - before for _, before, after in steps]
    most = max(map(abs, changes[:-1]), default=0) or 1
    cells = tuple(
        (label, scale.text(before), scale.text(after), "+" * (change > 0) + scale.text(change) * (change != 0))
        for (label, before, after), change in zip(steps, changes, strict=True)
    )
    return Table(
        ("kind", f"recorded, {scale.unit}", f"simulated, {scale.unit}", "change"),
        cells,
        sums=(len(cells) - 1,),
        drawings=(*(ChangeBar(change / most, GREW if change > 0 else SHRANK) for change in changes[:-1]), None),
        drawn_behind=3,
        hint_head="what it is",
    )


def notes(lines: Sequence[str]) -> Section:
    """Section of the caveats of a prediction."""
    return section("Notes", *map(sentence, lines), caveat=True)


def to_dict(prediction: Prediction) -> dict[str, Any]:
    """The prediction's figures, ready for JSON: seconds, and shares in [0, 1]; None where a figure is unknown."""
    about = about_run(prediction.self_replay, prediction.notes)
    return about | as_records(figures([prediction]))[0] | {"seconds_by_kind": prediction.breakdown}


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


def figures(predictions: Sequence[Prediction]) -> dict[str, TypedColumn]:
    """The simulated figures alone, a row for each prediction."""
    jobs, scale = (
        [prediction.job for prediction in predictions],
        time_scale(max(prediction.makespan_seconds for prediction in predictions)),
    )
    paid = [*map(worker_seconds, predictions)]
    return {
        "workers": counts(len(job.cluster.workers) for job in jobs),
        "threads": counts(job.cluster.nthreads for job in jobs),
        "without": nested(sorted(job.without) for job in jobs),
        "prefixes": nested(dict(job.prefixes or {}) for job in jobs),
        "config": nested(dict(job.cluster.config) for job in jobs),
        "makespan_seconds": seconds((prediction.makespan_seconds for prediction in predictions), scale),
        "interval": intervals((prediction.interval for prediction in predictions), scale),
        "makespans": nested(
            {str(seed): took for seed, took in prediction.makespans.items()} for prediction in predictions
        ),
        "speedup": multiples(prediction.speedup for prediction in predictions),
        "efficiency": shares(prediction.efficiency for prediction in predictions),
        "busy": shares(prediction.busy for prediction in predictions),
        "others_share": shares(prediction.others_share for prediction in predictions),
        "memory_limit": sizes((_memory_limit(job.cluster) for job in jobs), dtype="Int64"),
        "ideal_memory": sizes((prediction.runs.memory_needed or None for prediction in predictions), dtype="Int64"),
        "overfull": shares(prediction.runs.overfull for prediction in predictions),
        "worker_seconds": seconds(paid, time_scale(max(paid))),
    }


def _memory_limit(cluster: ClusterSpec) -> int | None:
    """Smallest memory limit of a cluster's workers; None if one has no limit."""
    return min(worker.memory_limit for worker in cluster.workers) or None


def intervals(ends: Iterable[tuple[float, float]], scale: Scale) -> TypedColumn:
    """Intervals of makespans; for a single simulated run there is none."""
    known = (None if math.isnan(low) else [low, high] for low, high in ends)
    return nested(known, text=lambda ends: f"{scale.figure(ends[0])} to {scale.figure(ends[1])}")
