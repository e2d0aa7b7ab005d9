"""Document of advice: settings with what they take, and the lines to change."""

from __future__ import annotations

from typing import Any

from dask_efficiency.report.sizes import call_by_keys, in_numbers
from dask_efficiency.show.columns import TypedColumn, as_records, as_table, counts, seconds, words
from dask_efficiency.show.document import Document, Section, section, with_content
from dask_efficiency.show.figures import (
    format_bytes,
    format_count,
    format_seconds,
    format_share,
    money_scale,
    time_scale,
    upper_first,
)
from dask_efficiency.simulation.model.advice import AS_IT_WAS, SATURATION, Advice, Setting
from dask_efficiency.simulation.sections.prediction import (
    about_run,
    figures,
    how_sure,
    intervals,
    notes,
    recorded_in_words,
    size,
)

#: Where the size of partitions is set, if keys do not tell what they are of.
BEGINNINGS = "npartitions= or blocksize= of a dataframe, chunks= of an array, lists of calls for client.map"


def headline(advice: Advice) -> str:
    """Word the first setting and what it saves, without a full stop."""
    first = next((name for name in advice.settings if name != AS_IT_WAS), None)
    if first is None:
        return f"As it was: none of {format_count(advice.tried, 'setting')} is faster, or cheaper"
    setting, now = advice.settings[first], advice.predictions[first].makespan_seconds
    share = advice.thread_seconds(first) / advice.thread_seconds(AS_IT_WAS)
    was = format_seconds(advice.own.makespan_seconds)
    paid = "thread-seconds" if setting.has_more_memory(advice.settings[AS_IT_WAS]) else "cost"
    what = in_words(setting, advice.settings[AS_IT_WAS])
    return f"{what}: {format_seconds(now)} in place of {was}, at {format_share(share)} of its {paid}"


def in_words(setting: Setting, own: Setting) -> str:
    """Word a setting, with its memory where that is not the run's own."""
    parts = [size(setting.workers, setting.threads)]
    if setting.memory_limit != own.memory_limit:
        parts.append(f"{format_bytes(setting.memory_limit)} each")
    if setting.chunks > 1:
        parts.append(f"partitions {setting.chunks} times as large")
    if setting.saturation is not None:
        parts.append(f"saturation {setting.saturation:g}")
    return ", ".join(parts)


def document(advice: Advice) -> Document:
    """Make the document of advice, and its page."""
    recorded = advice.own.recorded
    runs = format_count(len(advice.own.makespans), "simulated run")
    tried = format_count(advice.tried, "setting")
    context = f"{recorded_in_words(recorded)}; {tried} tried, {runs} of each that is shown"
    sections = with_content(table(advice), *changes(advice), certainty(advice), notes(advice.notes))
    return Document("Advice", context, headline(advice), sections, data=to_dict(advice))


page = document


def table(advice: Advice) -> Section:
    """Section with a row for each setting."""
    heads = {"setting": "setting", "makespan_seconds": "time", "interval": "90 of 100 runs"}
    heads |= {"saved_seconds": "saves", "efficiency": "efficient", "ideal_memory": "memory used"}
    heads |= {"thread_seconds": "thread-{}"} if advice.price_per_worker_hour is None else {"money": "cost"}
    own = advice.settings[AS_IT_WAS]
    which = (f"{upper_first(name)}: {in_words(setting, own)}." for name, setting in advice.settings.items())
    return section("Settings", as_table(columns(advice), heads), *which)


def columns(advice: Advice) -> dict[str, TypedColumn]:
    """Figures of each setting."""
    of, settings, own = list(advice.settings), [*advice.settings.values()], advice.settings[AS_IT_WAS]
    money = [advice.money(name) for name in of]
    prices = money_scale(max((price for price in money if price is not None), default=0.0))
    paid = [advice.thread_seconds(name) for name in of]
    scale = time_scale(advice.own.recorded.makespan_seconds)
    costs = time_scale(max(paid))
    saved = [advice.saved(name) for name in of]
    return {
        "setting": words(of),
        "cluster": words(in_words(setting, own) for setting in settings),
        **figures([advice.predictions[name] for name in of]),
        "nthreads": counts(setting.nthreads for setting in settings),
        "times_as_large": counts(setting.chunks for setting in settings),
        "saved_seconds": seconds((one for one, _, _ in saved), scale),
        "saved_interval": intervals(((least, most) for _, least, most in saved), scale),
        "thread_seconds": TypedColumn(paid, costs.figure, float, unit=costs.unit),
        "money": TypedColumn(money, prices.figure, float),
    }


def changes(advice: Advice) -> list[Section]:
    """Section for each setting with the lines to change."""
    return [
        section(f"To change: {name}", *in_code(advice, setting), *lines(setting))
        for name, setting in advice.settings.items()
        if name != AS_IT_WAS
    ]


def in_code(advice: Advice, setting: Setting) -> list[str]:
    """Changes of the program, a sentence each."""
    found, larger = [], advice.tasks.larger(setting)
    if setting.chunks > 1 and larger:
        rounds, call = advice.tasks.rounds, call_by_keys(larger) or BEGINNINGS
        call = call.replace("{n}", "") if rounds > 1 else call  # which each graph has some of
        call = in_numbers(call, larger.small, setting.chunks)
        found.append(f"Make partitions {setting.chunks} times as large, from {larger.small.words(rounds)}: {call}.")
    if setting.saturation is not None:
        found.append(f'Set `dask.config.set({{"{SATURATION}": {setting.saturation}}})` before the cluster starts.')
    return found


def lines(setting: Setting) -> list[str]:
    """Definitions of the cluster to be pasted."""
    n, threads = setting.workers, setting.nthreads
    memory = format_bytes(setting.memory_limit).replace(" ", "") if setting.memory_limit else ""
    asked = {"cpu": str(threads)} | ({"memory": f"{setting.memory_limit >> 20}Mi"} if memory else {})
    job = f'cores={threads}, processes=1, memory="{memory or "..."}"'
    pods = f"worker_command={['dask', 'worker', '--nthreads', str(threads)]}, resources={{'limits': {asked}}}"
    return [
        f'`cluster = LocalCluster(n_workers={n}, threads_per_worker={threads}, memory_limit="{memory or 0}")`',
        f"`cluster = SLURMCluster({job}); cluster.scale(jobs={n})` (dask-jobqueue)",
        f"`cluster = KubeCluster(n_workers={n}, {pods})` (dask-kubernetes)",
    ]


def certainty(advice: Advice) -> Section:
    """Section on the certainty of the predictions."""
    judged = advice.own.self_replay
    shared = "Savings are shares of the simulated run as it was, so that what is common to both is no error of theirs."
    return how_sure(judged, f"{judged.outcome}.", shared)


def to_dict(advice: Advice) -> dict[str, Any]:
    """The advice's figures, ready for JSON: a row for each setting, with the lines to paste."""
    rows = as_records(columns(advice))
    pasted = [lines(setting) for setting in advice.settings.values()]
    return about_run(advice.own.self_replay, advice.notes) | {
        "settings": [row | {"lines": text} for row, text in zip(rows, pasted, strict=True)],
        "tried": advice.tried,
        "price_per_worker_hour": advice.price_per_worker_hour,
    }
